"""What the starts of a study promise of a configuration: the confirmation's where there are some, else the search's."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.confirmation import Confirmation
from autotune.drifting import steadied
from autotune.study.file import Objective
from autotune.values import TrialResult
from autotune.verdict.noise import group_trials
from autotune.verdict.promise import Promise, Spread, of_starts, promise
from autotune.verdict.recommend import rank


def promise_of(
    result: TrialResult, results: Sequence[TrialResult], objective: Objective, confirmation: Confirmation | None
) -> Promise | None:
    """What one more start of a measured trial's configuration should give; None where nothing can be said.

    Fresh starts of a confirmation were not chosen for their figures, so their mean is the promise; of the search it is
    the posterior mean, which pulls a single high value back.
    """
    confirmed = _of_confirmation(result, objective, confirmation) if confirmation else None
    return confirmed or _of_search(result, results, objective)


def _of_confirmation(result: TrialResult, objective: Objective, found: Confirmation) -> Promise | None:
    key = result.config.key()
    arm = next((i for i, arm in enumerate(found.plan.arms) if arm.config.key() == key), None)
    values = [start.value for start in found.starts if start.arm == arm and start.value > 0]
    if not values or found.judgement is None or found.plan.metric != objective.metric:
        return None
    return of_starts(objective.metric, values, found.judgement.noise, found.judgement.df)


def _of_search(result: TrialResult, results: Sequence[TrialResult], objective: Objective) -> Promise | None:
    seen = steadied(results)
    ranked = rank(group_trials(seen.results), seen.noise, objective.metric)
    mine = next((r for r in ranked if result.number in r.tried.trials), None)
    if mine is None:
        return None
    spread = Spread(noise=seen.noise.total, df=seen.noise.df, stderr=mine.relative_stderr)
    return promise(objective.metric, mine.value, len(mine.tried.values), spread)
