"""The search with live values beside the same search without them: how many servers each starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from autotune.values import Value
from benchmarks.search.runs import LIVE, PLAIN, RANDOM, Run
from benchmarks.search.score import MARGIN, median, shown
from benchmarks.search.study import Curve

HEAD = (
    "| surfaces | studies | starts to 3 %, without → with | restarts (the first start is none) | their ratio "
    "| mean restarts | their ratio | hours, without → with | within 3 % after 3, 5, 10 starts, %, without → with |"
)


class Side(Value, frozen=True, kw_only=True):
    """One of the two: medians of starts and hours to within the margin, the mean of the restarts (a study that never
    comes there counts all it had), and the shares within it at some starts.
    """

    starts: float
    restarts: float
    hours: float
    within: tuple[float, ...]

    @classmethod
    def of(cls, curves: Sequence[Curve]) -> Side:
        first = [c.first_within(MARGIN) for c in curves]
        hours = [c.clock_s[n - 1] / 3600 if n else math.inf for n, c in zip(first, curves, strict=True)]
        looks = (3, 5, 10)
        return cls(
            starts=median([n or math.inf for n in first]),
            restarts=fmean((n or len(c.regret)) - 1 for n, c in zip(first, curves, strict=True)),
            hours=median(hours),
            within=tuple(sum(c.regret[k - 1] <= MARGIN for c in curves) / len(curves) for k in looks),
        )


def live_tables(runs: Sequence[Run], budget: int) -> list[str]:
    """One table for each noise; none where live values were not run."""
    parts: list[str] = []
    for noise in sorted({r.noise for r in runs if r.method == LIVE}):
        rows = [_row(name, chosen, budget) for name, chosen in _groups([r for r in runs if r.noise == noise])]
        parts += [f"### Server starts with live values and without, {noise:.0%} noise", ""]
        parts += [HEAD, "| --- " * HEAD.count(" |") + "|", *(row for row in rows if row), ""]
    return parts


def _groups(runs: Sequence[Run]) -> Iterable[tuple[str, list[Run]]]:
    tests: tuple[tuple[str, Callable[[Run], bool]], ...] = (
        ("all together", lambda r: True),
        ("held out settings, with and without a limit", lambda r: r.family.startswith(RANDOM)),
        ("best running limit inside the range", lambda r: r.inside),
        ("best running limit at the top of the range", lambda r: not r.inside),
        ("all with a limit on the time per token", lambda r: r.limited),
        ("all without a limit", lambda r: not r.limited),
    )
    yield from ((f"**{name}**", [r for r in runs if test(r)]) for name, test in tests)
    for family in dict.fromkeys(r.family for r in runs):
        yield family, [r for r in runs if r.family == family]


def _row(name: str, runs: Sequence[Run], budget: int) -> str:
    plain, live = ([c for r in runs if r.method == method for c in r.curves] for method in (PLAIN, LIVE))
    if not plain or not live:
        return ""
    left, right = Side.of(plain), Side.of(live)
    within = " · ".join(f"{100 * a:.0f} → {100 * b:.0f}" for a, b in zip(left.within, right.within, strict=True))
    return (
        f"| {name} | {len(live)} | {shown(left.starts, budget)} → {shown(right.starts, budget)} "
        f"| {_less(left.starts, budget)} → {_less(right.starts, budget)} "
        f"| {_ratio(left.starts - 1, right.starts - 1, budget)} "
        f"| {left.restarts:.1f} → {right.restarts:.1f} | {_ratio(left.restarts, right.restarts, budget)} "
        f"| {_hours(left.hours)} → {_hours(right.hours)} | {within} |"
    )


def _ratio(without: float, with_live: float, budget: int) -> str:
    if not math.isfinite(with_live) or without == 0:
        return "–"
    return f"{with_live / without:.2f}" if math.isfinite(without) else f"< {with_live / (budget - 1):.2f}"


def _less(starts: float, budget: int) -> str:
    return shown(starts - 1, budget - 1)


def _hours(hours: float) -> str:
    return f"{hours:.2f}" if math.isfinite(hours) else "–"
