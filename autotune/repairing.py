"""``autotune repair``: from the records that are sound to a study that can go on. Nothing is deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotune.bounding import derive_region
from autotune.brief import Brief, read_brief
from autotune.choosing import strategy
from autotune.confirmation import Confirmation, ConfirmationPlan
from autotune.errors import InputError
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
    """What a repair found and did. ``set_aside`` has the new names of what could not be used."""

    study: str
    folder: str
    set_aside: tuple[str, ...]
    settled: int
    interrupted: int


def repair(brief: Brief) -> Repaired:
    """Set aside what cannot be read, then write bounds and storage again from the records.

    Trials without a sound result count as interrupted and run again. Raises InputError where there is nothing to
    repair or the storage has another trouble, StudyLocked while a tuner works on it.
    """
    brief = find_damaged(brief)
    folder, records = brief.folder, Records(brief.folder)
    if not folder.root.is_dir():
        raise InputError(f"{brief.path.name}: nothing to repair in {folder.root}")
    with study_lock(folder.lock, now_text()):
        shared = require_idle(brief.study.storage, brief.study.name, brief.path.name)
        aside = [path for part in (records, *_confirmations(folder)) for path in set_aside_damaged_records(part)]
        aside += _set_aside_misshapen(records)
        if (database := repair_storage(folder.database)) is not None:
            aside.append(database)
        manifest = write_manifest(brief)
        if changed := differences(
            manifest.fingerprint, fingerprint(brief.study, found_facts(brief))
        ):  # bounds must not follow from a file that measured nothing
            raise not_the_same(brief, changed)
        clean_up(brief, manifest, lambda _: None, Waiting())
        # What became of a trial of a shared study is the board's to say: the next worker of this folder asks it.
        cut = [] if shared else records.settle_interrupted("found unsettled by a repair", now_text())
        with Searcher.open(brief.study.name, brief.study.storage or folder.database, strategy(brief)) as searcher:
            searcher.rebuild(records.results(), _region(brief, records))
    return Repaired(
        study=brief.study.name,
        folder=str(folder.root),
        set_aside=tuple(str(path.relative_to(folder.root)) for path in aside),
        settled=len(settled(records.results())),
        interrupted=len(cut),
    )


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
