"""Trials that run side by side: those under way are taken for what the search expects of them.

A search that ignored them would propose the same neighbourhood again and again. The expected value is a "kriging
believer" (Ginsbourger, Le Riche and Carraro 2010): it moves no mean and takes the uncertainty away where somebody
already looks. What is likelier to be lost than not is taken for lost. Every sampler learns from it like from any other
trial, and it is never written down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autotune.search.outlook import belief_of
from autotune.search.region import Region
from autotune.search.suggest import Proposal, Strategy, encoded, propose
from autotune.values import (
    Config,
    Diagnosis,
    Effective,
    Estimate,
    Infeasible,
    Measured,
    Measurement,
    Outcome,
    Timings,
    TrialResult,
)

NOTHING_MEASURED = Measurement(
    whole={},
    steady={},
    estimates={},
    requests_completed=0,
    requests_failed=0,
    warmup_s=0.0,
    window_s=0.0,
    duration_s=0.0,
)
# A start that is less likely to live than this is taken for lost. On development settings 0.5 left less regret than
# 0.0, 0.8 and 0.9 did (benchmarks/fleet/README.md).
DOUBTFUL = 0.5
LOST = Infeasible(diagnosis=Diagnosis(kind="oom_runtime", action="prune"))


def propose_beside(
    history: Sequence[TrialResult], running: Mapping[int, Config], region: Region, strategy: Strategy
) -> Proposal | None:
    """What to start next beside the trials that run; see ``suggest.propose``. None: nothing is left.

    One that runs is started once more only where nothing new is left.
    """
    known = expecting(history, running, region, strategy)
    found = propose(known, region, strategy)
    if found is None or found.repeat_of not in running:
        return found
    return propose(known, region, strategy, repeats=False) or found


def expecting(
    history: Sequence[TrialResult], running: Mapping[int, Config], region: Region, strategy: Strategy
) -> Sequence[TrialResult]:
    """``history`` and a made-up result of each running trial; ``history`` itself where nothing is known of them."""
    open_trials = {number: config for number, config in sorted(running.items()) if config.params}
    if not open_trials:
        return history
    return sorted((*history, *_fantasies(history, open_trials, region, strategy)), key=lambda result: result.number)


def _fantasies(
    history: Sequence[TrialResult], running: Mapping[int, Config], region: Region, strategy: Strategy
) -> list[TrialResult]:
    """A result of each running trial of which something can be expected."""
    belief, _ = belief_of(history, region, strategy)
    if belief is None or not belief.groups:
        return []
    axes = region.axes()
    places = {number: encoded(region.point(config.params), axes) for number, config in running.items()}
    known = {number: place for number, place in places.items() if place is not None}
    if not known:
        return []
    units = np.array([belief.chart.units(place.params) for place in known.values()])
    means, _ = belief.forecast(units)
    scores = np.exp(belief.question.sign * means)
    expected = zip(known, scores, belief.survives(units), strict=True)
    return [_fantasy(n, running[n], _outcome(float(score), float(chance))) for n, score, chance in expected]


def _outcome(score: float, chance: float) -> Outcome:
    if chance < DOUBTFUL:
        return LOST
    value = Estimate(value=score, stderr=0.0, batches=1)
    return Measured(score=value, measurement=NOTHING_MEASURED, effective=Effective(source="none"))


def _fantasy(number: int, config: Config, outcome: Outcome) -> TrialResult:
    return TrialResult(number=number, config=config, outcome=outcome, timings=Timings(), started_at="", finished_at="")
