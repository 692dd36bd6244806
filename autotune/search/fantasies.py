"""Trials that run side by side: those under way are taken for measured as the search expects them.

A search that ignored them would propose the same neighbourhood again and again. The expected value is a "kriging
believer" (Ginsbourger, Le Riche and Carraro 2010): it moves no mean and takes the uncertainty away where somebody
already looks. Every sampler learns from it like from any other trial, and it is never written down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from autotune.search.outlook import belief_of
from autotune.search.region import Region
from autotune.search.suggest import Strategy, encoded
from autotune.values import (
    Config,
    Effective,
    Estimate,
    Measured,
    Measurement,
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


def expecting(
    history: Sequence[TrialResult], running: Mapping[int, Config], region: Region, strategy: Strategy
) -> Sequence[TrialResult]:
    """``history`` and a made-up result of each running trial; ``history`` itself where nothing is known of them."""
    open_trials = {number: config for number, config in sorted(running.items()) if config.params}
    if not open_trials:
        return history
    means = _means(history, open_trials, region, strategy)
    if means is None:
        return history
    fantasies = (_fantasy(number, open_trials[number], mean) for number, mean in means.items())
    return sorted((*history, *fantasies), key=lambda result: result.number)


def _means(
    history: Sequence[TrialResult], running: Mapping[int, Config], region: Region, strategy: Strategy
) -> dict[int, float] | None:
    """Expected scores of the running trials, by number."""
    belief, _ = belief_of(history, region, strategy)
    if belief is None or not belief.groups:
        return None
    axes = region.axes()
    places = {number: encoded(region.point(config.params), axes) for number, config in running.items()}
    known = {number: place for number, place in places.items() if place is not None}
    if not known:
        return None
    units = np.array([belief.chart.units(place.params) for place in known.values()])
    mean, _ = belief.forecast(units)
    return {n: math.exp(belief.question.sign * float(value)) for n, value in zip(known, mean, strict=True)}


def _fantasy(number: int, config: Config, value: float) -> TrialResult:
    score = Estimate(value=value, stderr=0.0, batches=1)
    outcome = Measured(score=score, measurement=NOTHING_MEASURED, effective=Effective(source="none"))
    return TrialResult(number=number, config=config, outcome=outcome, timings=Timings(), started_at="", finished_at="")
