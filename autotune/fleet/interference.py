"""Do servers side by side slow each other down? The baseline alone against the baseline beside its neighbours. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from autotune.values import Value
from autotune.verdict.noise import NoiseModel
from autotune.verdict.objective import merit

LEVEL = 0.10
"""Of the two-sided interval: a warning costs less than a night that is told nothing."""


class Interference(Value, frozen=True, kw_only=True):
    """Scores of the baseline ``alone`` and ``beside`` neighbours. ``change`` is relative, negative where neighbours
    hurt, with its 90 % interval; ``noticeable`` when that interval is below zero.
    """

    metric: str
    alone: tuple[float, ...]
    beside: tuple[float, ...]
    slots: int
    change: float
    low: float
    high: float

    @property
    def noticeable(self) -> bool:
        return self.high < 0

    @property
    def sentence(self) -> str:
        span = f"{100 * self.change:+.1f} % ({100 * self.low:+.1f} to {100 * self.high:+.1f})"
        if self.noticeable:
            return (
                f"interference: the baseline beside its neighbours is {span} of the baseline alone: scores of the "
                "search hold beside neighbours only; the confirmation runs alone"
            )
        return f"interference: none seen beyond the noise between {self.slots} slots: {span}"


def compare(
    alone: Sequence[float], beside: Sequence[float], *, metric: str, noise: NoiseModel, slots: int
) -> Interference:
    """``noise`` is that of one start, from what was known before; the scatter of these starts is pooled with it.

    Scores are greater than zero. Each side has at least one.
    """
    sides = [np.array([merit(value, metric) for value in side]) for side in (alone, beside)]
    effect = float(sides[1].mean() - sides[0].mean())
    own_df = sum(len(side) - 1 for side in sides)
    squares = float(sum(((side - side.mean()) ** 2).sum() for side in sides))
    df = noise.df + own_df
    variance = (noise.df * noise.total**2 + squares) / df
    error = math.sqrt(variance * sum(1 / len(side) for side in sides))
    reach = error * float(stats.t.isf(LEVEL / 2, df))
    return Interference(
        metric=metric,
        alone=tuple(alone),
        beside=tuple(beside),
        slots=slots,
        change=math.expm1(effect),
        low=math.expm1(effect - reach),
        high=math.expm1(effect + reach),
    )
