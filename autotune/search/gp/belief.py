"""What is believed of a study: the parts of the model put together, and what follows for points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from autotune.search.gp.acquisition import gain_of_new, gain_of_repeat
from autotune.search.gp.borrowed import DROPPED, MEMORY_ALIKE, MEMORY_ELSEWHERE, OUTGROWN, PLAUSIBLE, chosen
from autotune.search.gp.chart import Chart
from autotune.search.gp.feasibility import Feasibility
from autotune.search.gp.limits import Limits, limits_of
from autotune.search.gp.model import Prior
from autotune.search.gp.observations import Group, Observations
from autotune.search.gp.physics import Physics
from autotune.search.gp.view import View

Array = NDArray[np.float64]
# What the pace of the formula leaves of a latency.
LATENCY = Prior(amplitude=0.12, amplitude_sd=0.8)
# Without the formula the process has to explain everything.
PLAIN = Prior(amplitude=0.35, amplitude_sd=0.8)
LENGTHS = {"graph": 2.0, "memory": 1.5}
# How far the formula is trusted before anything speaks for or against it.
TRUST = 0.8
# A configuration within the limits is worth this much more than the slowest one that is not, on the log scale.
BELOW_ALL = 0.7


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Which parts of the model are used. All of them, except to measure what each is worth."""

    physics: bool = True
    feasibility: bool = True
    readings: bool = True
    noise: bool = True


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a study. ``request_tokens`` is what a request in flight holds on average, 0: unknown;
    ``borrowed`` is what another study saw, ``alike`` says that its GPU and weights were as large.
    """

    chart: Chart
    sign: float = 1.0
    request_tokens: float = 0.0
    parts: Parts = Parts()
    borrowed: Observations | None = None
    alike: bool = False


class Belief:
    """The posterior over one study. Needs at least one measured trial.

    Two models share it, one that trusts the formula and one that knows nothing: what each says counts as much as the
    data speak for it, so that a server that is not as the formula has it is searched all the same. Where another study
    was borrowed from, a third one counts its readings in, as long as this study's own are likelier by that.
    """

    def __init__(self, question: Question, seen: Observations) -> None:
        self.question = question
        self.chart = question.chart
        self.seen = seen
        self.views: tuple[View, ...] = ()
        self.limits: Limits | None = None
        if self.groups:
            self.views = self._fit()
            physics = self.views[0].physics
            self.limits = limits_of(self.chart, seen, physics, self._prior(LATENCY if physics else PLAIN))
        borrowed = question.borrowed if self.borrowing() else None
        weight = MEMORY_ALIKE if question.alike else MEMORY_ELSEWHERE
        parts = question.parts
        memory = Feasibility(self.chart, seen, borrowed, weight, readings=parts.readings) if parts.feasibility else None
        self._feasibility = memory

    @property
    def groups(self) -> tuple[Group, ...]:
        return self.seen.groups

    def noise(self) -> float:
        """Relative deviation between equal starts."""
        return sum(m.weight * m.process.noise for m in self.views)

    def trust(self) -> float:
        """How much the data speak for the formula, 0 to 1."""
        return sum(m.weight for m in self.views if m.physics)

    def borrows(self) -> bool:
        """Whether another study's readings are weighed here at all."""
        borrowed = self.question.borrowed
        return borrowed is not None and bool(borrowed.groups) and len(self.seen.fresh) <= OUTGROWN

    def borrowing(self) -> float:
        """How likely it is that the other study tells something of this one; 0.0 where it is not asked, or dropped."""
        return sum(view.weight for view in self.views if view.borrows)

    def homes(self) -> Array:
        """Points (k, dims) near which the best may lie: the best of one's own, then the other study's two best."""
        own = self.seen.points()[np.argsort(-self.means(), kind="stable")]
        if not self.borrowing() or self.question.borrowed is None:
            return np.asarray(own)
        there = np.array([g.point for g in chosen(self.question.borrowed.fresh)[:2]])
        return np.concatenate([own[:1], there, own[1:]])

    def means(self) -> Array:
        """Posterior means of the groups, log scale."""
        return np.asarray(sum(m.weight * m.tried[0] for m in self.views))

    def deviations(self) -> Array:
        """Posterior deviations of the groups."""
        return np.asarray(sum(m.weight * m.tried[1] for m in self.views))

    def best(self) -> int | None:
        """The group to recommend: the best posterior mean of those that may be."""
        means = self.means()
        return max(self.eligible(), key=lambda i: means[i], default=None)

    def worth(self, units: Array) -> Array:
        """Expected relative gain of starting each of (n, dims) new points once, their feasibility counted in."""
        rows, gain = self.eligible(), np.zeros(len(units))
        for view in self.views:
            mean = view.mean_at(units)
            centre, deviation, reduced = view.process.predict(units, mean)
            if not rows:
                gain += view.weight * np.maximum(centre - self.floor(view), 0.0)
                continue
            tried, known = view.rows(rows)
            cross = view.process.joint(known, (units, mean, reduced))
            total = np.sqrt(deviation**2 + self.start_variance(view))
            gain += view.weight * gain_of_new(centre, deviation**2 / total, tried, cross / total)
        return np.asarray(gain * self.sense(units) * self.chances(units))

    def sense(self, units: Array) -> Array:
        """What of a gain is to be believed (m,). A start that runs above its graphs has none to offer: with larger ones
        it would serve the same batch faster, whatever was learned of that batch. Where graphs are not searched, or the
        server captures none, there are no larger ones.
        """
        physics = self.views[0].physics
        if physics is None or self.chart.role("graph") is None:
            return np.ones(len(units))
        return 1.0 - physics.load_at(units).eager(physics.theta)

    def worth_repeating(self) -> tuple[list[int], Array]:
        """Indices of the groups that may be recommended, and the expected gain of one more start of each."""
        rows = self.eligible()
        if not rows or not self.question.parts.noise:
            return [], np.zeros(0)
        gain = np.zeros(len(rows))
        for view in self.views:
            tried, known = view.rows(rows)
            cross = view.process.joint(known, known)
            total = np.sqrt(np.maximum(np.diag(cross), 0.0) + self.start_variance(view))
            gain += view.weight * gain_of_repeat(tried, cross / total[None, :])
        return rows, gain

    def chances(self, units: Array) -> Array:
        """The probability that a point can be served, within the objective's limits."""
        chance = self.survives(units)
        return chance if self.limits is None else np.asarray(chance * self.limits.chances(units))

    def survives(self, units: Array) -> Array:
        """The probability that a point can be served at all."""
        return self._feasibility.probability(units) if self._feasibility else np.ones(len(units))

    def forecast(self, units: Array) -> tuple[Array, Array]:
        """Posterior mean and deviation of the log score at new points, of the two models together."""
        found = [m.predict(units) for m in self.views]
        weights = [m.weight for m in self.views]
        mean = sum(w * f[0] for w, f in zip(weights, found, strict=True))
        second = sum(w * (f[1] ** 2 + (f[0] - mean) ** 2) for w, f in zip(weights, found, strict=True))
        return np.asarray(mean), np.sqrt(np.asarray(second))

    def eligible(self) -> list[int]:
        """Rows of the groups that may be recommended: what a gain is measured against.

        One start near a limit is beyond it by chance as often as not. All that was read decides, the loads at lowered
        running limits too, as long as the group itself is not further beyond than starts differ.
        """
        rows = [i for i, g in enumerate(self.groups) if g.whole and not g.live]
        if self.limits is None:
            return rows
        within = self.limits.believed()
        return [i for i in rows if within.get(i, True) and not self.groups[i].excess > self.noise()]

    def floor(self, view: View) -> float:
        """What a gain is measured against while nothing may be recommended yet: far below all that was started."""
        return float(min(m for m, g in zip(view.tried[0], self.groups, strict=True) if not g.live)) - BELOW_ALL

    def start_variance(self, view: View) -> float:
        """Of what one start of a configuration would say, around its true value."""
        within = [e * e for g in self.seen.fresh for e in g.stderrs]
        return view.process.noise**2 + sum(within) / len(within)

    def _fit(self) -> tuple[View, ...]:
        parts, physics, base = self.question.parts, None, PLAIN
        found = [(View.of(self.chart, self.seen, None, self._prior(PLAIN)), 1.0)]
        if parts.physics and self.question.sign > 0 and self.chart.role("running") is not None:
            physics = Physics(self.chart, self.groups, self.question.request_tokens)
            # What graphs and memory do is the formula's business: the rest hardly depends on them, or a curve over the
            # running limit, along which the share of graphs moves too, is taken for an effect of graphs.
            base = Prior(lengths=tuple(LENGTHS.get(hint.role, Prior().length) for hint in self.chart.hints))
            found = [(View.of(self.chart, self.seen, physics, self._prior(base)), TRUST), (found[0][0], 1 - TRUST)]
        if not self.borrows() or self.question.borrowed is None:
            return _weighed(found)
        others = chosen(self.question.borrowed.fresh)
        if physics is not None:
            physics = Physics(self.chart, self.groups, self.question.request_tokens, others)
        shared = View.of(self.chart, self.seen, physics, self._prior(base), others)
        together = _weighed([*((view, share * (1 - PLAUSIBLE)) for view, share in found), (shared, PLAUSIBLE)])
        return together if together[-1].weight >= DROPPED else _weighed(found)

    def _prior(self, base: Prior) -> Prior:
        if not self.question.parts.noise:
            return msgspec.structs.replace(base, noise=0.003, noise_sd=1e-3)
        noise = self.seen.noise
        return msgspec.structs.replace(base, noise=max(noise.between, 0.003), noise_sd=1 / math.sqrt(2 * noise.df))


def _weighed(views: Sequence[tuple[View, float]]) -> tuple[View, ...]:
    """Each with its probability, from what it had beforehand and from its evidence."""
    logs = np.array([math.log(share) + view.process.evidence for view, share in views])
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    return tuple(msgspec.structs.replace(v, weight=float(w)) for (v, _), w in zip(views, weights, strict=True))


@lru_cache(maxsize=8)
def believe(question: Question, seen: Observations) -> Belief:
    """The belief, kept for a while: what to start next, whom to recommend and when to stop all ask for it."""
    return Belief(question, seen)
