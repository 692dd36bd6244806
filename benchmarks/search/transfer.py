"""What another study's results are worth: ``python -m benchmarks.search.transfer``.

A short study somewhere else, then one here with and without what was found there.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from autotune.search.gp.belief import Parts
from autotune.standing import best_of
from autotune.study.file import Objective
from autotune.study.transfer import Transfer
from autotune.values import Config, Infeasible, Measured, Timings, TrialResult, Value
from benchmarks.search.elsewhere import ELSEWHERE
from benchmarks.search.optimum import optimum
from benchmarks.search.ours import Ours
from benchmarks.search.score import MARGIN, Line, line, shown
from benchmarks.search.settings import HELD_OUT_FROM, random_surface
from benchmarks.search.study import BASELINE, WHEN, Curve, Task, regret_of, run_study
from benchmarks.search.surfaces import SimSurface

NOISE = 0.05
STARTS_THERE, STARTS_HERE = 12, 20
ALONE = "nothing"


class Job(Value, frozen=True, kw_only=True):
    """Studies of one setting, one for each seed. ``source`` is a name of ``ELSEWHERE``, or ``ALONE``."""

    setting: int
    source: str
    seeds: tuple[int, ...]


@lru_cache(maxsize=64)
def optimum_of(setting: int) -> float:
    """The best throughput of a setting, found once in a process."""
    return optimum(random_surface(setting))


def worth_tuning(setting: int) -> bool:
    """Whether its default start leaves something to gain."""
    best = optimum_of(setting)
    return best > 0 and regret_of(random_surface(setting).truth(BASELINE), best) > MARGIN


def transfer_from(surface: SimSurface, seed: int, starts: int = STARTS_THERE) -> Transfer:
    """What a study of that server leaves after some starts."""
    task = Task(region=surface.region, seed=seed, restarts=starts, request_tokens=surface.request_tokens)
    method, results = Ours(task, Parts()), list[TrialResult]()
    config: Config | None = BASELINE
    while config is not None and len(results) < starts:
        start = surface.start(config, NOISE, f"there|{seed}|{len(results)}|{surface.name}")
        times = Timings(start_s=start.start_s, load_s=start.load_s, total_s=start.cost_s)
        result = TrialResult(
            number=len(results), config=config, outcome=start.outcome, timings=times, started_at=WHEN, finished_at=WHEN
        )
        results.append(result)
        method.tell(result)
        config = method.ask()
    best = best_of(results, Objective())
    return Transfer(
        source="there",
        source_began=WHEN,
        taken_at=WHEN,
        request_tokens=surface.request_tokens,
        peak=surface.load.concurrency,
        best=best.number if best is not None and best.config.params else None,
        results=tuple(r for r in results if isinstance(r.outcome, Measured | Infeasible)),
    )


def run_job(job: Job) -> list[Curve]:
    """The curves of a job."""
    surface = random_surface(job.setting)
    assert isinstance(surface, SimSurface)
    curves = []
    for seed in job.seeds:
        transfer = None if job.source == ALONE else transfer_from(ELSEWHERE[job.source](surface), seed)
        task = Task(region=surface.region, seed=seed, restarts=STARTS_HERE, request_tokens=surface.request_tokens)
        best = optimum_of(job.setting)
        curves.append(run_study(partial(Ours, parts=Parts(), transfer=transfer), surface, best, NOISE, task))
    return curves


def table(lines: list[Line]) -> str:
    """In Markdown."""
    rows = [
        "| taken over from | starts to 3 % | regret after 5, 10, 20 starts, % | within 3 % after 5, 10, 20, % of "
        "studies | lost to OOM, % |",
        "| --- | --- | --- | --- | --- |",
    ]
    for found in lines:
        regret = " · ".join(f"{100 * r:.1f}" for r in found.regret)
        within = " · ".join(f"{100 * w:.0f}" for w in found.within[:3])
        rows.append(
            f"| {found.method} | {shown(found.starts, STARTS_HERE)} | {regret} | {within} | {100 * found.lost:.0f} |"
        )
    return "\n".join(rows)


def main() -> int:
    """Runs it and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--development", action="store_true", help="random settings that are not held out")
    args = parser.parse_args()
    began, first = time.monotonic(), 0 if args.development else HELD_OUT_FROM
    seeds = tuple(range(args.seeds))
    with ProcessPoolExecutor(args.workers) as pool:
        looked_at = range(first, first + 3 * args.settings)
        worth = pool.map(worth_tuning, looked_at)
        settings = [n for n, good in zip(looked_at, worth, strict=True) if good][: args.settings]
        names = [ALONE, *ELSEWHERE]
        jobs = [Job(setting=key, source=name, seeds=seeds) for name in names for key in settings]
        curves: dict[str, list[Curve]] = {name: [] for name in names}
        for job, several in zip(jobs, pool.map(run_job, jobs), strict=True):
            curves[job.source] += several
            print(".", end="", file=sys.stderr, flush=True)
    lines = [line(name, all_of) for name, all_of in curves.items()]
    print(table(lines))
    print(f"\n{len(jobs) * len(seeds)} studies in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
