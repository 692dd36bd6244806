"""The map of two parameters: scores near the trials, and where memory ran out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from scipy.interpolate import RBFInterpolator

from autotune.report.canvas import BAD, INK, PANEL, padded, short

CELLS = 140
SMOOTHING = 0.02
"""Keeps the surface from following the noise of a single trial."""
NEAR = 0.12
"""How far, in units of the map, a failed trial speaks for its surroundings."""
FAR = 0.25
"""How far from the next measured trial, in units of the map, a colour would be a guess."""

Floats = npt.NDArray[np.float64]
Spot = tuple[float, float]


def draw(
    axes: Axes, scored: Sequence[tuple[float, float, float]], lost: Sequence[Spot], logs: tuple[bool, bool]
) -> None:
    """Colours for the score, a hatched region where the nearest trials ran out of memory, a mark per trial."""
    spots = [(x, y) for x, y, _ in scored]
    unit = _Unit([*spots, *lost], logs)
    grid_x, grid_y = (np.linspace(0, 1, CELLS) for _ in range(2))
    mesh = np.stack(np.meshgrid(grid_x, grid_y), axis=-1).reshape(-1, 2)
    values = np.array([value for _, _, value in scored])
    points = unit.of(spots)
    if _spread(points):
        surface = RBFInterpolator(points, values, smoothing=SMOOTHING, kernel="linear", degree=0)(mesh)
        known = np.ma.masked_where(_distance(mesh, points) > FAR, np.clip(surface, values.min(), values.max()))
        shown = known.reshape(CELLS, CELLS)
        filled = axes.contourf(*unit.back(grid_x, grid_y), shown, levels=12, cmap="viridis", alpha=0.85)
        bar = axes.figure.colorbar(filled, ax=axes, format=lambda v, _: short(v), pad=0.02)
        bar.outline.set_visible(False)
    if lost:
        risky = _risk(mesh, unit.of(lost), points).reshape(CELLS, CELLS)
        axes.contourf(*unit.back(grid_x, grid_y), risky, levels=[0.5, 2], colors=[BAD], alpha=0.28)
        axes.contour(*unit.back(grid_x, grid_y), risky, levels=[0.5], colors=[BAD], linewidths=1.2)
        axes.plot(*zip(*lost, strict=True), "x", color=BAD, mew=2, ms=7, label="out of memory")
    axes.plot(*zip(*spots, strict=True), "o", mfc=PANEL, mec=INK, ms=5, label="measured")
    (left, right), (low, high) = unit.back(np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)


class _Unit:
    """Both axes mapped to 0..1 (on the log where asked), and back."""

    def __init__(self, spots: Sequence[Spot], logs: tuple[bool, bool]) -> None:
        self._logs = logs
        ends = [padded(min(s[i] for s in spots), max(s[i] for s in spots), logs[i]) for i in range(2)]
        self._low = np.array([self._inner(ends[i][0], i) for i in range(2)])
        self._high = np.array([self._inner(ends[i][1], i) for i in range(2)])

    def _inner(self, value: float, axis: int) -> float:
        return float(np.log(value)) if self._logs[axis] else value

    def of(self, spots: Sequence[Spot]) -> Floats:
        inner = np.array([[self._inner(s[i], i) for i in range(2)] for s in spots])
        return np.asarray((inner - self._low) / (self._high - self._low))

    def back(self, *units: Floats) -> list[Floats]:
        inner = [self._low[i] + unit * (self._high[i] - self._low[i]) for i, unit in enumerate(units)]
        return [np.exp(values) if self._logs[i] else values for i, values in enumerate(inner)]


def _distance(mesh: Floats, points: Floats) -> Floats:
    """Of every place to the next point."""
    return np.asarray(np.sqrt(((mesh[:, None, :] - points[None, :, :]) ** 2).sum(axis=2)).min(axis=1))


def _spread(points: Floats) -> bool:
    return len(np.unique(points.round(6), axis=0)) >= 3


def _risk(
    mesh: Floats,
    lost: Floats,
    fine: Floats,
) -> Floats:
    """Share of the nearby trials that ran out of memory, each weighing by its distance."""

    def weight(points: Floats) -> Floats:
        squares = ((mesh[:, None, :] - points[None, :, :]) ** 2).sum(axis=2)
        return np.asarray(np.exp(-squares / (2 * NEAR**2)).sum(axis=1))

    bad = weight(lost)
    return np.asarray(np.where(bad > 0.1, bad / (bad + weight(fine) + 1e-9), 0.0))
