"""Starting from another study's results: finding them, taking them over once, and saying what became of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from autotune.brief import Brief, known_names
from autotune.choosing import Judge, strategy
from autotune.confirmation import read_confirmation
from autotune.drifting import steadied
from autotune.errors import InputError
from autotune.events import Listener, Note
from autotune.rig import Rig, now_text
from autotune.sameness import LOST
from autotune.search.region import Region
from autotune.search.samplers import OWN
from autotune.search.searcher import Searcher
from autotune.search.transfer import first_config
from autotune.space.files import find_shipped
from autotune.space.kv import request_lengths
from autotune.standing import baseline_of, score_of, settled
from autotune.study.file import Objective, Study
from autotune.study.folder import StudyFolder
from autotune.study.load import load_study
from autotune.study.manifest import Manifest, Scalar, differences, fingerprint
from autotune.study.record import Records, read_record, write_record
from autotune.study.transfer import Transfer, Trust
from autotune.values import Infeasible, Measured, TrialResult
from autotune.verdict.objective import binding_limits, gain, score

OPTION = "--from"


def taken_over(path: Path | None, brief: Brief) -> Transfer | None:
    """What the study takes over: what it did before, else the results that ``path`` names (a study file or a folder).

    Writes nothing. Raises InputError where nothing can be taken over, or other things were.
    """
    known = read_record(brief.folder.transfer, Transfer)
    if path is None or known is None:
        return known if path is None else read_transfer(path, brief)
    try:
        manifest = _manifest(source_folder(path, brief.folder))
    except InputError:
        return known  # the other study may be gone: what is needed of it is here
    if (manifest.study, manifest.created_at) != (known.source, known.source_began):
        raise InputError(
            f"{OPTION} {path}: {brief.study.name} has taken over {known.source} ({known.taken_at[:10]}) and can take "
            f"over one study only; leave out {OPTION}, or add --force to begin anew"
        )
    return known


def source_folder(path: Path, own: StudyFolder) -> StudyFolder:
    """The results folder that ``path`` names, or the one of the study file ``path``: that which fits the file, else the
    last that was begun; never ``own``. Raises InputError.
    """
    if path.is_dir():
        found = StudyFolder(path.absolute())
        if not found.exists:
            raise InputError(
                f"{OPTION} {path}: no results of a study (no manifest.json, no trials); give its results folder"
            )
        if found.root == own.root:
            raise InputError(f"{OPTION} {path}: these are the study's own results; it goes on from them by itself")
        return found
    path = path if path.exists() else find_shipped("studies", str(path))
    study = load_study(path, known_names())
    begun = [f for f in _folders(path, study.name) if f.exists and f.root != own.root]
    if not begun:
        raise InputError(
            f"{OPTION} {path}: it has no results yet, beside those of this study; run `autotune tune {path}`"
        )
    wanted = fingerprint(study)
    known = [(f, manifest) for f in begun if (manifest := Records(f).manifest())]
    fitting = [f for f, manifest in known if not differences(manifest.fingerprint, wanted)]
    return (fitting or [f for f, _ in known] or begun)[-1]


def read_transfer(path: Path, brief: Brief) -> Transfer:
    """The results that ``path`` names, as this study scores them. Raises InputError."""
    folder = source_folder(path, brief.folder)
    manifest, study = _manifest(folder), brief.study
    told = manifest.fingerprint
    if (kind := told.get("engine.kind")) != study.engine.kind:
        raise InputError(
            f"{OPTION} {path}: it tuned {kind}, this study tunes {study.engine.kind}: their parameters differ"
        )
    same = _same_objective(told, study.objective)
    results = _scored(settled(Records(folder).results()), study.objective, same=same)
    if not any(isinstance(r.outcome, Measured) for r in results):
        figures = ", ".join((study.objective.metric, *binding_limits(study.objective)))
        raise InputError(
            f"{OPTION} {path}: none of its trials was measured with {figures}; there is nothing to take over"
        )
    steady = steadied(results).results
    judge = Judge(
        objective=study.objective,
        region=read_record(folder.bounds, Region),
        strategy=msgspec.structs.replace(
            strategy(brief), sampler=OWN, request_tokens=_request_tokens(told), transfer=None
        ),
    )
    best = judge.chosen(steady, read_confirmation(folder) if same else None)
    return Transfer(
        source=manifest.study,
        source_began=manifest.created_at,
        taken_at=now_text(),
        engine_version=str(told.get("found.engine_version") or ""),
        gpu=str(told.get("found.gpu") or ""),
        request_tokens=_request_tokens(told),
        peak=_peak(told),
        best=best.number if best is not None and best.config.params else None,
        results=steady,
    )


def keep(transfer: Transfer | None, study: Study, folder: StudyFolder, say: Listener) -> None:
    """Write down what is taken over, the first time, and say so. Hold the lock."""
    if transfer is None or folder.transfer.exists():
        return
    write_record(folder.transfer, transfer)
    measured = sum(isinstance(r.outcome, Measured) for r in transfer.results)
    lost = len(transfer.results) - measured
    where = " on ".join(part for part in (transfer.engine_version, transfer.gpu) if part)
    first = "its best configuration is started first" if transfer.best is not None else "its best are the defaults"
    use = "a prior that counts as long as what is measured here agrees"
    if study.search.sampler != OWN:
        use = f"of which the sampler {study.search.sampler} uses nothing else"
    taken = f"took over {measured} measured trials and {lost} that ran out of memory from {transfer.source}"
    say(Note(text=f"{taken}{f' ({where})' if where else ''}: {first}, {use}"))


def look_back(
    transfer: Transfer | None, region: Region | None, results: Sequence[TrialResult], rig: Rig, searcher: Searcher
) -> None:
    """After the last of ``results``: say what the other study's best is worth, where that was measured here, and when
    the rest is dropped or counts again; write down how far it is believed.
    """
    if transfer is None or region is None:
        return
    if said := revalidation(transfer, region, results, rig.study.objective.metric):
        rig.say(Note(text=said))
    found, path = searcher.trust(region), rig.records.folder.trust
    if found is None:
        return
    before = read_record(path, Trust)
    write_record(path, found)
    if found.dropped != (before is not None and before.dropped):
        rig.say(Note(text=found.sentence, level="warning" if found.dropped else "info"))


def revalidation(transfer: Transfer, region: Region, results: Sequence[TrialResult], metric: str) -> str | None:
    """What the other study's best is worth here, where the last trial tried it; None where that says nothing: it was
    interrupted, or its measurement refused.
    """
    last, base = results[-1], score_of(baseline_of(results))
    if last.config != first_config(transfer, region, results) or any(r.config == last.config for r in results[:-1]):
        return None
    if isinstance(last.outcome, Infeasible):
        return f"the best of {transfer.source} cannot be served here"
    if not isinstance(last.outcome, Measured) or not base:
        return None
    here = gain(last.outcome.score.value, base, metric)
    best = next(r for r in transfer.results if r.number == transfer.best)
    there, old = score_of(best), score_of(baseline_of(transfer.results))
    said = f", {gain(there, old, metric):+.1%} there" if there and old else ""
    return f"the best of {transfer.source} is {here:+.1%} over the baseline here{said} (one start each)"


def _folders(path: Path, name: str) -> list[StudyFolder]:
    """The study's own and those that ``--force`` began, in order."""
    home = StudyFolder.beside(Path("studies") / path.name if "_shipped" in path.parts else path, name)
    found, number = [home], 2
    while (again := StudyFolder(home.root.with_name(f"{home.root.name}-{number}"))).root.exists():
        found.append(again)
        number += 1
    return found


def _manifest(folder: StudyFolder) -> Manifest:
    found = Records(folder).manifest()
    if found is None:
        raise InputError(f"{OPTION} {folder.root}: {LOST}; put it back, or leave out {OPTION}")
    return found


def _same_objective(told: Mapping[str, Scalar], objective: Objective) -> bool:
    def part(side: Mapping[str, Scalar]) -> dict[str, Scalar]:
        return {key: value for key, value in side.items() if key.startswith("objective.")}

    mine = msgspec.to_builtins(objective)
    flat = {
        "objective.metric": mine["metric"],
        **{f"objective.constraints.{k}": v for k, v in mine["constraints"].items()},
    }
    return not differences(part(told), flat)


def _scored(results: Sequence[TrialResult], objective: Objective, *, same: bool) -> list[TrialResult]:
    """Measured trials with the objective's score and every figure that it limits, and those out of memory."""
    needed = {objective.metric, *binding_limits(objective)}
    found = []
    for result in results:
        outcome = result.outcome
        if isinstance(outcome, Infeasible) and outcome.diagnosis.kind.startswith("oom_"):
            found.append(result)
        elif isinstance(outcome, Measured) and needed <= outcome.measurement.steady.keys():
            seen = outcome.score if same else score(outcome.measurement, objective)
            found.append(msgspec.structs.replace(result, outcome=msgspec.structs.replace(outcome, score=seen)))
    return found


def _request_tokens(told: Mapping[str, Scalar]) -> float:
    lengths = [told.get(f"workload.{name}") for name in ("input_tokens", "output_tokens", "range_ratio")]
    if not all(isinstance(x, int | float) for x in lengths):
        return 0.0
    return request_lengths(int(lengths[0] or 0), int(lengths[1] or 0), float(lengths[2] or 0)).mean_tokens


def _peak(told: Mapping[str, Scalar]) -> int:
    """The most requests that were in flight there; 0 where the study sets no limit."""
    levels = [value for key, value in told.items() if key.startswith("workload.levels[")]
    return max(int(value or 0) for value in (told.get("workload.concurrency"), *levels))
