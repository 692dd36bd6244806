"""What another study measured, as readings of this one that may lie apart.

Its level counts for nothing, as in ratios to its own baseline; its formula may have other constants; and a smooth
rest and an uneven one remain. Whether it tells anything here is for the evidence to say.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial
from scipy.linalg import block_diag

from autotune.search.gp.chart import Chart
from autotune.search.gp.kernel import matern, squares
from autotune.search.gp.model import Data, Mean, Prior, Process, fit
from autotune.search.gp.observations import Group, Observations, observe

Array = NDArray[np.float64]
# How likely it is beforehand that another study tells something of this one.
PLAUSIBLE = 0.5
# Below this it is no longer used.
DROPPED = 0.05
# So many configurations of one's own tell more than anybody else's.
OUTGROWN = 40
# Fitting takes the third power of the readings: of a long study the best are taken, and some of the others.
MOST, BEST = 60, 20
# How far another server's formula may lie from this one's, in deviations of the formula's own prior, beside its level.
FORMULA_APART = 0.5
SMOOTH_APART, LENGTH_APART, UNEVEN_APART = 0.08, 0.7, 0.03
# What the survival or death of another study's start counts against one of this study, and all of them together; where
# GPU and weights are as large as here, and elsewhere.
MEMORY_ALIKE, MEMORY_ELSEWHERE = (0.7, 10.0), (0.25, 3.0)


class Borrowed(msgspec.Struct, frozen=True, kw_only=True):
    """Another study's trials on this study's axes; ``alike`` where its GPU and its weights are as large."""

    trials: tuple[FrozenTrial, ...] = ()
    alike: bool = False

    def seen(self, chart: Chart, sign: float) -> Observations | None:
        """What they say, None where there are none."""
        return observe(self.trials, chart, sign) if self.trials else None


NOTHING_BORROWED = Borrowed()


def chosen(groups: Sequence[Group]) -> tuple[Group, ...]:
    """The configurations that are used, best first."""
    ranked = sorted(groups, key=lambda g: (-sum(g.logs) / len(g.logs), g.trials))
    if len(ranked) <= MOST:
        return tuple(ranked)
    rest = ranked[BEST:]
    places = np.linspace(0, len(rest) - 1, MOST - BEST).round().astype(int)
    return (*ranked[:BEST], *(rest[i] for i in places))


def readings(groups: Sequence[Group]) -> Data:
    """What the other study's starts say; it has no start in common with this one."""
    return Data(
        np.array([g.point for g in groups]),
        np.array([sum(g.logs) / len(g.logs) for g in groups]),
        np.diag([1.0 / len(g.logs) for g in groups]),
        np.array([sum(e * e for e in g.stderrs) / len(g.stderrs) ** 2 for g in groups]),
    )


def apart(points: Array, mean: Mean, categorical: tuple[bool, ...]) -> Array:
    """The covariance (m, m) of how the other study's readings lie apart. Its first slope is that of the level."""
    share = np.full(mean.slopes.shape[1], FORMULA_APART)
    share[0] = 1.0
    slopes = mean.slopes * share
    lengths = np.full(len(categorical), LENGTH_APART)
    smooth = SMOOTH_APART**2 * matern(squares(points, points, categorical), lengths)
    return np.asarray(slopes @ slopes.T + smooth + UNEVEN_APART**2 * np.eye(len(points)))


def fit_with(own: tuple[Data, Mean], other: tuple[Data, Mean], categorical: tuple[bool, ...], prior: Prior) -> Process:
    """The process over both, one's own readings first. Its evidence is that of one's own, given the other's."""
    (mine, my_mean), (theirs, their_mean) = own, other
    theirs = msgspec.structs.replace(
        theirs,
        # Their level counts for nothing: it is put where the mean has it, and may lie anywhere.
        values=theirs.values - float(np.mean(theirs.values - their_mean.values)),
        apart=apart(theirs.points, their_mean, categorical),
    )
    mean = Mean(
        np.concatenate([my_mean.values, their_mean.values]), np.concatenate([my_mean.slopes, their_mean.slopes])
    )
    process = fit(_joined(mine, theirs), mean, categorical, prior)
    alone = fit(theirs, their_mean, categorical, prior)
    return msgspec.structs.replace(process, evidence=process.evidence - alone.evidence)


def _joined(own: Data, other: Data) -> Data:
    assert other.apart is not None
    return Data(
        np.concatenate([own.points, other.points]),
        np.concatenate([own.values, other.values]),
        block_diag(own.shared, other.shared),
        np.concatenate([own.within, other.within]),
        block_diag(np.zeros_like(own.shared), other.apart),
    )
