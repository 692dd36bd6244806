"""Runs every method on every surface and writes the table: ``python -m benchmarks.search [--quick]``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path

import msgspec

# Matrices of some dozen rows: threads of the linear algebra would only wait for each other. Before NumPy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from autotune.values import Value
from benchmarks.search import settings
from benchmarks.search.methods import ABLATIONS, METHODS, ON_REQUEST
from benchmarks.search.optimum import best_point, inside
from benchmarks.search.report import report
from benchmarks.search.runs import LIVE, PLAIN, Run
from benchmarks.search.score import MARGIN
from benchmarks.search.study import BASELINE, Curve, Method, Task, regret_of, run_study
from benchmarks.search.surfaces import Surface

TABLE = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- table -->", "<!-- end -->"
# Noise between starts, and the studies of each method on each surface: the middle one is what machines show. Ours run
# more of each, for the comparison of live values with restarts alone.
STUDIES = ((0.02, 1), (0.05, 2), (0.10, 1))
MORE = 1


class Job(Value, frozen=True, kw_only=True):
    """Studies of one method on one surface, named by its key (``settings.surface_of``)."""

    method: str
    surface: str
    noise: float
    seeds: int
    restarts: int


class Site(Value, frozen=True, kw_only=True):
    """A surface by its key: its optimum, how far the default start is ``short`` of that, and whether the best running
    limit lies ``inside`` its range.
    """

    key: str
    best: float
    short: float
    inside: bool


class Plan(Value, frozen=True, kw_only=True):
    """How much is run: ``kept`` random settings from ``first_setting`` on, ``limited`` more whose time for a
    token is limited, and the families where they are ``named``.
    """

    studies: tuple[tuple[float, int], ...] = STUDIES
    more: int = MORE
    kept: int = 12
    limited: int = 6
    restarts: int = 20
    first_setting: int = settings.HELD_OUT_FROM
    named: bool = True

    def seeds(self, method: str, seeds: int) -> int:
        """Studies of a method on each surface, where the peers run ``seeds``."""
        return seeds + self.more if method in (PLAIN, LIVE) else seeds


QUICK = Plan(studies=((0.05, 1),), more=0, kept=5, limited=2)


@lru_cache(maxsize=512)
def surface_of(key: str) -> Surface:
    """The surface, made once in a process."""
    return settings.surface_of(key)


def look_at(key: str) -> Site:
    """The surface's optimum, and how the default start and the running limit stand to it."""
    surface = surface_of(key)
    best = best_point(surface)
    short = regret_of(surface.truth(BASELINE), best.value) if best.value else 0.0
    return Site(key=key, best=best.value, short=short, inside=inside(surface, best, settings.RUN, MARGIN))


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
            Task(
                region=surface.region,
                seed=seed,
                restarts=job.restarts,
                request_tokens=surface.request_tokens,
                limits=surface.limits,
            ),
        )
        for seed in range(job.seeds)
    ]


def run(plan: Plan, methods: Sequence[str], workers: int) -> list[Run]:
    """All studies of the plan. Objectives with a limit are searched by ours alone: the restated tools have none."""
    with ProcessPoolExecutor(workers) as pool:
        sites = _surfaces(plan, pool)
        work = [
            (Job(method=m, surface=key, noise=noise, seeds=plan.seeds(m, seeds), restarts=plan.restarts), site.best)
            for key, site in sites.items()
            for noise, seeds in plan.studies
            for m in methods
            if m in (PLAIN, LIVE) or not surface_of(key).limits
        ]
        curves = list(pool.map(run_job, work))
    ceilings = {key: _ceiling(key, work, curves) for key in sites}
    return [
        Run(
            method=job.method,
            surface=surface_of(job.surface).name,
            family=surface_of(job.surface).family,
            limited=bool(surface_of(job.surface).limits),
            inside=sites[job.surface].inside,
            dims=len(surface_of(job.surface).region.bounds),
            noise=job.noise,
            curves=tuple(curve.against(ceilings[job.surface]) for curve in found),
        )
        for (job, _), found in zip(work, curves, strict=True)
    ]


def _surfaces(plan: Plan, pool: ProcessPoolExecutor) -> dict[str, Site]:
    """Every surface of the plan by its key. Settings whose default start is within the margin are left out."""
    named = [s.name for s in (*settings.named_surfaces(), *settings.limited_surfaces())] if plan.named else []
    found = {site.key: site for site in pool.map(look_at, named)}
    first = plan.first_setting
    for kind, wanted in (("setting", plan.kept), ("limited setting", plan.limited)):
        keys = [f"{kind} {number}" for number in range(first, first + 2 * wanted)]
        worth = [site for site in pool.map(look_at, keys) if site.short > MARGIN]
        found |= {site.key: site for site in worth[:wanted]}
        first += 2 * plan.kept
    return found


def _ceiling(key: str, work: Sequence[tuple[Job, float]], curves: Sequence[list[Curve]]) -> float:
    """How much better than the assumed optimum the best recommendation of any method was, at least 1."""
    found = [c for (job, _), several in zip(work, curves, strict=True) if job.surface == key for c in several]
    return max(1.0, *(1.0 - min(c.regret) for c in found))


def main() -> int:
    """Runs the plan, prints the tables and writes them into README.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="some minutes instead of twenty, printed only")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument(
        "--development", action="store_true", help="random settings that are not held out, printed only"
    )
    parser.add_argument("--methods", default="", help="comma-separated parts of names, printed only")
    parser.add_argument("--noise", type=float, default=0.0, help="this noise only")
    parser.add_argument("--settings", type=int, default=0, help="random settings that are used")
    parser.add_argument("--live", action="store_true", help="the search with live values and without, printed only")
    parser.add_argument("--random", action="store_true", help="random settings alone, printed only")
    parser.add_argument("--ablations", action="store_true", help="with the sampler's parts taken out one by one")
    args = parser.parse_args()
    began = time.monotonic()
    plan = _plan(args)
    names = ["autotune", *ABLATIONS] if args.ablations else list(METHODS)
    if args.methods:
        names = [n for n in (*METHODS, *ABLATIONS, *ON_REQUEST) if any(part in n for part in args.methods.split(","))]
    if args.live:
        names = [PLAIN, LIVE]
    runs = run(plan, names, args.workers)
    text = report(runs, plan.restarts)
    print(text)
    print(f"\n{sum(len(r.curves) for r in runs)} studies in {time.monotonic() - began:.0f} s", file=sys.stderr)
    if plan == Plan() and not (args.methods or args.ablations or args.live):
        before, _, rest = TABLE.read_text().partition(BEGIN)
        TABLE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")
    return 0


def _plan(args: argparse.Namespace) -> Plan:
    plan = QUICK if args.quick else Plan()
    if args.noise or args.seeds or args.ablations:
        plan = msgspec.structs.replace(plan, studies=((args.noise or 0.05, args.seeds or 2),), more=0)
    if args.settings:
        plan = msgspec.structs.replace(plan, kept=args.settings, limited=args.settings // 2)
    if args.random:
        plan = msgspec.structs.replace(plan, named=False)
    if args.development:
        plan = msgspec.structs.replace(plan, first_setting=0)
    return plan


if __name__ == "__main__":
    sys.exit(main())
