"""Which points are looked at before one is started: a spread over the space, the neighbourhood of good ones, edges."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import CategoricalDistribution

from autotune.search.gp.chart import Chart

Array = NDArray[np.float64]
SPREAD, NEAR, AGAIN, KNOWN = 300, 120, 120, 8
SWEEP = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)
LIMITS, FRACTIONS = (1.0, 0.93, 0.85, 0.75, 0.6, 0.45), (0.0, 0.25, 0.5, 0.65, 0.8, 0.9, 1.0)
SHARES = (1.0, 0.67, 0.34, 0.0)


def candidates(chart: Chart, home: Array, chance: np.random.Generator) -> Array:
    """Points (n, dims) for a first look; ``home`` (k, dims) are the best known ones, best first."""
    parts = [_spread(chart, SPREAD, chance)]
    for point in home[:3]:
        parts.append(_near(chart, point, NEAR // 2, 0.2, chance))
        parts.append(_near(chart, point, NEAR // 2, 0.05, chance))
    if len(home):
        parts += [home[:KNOWN], _sweeps(chart, home[0]), _lattice(chart, home[0])]
    return _distinct(chart.snap(np.concatenate(parts)))


def closer(chart: Chart, points: Array, chance: np.random.Generator) -> Array:
    """Points for a second look, around the most promising ones of the first."""
    parts = [_near(chart, point, AGAIN // len(points), 0.04, chance) for point in points]
    return _distinct(chart.snap(np.concatenate(parts)))


def _spread(chart: Chart, count: int, chance: np.random.Generator) -> Array:
    return chance.random((count, chart.dims)) * _tops(chart)


def _near(chart: Chart, point: Array, count: int, reach: float, chance: np.random.Generator) -> Array:
    moved = point + chance.normal(0.0, reach, (count, chart.dims)) * (chance.random((count, chart.dims)) < 0.7)
    for i, is_category in enumerate(chart.categorical()):
        if is_category:
            other = np.floor(chance.random(count) * (_tops(chart)[i] + 1))
            moved[:, i] = np.where(chance.random(count) < 0.2, other, point[i])
    return np.asarray(np.clip(moved, 0.0, _tops(chart)))


def _sweeps(chart: Chart, point: Array) -> Array:
    """Each axis alone, from end to end."""
    rows = []
    for i, top in enumerate(_tops(chart)):
        for level in SWEEP:
            row = point.copy()
            row[i] = level * top
            rows.append(row)
    return np.array(rows)


def _lattice(chart: Chart, point: Array) -> Array:
    """Running limit, graph share and memory fraction together: the good region needs them to move at once."""
    levels = {"running": LIMITS, "graph": SHARES, "memory": FRACTIONS}
    axes = [(place, values) for role, values in levels.items() if (place := chart.role(role)) is not None]  # type: ignore[arg-type]
    rows = []
    for values in itertools.product(*(values for _, values in axes)):
        row = point.copy()
        for (place, _), value in zip(axes, values, strict=True):
            row[place] = value * _tops(chart)[place]
        rows.append(row)
    return np.array(rows)


def _tops(chart: Chart) -> Array:
    return np.array(
        [len(d.choices) - 1.0 if isinstance(d, CategoricalDistribution) else 1.0 for d in chart.distributions]
    )


def _distinct(points: Array) -> Array:
    return np.unique(np.round(points, 9), axis=0)
