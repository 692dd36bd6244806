"""How far a configuration lies from the objective's limits: the largest excess, by its logarithm.

Latencies follow the pace at which one request gets its tokens, which the formula knows; by how much is learned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from autotune.search.gp.chart import Chart
from autotune.search.gp.model import Data, Mean, Prior, Process, fit
from autotune.search.gp.observations import Group, Observations
from autotune.search.gp.physics import Load, Physics

Array = NDArray[np.float64]
LEVEL_SD = 1.0
# Between latencies that do not care for the pace (0) and those that are the pace (1).
FOLLOWS, FOLLOWS_SD = 0.5, 0.7
LEAST, MOST = -0.95, 5.0


class Limits:
    """The excess over the limits. Needs at least one group that has them."""

    def __init__(self, chart: Chart, seen: Observations, physics: Physics | None, prior: Prior) -> None:
        rows = [i for i, g in enumerate(seen.groups) if math.isfinite(g.excess)]
        known = [seen.groups[i] for i in rows]
        self._physics = physics
        pace = physics.pace(physics.load_of(known)) if physics else np.zeros(len(known))
        self._centre = float(np.mean(pace))
        values = np.log1p(np.clip([g.excess for g in known], LEAST, MOST))
        data = Data(seen.points()[rows], values, seen.shared()[np.ix_(rows, rows)], np.zeros(len(known)))
        self.process: Process = fit(data, self._mean(pace), chart.categorical(), prior)
        self.rows = rows

    def believed(self) -> dict[int, bool]:
        """Of each group that has limits, by its row, whether they are likelier to hold than not."""
        data = self.process.data
        centre = self.process.predict(data.points, self.process.mean)[0]
        return dict(zip(self.rows, (centre <= 0).tolist(), strict=True))

    def mean_at(self, units: Array) -> Mean:
        """The prior mean at points."""
        return self._mean(self._pace(self._physics.load_at(units) if self._physics else None, len(units)))

    def mean_of(self, loads: Sequence[Group]) -> Mean:
        """The prior mean of loads at lowered limits."""
        return self._mean(self._pace(self._physics.load_of(loads) if self._physics else None, len(loads)))

    def predict(self, units: Array) -> tuple[Array, Array, Array]:
        """Posterior mean and deviation of the log of the excess plus one (m,), and the reduced cross factor."""
        return self.process.predict(units, self.mean_at(units))

    def chances(self, units: Array) -> Array:
        """The probability that the limits hold, (m,)."""
        centre, deviation, _ = self.predict(units)
        return np.asarray(ndtr(-centre / deviation))

    def _pace(self, load: Load | None, count: int) -> Array:
        return self._physics.pace(load) if self._physics and load else np.zeros(count)

    def _mean(self, pace: Array) -> Mean:
        """A level of which nothing is known, and a share of the pace."""
        off = pace - self._centre if self._physics else pace
        columns = [np.full(len(off), LEVEL_SD), FOLLOWS_SD * off]
        return Mean(FOLLOWS * off, np.stack(columns, axis=1))


def limits_of(chart: Chart, seen: Observations, physics: Physics | None, prior: Prior) -> Limits | None:
    """None where the objective has no limits."""
    return Limits(chart, seen, physics, prior) if any(math.isfinite(g.excess) for g in seen.groups) else None
