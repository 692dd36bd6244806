"""What is believed of a study: the parts of the model put together, and what follows for points."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial
from scipy.special import ndtr

from autotune.search.gp.acquisition import gain_of_new, gain_of_repeat
from autotune.search.gp.chart import Chart
from autotune.search.gp.feasibility import Feasibility
from autotune.search.gp.model import Data, Mean, Prior, Process, fit
from autotune.search.gp.observations import Group, Observations, observe
from autotune.search.gp.physics import Physics

Array = NDArray[np.float64]
# Without the formula the process has to explain everything.
PLAIN = Prior(amplitude=0.35, amplitude_sd=0.8)
LEVEL_SD = 1.0


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Which parts of the model are used. All of them, except to measure what each is worth."""

    physics: bool = True
    feasibility: bool = True
    noise: bool = True
    cost: bool = True


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a study. ``request_tokens`` is what a request in flight holds on average, 0: unknown."""

    chart: Chart
    sign: float = 1.0
    request_tokens: float = 0.0
    parts: Parts = Parts()


class Belief:
    """The posterior over one study. Needs at least one measured trial."""

    def __init__(self, question: Question, trials: Sequence[FrozenTrial]) -> None:
        self.question = question
        self.chart = question.chart
        self.seen: Observations = observe(trials, question.chart, question.sign)
        self._physics: Physics | None = None
        self._feasibility = Feasibility(self.chart, self.seen) if question.parts.feasibility else None
        groups = self.seen.groups
        if groups:
            if question.parts.physics and question.sign > 0 and self.chart.role("running") is not None:
                self._physics = Physics(self.chart, groups, question.request_tokens)
            self._means = self._physics.mean(self._physics.load) if self._physics else _level(groups, len(groups))
            self._process = self._fit()
            self._tried = self._process.predict(self.seen.points(), self._means)
            self._limits = self._fit_limits()

    @property
    def groups(self) -> tuple[Group, ...]:
        return self.seen.groups

    def noise(self) -> float:
        """Relative deviation between equal starts."""
        return self._process.noise

    def means(self) -> Array:
        """Posterior means of the groups, log scale."""
        return self._tried[0]

    def deviations(self) -> Array:
        """Posterior deviations of the groups."""
        return self._tried[1]

    def best(self) -> int | None:
        """The group to recommend: the best posterior mean of those that may be."""
        eligible = [i for i, g in enumerate(self.groups) if g.eligible]
        return max(eligible, key=lambda i: self._tried[0][i]) if eligible else None

    def worth(self, units: Array) -> Array:
        """Expected relative gain of starting each of (n, dims) new points once, their feasibility counted in."""
        mean = self._mean_at(units)
        centre, deviation, reduced = self._process.predict(units, mean)
        tried, rows = self._eligible()
        cross = self._process.joint(rows, (units, mean, reduced))
        total = np.sqrt(deviation**2 + self._start_variance())
        gain = gain_of_new(centre, deviation**2 / total, tried, cross / total)
        return np.asarray(gain * self.chances(units))

    def worth_repeating(self) -> tuple[list[int], Array]:
        """Indices of the groups that may be recommended, and the expected gain of one more start of each."""
        tried, rows = self._eligible()
        if not self.question.parts.noise:
            return [], np.zeros(0)
        cross = self._process.joint(rows, rows)
        total = np.sqrt(np.maximum(np.diag(cross), 0.0) + self._start_variance())
        return [i for i, g in enumerate(self.groups) if g.eligible], gain_of_repeat(tried, cross / total[None, :])

    def chances(self, units: Array) -> Array:
        """The probability that a point can be served, within the objective's limits."""
        chance = self._feasibility.probability(units) if self._feasibility else np.ones(len(units))
        if self._limits is not None:
            centre, deviation, _ = self._limits.predict(units, _flat(len(units)))
            chance = chance * ndtr(-centre / deviation)
        return np.asarray(chance)

    def price(self, chance: Array) -> Array:
        """Expected seconds of a start with that chance to live, relative to one that lives."""
        if not self.question.parts.cost:
            return np.ones_like(chance)
        return np.asarray(chance + (1 - chance) * self.seen.price.failed_s / self.seen.price.measured_s)

    def forecast(self, units: Array) -> tuple[Array, Array]:
        """Posterior mean and deviation of the log score at new points."""
        centre, deviation, _ = self._process.predict(units, self._mean_at(units))
        return centre, deviation

    def _eligible(self) -> tuple[Array, tuple[Array, Mean, Array]]:
        rows = [i for i, g in enumerate(self.groups) if g.eligible]
        if not rows:
            # Nothing may be recommended yet: anything that may be is a gain over the worst seen.
            rows = [int(np.argmin(self._tried[0]))]
        mean = Mean(self._means.values[rows], self._means.slopes[rows])
        return self._tried[0][rows], (self.seen.points()[rows], mean, self._tried[2][:, rows])

    def _start_variance(self) -> float:
        within = [e * e for g in self.groups for e in g.stderrs]
        return self._process.noise**2 + sum(within) / len(within)

    def _mean_at(self, units: Array) -> Mean:
        return self._physics.mean(self._physics.load_at(units)) if self._physics else _level(self.groups, len(units))

    def _fit(self) -> Process:
        noise = self.seen.noise
        base = Prior() if self._physics else PLAIN
        prior = msgspec.structs.replace(base, noise=max(noise.between, 0.003), noise_sd=1 / math.sqrt(2 * noise.df))
        if not self.question.parts.noise:
            prior = msgspec.structs.replace(base, noise=0.003, noise_sd=1e-3)
        return fit(_data(self.groups), self._means, self.chart.categorical(), prior)

    def _fit_limits(self) -> Process | None:
        known = [g for g in self.groups if math.isfinite(g.excess)]
        if not known:
            return None
        points, excess = np.array([g.point for g in known]), np.array([g.excess for g in known])
        starts = np.array([len(g.logs) for g in known], dtype=float)
        data = Data(points, np.clip(excess, -1.0, 2.0), starts, np.zeros(len(known)))
        return fit(data, _flat(len(known)), self.chart.categorical(), PLAIN)


def _data(groups: Sequence[Group]) -> Data:
    return Data(
        np.array([g.point for g in groups]),
        np.array([sum(g.logs) / len(g.logs) for g in groups]),
        np.array([len(g.logs) for g in groups], dtype=float),
        np.array([sum(e * e for e in g.stderrs) / len(g.stderrs) for g in groups]),
    )


def _level(groups: Sequence[Group], count: int) -> Mean:
    """A level near what was seen, and little else known."""
    logs = [sum(g.logs) / len(g.logs) for g in groups]
    return Mean(np.full(count, float(np.median(logs))), np.full((count, 1), LEVEL_SD))


def _flat(count: int) -> Mean:
    return Mean(np.zeros(count), np.full((count, 1), 0.5))
