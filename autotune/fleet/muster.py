"""Puts a night's crew together from the study and this host, and says what its slots cost each other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import msgspec

from autotune.errors import InputError
from autotune.events import Note
from autotune.fleet.crew import Alone, Crew, SlotCrew, in_slot, shared
from autotune.fleet.interference import Interference, compare
from autotune.night import Night
from autotune.rig import Rig
from autotune.sameness import gpu_of
from autotune.study.record import read_record, write_record
from autotune.values import Measured, TrialResult
from autotune.verdict.noise import NoiseModel, estimate_noise, group_trials


@contextlib.contextmanager
def crew_of(rig: Rig, *, alone: bool = False) -> Iterator[Crew]:
    """Whoever runs the trials of this rig: a cluster, or one in each of its slots, or one at a time.

    Raises InputError when the cluster cannot be used.
    """
    if rig.cluster:
        with _ray_crew(rig, alone) as crew:
            yield crew
        return
    if alone or len(rig.slots) == 1:
        yield Alone(rig)
        return
    gpu, say = gpu_of(rig.study), shared(rig.say)
    rigs = [msgspec.structs.replace(in_slot(rig, slot, gpu), say=say, beside=True) for slot in rig.slots]
    with SlotCrew(rigs) as crew:
        yield crew


def _ray_crew(rig: Rig, alone: bool) -> contextlib.AbstractContextManager[Crew]:
    try:
        from autotune.fleet.cluster import RayCrew
    except ImportError as error:
        raise InputError(f"--ray: {error}; install it with `pip install 'autotune[ray]'`") from None
    return RayCrew(rig, rig.cluster, alone=alone)


def baseline_scores(results: Sequence[TrialResult], *, beside: bool) -> list[float]:
    """Scores of the baseline's starts, alone or beside neighbours."""
    starts = [r for r in results if not r.config.params and bool(r.beside) == beside]
    return [r.outcome.score.value for r in starts if isinstance(r.outcome, Measured)]


def judge_interference(night: Night, slots: int) -> Interference | None:
    """Compare, write down and say what neighbours cost; None until both sides are measured."""
    results = night.records.results()
    alone, beside = (baseline_scores(results, beside=side) for side in (False, True))
    if not alone or not beside:
        return None
    found = compare(alone, beside, metric=night.brief.study.objective.metric, noise=_noise(results), slots=slots)
    path = night.folder.interference
    if read_record(path, Interference) != found:
        write_record(path, found)
        night.rig.say(Note(text=found.sentence, level="warning" if found.noticeable else "info"))
    return found


def _noise(results: Sequence[TrialResult]) -> NoiseModel:
    """Without the baseline, whose starts are compared."""
    return estimate_noise(group_trials(r for r in results if r.config.params))
