"""Did the machine change during the search? What the baseline's starts say, and results as ratios to it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from autotune.values import Measured, TrialResult, Value
from autotune.verdict.drift import NOTHING_KNOWN, Drift, correct, detect_drift
from autotune.verdict.noise import NoiseModel, estimate_noise, group_trials


class BaselineStart(Value, frozen=True, kw_only=True):
    """One measured start of the server's defaults: when it began (seconds since 1970), and its score."""

    trial: int
    at_s: float
    value: float


class Steadied(Value, frozen=True, kw_only=True):
    """Results in which the machine's own change is taken out, where it was found to change.

    ``noise`` is that of one start: without the drift in the baseline's starts where they hold one.
    """

    results: tuple[TrialResult, ...]
    noise: NoiseModel
    drift: Drift
    starts: tuple[BaselineStart, ...]


class DriftRecord(Value, frozen=True, kw_only=True):
    """``drift.json``: what the baseline's starts say, in words too; ``corrected`` when the ranking allows for it."""

    sentence: str
    corrected: bool
    drift: Drift
    starts: tuple[BaselineStart, ...]


def steadied(results: Sequence[TrialResult]) -> Steadied:
    """The results to rank by. Scores are corrected only where the baseline drifts: correction costs its noise.

    A corrected score is the ratio to the baseline of its time, times the first baseline; its standard error
    includes the noise of the baselines it was divided by.
    """
    starts = baseline_starts(results)
    others = estimate_noise(group_trials(r for r in results if r.config.params))
    drift = NOTHING_KNOWN
    if len(starts) > 2:
        values = [s.value for s in starts]
        others = noise_of_neighbours(values, others)
        drift = detect_drift([s.at_s for s in starts], values, others)
    if not drift.drifting:
        noise = estimate_noise(group_trials(results))
        return Steadied(results=tuple(results), noise=noise, drift=drift, starts=starts)
    kept = tuple(_corrected(r, starts, others) for r in results)
    return Steadied(results=kept, noise=others, drift=drift, starts=starts)


def baseline_starts(results: Sequence[TrialResult]) -> tuple[BaselineStart, ...]:
    """All measured starts of the server's defaults whose time is on record, by time.

    Where trials ran side by side, those that did: a start alone tells of another load on the machine.
    """
    side_by_side = any(r.beside for r in results)
    found = [
        BaselineStart(trial=r.number, at_s=at_s, value=r.outcome.score.value)
        for r in results
        if not r.config.params and isinstance(r.outcome, Measured) and not r.outcome.stopped_early
        if bool(r.beside) == side_by_side
        if (at_s := r.began_s) is not None and r.outcome.score.value > 0
    ]
    return tuple(sorted(found, key=lambda s: s.at_s))


def noise_of_neighbours(values: Sequence[float], known: NoiseModel) -> NoiseModel:
    """``known`` joined with the scatter between neighbours in time, which a slow drift hardly touches.

    Mean square successive difference (von Neumann 1941), whose variance (3 n - 4) / (n - 1)^2 gives its
    degrees of freedom, weighed with those of ``known``. ``values`` are at least three, in order of time.
    """
    n = len(values)
    steps = np.diff(np.log(np.asarray(values, dtype=float)))
    variance, df = float(steps @ steps) / (2 * (n - 1)), 2 * (n - 1) ** 2 / (3 * n - 4)
    joined = (known.df * known.total**2 + df * variance) / (known.df + df)
    return msgspec.structs.replace(known, between=max(0.0, joined - known.within**2) ** 0.5, df=known.df + df)


def record_of(seen: Steadied) -> DriftRecord:
    """What is written down of the baseline's starts."""
    corrected = seen.drift.drifting
    sentence = f"{seen.drift}; configurations are compared with the baseline of their time" if corrected else ""
    return DriftRecord(sentence=sentence or str(seen.drift), corrected=corrected, drift=seen.drift, starts=seen.starts)


def _corrected(result: TrialResult, starts: Sequence[BaselineStart], noise: NoiseModel) -> TrialResult:
    outcome, at_s = result.outcome, result.began_s
    if not isinstance(outcome, Measured) or at_s is None or outcome.score.value <= 0:
        return result
    score = outcome.score
    [ratio] = correct([(at_s, score.value)], [(s.at_s, s.value) for s in starts], noise)
    value = ratio.ratio * starts[0].value
    # The noise of the start itself is in the noise model; what is added is that of the baselines.
    added = max(0.0, ratio.relative_stderr**2 - noise.total**2)
    stderr = value * (added + (score.stderr / score.value) ** 2) ** 0.5
    moved = msgspec.structs.replace(score, value=value, stderr=stderr)
    return msgspec.structs.replace(result, outcome=msgspec.structs.replace(outcome, score=moved))
