"""``python -m benchmarks.fleet.regret``: what it costs a search that four trials run at once.

In virtual time, on the surfaces of benchmarks/search: the next configuration is chosen while three others are under
way, whose results are not known yet. Compared at equal numbers of starts with the same search one after the other.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune.search.fantasies import propose_beside
from autotune.search.gp.belief import Parts
from autotune.search.outlook import recommended
from autotune.values import Config, TrialResult
from benchmarks.search import settings
from benchmarks.search.optimum import optimum
from benchmarks.search.ours import Ours
from benchmarks.search.study import Curve, Method, Task, best_seen, run_study

STARTS = 20
SHOWN = (4, 8, 12, 16, 20)
NOISE = 0.05
DRAWS = 4000


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
        found = propose_beside(self._results, running, self._task.region, self._strategy)
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


def curves(work: Sequence[tuple[str, int]], places: int, pool: Executor) -> NDArray[np.float64]:
    """Regrets, a row a study and a column a start; a recommendation that does not run is a regret of 1."""
    names, seeds = zip(*work, strict=True)
    regret = np.array([curve.regret for curve in pool.map(study, names, [places] * len(work), seeds)])
    return np.where(np.isfinite(regret), regret, 1.0)


def interval(serial: NDArray[np.float64], batch: NDArray[np.float64], seeds: int) -> tuple[float, float]:
    """90 % of the ratios of means over surfaces drawn anew, with all of their seeds: surfaces differ most."""
    one, four = (values.reshape(-1, seeds).mean(axis=1) for values in (serial, batch))
    draws = np.random.default_rng(1).integers(len(one), size=(DRAWS, len(one)))
    low, high = np.quantile(four[draws].mean(axis=1) / one[draws].mean(axis=1), (0.05, 0.95))
    return float(low), float(high)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--places", type=int, default=4)
    parser.add_argument("--settings", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--save", type=Path, help="file of all regrets, in NumPy's format")
    options = parser.parse_args()
    first = settings.HELD_OUT_FROM
    keys = [surface.name for surface in settings.named_surfaces()]
    keys += [f"setting {number}" for number in range(first, first + options.settings)]
    work = [(key, seed) for key in keys for seed in range(options.seeds)]
    print("| trials at once | " + " | ".join(f"mean regret after {n}" for n in SHOWN) + " | within 3 % after 20 |")
    print("| --- " * (len(SHOWN) + 2) + "|")
    found = []
    with ProcessPoolExecutor(options.workers) as pool:
        for places in (1, options.places):
            regret = curves(work, places, pool)
            cells = " | ".join(f"{100 * regret[:, n - 1].mean():.2f} %" for n in SHOWN)
            print(f"| {places} | {cells} | {(regret[:, -1] <= 0.03).mean():.0%} |", flush=True)
            found.append(regret)
    serial, batch = found
    if options.save:
        np.savez(options.save, keys=keys, serial=serial, batch=batch)
    cells = []
    for n in SHOWN:
        one, four = serial[:, n - 1], batch[:, n - 1]
        low, high = interval(one, four, options.seeds)
        cells.append(f"{four.mean() / one.mean():.2f} ({low:.2f} to {high:.2f})")
    print(f"| ratio, 90 % interval over {len(keys)} surfaces | " + " | ".join(cells) + " | |")


if __name__ == "__main__":
    main()
