"""What is believed of a study: the parts of the model put together, and what follows for points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from autotune.search.gp.acquisition import gain_of_new, gain_of_repeat
from autotune.search.gp.chart import Chart
from autotune.search.gp.feasibility import Feasibility
from autotune.search.gp.model import Data, Mean, Prior, Process, fit
from autotune.search.gp.observations import Group, Observations
from autotune.search.gp.physics import Physics

Array = NDArray[np.float64]
# Without the formula the process has to explain everything.
PLAIN = Prior(amplitude=0.35, amplitude_sd=0.8)
LEVEL_SD = 1.0
# How far the formula is trusted before anything speaks for or against it.
TRUST = 0.8


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


class _Model(msgspec.Struct, frozen=True):
    """One way to see the study: with the formula, or without. ``tried`` are mean, deviation and reduced factor."""

    process: Process
    means: Mean
    tried: tuple[Array, Array, Array]
    physics: Physics | None = None
    weight: float = 1.0

    def mean_at(self, units: Array, groups: Sequence[Group]) -> Mean:
        return self.physics.mean(self.physics.load_at(units)) if self.physics else _level(groups, len(units))

    def rows(self, rows: list[int]) -> tuple[Array, tuple[Array, Mean, Array]]:
        """Posterior means of some groups, and what their covariances with other points need."""
        mean = Mean(self.means.values[rows], self.means.slopes[rows])
        return self.tried[0][rows], (self.process.data.points[rows], mean, self.tried[2][:, rows])


class Belief:
    """The posterior over one study. Needs at least one measured trial.

    Two models share it, one that trusts the formula and one that knows nothing: what each says counts as much as the
    data speak for it, so that a server that is not as the formula has it is searched all the same.
    """

    def __init__(self, question: Question, seen: Observations) -> None:
        self.question = question
        self.chart = question.chart
        self.seen = seen
        self._feasibility = Feasibility(self.chart, self.seen) if question.parts.feasibility else None
        self._models: tuple[_Model, ...] = ()
        self._limits: Process | None = None
        if self.groups:
            self._models = self._fit()
            self._limits = self._fit_limits()

    @property
    def groups(self) -> tuple[Group, ...]:
        return self.seen.groups

    def noise(self) -> float:
        """Relative deviation between equal starts."""
        return sum(m.weight * m.process.noise for m in self._models)

    def trust(self) -> float:
        """How much the data speak for the formula, 0 to 1."""
        return sum(m.weight for m in self._models if m.physics)

    def means(self) -> Array:
        """Posterior means of the groups, log scale."""
        return np.asarray(sum(m.weight * m.tried[0] for m in self._models))

    def deviations(self) -> Array:
        """Posterior deviations of the groups."""
        return np.asarray(sum(m.weight * m.tried[1] for m in self._models))

    def best(self) -> int | None:
        """The group to recommend: the best posterior mean of those that may be."""
        means = self.means()
        eligible = [i for i, g in enumerate(self.groups) if g.eligible]
        return max(eligible, key=lambda i: means[i]) if eligible else None

    def worth(self, units: Array) -> Array:
        """Expected relative gain of starting each of (n, dims) new points once, their feasibility counted in."""
        rows, gain = self._eligible(), np.zeros(len(units))
        for model in self._models:
            mean = model.mean_at(units, self.groups)
            centre, deviation, reduced = model.process.predict(units, mean)
            tried, known = model.rows(rows)
            cross = model.process.joint(known, (units, mean, reduced))
            total = np.sqrt(deviation**2 + self._start_variance(model))
            gain += model.weight * gain_of_new(centre, deviation**2 / total, tried, cross / total)
        return np.asarray(gain * self.chances(units))

    def worth_repeating(self) -> tuple[list[int], Array]:
        """Indices of the groups that may be recommended, and the expected gain of one more start of each."""
        rows = [i for i, g in enumerate(self.groups) if g.eligible]
        if not rows or not self.question.parts.noise:
            return [], np.zeros(0)
        gain = np.zeros(len(rows))
        for model in self._models:
            tried, known = model.rows(rows)
            cross = model.process.joint(known, known)
            total = np.sqrt(np.maximum(np.diag(cross), 0.0) + self._start_variance(model))
            gain += model.weight * gain_of_repeat(tried, cross / total[None, :])
        return rows, gain

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
        """Posterior mean and deviation of the log score at new points, of the two models together."""
        found = [m.process.predict(units, m.mean_at(units, self.groups)) for m in self._models]
        weights = [m.weight for m in self._models]
        mean = sum(w * f[0] for w, f in zip(weights, found, strict=True))
        second = sum(w * (f[1] ** 2 + (f[0] - mean) ** 2) for w, f in zip(weights, found, strict=True))
        return np.asarray(mean), np.sqrt(np.asarray(second))

    def _eligible(self) -> list[int]:
        """Rows of the groups that a gain is measured against."""
        rows = [i for i, g in enumerate(self.groups) if g.eligible]
        # Nothing may be recommended yet: anything that may be is a gain over the worst seen.
        return rows or [int(np.argmin(self.means()))]

    def _start_variance(self, model: _Model) -> float:
        within = [e * e for g in self.groups for e in g.stderrs]
        return model.process.noise**2 + sum(within) / len(within)

    def _fit(self) -> tuple[_Model, ...]:
        plain = self._model(None)
        if not (self.question.parts.physics and self.question.sign > 0 and self.chart.role("running") is not None):
            return (plain,)
        informed = self._model(Physics(self.chart, self.groups, self.question.request_tokens))
        odds = math.log(TRUST / (1 - TRUST)) + informed.process.evidence - plain.process.evidence
        weight = 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))
        return (
            msgspec.structs.replace(informed, weight=weight),
            msgspec.structs.replace(plain, weight=1 - weight),
        )

    def _model(self, physics: Physics | None) -> _Model:
        noise = self.seen.noise
        base = Prior() if physics else PLAIN
        prior = msgspec.structs.replace(base, noise=max(noise.between, 0.003), noise_sd=1 / math.sqrt(2 * noise.df))
        if not self.question.parts.noise:
            prior = msgspec.structs.replace(base, noise=0.003, noise_sd=1e-3)
        means = physics.mean(physics.load) if physics else _level(self.groups, len(self.groups))
        process = fit(_data(self.groups), means, self.chart.categorical(), prior)
        return _Model(process, means, process.predict(self.seen.points(), means), physics)

    def _fit_limits(self) -> Process | None:
        known = [g for g in self.groups if math.isfinite(g.excess)]
        if not known:
            return None
        points, excess = np.array([g.point for g in known]), np.array([g.excess for g in known])
        starts = np.array([len(g.logs) for g in known], dtype=float)
        data = Data(points, np.clip(excess, -1.0, 2.0), starts, np.zeros(len(known)))
        return fit(data, _flat(len(known)), self.chart.categorical(), PLAIN)


@lru_cache(maxsize=8)
def believe(question: Question, seen: Observations) -> Belief:
    """The belief, kept for a while: what to start next, whom to recommend and when to stop all ask for it."""
    return Belief(question, seen)


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
