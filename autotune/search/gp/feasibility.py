"""Where memory runs out: a margin that only falls with what needs memory, learned from starts that lived and died, and
from what the loads of those that lived left free of the GPU.

The margin, as a share of the GPU, is what the static pools leave (1 - fraction) less a reserve and less a share for
each other parameter, linear in its value, as the memory arithmetic of the engines is. A second margin says that the
weights must fit the static part. Unknown shares have log-normal priors; a sample of them stands for the posterior.
What a driver shows free is the margin, but for what the server needs for a moment only and for what its allocator keeps
without need.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from autotune.search.gp.borrowed import MEMORY_ELSEWHERE
from autotune.search.gp.chart import Chart
from autotune.search.gp.observations import Group, Observations

Array = NDArray[np.float64]
DRAWS, KEPT, MOVES = 1500, 160, 24
# Width of the edge, as a share of the GPU: the same configuration does not always die.
SOFTNESS = 0.004
# A start may fail for a reason that is none of these.
MISTAKE = 0.02
RESERVE, RESERVE_SD = 0.06, 0.7
ROOM, ROOM_SD = 0.15, 0.8
SHARE, SHARE_SD = 0.03, 1.0
# The tables of a running limit (H200: 0.3 GB at 2,048, 0.2 %) and what grows with the batch.
RUNNING = 0.01
# Where the server tells what its graphs took, they need about that (H200: 0.7 to 1.8 times as much, by prompt length).
GRAPHS, GRAPHS_SD = 1.0, 0.6
# What a driver does not show: memory that is needed for less than a look, or in one piece.
UNSEEN, UNSEEN_SD = 0.004, 1.2
# What an allocator keeps without need (nine starts on an H200 differ by 0.002).
HELD_BACK = 0.01
WEIGHTS, WEIGHTS_SD = 0.45, 0.2
OTHER_REACH = 0.15


class _Need(msgspec.Struct, frozen=True):
    """What of the GPU configurations ask: ``fraction`` (n,) for static pools, ``parts`` (n, places) how far each other
    parameter is towards its hungriest value.
    """

    fraction: Array
    parts: Array

    def joined(self, other: _Need) -> _Need:
        return _Need(np.concatenate([self.fraction, other.fraction]), np.concatenate([self.parts, other.parts]))


class _Seen(msgspec.Struct, frozen=True):
    """Starts that lived and died: what they asked, ``died`` (n,), what each counts (n,), and the share of a GPU that a
    driver showed free under its loads (n,), NaN: not read.
    """

    need: _Need
    died: NDArray[np.bool_]
    counts: Array
    shown: Array

    def joined(self, other: _Seen) -> _Seen:
        return _Seen(
            self.need.joined(other.need),
            np.concatenate([self.died, other.died]),
            np.concatenate([self.counts, other.counts]),
            np.concatenate([self.shown, other.shown]),
        )


class Feasibility:
    """The probability that a configuration can be served. Of ``borrowed``, what another study saw, each start counts
    the first of ``weight``, and all together at most the second. ``readings``: what drivers showed counts too.
    """

    def __init__(
        self,
        chart: Chart,
        seen: Observations,
        borrowed: Observations | None = None,
        weight: tuple[float, float] = MEMORY_ELSEWHERE,
        *,
        readings: bool = True,
    ) -> None:
        self._chart = chart
        self._memory = chart.role("memory")
        self._places = [i for i, h in enumerate(chart.hints) if h.oom and i != self._memory]
        known = self._seen(seen, readings=readings)
        if borrowed is not None:
            # Life and death alone: what was free there was so with another command line, or of another GPU.
            known = known.joined(self._seen(borrowed, *weight))
        self._others = np.array([f.point for f in seen.failures if not f.memory]).reshape(-1, chart.dims)
        self._alive = np.array([g.point for g in seen.fresh]).reshape(-1, chart.dims)
        self._centre, self._spread = self._prior(seen)
        self._draws = self._posterior(known)

    def probability(self, units: Array) -> Array:
        """Of each point, (n,)."""
        need = self._asked(units)
        memory = self._lives(self._draws, need, self._left(self._draws, need)).mean(axis=0)
        return np.asarray((1 - MISTAKE) * memory * self._not_otherwise(units))

    def _prior(self, seen: Observations) -> tuple[Array, Array]:
        """Log reserve (or room), the fraction that the weights take, and the log shares."""
        weights, weights_sd = WEIGHTS, WEIGHTS_SD
        known = {"running": (RUNNING, SHARE_SD)}
        for g in seen.fresh:
            pool_gb, weight_gb = g.memory("kvcache"), g.memory("weight")
            if pool_gb > 0 and weight_gb > 0 and math.isfinite(g.fraction):
                gpu_gb = (pool_gb + weight_gb) / g.fraction
                weights, weights_sd = weight_gb / gpu_gb + 0.02, 0.02
                place = self._chart.role("graph")
                if place is not None and g.graph > 0 and g.memory("graph") > 0:
                    each = g.memory("graph") / gpu_gb / g.graph
                    known["graph"] = (GRAPHS * each * self._chart.tops[place], GRAPHS_SD)
                break
        first, first_sd = (RESERVE, RESERVE_SD) if self._memory is not None else (ROOM, ROOM_SD)
        shares = [known.get(self._chart.hints[i].role, (SHARE, SHARE_SD)) for i in self._places]
        centre = np.array([math.log(first), weights, *(math.log(share) for share, _ in shares), math.log(UNSEEN)])
        return centre, np.array([first_sd, weights_sd, *(sd for _, sd in shares), UNSEEN_SD])

    def _asked(self, units: Array) -> _Need:
        """What points ask (n, dims)."""
        columns = []
        for i in self._places:
            part = self._chart.quantity(units, i) / max(self._chart.tops[i], 1e-12)
            columns.append(part if self._chart.hints[i].oom > 0 else 1.0 - part)
        parts = np.stack(columns, axis=1) if columns else np.zeros((len(units), 0))
        memory = self._memory
        return _Need(self._chart.quantity(units, memory) if memory is not None else np.zeros(len(units)), parts)

    def _in_force(self, groups: Sequence[Group]) -> _Need:
        """What starts asked by the values in force: a baseline may lie outside the range, where its point cannot."""
        need = self._asked(np.array([g.point for g in groups]).reshape(-1, self._chart.dims))
        parts = need.parts.copy()
        for column, i in enumerate(self._places):
            role = self._chart.hints[i].role
            if role in ("running", "graph"):
                told = np.array([g.running if role == "running" else g.graph for g in groups])
                told = np.where(np.isposinf(told), 0.0, told) / max(self._chart.tops[i], 1e-12)
                parts[:, column] = np.where(np.isnan(told), parts[:, column], told)
        fraction = np.array([g.fraction for g in groups])
        return _Need(np.where(np.isfinite(fraction), fraction, need.fraction), parts)

    def _seen(self, seen: Observations, each: float = 1.0, most: float = math.inf, *, readings: bool = False) -> _Seen:
        """Of memory alone; each counts ``each``, and all together at most ``most``. ``readings``: with what drivers
        showed.
        """
        dead = np.array([f.point for f in seen.failures if f.memory]).reshape(-1, self._chart.dims)
        alive, count = self._in_force(seen.fresh), len(seen.fresh) + len(dead)
        counts = np.full(count, min(each, most / max(1, count)))
        shown = np.full(count, np.nan)
        if readings:
            shown[: len(seen.fresh)] = [_shown(g) for g in seen.fresh]
        return _Seen(alive.joined(self._asked(dead)), np.arange(count) >= len(seen.fresh), counts, shown)

    def _left(self, draws: Array, need: _Need) -> Array:
        """The share of a GPU that is left for each draw and start, (draws, n): negative where memory runs out."""
        used = np.exp(draws[:, 2:-1]) @ need.parts.T
        first = np.exp(draws[:, :1])
        return np.asarray(first - used if self._memory is None else 1.0 - need.fraction[None, :] - first - used)

    def _lives(self, draws: Array, need: _Need, left: Array) -> Array:
        """Probability of survival for each draw and start, (draws, n), of which so much is ``left``."""
        lives = ndtr(left / SOFTNESS)
        if self._memory is None:
            return np.asarray(lives)
        return np.asarray(lives * ndtr((need.fraction[None, :] - draws[:, 1:2]) / SOFTNESS))

    def _posterior(self, seen: _Seen) -> Array:
        """Draws of the unknowns: from the prior by importance, then moved about (Metropolis). Always the same ones."""
        chance = np.random.default_rng(20240229)
        draws = self._centre + self._spread * chance.standard_normal((DRAWS, len(self._centre)))
        if not len(seen.died):
            return np.asarray(draws[:KEPT])
        logs = self._log_likelihood(draws, seen)
        weights = np.exp(logs - logs.max())
        draws = draws[chance.choice(DRAWS, KEPT, p=weights / weights.sum())]
        return self._moved(draws, seen, chance)

    def _moved(self, draws: Array, seen: _Seen, chance: np.random.Generator) -> Array:
        def target(points: Array) -> Array:
            off = (points - self._centre) / self._spread
            return np.asarray(self._log_likelihood(points, seen) - 0.5 * (off * off).sum(axis=1))

        now = target(draws)
        for move in range(MOVES):
            spread = np.maximum(draws.std(axis=0), 0.02 * self._spread)
            reach = (1.0, 0.4, 0.1)[move % 3] / math.sqrt(draws.shape[1])
            tried = draws + reach * spread * chance.standard_normal(draws.shape)
            then = target(tried)
            taken = np.log(chance.random(len(draws))) < then - now
            draws, now = np.where(taken[:, None], tried, draws), np.where(taken, then, now)
        return draws

    def _log_likelihood(self, draws: Array, seen: _Seen) -> Array:
        left = self._left(draws, seen.need)
        lives = MISTAKE / 2 + (1 - MISTAKE) * self._lives(draws, seen.need, left)
        logs = np.log(np.where(seen.died, 1.0 - lives, lives)) @ seen.counts
        told = np.isfinite(seen.shown)
        return np.asarray(logs - self._misread(draws, left[:, told], seen.shown[told]))

    def _misread(self, draws: Array, left: Array, shown: Array) -> Array:
        """How far each draw is from what drivers showed, (draws,): quadratic near by and linear far off, so that starts
        that die or live against a reading overrule it. An allocator may fill a GPU that has room to its brim: a reading
        of next to nothing says nothing of how little more there is.
        """
        off = left + np.exp(draws[:, -1:]) - shown
        far = np.where(off > 0, np.where(shown < HELD_BACK, 0.0, off / HELD_BACK), -off / SOFTNESS)
        return np.asarray(np.where(far < 1, 0.5 * far**2, far - 0.5).sum(axis=1))

    def _not_otherwise(self, units: Array) -> Array:
        """Failures that are not of memory spoil their neighbourhood, as far as no server lived nearer."""
        if not len(self._others):
            return np.ones(len(units))
        bad, good = self._nearness(units, self._others), self._nearness(units, self._alive)
        return np.asarray((0.5 + good) / (0.5 + good + bad))

    def _nearness(self, units: Array, points: Array) -> Array:
        gaps = units[:, None, :] - points[None, :, :]
        categorical = np.array(self._chart.categorical())
        gaps = np.where(categorical, (gaps != 0) * 2 * OTHER_REACH, gaps)
        return np.asarray(np.exp(-0.5 * (gaps**2).sum(axis=2) / OTHER_REACH**2).sum(axis=1))


def _shown(group: Group) -> float:
    """What a driver showed free. More than the pools leave cannot be free of the server's GPU: it is not read."""
    return math.nan if group.gpu_free_share > 1.0 - group.fraction + SOFTNESS else group.gpu_free_share
