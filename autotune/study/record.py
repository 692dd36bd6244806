"""The records of a study on disk: the source of truth. The Optuna storage is their mirror.

A trial begins when its ``config.json`` is written and is settled when its ``result.json`` is there;
one that began and is not settled was interrupted. Nothing else is stored about its state.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from autotune.errors import InputError
from autotune.study.atomic import make_private_folder, write_atomic, writing
from autotune.study.folder import StudyFolder, TrialFolder
from autotune.study.manifest import Manifest
from autotune.study.refusals import unusable
from autotune.values import (
    Config,
    Estimate,
    Finding,
    Interrupted,
    LaunchPlan,
    LiveFigures,
    Measured,
    Measurement,
    Outcome,
    Refused,
    Timings,
    TrialResult,
    Value,
)

T = TypeVar("T")
_TRIAL_NAME = re.compile(r"\d{4,9}")


class Begun(Value, frozen=True, kw_only=True):
    """What ``config.json`` holds. ``manifest`` is the study's, as it was then; older versions wrote none."""

    number: int
    config: Config
    started_at: str
    repeat_of: int | None = None
    manifest: Manifest | None = None

    def unmeasured(self, outcome: Outcome, now: str) -> TrialResult:
        """The trial with an outcome that took no time of its own, such as ``Interrupted``."""
        return TrialResult(
            number=self.number,
            config=self.config,
            outcome=outcome,
            timings=Timings(),
            started_at=self.started_at,
            finished_at=now,
            repeat_of=self.repeat_of,
        )


class Records:
    """The trials of one study, read from and written to its folder. One writer at a time: hold the lock."""

    def __init__(self, folder: StudyFolder) -> None:
        self.folder = folder

    def numbers(self) -> list[int]:
        """Numbers of all trials that ever began, ascending."""
        try:
            names = [entry.name for entry in self.folder.trials.iterdir()]
        except FileNotFoundError:
            return []
        numbers = sorted(int(name) for name in names if _TRIAL_NAME.fullmatch(name))
        # A folder without a config is a trial that was cut off before it began: its number is free.
        return [
            number for number in numbers if self.trial(number).config.exists() or self.trial(number).result.exists()
        ]

    def manifest(self) -> Manifest | None:
        """What the study began with: ``manifest.json``, else as its trials keep it; None where nothing tells.

        Raises ``InputError`` for a manifest that is damaged.
        """
        known = read_record(self.folder.manifest, Manifest)
        return known or next(self._kept_manifests(), None)

    def _kept_manifests(self) -> Iterator[Manifest]:
        for number in self.numbers():
            with suppress(InputError):  # another trial may tell
                if (begun := self.begun(number)) and begun.manifest:
                    yield begun.manifest

    def next_number(self) -> int:
        return max(self.numbers(), default=-1) + 1

    def trial(self, number: int) -> TrialFolder:
        return self.folder.trial(number)

    def begin_trial(self, begun: Begun) -> TrialFolder:
        """Write down what is about to be tried. A number can begin once: raises ``ValueError`` otherwise."""
        trial = self.trial(begun.number)
        if trial.config.exists():
            raise ValueError(f"trial {begun.number} has begun before")
        make_private_folder(trial.root)
        with suppress(InputError):  # a manifest that was damaged since ends no night
            begun = msgspec.structs.replace(begun, manifest=read_record(self.folder.manifest, Manifest))
        write_record(trial.config, begun)
        return trial

    def write_plan(self, number: int, plan: LaunchPlan) -> None:
        write_record(self.trial(number).plan, plan)

    def plan(self, number: int) -> LaunchPlan | None:
        return read_record(self.trial(number).plan, LaunchPlan)

    def begun(self, number: int) -> Begun | None:
        return read_record(self.trial(number).config, Begun)

    def settle(self, result: TrialResult) -> TrialResult:
        """Write the result, atomically and once; returns what was stored (see ``storable``).

        A trial that is settled stays as it is: settling it again returns the stored result.
        """
        if stored := self.result(result.number):
            return stored
        result = storable(result)
        trial = self.trial(result.number)
        make_private_folder(trial.root)
        write_record(trial.result, result)
        trial.so_far.unlink(missing_ok=True)
        return result

    def keep(self, result: TrialResult) -> None:
        """Write down what an unsettled trial has measured so far, atomically; a later one replaces it."""
        write_record(self.trial(result.number).so_far, storable(result))

    def kept(self, number: int) -> TrialResult | None:
        """What an unsettled trial has measured so far."""
        return read_record(self.trial(number).so_far, TrialResult)

    def settle_kept(self) -> list[TrialResult]:
        """Settle every trial that was cut off after it had measured something by just that; returns these results."""
        kept = (self.kept(begun.number) for begun in self.interrupted())
        return [self.settle(result) for result in kept if result is not None]

    def result(self, number: int) -> TrialResult | None:
        return read_record(self.trial(number).result, TrialResult)

    def results(self) -> list[TrialResult]:
        """Every settled trial, by number. Raises ``InputError`` naming a file that cannot be read."""
        return list(self.each_result())

    def each_result(self) -> Iterator[TrialResult]:
        """The same, each read when it is asked for."""
        found = (self.result(number) for number in self.numbers())
        return (result for result in found if result is not None)

    def interrupted(self) -> list[Begun]:
        """Trials that began and have no result, by number."""
        cut = (self.begun(number) for number in self.numbers() if not self.trial(number).result.exists())
        return [begun for begun in cut if begun is not None]

    def settle_interrupted(self, reason: str, now: str) -> list[TrialResult]:
        """Settle every trial that was cut off as ``Interrupted``; returns these results.

        One that had measured something keeps that (``settle_kept``). End the servers of these trials first: afterwards
        nothing says that they may still run.
        """
        self.settle_kept()
        return [self.settle(begun.unmeasured(Interrupted(reason=reason), now)) for begun in self.interrupted()]


def write_record(path: Path, value: object) -> None:
    """Write ``value``, a struct or builtins, as indented JSON, atomically."""
    write_atomic(path, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")


def read_record(path: Path, shape: type[T]) -> T | None:
    """The value in ``path``, None where there is no such file. Raises ``InputError`` for a damaged one."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise InputError(f"{path}: a file is in the place of its folder; move it away") from None
    except IsADirectoryError:
        raise InputError(f"{path}: a folder is in the place of this file; `autotune repair` sets it aside") from None
    except OSError as error:
        raise InputError(unusable(path, error)) from None
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: damaged record ({error}); `autotune repair` sets it aside") from None


def quarantine(path: Path) -> Path:
    """Move a damaged record out of the way, to a name that is free, and return that name."""
    number, target = 1, path.with_name(path.name + ".damaged")
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}.damaged-{number}")
    with writing(target):
        path.rename(target)
    return target


def storable(result: TrialResult) -> TrialResult:
    """``result`` without the figures that are not finite; JSON has no word for them.

    A score that is not finite is no score: the outcome becomes ``Refused``.
    """
    outcome = result.outcome
    if isinstance(outcome, Measured):
        measurement = _finite(outcome.measurement)
        if _is_finite(outcome.score):
            kept = msgspec.structs.replace(
                outcome,
                measurement=measurement,
                live=tuple(_finite_live(live) for live in outcome.live if _is_finite(live.score)),
                course=tuple(point for point in outcome.course if math.isfinite(point[1])),
            )
            return msgspec.structs.replace(result, outcome=kept)
        finding = Finding(gate="score", message=f"the score is not a number: {outcome.score.value}", fatal=True)
        refused = Refused(findings=(finding,), measurement=measurement, effective=outcome.effective)
        return msgspec.structs.replace(result, outcome=refused)
    if isinstance(outcome, Refused) and outcome.measurement is not None:
        refused = msgspec.structs.replace(outcome, measurement=_finite(outcome.measurement))
        return msgspec.structs.replace(result, outcome=refused)
    return result


def _finite(measurement: Measurement) -> Measurement:
    return msgspec.structs.replace(
        measurement,
        whole=_finite_figures(measurement.whole),
        steady=_finite_figures(measurement.steady),
        estimates={name: estimate for name, estimate in measurement.estimates.items() if _is_finite(estimate)},
    )


def _finite_live(live: LiveFigures) -> LiveFigures:
    return msgspec.structs.replace(live, steady=_finite_figures(live.steady))


def _finite_figures(figures: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if math.isfinite(value)}


def _is_finite(estimate: Estimate) -> bool:
    return math.isfinite(estimate.value) and math.isfinite(estimate.stderr)
