"""How a study stands: its settled trials, its baseline, and the configuration to believe in. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from autotune.budget import is_trial
from autotune.drifting import steadied
from autotune.space.versions import release
from autotune.study.file import Objective
from autotune.values import Estimate, Infeasible, Interrupted, Measured, Outcome, Refused, TrialResult, Value
from autotune.verdict.noise import NoiseModel, group_trials
from autotune.verdict.objective import violations
from autotune.verdict.recommend import rank


def settled(results: Sequence[TrialResult]) -> list[TrialResult]:
    """Trials that count: everything but those that were cut off."""
    return [result for result in results if not isinstance(result.outcome, Interrupted)]


def fresh(results: Sequence[TrialResult]) -> list[TrialResult]:
    """Settled trials without further starts of the baseline: what counts against the number of trials."""
    return [result for result in settled(results) if is_trial(result)]


def baseline_of(results: Iterable[TrialResult]) -> TrialResult | None:
    """The first measured trial of the server's defaults, if there is one."""
    return next((r for r in results if not r.config.params and isinstance(r.outcome, Measured)), None)


def version_told(results: Iterable[TrialResult]) -> str:
    """The engine's version as the baseline's server told it; empty before that, and for one that names no release."""
    base = baseline_of(results)
    told = base.outcome.effective.version if base and isinstance(base.outcome, Measured) else ""
    return told if release(told) else ""


def best_of(results: Sequence[TrialResult], objective: Objective) -> TrialResult | None:
    """The first of ``ranked_trials``."""
    return next(iter(ranked_trials(results, objective)), None)


def ranked_trials(results: Sequence[TrialResult], objective: Objective) -> list[TrialResult]:
    """The first trials of all configurations that keep the objective's limits, by posterior score, the best first.

    Not by the best value seen: repeats are pooled, a single high value is shrunk as far as the noise explains it, and
    where the machine drifted values are compared with the baseline of their time.
    """
    seen = steadied(results)
    ranked = rank(group_trials(keeping(seen.results, objective)), seen.noise, objective.metric)
    by_number = {r.number: r for r in results}
    return [by_number[one.tried.trials[0]] for one in ranked]


class Incumbent(Value, frozen=True, kw_only=True):
    """The configuration that is to be beaten: its mean over ``starts``, and the noise of the study."""

    figure: Estimate
    starts: int
    noise: NoiseModel


def incumbent_of(results: Sequence[TrialResult], objective: Objective) -> Incumbent | None:
    """None before anything is measured within the limits, and where the machine drifts: that figure is an old one."""
    seen = steadied(results)
    ranked = rank(group_trials(keeping(seen.results, objective)), seen.noise, objective.metric)
    if not ranked or seen.drift.drifting:
        return None
    best = ranked[0].tried
    count = len(best.values)
    figure = Estimate(
        value=math.exp(sum(map(math.log, best.values)) / count),
        stderr=math.sqrt(sum(error**2 for error in best.stderrs)) / count,
        batches=count,
    )
    return Incumbent(figure=figure, starts=count, noise=seen.noise)


def keeping(results: Sequence[TrialResult], objective: Objective) -> list[TrialResult]:
    """The measured trials that are not certainly beyond a limit of the objective."""
    return [r for r in results if isinstance(r.outcome, Measured) and _keeps_limits(r.outcome, objective)]


def score_of(result: TrialResult | None) -> float | None:
    """The score of a measured trial."""
    return result.outcome.score.value if result and isinstance(result.outcome, Measured) else None


def state_of(outcome: Outcome) -> str:
    """One word for what became of a trial: measured, refused, interrupted, or the kind of failure."""
    match outcome:
        case Measured():
            return "measured"
        case Infeasible(diagnosis=found):
            return found.kind
        case Refused():
            return "refused"
        case Interrupted():
            return "interrupted"


def _keeps_limits(outcome: Measured, objective: Objective) -> bool:
    return not any(violation.certain for violation in violations(outcome.measurement, objective))
