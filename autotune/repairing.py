"""``autotune repair``: from the records that are sound to a study that can go on. Nothing is deleted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotune.bounding import derive_region
from autotune.brief import Brief, read_brief
from autotune.choosing import strategy
from autotune.confirmation import Confirmation, ConfirmationPlan
from autotune.errors import AutotuneError, InputError
from autotune.events import Event, Note
from autotune.fleet.board import require_idle
from autotune.night import clean_up
from autotune.occupancy import Machine, machine_file
from autotune.rig import now_text
from autotune.sameness import found_facts, not_the_same, resolve, write_manifest
from autotune.search.region import Region
from autotune.search.searcher import Searcher, repair_storage
from autotune.server.cancel import Waiting
from autotune.server.process import ServerIdentity
from autotune.standing import baseline_of, settled
from autotune.study.folder import StudyFolder
from autotune.study.lock import study_lock
from autotune.study.manifest import Manifest, differences, fingerprint
from autotune.study.record import Records, quarantine, read_record, write_record
from autotune.study.repair import set_aside_damaged_records
from autotune.values import Measured, Value


class Repaired(Value, frozen=True, kw_only=True):
    """What a repair found and did. ``set_aside`` has the new names of what could not be used; ``notes`` say which
    servers were stopped, or left alone.
    """

    study: str
    folder: str
    set_aside: tuple[str, ...]
    settled: int
    interrupted: int
    notes: tuple[str, ...] = ()


def repair(brief: Brief) -> Repaired:
    """Set aside what cannot be read, then write bounds and storage again from the records.

    Trials without a sound result count as interrupted and run again. Raises InputError where there is nothing to
    repair, where the study is not the one that began (of its files only the manifest is set aside then) or the storage
    has another trouble, StudyLocked while a tuner works on it; an error names what was set aside before it.
    """
    brief = find_damaged(brief)
    folder, records = brief.folder, Records(brief.folder)
    if not folder.root.is_dir():
        raise InputError(f"{brief.path.name}: nothing to repair in {folder.root}")
    with study_lock(folder.lock, now_text()):
        shared = require_idle(brief.study.storage, brief.study.name, brief.path.name)
        aside: list[Path] = []
        heard: list[Event] = []
        with _naming(aside, folder.root):
            manifest = _sound_manifest(brief, aside)
            _set_aside(records, aside)
            clean_up(brief, manifest, heard.append, Waiting())
            # What became of a trial of a shared study is the board's to say: the next worker of this folder asks it.
            cut = [] if shared else records.settle_interrupted("found unsettled by a repair", now_text())
            with Searcher.open(brief.study.name, brief.study.storage or folder.database, strategy(brief)) as searcher:
                searcher.rebuild(records.results(), _region(brief, records))
    return Repaired(
        study=brief.study.name,
        folder=str(folder.root),
        set_aside=_names_in(folder.root, aside),
        settled=len(settled(records.results())),
        interrupted=len(cut),
        notes=tuple(event.text for event in heard if isinstance(event, Note)),
    )


@contextlib.contextmanager
def _naming(aside: list[Path], root: Path) -> Iterator[None]:
    """An error says what was set aside before it."""
    try:
        yield
    except AutotuneError as error:
        if not aside:
            raise
        raise type(error)(f"{error}. Set aside until then: {', '.join(_names_in(root, aside))}") from error


def _names_in(root: Path, paths: list[Path]) -> tuple[str, ...]:
    return tuple(str(path.relative_to(root)) for path in paths)


def _sound_manifest(brief: Brief, aside: list[Path]) -> Manifest:
    """The manifest, as the trials keep it where it is damaged. Raises InputError for a study that has changed."""
    if _is_misshapen(brief.folder.manifest, Manifest):
        aside.append(quarantine(brief.folder.manifest))
    manifest = write_manifest(brief)
    changed = differences(manifest.fingerprint, fingerprint(brief.study, found_facts(brief)))
    if changed:  # bounds must not follow from a file that measured nothing
        raise not_the_same(brief, changed)
    return manifest


def _set_aside(records: Records, aside: list[Path]) -> None:
    """Every other record that cannot be used, and a damaged database."""
    for part in (records, *_confirmations(records.folder)):
        aside += set_aside_damaged_records(part)
    aside += _set_aside_misshapen(records)
    if (database := repair_storage(records.folder.database)) is not None:
        aside.append(database)


def find_damaged(brief: Brief) -> Brief:
    """The study under the name that ``tune`` would use; one whose manifest is damaged comes first."""
    for name in _names(brief):
        if _is_misshapen(StudyFolder(brief.folder.root.parent / name).manifest, Manifest):
            return brief if name == brief.study.name else read_brief(brief.path, name)
    return resolve(brief)


def _names(brief: Brief) -> Iterator[str]:
    """The study's own name and those that ``--force`` gave, as far as they have folders."""
    number, name = 1, brief.study.name
    while (brief.folder.root.parent / name).exists():
        yield name
        number += 1
        name = f"{brief.study.name}-{number}"


def _set_aside_misshapen(records: Records) -> list[Path]:
    """Records that are sound JSON of another shape than this version writes."""
    shapes: list[tuple[Path, Any]] = [(records.folder.bounds, Region), (machine_file(records.folder), Machine)]
    for part in _confirmations(records.folder):
        shapes += [(part.folder.root / "plan.json", ConfirmationPlan)]
        shapes += [(part.folder.root / "confirmation.json", Confirmation)]
    shapes += [(records.trial(number).identity, ServerIdentity) for number in records.numbers()]
    return [quarantine(path) for path, shape in shapes if _is_misshapen(path, shape)]


def _confirmations(folder: StudyFolder) -> list[Records]:
    return [Records(StudyFolder(path)) for path in sorted(folder.root.glob("confirm*")) if path.is_dir()]


def _is_misshapen(path: Path, shape: Any) -> bool:
    try:
        read_record(path, shape)
    except InputError:
        return True
    return False


def _region(brief: Brief, records: Records) -> Region | None:
    """The bounds on record, else those that follow from the baseline, written down; None before there is one."""
    if (known := read_record(brief.folder.bounds, Region)) is not None:
        return known
    base = baseline_of(records.results())
    if base is None:
        return None
    assert isinstance(base.outcome, Measured)
    region = derive_region(brief, base.outcome.effective)
    write_record(brief.folder.bounds, region)
    return region
