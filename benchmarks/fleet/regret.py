"""``python -m benchmarks.fleet.regret``: what it costs a search that four trials run at once.

In virtual time, on the surfaces of benchmarks/search: the next configuration is chosen while three others are under
way, whose results are not known yet. Compared at equal numbers of starts with the same search one after the other.
"""

from __future__ import annotations

import argparse
import math
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from autotune.search.fantasies import expecting
from autotune.search.gp.belief import Parts
from autotune.search.outlook import recommended
from autotune.search.suggest import propose
from autotune.values import Config, TrialResult
from benchmarks.search import settings
from benchmarks.search.optimum import optimum
from benchmarks.search.ours import Ours
from benchmarks.search.study import Curve, Method, Task, best_seen, run_study

STARTS = 20
SHOWN = (8, 12, 16, 20)
NOISE = 0.05


class SideBySide(Ours):
    """The product's search with ``places`` trials at once; results come in the order in which trials began."""

    def __init__(self, task: Task, places: int) -> None:
        super().__init__(task, Parts())
        self._behind = places - 1
        self._under_way: list[TrialResult] = []

    def tell(self, result: TrialResult) -> None:
        """The oldest result becomes known when its place is wanted again."""
        self._under_way.append(result)
        while self._under_way and (len(self._under_way) > self._behind or not self._results):
            self._results.append(self._under_way.pop(0))

    def ask(self) -> Config | None:
        running = {result.number: result.config for result in self._under_way}
        known = expecting(self._results, running, self._task.region, self._strategy)
        found = propose(known, self._task.region, self._strategy, repeats=False)
        return found.config if found else None

    def recommend(self) -> int:
        results = [*self._results, *self._under_way]
        found = recommended(results, self._task.region, self._strategy) if len(results) > 1 else None
        return best_seen(results) if found is None else found


def make(places: int, task: Task) -> Method:
    """A search with so many places."""
    return SideBySide(task, places)


def study(key: str, places: int, seed: int) -> Curve:
    """One study on the surface of that name."""
    surface = settings.surface_of(key)
    task = Task(
        region=surface.region,
        seed=seed,
        restarts=STARTS,
        request_tokens=surface.request_tokens,
        limits=surface.limits,
    )
    return run_study(partial(make, places), surface, optimum(surface), NOISE, task)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--places", type=int, default=4)
    parser.add_argument("--settings", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    first = settings.HELD_OUT_FROM
    keys = [surface.name for surface in settings.named_surfaces()]
    keys += [f"setting {number}" for number in range(first, first + options.settings)]
    work = [(key, seed) for key in keys for seed in range(options.seeds)]
    print("| trials at once | " + " | ".join(f"mean regret after {n}" for n in SHOWN) + " | within 3 % after 20 |")
    print("| --- " * (len(SHOWN) + 2) + "|")
    means = {}
    with ProcessPoolExecutor(options.workers) as pool:
        for places in (1, options.places):
            names, seeds = zip(*work, strict=True)
            curves = list(pool.map(study, names, [places] * len(work), seeds))
            regret = np.array([curve.regret for curve in curves])
            regret[~np.isfinite(regret)] = 1.0
            means[places] = [float(regret[:, n - 1].mean()) for n in SHOWN]
            within = float((regret[:, -1] <= 0.03).mean())
            cells = " | ".join(f"{100 * mean:.2f} %" for mean in means[places])
            print(f"| {places} | {cells} | {within:.0%} |", flush=True)
    ratios = [
        batch / serial if serial else math.nan for serial, batch in zip(means[1], means[options.places], strict=True)
    ]
    print("| ratio | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " | |")


if __name__ == "__main__":
    main()
