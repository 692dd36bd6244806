"""Runs every setting and writes the table: ``python -m benchmarks.verdict [--studies N]``."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec
from scipy import stats

from autotune.verdict.power import power, starts_needed
from benchmarks.verdict.studies import Answer, Plan, World, run_study

TABLE = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- table -->", "<!-- end -->"

HEADINGS = (
    '| setting | "reliable gain", % of studies | of these without a gain in truth, % of studies '
    "| interval covers the truth, % | starts |"
)
EQUAL = (0.0,) * 12
NEEDLE = (0.10, *(0.0,) * 11)
PLATEAU = (0.10, 0.10, 0.10, 0.05, 0.05, 0.0, 0.0, 0.0, -0.05, -0.05, -0.10, -0.20)
PIPELINE = Plan(search=True, finalists=2)
STRICT = Plan(more_baseline=False)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table."""

    section: str
    name: str
    world: World
    plan: Plan


def cases() -> list[Case]:
    """Every setting, in the order of the table."""
    return [*alone(), *whole(), *drifting(), *limping(), *stopped_early()]


def alone() -> list[Case]:
    """The confirmation without a search before it."""
    found: list[tuple[str, World, Plan]] = []
    for noise in (0.02, 0.05, 0.10):
        for gain in (0.0, 0.10):
            world, what = World(gains=(gain,), noise=noise), f"{noise:.0%} noise, true gain {gain:.0%}"
            found.append((f"{what}: 5 starts, baseline 7", world, Plan()))
            found.append((f"{what}: 5 starts a side", world, STRICT))
            found.append((f"{what}: 3 starts, baseline 5", world, Plan(blocks=3)))
    for noise, blocks in ((0.05, 6), (0.10, 20)):
        name = f"{noise:.0%} noise, true gain 10%: {blocks} starts a side"
        found.append((name, World(gains=(0.1,), noise=noise), Plan(blocks=blocks, more_baseline=False)))
    for k in (2, 3):
        name = f"5% noise, {k} candidates, each with true gain 10%: 5 starts a side"
        found.append((name, World(gains=(0.1,) * k, noise=0.05), Plan(finalists=k, more_baseline=False)))
    found.append(("5% noise, true loss 10%: 5 starts, baseline 7", World(gains=(-0.1,), noise=0.05), Plan()))
    return _cases("Confirmation alone (one candidate, unless said)", found)


def whole() -> list[Case]:
    """Search, choice of finalists, confirmation."""
    found: list[tuple[str, World, Plan]] = []
    for noise in (0.02, 0.05, 0.10):
        for label, gains in (("all equal", EQUAL), ("one of 12 is 10% better", NEEDLE), ("plateau at 10%", PLATEAU)):
            found.append((f"{noise:.0%} noise, {label}", World(gains=gains, noise=noise), PIPELINE))
    three = Plan(search=True, finalists=3)
    for label, gains in (("all equal", EQUAL), ("plateau at 10%", PLATEAU)):
        found.append((f"5% noise, {label}, 3 finalists", World(gains=gains, noise=0.05), three))
    return _cases("Whole study: 12 trials searched, 2 finalists, 5 starts each, 7 of the baseline", found)


def drifting() -> list[Case]:
    """The machine becomes faster or slower during the study."""
    found: list[tuple[str, World, Plan]] = []
    for label, gains in (("all equal", EQUAL), ("plateau at 10%", PLATEAU)):
        for size in (0.10, -0.10, 0.30):
            world = World(gains=gains, noise=0.05, drift=size, shape="line")
            found.append((f"{label}, steadily by {size:+.0%}", world, PIPELINE))
        for size in (0.10, 0.30):
            world = World(gains=gains, noise=0.05, drift=size, shape="step")
            found.append((f"{label}, one step of {size:+.0%} in the confirmation", world, PIPELINE))
        for size in (0.10, 0.30):
            world = World(gains=gains, noise=0.05, drift=size, shape="cold")
            found.append((f"{label}, all but the first start of the confirmation {size:+.0%}", world, PIPELINE))
        world = World(gains=gains, noise=0.05, drift=0.15, shape="walk")
        found.append((f"{label}, random walk of 15%", world, PIPELINE))
    return _cases("Whole study on a drifting server (5% noise)", found)


def limping() -> list[Case]:
    """Noise that is not normal: some starts are much slower than the others."""
    found = [
        (f"{label}, {slow:.0%} of starts 20% slower", World(gains=gains, noise=0.05, slow_share=slow), PIPELINE)
        for label, gains in (("all equal", EQUAL), ("plateau at 10%", PLATEAU))
        for slow in (0.05, 0.2)
    ]
    return _cases("Whole study, some starts much slower (5% noise)", found)


def stopped_early() -> list[Case]:
    """Several looks."""
    plan = Plan(search=True, finalists=2, looks=(3, 4, 5))
    found = [
        (f"{noise:.0%} noise, {label}", World(gains=gains, noise=noise), plan)
        for noise in (0.02, 0.05, 0.10)
        for label, gains in (("all equal", EQUAL), ("plateau at 10%", PLATEAU))
    ]
    return _cases("Whole study, judged after 3, 4 and 5 blocks, stopped when decided", found)


def _cases(section: str, found: list[tuple[str, World, Plan]]) -> list[Case]:
    return [Case(section=section, name=name, world=world, plan=plan) for name, world, plan in found]


def run_case(work: tuple[Case, int, int]) -> list[Answer]:
    """``work`` is the case, the first seed and the number of studies."""
    case, first, studies = work
    return [run_study(case.world, case.plan, first + i) for i in range(studies)]


def share(hits: int, total: int) -> str:
    """A share in per cent with its exact (Clopper-Pearson) 95 % interval."""
    interval = stats.binomtest(hits, total).proportion_ci(0.95, method="exact")
    return f"{100 * hits / total:.1f} ({100 * interval.low:.1f}–{100 * interval.high:.1f})"


def line(case: Case, answers: list[Answer]) -> str:
    """The case's line of the table."""
    n = len(answers)
    claimed = [a for a in answers if a.claimed]
    false = sum(a.truth <= 0 for a in claimed)
    starts = sum(a.starts for a in answers) / n
    cells = (
        case.name,
        share(len(claimed), n),
        share(false, n),
        share(sum(a.covered for a in answers), n),
        f"{starts:.1f}",
    )
    return "| " + " | ".join(cells) + " |"


def table(results: list[tuple[Case, list[Answer]]]) -> str:
    """All sections as Markdown."""
    lines: list[str] = []
    section = ""
    for case, answers in results:
        if case.section != section:
            section = case.section
            lines += [
                "",
                f"### {section}",
                "",
                HEADINGS,
                "| --- | --- | --- | --- | --- |",
            ]
        lines.append(line(case, answers))
    return "\n".join([*lines, "", *power_table()])


def power_table() -> list[str]:
    """Computed, not simulated: how many starts a difference costs."""
    lines = [
        "### Starts a side to resolve a difference with 90 %",
        "",
        "| true gain | 2 % noise | 5 % noise | 10 % noise |",
        "| --- | --- | --- | --- |",
    ]
    for gain in (0.02, 0.03, 0.05, 0.10, 0.20):
        needed = (starts_needed(gain, noise=n) for n in (0.02, 0.05, 0.10))
        lines.append(f"| {gain:.0%} | " + " | ".join(str(x) for x in needed) + " |")
    found = [power(0.10, noise=0.05, starts=n) for n in (3, 4, 5, 6)]
    shown = ", ".join(f"{100 * p:.0f} % with {n}" for n, p in zip((3, 4, 5, 6), found, strict=True))
    return [*lines, "", f"A gain of 10 % at 5 % noise, one candidate: {shown} starts a side."]


def main() -> int:
    """Runs the cases, prints the table and writes it into README.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--print-only", action="store_true")
    args = parser.parse_args()
    began = time.monotonic()
    chosen = cases()
    with ProcessPoolExecutor(args.workers) as pool:
        work = [(case, args.seed * (i + 1), args.studies) for i, case in enumerate(chosen)]
        results = list(zip(chosen, pool.map(run_case, work), strict=True))
    text = table(results)
    print(text)
    print(f"\n{len(chosen) * args.studies} studies in {time.monotonic() - began:.0f} s", file=sys.stderr)
    if not args.print_only:
        before, _, rest = TABLE.read_text().partition(BEGIN)
        note = f"{args.studies} studies a line, seed {args.seed}. In brackets: the exact 95 % interval of the share."
        TABLE.write_text(f"{before}{BEGIN}\n{note}\n{text}\n{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
