"""From curves to the figures of a table. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from autotune.values import Value
from benchmarks.search.study import Curve

MARGIN = 0.03
LOOKS = (5, 10, 20)


class Line(Value, frozen=True, kw_only=True):
    """One method on a set of studies. ``starts`` and ``hours`` are medians to within 3 %, infinite: not in the budget.

    ``regret`` are medians after 5, 10 and 20 starts, ``within`` the share of studies within 3 % then,
    ``lost`` the share of starts lost to OOM.
    """

    method: str
    studies: int
    starts: float
    hours: float
    regret: tuple[float, ...]
    within: tuple[float, ...]
    lost: float


def line(method: str, curves: Sequence[Curve]) -> Line:
    """The figures of ``curves``, all of one method."""
    first = [c.first_within(MARGIN) for c in curves]
    hours = [
        c.clock_s[min(n, len(c.clock_s)) - 1] / 3600 if n else math.inf for n, c in zip(first, curves, strict=True)
    ]
    flags = [flag for curve in curves for flag in curve.lost]
    return Line(
        method=method,
        studies=len(curves),
        starts=median([n or math.inf for n in first]),
        hours=median(hours),
        regret=tuple(statistics.median(c.regret[k - 1] for c in curves) for k in LOOKS),
        within=tuple(sum(c.regret[k - 1] <= MARGIN for c in curves) / len(curves) for k in LOOKS),
        lost=sum(flags) / len(flags),
    )


def median(values: Sequence[float]) -> float:
    """The median; infinite where it lies between a number and infinity."""
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return (low + high) / 2


def shown(value: float, budget: int) -> str:
    """A number of starts."""
    return f"{value:g}" if math.isfinite(value) else f"> {budget}"
