"""How long a suggestion takes: ``python -m benchmarks.search.speed``, one core."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import itertools
import random
import statistics
import time

import msgspec

from autotune.search.gp.belief import believe
from autotune.search.suggest import Strategy, propose
from autotune.values import Config, Measured, Timings, TrialResult
from benchmarks.search.settings import families
from benchmarks.search.study import WHEN
from benchmarks.search.surfaces import SimSurface

COUNTS = (10, 50, 100, 200)
REPEATS = 5
LIVE = 3


def history_of(surface: SimSurface, count: int, live: int = 0) -> list[TrialResult]:
    """Random trials, as many different ones as a long night has; each with so many loads at lowered limits."""
    chance = random.Random(1)
    results: list[TrialResult] = []
    for number in range(count):
        point = {axis.name: axis.at(chance.random()) for axis in surface.region.axes()}
        config = surface.region.config(point) if number else Config(params={})
        start = surface.start(config, 0.05, str(number))
        outcome = start.outcome
        if isinstance(outcome, Measured):
            top = outcome.effective.running_limit or 0
            limits = [top * (share + 1) // (live + 1) for share in range(live)]
            loads = tuple(surface.live(config, limit, 0.05, str(number)) for limit in limits if limit)
            outcome = msgspec.structs.replace(outcome, live=loads)
        times = Timings(start_s=start.start_s, load_s=start.load_s, total_s=start.cost_s)
        results.append(
            TrialResult(number=number, config=config, outcome=outcome, timings=times, started_at=WHEN, finished_at=WHEN)
        )
    return results


def main() -> None:
    """Prints the median processor time of a suggestion by the number of trials."""
    surface = next(s for s in families() if s.name == "dense, small KV")
    assert isinstance(surface, SimSurface)
    for live, count in itertools.product((0, LIVE), COUNTS):
        history = history_of(surface, count, live)
        seconds = []
        for seed in range(REPEATS):
            believe.cache_clear()
            began = time.process_time()
            propose(history, surface.region, Strategy(sampler="autotune", seed=seed, request_tokens=192.0))
            seconds.append(time.process_time() - began)
        what = f"{count} trials, {live} live loads each, {len(surface.region.bounds)} parameters"
        print(f"{what}: {statistics.median(seconds):.3f} s")


if __name__ == "__main__":
    main()
