"""``python -m benchmarks.search.stopping``: when the stop rule ends a search, and what it costs, in virtual time.

Every study runs to its last start; the rule is applied to what was expected after each start.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from autotune.search.gp.belief import Parts
from autotune.search.outlook import outlook
from autotune.search.suggest import Strategy
from autotune.values import TrialResult
from benchmarks.search.optimum import optimum
from benchmarks.search.ours import Ours
from benchmarks.search.score import MARGIN
from benchmarks.search.settings import named_surfaces, surface_of
from benchmarks.search.study import Task, run_study

NOISE = 0.05
STARTUP = Strategy().startup_trials
GAINS = (0.01, 0.005, 0.002, 0.001, 0.0005)
Path = list[tuple[float, float]]
"""Regret of the recommendation and expected gain of one more start, after each start."""


class Watched(Ours):
    """Keeps what was expected of one more start, after each start."""

    def __init__(self, task: Task) -> None:
        super().__init__(task, Parts())
        self.gains: list[float] = []

    def tell(self, result: TrialResult) -> None:
        super().tell(result)
        seen = outlook(self._results, self._task.region, self._strategy)
        self.gains.append(seen.gain if seen else 1.0)


def study(work: tuple[str, int, int]) -> Path:
    """One whole study on one surface."""
    name, seed, restarts = work
    surface = surface_of(name)
    made: list[Watched] = []

    def make(task: Task) -> Watched:
        made.append(Watched(task))
        return made[-1]

    task = Task(
        region=surface.region,
        seed=seed,
        restarts=restarts,
        request_tokens=surface.request_tokens,
        limits=surface.limits,
    )
    curve = run_study(make, surface, optimum(surface), NOISE, task)
    return list(zip(curve.regret, made[0].gains, strict=False))


def stop_at(path: Path, least: float, row: int) -> int:
    """The place of the start after which the search ends: ``row`` looks in a row below the least gain."""
    below = 0
    for place, (_, gain) in enumerate(path):
        below = below + 1 if gain < least else 0
        if place >= STARTUP and below >= row:
            return place
    return len(path) - 1


def line(name: str, paths: Sequence[Path], stops: Sequence[int]) -> str:
    """One row of the table."""
    regrets = [max(0.0, path[stop][0]) for path, stop in zip(paths, stops, strict=True)]
    within = 100 * sum(regret <= MARGIN for regret in regrets) / len(regrets)
    starts = statistics.median(stop + 1 for stop in stops)
    return f"| {name} | {starts:g} | {100 * statistics.mean(regrets):.2f} | {within:.0f} |"


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search.stopping", description=__doc__)
    parser.add_argument("--settings", type=int, default=9, help="random settings for development")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--restarts", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    keys = [*(surface.name for surface in named_surfaces()), *(f"setting {n}" for n in range(asked.settings))]
    work = [(key, seed, asked.restarts) for key in keys for seed in range(1, asked.seeds + 1)]
    with ProcessPoolExecutor(asked.workers) as pool:
        paths = list(pool.map(study, work))
    print("| least gain | starts | mean regret, % | within 3 %, % of studies |", "| --- | --- | --- | --- |", sep="\n")
    for least in GAINS:
        for row in (1, 2):
            stops = [stop_at(path, least, row) for path in paths]
            print(line(f"{least:g}, {row} in a row", paths, stops))
    print(line("never", paths, [len(path) - 1 for path in paths]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
