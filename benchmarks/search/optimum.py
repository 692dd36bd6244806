"""The best that a surface holds, by a search that does not have to pay for starts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

from autotune.search.region import Axis, Point
from benchmarks.search.surfaces import Surface

RANDOM_POINTS = 60
CLIMBS = 1
REACHES = (0.15, 0.04)
AROUND = 5


class Best(NamedTuple):
    """A point and its noise-free throughput."""

    value: float
    point: Point


def optimum(surface: Surface) -> float:
    """The largest noise-free throughput that a cheap search finds."""
    return best_point(surface).value


def inside(surface: Surface, best: Best, running: str, margin: float) -> bool:
    """Whether the best ``running`` limit lies inside its range: at the top, all else as it is, the best
    point loses more than ``margin``, the server dies, or a limit is missed.
    """
    axis = next(axis for axis in surface.region.axes() if axis.name == running)
    return _value(surface, {**best.point, running: axis.at(1.0)}) < (1.0 - margin) * best.value


def best_point(surface: Surface) -> Best:
    """What a cheap search finds: corners and random points, then moves about the best."""
    axes = surface.region.axes()
    chance = random.Random(f"optimum of {surface.name}")
    pool = [*_corners(axes), *({a.name: a.at(chance.random()) for a in axes} for _ in range(RANDOM_POINTS))]
    scored = sorted(((_value(surface, p), i, p) for i, p in enumerate(pool)), reverse=True)[:CLIMBS]
    climbed = (_climb(surface, axes, point, chance) for _, _, point in scored)
    return Best(*max(climbed, key=lambda found: found[0]))


def _climb(surface: Surface, axes: tuple[Axis, ...], point: Point, chance: random.Random) -> tuple[float, Point]:
    best = _value(surface, point)
    for reach in REACHES:
        for step in _steps(axes, point, reach, chance):
            if (value := _value(surface, step)) > best:
                best, point = value, step
    return best, point


def _steps(axes: tuple[Axis, ...], point: Point, reach: float, chance: random.Random) -> Iterator[Point]:
    units = {axis.name: axis.unit(point[axis.name]) for axis in axes}
    for axis, shift in itertools.product(axes, (-2, -1, 1, 2)):
        yield {**point, axis.name: axis.at(units[axis.name] + shift * reach)}
    for _ in range(AROUND * len(axes)):
        yield {axis.name: axis.at(units[axis.name] + chance.gauss(0, reach)) for axis in axes}


def _corners(axes: tuple[Axis, ...]) -> Iterator[Point]:
    """Four levels each of the first three axes, the others in the middle."""
    for levels in itertools.product((0.0, 0.4, 0.75, 1.0), repeat=min(3, len(axes))):
        padded = (*levels, *(0.5,) * (len(axes) - len(levels)))
        yield {axis.name: axis.at(u) for axis, u in zip(axes, padded, strict=True)}


def _value(surface: Surface, point: Point) -> float:
    truth = surface.truth(surface.region.config(point))
    return truth.tok_s if truth and not truth.excess else 0.0
