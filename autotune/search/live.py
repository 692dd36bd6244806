"""Which running limit a server that is up should be loaded at next, before it is stopped.

A function of the settled records, of what this start has shown, the seed and the region: asked again after a crash it
gives the same answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.search.gp.belief import Parts
from autotune.search.gp.lowering import best_load
from autotune.search.gp.sampler import ALL_PARTS
from autotune.search.outlook import belief_of
from autotune.search.region import Region
from autotune.search.samplers import seed_for
from autotune.search.suggest import Strategy, fresh_trials
from autotune.values import Config, Measured, Timings, TrialResult

# A load is worth its minute where it is expected to make the next start this much better, relative.
WORTH = 0.002


def next_limit(
    history: Sequence[TrialResult],
    start: tuple[Config, Measured],
    region: Region,
    strategy: Strategy,
    *,
    parts: Parts = ALL_PARTS,
) -> int | None:
    """The limit to lower to, below the one in force at the start; None where another load is not worth its time.

    ``start`` is the running configuration with its loads so far; ``history`` does not have it yet.
    """
    config, measured = start
    if strategy.sampler != "autotune":
        return None
    number = max((r.number for r in history), default=-1) + 1
    now = TrialResult(number=number, config=config, outcome=measured, timings=Timings(), started_at="", finished_at="")
    belief, numbers = belief_of([*history, now], region, strategy, parts)
    if belief is None or not belief.groups or number not in numbers:
        return None
    chance = np.random.default_rng([seed_for(strategy.seed, fresh_trials(history)), len(measured.live)])
    had = [load.limit for load in measured.live]
    load = best_load(belief, (numbers.index(number), had), chance)
    return None if load is None or load.gain < WORTH else load.limit
