"""What a start is worth that is loaded at lower running limits too: it shows a curve, the next start takes its best.

A start at a large limit may gain nothing by itself and still be the right one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autotune.search.gp.belief import Belief
from autotune.search.gp.view import View

Array = NDArray[np.float64]
# Where the curve is thought of, as shares of the limit; how many points are looked at, and how often chance is drawn.
RUNGS = (1.0, 0.7, 0.5, 0.35, 0.25)
CURVES, DRAWS = 48, 64
STARTS = 2


def worth_of_curves(belief: Belief, points: Array) -> Array:
    """Expected gain per start (m,) of two starts: one at each point, and one at the best that its loads point to."""
    place = belief.chart.role("running")
    if place is None or not len(points):
        return np.zeros(len(points))
    count = len(RUNGS)
    limits = belief.chart.quantity(points, place)[:, None] * np.array(RUNGS)
    every = np.repeat(points, count, axis=0)
    curves = belief.chart.lowered(every, limits.ravel(), np.full(len(every), np.nan))
    chance = np.random.default_rng(7)
    draws, luck = chance.standard_normal((DRAWS, count)), chance.standard_normal(DRAWS)
    allowed = _allowed(belief, curves, luck).reshape(DRAWS, len(points), count)
    survives = belief.survives(curves).reshape(len(points), count)
    gain = np.zeros(len(points))
    for view in belief.views:
        rises = _rises(belief, view, curves, draws)
        gain += view.weight * (rises * allowed * survives).max(axis=2).mean(axis=0)
    return np.asarray(gain * survives[:, 0] / STARTS)


def _rises(belief: Belief, view: View, curves: Array, draws: Array) -> Array:
    """How far the posterior means on each curve may come to lie above what is known, (draws, m, rungs)."""
    count = draws.shape[1]
    mean = view.mean_at(curves)
    centre, _, reduced = view.process.predict(curves, mean)
    rows = belief.eligible()
    best = float(view.tried[0][rows].max()) if rows else belief.floor(view)
    noise = view.process.noise**2 + (belief.start_variance(view) - view.process.noise**2) * np.eye(count)
    found = []
    for begin in range(0, len(curves), count):
        rung = slice(begin, begin + count)
        part = (curves[rung], type(mean)(mean.values[rung], mean.slopes[rung]), reduced[:, rung])
        prior = view.process.joint(part, part)
        learned = prior @ np.linalg.solve(prior + noise + 1e-9 * np.eye(count), prior)
        root = np.linalg.cholesky((learned + learned.T) / 2 + 1e-9 * np.eye(count))
        found.append(np.maximum(centre[rung] + draws @ root.T - best, 0.0))
    return np.stack(found, axis=1)


def _allowed(belief: Belief, curves: Array, luck: Array) -> Array:
    """Whether the objective's limits will turn out to hold, (draws, points): all of a curve are lucky together."""
    if belief.limits is None:
        return np.ones((len(luck), len(curves)))
    centre, deviation, _ = belief.limits.predict(curves)
    return np.asarray(centre + deviation * luck[:, None] <= 0, dtype=float)
