"""What one more load of a running server is worth, its running limit lowered: how much better the next start will be.

The value of a load is the expected rise of the best that a start may be expected to gain, over what such a load may
say. Nothing that was loaded at a lowered limit is recommended itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy.special import ndtr

from autotune.search.gp.belief import Belief
from autotune.search.gp.candidates import candidates
from autotune.search.gp.observations import Group
from autotune.search.gp.view import OFFSET_SD, OWN_SD, View

Array = NDArray[np.float64]
# Places on the axis, and how near to a load that was made another one says nothing new.
LADDER, TOO_NEAR = 14, 0.12
STARTS = 160
SCORE_NODES, LIMIT_NODES = 8, 6


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """A load that could be made now, at ``limit``; ``gain`` is what it is expected to add."""

    limit: int
    gain: float


def best_load(belief: Belief, start: tuple[int, Sequence[int]], chance: np.random.Generator) -> Load | None:
    """The most telling load of the running start (trial, limits so far), None: no smaller one is left."""
    loads = _ladder(belief, *start)
    if not loads:
        return None
    gains = _gains(belief, loads, _starts(belief, chance))
    best = int(np.argmax(gains))
    return Load(limit=round(loads[best].running), gain=float(gains[best]))


def _ladder(belief: Belief, number: int, had: Sequence[int]) -> list[Group]:
    """The loads to choose from, as they would be seen."""
    chart, place = belief.chart, belief.chart.role("running")
    start = next((g for g in belief.seen.fresh if number in g.trials), None)
    if start is None or place is None:
        return []
    top = min(start.running if math.isfinite(start.running) else math.inf, chart.tops[place])
    units = np.zeros((LADDER, chart.dims))
    units[:, place] = np.linspace(0.0, chart.top(place), LADDER)
    limits = sorted({float(v) for v in chart.quantity(chart.snap(units), place)})
    taken = [math.log(v) for v in (top, *had)]
    free = [v for v in limits if v < top and min(abs(math.log(v) - t) for t in taken) > TOO_NEAR]
    points = chart.lowered(np.tile(start.point, (len(free), 1)), np.array(free), np.full(len(free), start.graph))
    return [
        msgspec.structs.replace(start, live=True, trials=(number,), running=limit, point=tuple(point.tolist()))
        for limit, point in zip(free, points, strict=True)
    ]


def _starts(belief: Belief, chance: np.random.Generator) -> Array:
    """The starts that could be next: those that look best with some luck."""
    home = belief.seen.points()[np.argsort(-belief.means(), kind="stable")]
    points = candidates(belief.chart, home, chance)
    mean, deviation = belief.forecast(points)
    luck = mean + deviation + np.log(np.maximum(belief.chances(points), 1e-6))
    return np.asarray(points[np.argsort(-luck, kind="stable")[:STARTS]])


def _gains(belief: Belief, loads: Sequence[Group], units: Array) -> Array:
    """Expected rise (m,) of the best gain that a start at one of (n, dims) points promises."""
    survives = belief.survives(units)
    now, later = _chances(belief, loads, units)
    gain = np.zeros(len(loads))
    for view in belief.views:
        mean, moves, incumbent, shifts = _score_moves(belief, view, loads, units)
        before = incumbent.max() + (survives * now * np.maximum(mean - incumbent.max(), 0.0)).max()
        nodes, weights = _nodes(SCORE_NODES)
        after = np.zeros(len(loads))
        for node, weight in zip(nodes, weights, strict=True):
            floor = (incumbent[:, None] + shifts * node).max(axis=0)
            rise = np.maximum(mean[:, None] + moves * node - floor, 0.0) * survives[:, None]
            best = sum(share * (rise * kept).max(axis=0) for share, kept in later)
            after += weight * (floor + best)
        gain += view.weight * (after - before)
    return gain


def _score_moves(belief: Belief, view: View, loads: Sequence[Group], units: Array) -> tuple[Array, Array, Array, Array]:
    """Means of the points and how far each load may move them (n, m); the same of what may be recommended."""
    mean = view.mean_at(units)
    centre, _, reduced = view.process.predict(units, mean)
    live_seen = any(g.live for g in belief.groups)
    own = sum(e * e for e in loads[0].stderrs) / len(loads[0].stderrs)
    within = own + OWN_SD**2 + (0.0 if live_seen else OFFSET_SD**2)
    points = np.array([g.point for g in loads])
    load_mean = view.mean_of(loads)
    read, variance = view.process.reading(points, load_mean, _mix(belief.groups, loads), within)
    heard = (points, load_mean, read)
    moves = view.process.joint((units, mean, reduced), heard) / np.sqrt(variance)
    rows = belief.eligible()
    if not rows:
        return centre, moves, np.array([belief.floor(view)]), np.zeros((1, len(loads)))
    tried, known = view.rows(rows)
    return centre, moves, tried, view.process.joint(known, heard) / np.sqrt(variance)


def _chances(belief: Belief, loads: Sequence[Group], units: Array) -> tuple[Array, list[tuple[float, Array]]]:
    """The chance of each point to keep the limits, now (n,) and after each load (n, m): what it may say, and how likely
    that is.
    """
    limits = belief.limits
    if limits is None:
        return np.ones(len(units)), [(1.0, np.ones((len(units), len(loads))))]
    mean = limits.mean_at(units)
    centre, deviation, reduced = limits.process.predict(units, mean)
    points, load_mean = np.array([g.point for g in loads]), limits.mean_of(loads)
    known = [belief.groups[i] for i in limits.rows]
    read, variance = limits.process.reading(points, load_mean, _mix(known, loads), OWN_SD**2)
    moves = limits.process.joint((units, mean, reduced), (points, load_mean, read)) / np.sqrt(variance)
    left = np.sqrt(np.maximum(deviation[:, None] ** 2 - moves**2, 1e-8))
    after = [
        (float(weight), np.asarray(ndtr(-(centre[:, None] + moves * node) / left)))
        for node, weight in zip(*_nodes(LIMIT_NODES), strict=True)
    ]
    return np.asarray(ndtr(-centre / deviation)), after


def _mix(groups: Sequence[Group], loads: Sequence[Group]) -> Array:
    """How much of the start's own deviation each group has, (n, m)."""
    return np.array([[(load.trials[0] in g.trials) / len(g.trials) for load in loads] for g in groups])


def _nodes(count: int) -> tuple[Array, Array]:
    nodes, weights = hermegauss(count)
    return nodes, weights / weights.sum()
