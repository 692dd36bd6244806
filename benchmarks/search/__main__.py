"""Runs every method on every surface and writes the table: ``python -m benchmarks.search [--quick]``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path

import msgspec

# Matrices of some dozen rows: threads of the linear algebra would only wait for each other. Before NumPy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from autotune.values import Value
from benchmarks.search.methods import ABLATIONS, METHODS, ON_REQUEST
from benchmarks.search.optimum import optimum
from benchmarks.search.report import Run, report
from benchmarks.search.score import MARGIN
from benchmarks.search.settings import HELD_OUT_FROM, named_surfaces, random_surface
from benchmarks.search.study import BASELINE, Curve, Method, Task, run_study
from benchmarks.search.surfaces import Surface

TABLE = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- table -->", "<!-- end -->"
NOISES = (0.02, 0.05, 0.10)


class Job(Value, frozen=True, kw_only=True):
    """Studies of one method on one surface. ``surface`` is a name of the named ones or a number of the random ones."""

    method: str
    surface: str | int
    noise: float
    seeds: tuple[int, ...]
    restarts: int


class Plan(Value, frozen=True, kw_only=True):
    """How much is run. ``settings`` are numbers of random settings to look at, as many as ``kept`` are used."""

    seeds: int = 2
    kept: int = 12
    restarts: int = 30
    noises: tuple[float, ...] = NOISES
    first_setting: int = HELD_OUT_FROM


QUICK = Plan(seeds=1, kept=5, restarts=20, noises=(0.05,))


@lru_cache(maxsize=512)
def surface_of(key: str | int) -> Surface:
    """The surface, made once in a process."""
    if isinstance(key, int):
        return random_surface(key)
    return next(s for s in named_surfaces() if s.name == key)


@lru_cache(maxsize=512)
def best_of(key: str | int) -> float:
    return optimum(surface_of(key))


def worth_tuning(key: str | int) -> tuple[str | int, float]:
    """The optimum, 0.0 where the default start is within the margin of it already."""
    best, base = best_of(key), surface_of(key).truth(BASELINE) or 0.0
    return key, best if base < best * (1 - MARGIN) else 0.0


def run_job(work: tuple[Job, float]) -> list[Curve]:
    """The curves of a job, one for each seed."""
    job, best = work
    surface = surface_of(job.surface)
    make: Callable[[Task], Method] = {**METHODS, **ABLATIONS, **ON_REQUEST}[job.method]
    return [
        run_study(
            make,
            surface,
            best,
            job.noise,
            Task(region=surface.region, seed=seed, restarts=job.restarts, request_tokens=surface.request_tokens),
        )
        for seed in job.seeds
    ]


def run(plan: Plan, methods: Iterable[str], workers: int, named: bool = True) -> list[Run]:
    """All studies of the plan."""
    with ProcessPoolExecutor(workers) as pool:
        keys: list[str | int] = [s.name for s in named_surfaces()] if named else []
        bests = dict(pool.map(worth_tuning, keys))
        random_keys: dict[str | int, float] = {}
        numbers = range(plan.first_setting, plan.first_setting + 10 * plan.kept)
        for key, best in pool.map(worth_tuning, numbers[: 2 * plan.kept]):
            if best and len(random_keys) < plan.kept:
                random_keys[key] = best
        work = [
            (Job(method=m, surface=key, noise=noise, seeds=tuple(range(plan.seeds)), restarts=plan.restarts), best)
            for key, best in {**{k: b or best_of(k) for k, b in bests.items()}, **random_keys}.items()
            for noise in plan.noises
            for m in methods
        ]
        curves = list(pool.map(run_job, work))
    ceilings = {key: _ceiling(key, work, curves) for key in {job.surface for job, _ in work}}
    return [
        Run(
            method=job.method,
            surface=surface_of(job.surface).name,
            family=surface_of(job.surface).family,
            dims=len(surface_of(job.surface).region.bounds),
            noise=job.noise,
            curves=tuple(curve.against(ceilings[job.surface]) for curve in found),
        )
        for (job, _), found in zip(work, curves, strict=True)
    ]


def _ceiling(key: str | int, work: Sequence[tuple[Job, float]], curves: Sequence[list[Curve]]) -> float:
    """How much better than the assumed optimum the best recommendation of any method was, at least 1."""
    found = [c for (job, _), several in zip(work, curves, strict=True) if job.surface == key for c in several]
    return max(1.0, *(1.0 - min(c.regret) for c in found))


def main() -> int:
    """Runs the plan, prints the tables and writes them into README.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute instead of twenty, printed only")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument(
        "--development", action="store_true", help="random settings that are not held out, printed only"
    )
    parser.add_argument("--methods", default="", help="comma-separated parts of names, printed only")
    parser.add_argument("--noise", type=float, default=0.0, help="this noise only")
    parser.add_argument("--settings", type=int, default=0, help="random settings that are used")
    parser.add_argument("--ablations", action="store_true", help="with the sampler's parts taken out one by one")
    args = parser.parse_args()
    began = time.monotonic()
    plan = QUICK if args.quick else Plan()
    if args.seeds:
        plan = msgspec.structs.replace(plan, seeds=args.seeds)
    if args.settings:
        plan = msgspec.structs.replace(plan, kept=args.settings)
    if args.noise:
        plan = msgspec.structs.replace(plan, noises=(args.noise,))
    if args.ablations:
        plan = msgspec.structs.replace(plan, noises=(0.05,))
    if args.development:
        plan = msgspec.structs.replace(plan, first_setting=0)
    names = ["autotune", *ABLATIONS] if args.ablations else list(METHODS)
    if args.methods:
        names = [n for n in (*METHODS, *ABLATIONS, *ON_REQUEST) if any(part in n for part in args.methods.split(","))]
    runs = run(plan, names, args.workers)
    text = report(runs, plan.restarts)
    print(text)
    print(f"\n{sum(len(r.curves) for r in runs)} studies in {time.monotonic() - began:.0f} s", file=sys.stderr)
    if not (args.quick or args.development or args.methods or args.ablations):
        before, _, rest = TABLE.read_text().partition(BEGIN)
        TABLE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
