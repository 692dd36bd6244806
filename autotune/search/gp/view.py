"""One way to see a study: a mean, with the formula or without, and the process that explains the rest."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from autotune.search.gp.borrowed import fit_with, readings
from autotune.search.gp.chart import Chart
from autotune.search.gp.model import Data, Mean, Prior, Process, fit
from autotune.search.gp.observations import Group, Observations
from autotune.search.gp.physics import Physics

Array = NDArray[np.float64]
LEVEL_SD = 1.0
# How far a load at a lowered limit may lie off a fresh start with that limit: all of them together, and each.
OFFSET_SD, OWN_SD = 0.02, 0.01


class View(msgspec.Struct, frozen=True):
    """``tried`` are posterior mean, deviation and reduced factor of the groups; ``weight`` is what the view counts.
    ``borrows`` where another study's readings stand behind those of the groups.
    """

    process: Process
    means: Mean
    tried: tuple[Array, Array, Array]
    groups: tuple[Group, ...]
    physics: Physics | None = None
    weight: float = 1.0
    borrows: bool = False

    @classmethod
    def of(
        cls, chart: Chart, seen: Observations, physics: Physics | None, prior: Prior, others: Sequence[Group] = ()
    ) -> View:
        """Fitted to all that was seen, and to ``others``, another study's starts."""
        groups = seen.groups
        base = physics.mean(physics.load) if physics else _level(groups, len(groups))
        means = _with_offset(base, np.array([float(g.live) for g in groups])) if _any_live(groups) else base
        if others:
            there = physics.mean(physics.load_of(others)) if physics else _level(groups, len(others))
            there = _with_offset(there, np.zeros(len(others))) if _any_live(groups) else there
            process = fit_with((data_of(seen), means), (readings(others), there), chart.categorical(), prior)
        else:
            process = fit(data_of(seen), means, chart.categorical(), prior)
        return cls(process, means, process.predict(seen.points(), means), groups, physics, borrows=bool(others))

    def mean_at(self, units: Array) -> Mean:
        """The prior mean of fresh starts at points (m, dims)."""
        base = self.physics.mean(self.physics.load_at(units)) if self.physics else _level(self.groups, len(units))
        return _with_offset(base, np.zeros(len(units))) if _any_live(self.groups) else base

    def mean_of(self, loads: Sequence[Group]) -> Mean:
        """The prior mean of loads at lowered limits."""
        base = self.physics.mean(self.physics.load_of(loads)) if self.physics else _level(self.groups, len(loads))
        return _with_offset(base, np.ones(len(loads))) if _any_live(self.groups) else base

    def predict(self, units: Array) -> tuple[Array, Array, Array]:
        """Posterior mean and deviation (m,) of fresh starts, and the reduced cross factor (n, m)."""
        return self.process.predict(units, self.mean_at(units))

    def rows(self, rows: list[int]) -> tuple[Array, tuple[Array, Mean, Array]]:
        """Posterior means of some groups, and what their covariances with other points need."""
        mean = Mean(self.means.values[rows], self.means.slopes[rows])
        return self.tried[0][rows], (self.process.data.points[rows], mean, self.tried[2][:, rows])


def data_of(seen: Observations) -> Data:
    """What was read, by group."""
    groups = seen.groups
    own = [sum(e * e for e in g.stderrs) / len(g.stderrs) ** 2 + (OWN_SD**2 if g.live else 0.0) for g in groups]
    values = np.array([sum(g.logs) / len(g.logs) for g in groups])
    return Data(seen.points(), values, seen.shared(), np.array(own))


def _any_live(groups: Sequence[Group]) -> bool:
    return any(g.live for g in groups)


def _with_offset(mean: Mean, live: Array) -> Mean:
    """With one more unknown: what loads at lowered limits are off together."""
    return Mean(mean.values, np.concatenate([mean.slopes, OFFSET_SD * live[:, None]], axis=1))


def _level(groups: Sequence[Group], count: int) -> Mean:
    """A level near what was seen, and little else known."""
    logs = [sum(g.logs) / len(g.logs) for g in groups if not g.live]
    return Mean(np.full(count, float(np.median(logs))), np.full((count, 1), LEVEL_SD))
