"""The pictures of loads and of the night itself; an empty text where there is nothing to draw."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes

from autotune.report.canvas import ACCENT, BAD, GOOD, GRID, INK, MUTED, SECOND, SIZE, THIRD, Canvas, numbers
from autotune.report.facts import Facts
from autotune.report.plots import REACH, metric_words
from autotune.report.times import baselines, where_time_went
from autotune.report.tradeoff import Point, Tradeoff
from autotune.report.tradeoff import tradeoff as loads_of
from autotune.spending import TIME_PARTS
from autotune.verdict.schedule import BASELINE

PART_COLOURS = (SECOND, GRID, ACCENT, THIRD, MUTED, BAD, BAD, INK, GOOD)
NAMED_POINTS = 6
"""More names than these on a front hide it."""


def tradeoff(facts: Facts) -> str:
    """Throughput against latency: a point per load, a curve per start with several, and the front."""
    found = loads_of(facts)
    if found is None:
        return ""
    canvas = Canvas("tradeoff", (SIZE[0], 3.2))
    with canvas as axes:
        valid, bad = [p for p in found.points if not p.refused], [p for p in found.points if p.refused]
        axes.plot(*_places(valid), "o", color=ACCENT, ms=4, alpha=0.8, label="load")
        if bad:
            axes.plot(*_places(bad), "x", color=BAD, ms=5, label="refused")
        _curves(axes, facts, found)
        _front(axes, found)
        if found.limit is not None:
            axes.axvline(found.limit, color=BAD, lw=1.2, ls=":", label="limit")
        axes.set_xlabel(f"{found.latency.removesuffix('_s')} in s")
        axes.set_ylabel("output tok/s")
        numbers(axes.yaxis)
        axes.margins(x=0.08, y=0.1)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return canvas.svg


def _places(points: list[Point] | tuple[Point, ...]) -> tuple[list[float], list[float]]:
    return [p.latency_s for p in points], [p.throughput for p in points]


def _curves(axes: Axes, facts: Facts, found: Tradeoff) -> None:
    """The baseline's and the chosen configuration's curves stand out; single loads get a mark."""
    curves = found.curves()
    for trial, points in curves.items():
        if trial not in (facts.baseline, facts.chosen):
            axes.plot(*_places(points), color=GRID, lw=1, zorder=1)
    for name, number, colour in (("baseline", facts.baseline, INK), ("chosen", facts.chosen, SECOND)):
        if number is not None and number in curves:
            axes.plot(*_places(curves[number]), "o-", color=colour, lw=1.8, ms=5, label=name)
        elif mine := [p for p in found.points if p.trial == number]:
            axes.plot(*_places(mine), "s", mfc="none", mec=colour, mew=1.5, ms=10, label=name)


def _front(axes: Axes, found: Tradeoff) -> None:
    if not found.front:
        return
    axes.step(*_places(found.front), where="post", color=GOOD, lw=1.5, marker="o", ms=4, label="Pareto front")
    several = bool(found.curves())
    spots: dict[tuple[float, float], list[str]] = {}
    for point in found.front:
        name = point.name if several else str(point.trial)
        spots.setdefault((point.latency_s, point.throughput), []).append(name)
    if len(spots) <= NAMED_POINTS:
        for spot, names in spots.items():
            axes.annotate(", ".join(names), spot, (5, 5), textcoords="offset points", size=8)


def night(facts: Facts) -> str:
    """Where the time went, as one bar."""
    parts = {name: seconds for name, seconds in where_time_went(facts).items() if seconds > 0}
    total = sum(parts.values())
    if total <= 0:
        return ""
    colours = dict(zip(TIME_PARTS, PART_COLOURS, strict=True))
    canvas = Canvas("night", (SIZE[0], 0.75 + 0.36 * len(parts)))
    with canvas as axes:
        left = 0.0
        for row, (name, seconds) in enumerate(parts.items()):
            share = 100 * seconds / total
            axes.barh(-row, share, left=left, color=colours[name], height=0.7)
            axes.annotate(f"{share:.0f} %", (left + share, -row), (4, 0), textcoords="offset points", va="center")
            left += share
        axes.set_yticks([-row for row in range(len(parts))], list(parts))
        axes.set_xlim(0, 112)
        axes.set_xlabel("% of the time on servers")
        axes.grid(axis="y", visible=False)
    return canvas.svg


def drift(facts: Facts) -> str:
    """Every start of the defaults over the night, as measured."""
    starts = baselines(facts)
    if len(starts) < 2:
        return ""
    canvas = Canvas("drift")
    with canvas as axes:
        mean = math.exp(sum(math.log(s.score) for s in starts) / len(starts))
        reach = REACH * facts.noise.total
        axes.axhspan(mean * math.exp(-reach), mean * math.exp(reach), color=GRID, alpha=0.5, lw=0, label="noise, 95 %")
        for name, late, colour in (("search", False, ACCENT), ("confirmation", True, SECOND)):
            mine = [s for s in starts if s.confirming is late]
            if mine:
                minutes = [s.at_s / 60 for s in mine]
                axes.plot(minutes, [s.score for s in mine], "o-", color=colour, lw=1, ms=5, label=name)
        axes.set_xlabel("minutes since the first trial")
        axes.set_ylabel(metric_words(facts))
        numbers(axes.yaxis)
        axes.margins(y=0.25)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return canvas.svg


def confirmation(facts: Facts) -> str:
    """The fresh starts of each side, in the order in which they ran."""
    done = facts.confirmed
    if done is None or not done.starts:
        return ""
    arms = sorted({s.arm for s in done.starts})
    canvas = Canvas("confirmation", (SIZE[0], 1.0 + 0.5 * len(arms)))
    with canvas as axes:
        for row, arm in enumerate(reversed(arms)):
            values = [s.value for s in done.starts if s.arm == arm]
            colour = MUTED if arm == BASELINE else GOOD
            axes.plot(values, [row] * len(values), "o", color=colour, ms=7, alpha=0.7)
            axes.plot([np.exp(np.mean(np.log(values)))], [row], "|", color=colour, ms=22, mew=2)
        axes.set_yticks(range(len(arms)), ["defaults" if a == BASELINE else f"finalist {a}" for a in reversed(arms)])
        axes.set_ylim(-0.6, len(arms) - 0.4)
        axes.margins(x=0.1)
        axes.set_xlabel(metric_words(facts))
        numbers(axes.xaxis)
        axes.grid(axis="y", visible=False)
    return canvas.svg
