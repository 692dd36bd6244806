"""Where memory runs out: a margin that only falls with what needs memory, learned from starts that lived and died.

The margin, as a share of the GPU, is what the static pools leave (1 - fraction) less a reserve and less a share for
each other parameter, linear in its value, as the memory arithmetic of the engines is. A second margin says that the
weights must fit the static part. Unknown shares have log-normal priors; a sample of them stands for the posterior.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from autotune.search.gp.borrowed import MEMORY_ELSEWHERE
from autotune.search.gp.chart import Chart
from autotune.search.gp.observations import Observations

Array = NDArray[np.float64]
DRAWS, KEPT, MOVES = 1500, 160, 24
# Width of the edge, as a share of the GPU: the same configuration does not always die.
SOFTNESS = 0.004
# What a load left free of a GPU is what was left at least: allocators keep more than they need, by about this share.
KEPT_BACK = 0.012
# A start may fail for a reason that is none of these.
MISTAKE = 0.02
RESERVE, RESERVE_SD = 0.06, 0.7
ROOM, ROOM_SD = 0.15, 0.8
SHARE, SHARE_SD = 0.03, 1.0
# Where the server told what its graphs took; and the tables that a running limit needs (H200: 0.3 GB at 2,048).
GRAPH_SD = 0.6
RUNNING = 0.01
WEIGHTS, WEIGHTS_SD = 0.45, 0.2
OTHER_REACH = 0.15


class _Seen(msgspec.Struct, frozen=True):
    """Starts that lived and died: ``points`` (n, dims), ``died`` (n,), what each counts (n,), and the share of a GPU
    that their loads left free (n,), NaN where it is not known.
    """

    points: Array
    died: NDArray[np.bool_]
    counts: Array
    left: Array

    @classmethod
    def of(cls, seen: Observations, dims: int, each: float = 1.0, most: float = math.inf) -> _Seen:
        """Of memory alone; each counts ``each``, and all together at most ``most``."""
        alive = [g.point for g in seen.fresh]
        dead = [f.point for f in seen.failures if f.memory]
        count = len(alive) + len(dead)
        counts = np.full(count, min(each, most / max(1, count)))
        left = np.array([*(g.gpu_free for g in seen.fresh), *(math.nan for _ in dead)])
        return cls(np.array([*alive, *dead]).reshape(-1, dims), np.arange(count) >= len(alive), counts, left)

    def joined(self, other: _Seen) -> _Seen:
        return _Seen(
            np.concatenate([self.points, other.points]),
            np.concatenate([self.died, other.died]),
            np.concatenate([self.counts, other.counts]),
            np.concatenate([self.left, other.left]),
        )


class Feasibility:
    """The probability that a configuration can be served. Of ``borrowed``, what another study saw, each start counts
    the first of ``weight``, and all together at most the second.
    """

    def __init__(
        self,
        chart: Chart,
        seen: Observations,
        borrowed: Observations | None = None,
        weight: tuple[float, float] = MEMORY_ELSEWHERE,
    ) -> None:
        self._chart = chart
        self._memory = chart.role("memory")
        self._places = [i for i, h in enumerate(chart.hints) if h.oom and i != self._memory]
        known = _Seen.of(seen, chart.dims)
        if borrowed is not None:
            known = known.joined(_Seen.of(borrowed, chart.dims, *weight))
        self._others = np.array([f.point for f in seen.failures if not f.memory]).reshape(-1, chart.dims)
        self._alive = np.array([g.point for g in seen.fresh]).reshape(-1, chart.dims)
        self._centre, self._spread = self._prior(seen)
        self._draws = self._posterior(known)

    def probability(self, units: Array) -> Array:
        """Of each point, (n,)."""
        memory = self._lives(self._draws, units).mean(axis=0)
        return np.asarray((1 - MISTAKE) * memory * self._not_otherwise(units))

    def _prior(self, seen: Observations) -> tuple[Array, Array]:
        """Log reserve (or room), the fraction that the weights take, and the log shares."""
        weights, weights_sd = WEIGHTS, WEIGHTS_SD
        graph_share, graph_sd = SHARE, SHARE_SD
        for g in seen.fresh:
            pool_gb, weight_gb = g.memory("kvcache"), g.memory("weight")
            if pool_gb > 0 and weight_gb > 0 and math.isfinite(g.fraction):
                gpu_gb = (pool_gb + weight_gb) / g.fraction
                weights, weights_sd = weight_gb / gpu_gb + 0.02, 0.02
                place = self._chart.role("graph")
                if place is not None and g.graph > 0 and g.memory("graph") > 0:
                    # Graphs cost about as much again under load as at capture (H200: 1.5 and 1.2 MB per batch).
                    graph_sd = GRAPH_SD
                    graph_share = 1.5 * g.memory("graph") / gpu_gb / g.graph * self._chart.tops[place]
                break
        first, first_sd = (RESERVE, RESERVE_SD) if self._memory is not None else (ROOM, ROOM_SD)
        known = {"graph": (graph_share, graph_sd), "running": (RUNNING, SHARE_SD)}
        shares = [known.get(self._chart.hints[i].role, (SHARE, SHARE_SD)) for i in self._places]
        centre = np.array([math.log(first), weights, *(math.log(share) for share, _ in shares)])
        return centre, np.array([first_sd, weights_sd, *(sd for _, sd in shares)])

    def _needs(self, units: Array) -> Array:
        """How far each parameter is towards its hungriest value, (n, places)."""
        columns = []
        for i in self._places:
            part = self._chart.quantity(units, i) / max(self._chart.tops[i], 1e-12)
            columns.append(part if self._chart.hints[i].oom > 0 else 1.0 - part)
        return np.stack(columns, axis=1) if columns else np.zeros((len(units), 0))

    def _left(self, draws: Array, units: Array) -> Array:
        """The share of a GPU that is left for each draw and point, (draws, n): negative where memory runs out."""
        used = np.exp(draws[:, 2:]) @ self._needs(units).T
        first = np.exp(draws[:, :1])
        if self._memory is None:
            return np.asarray(first - used)
        fraction = self._chart.quantity(units, self._memory)[None, :]
        return np.asarray(1.0 - fraction - first - used)

    def _lives(self, draws: Array, units: Array) -> Array:
        """Probability of survival for each draw and point, (draws, n)."""
        left = ndtr(self._left(draws, units) / SOFTNESS)
        if self._memory is None:
            return np.asarray(left)
        fraction = self._chart.quantity(units, self._memory)[None, :]
        return np.asarray(left * ndtr((fraction - draws[:, 1:2]) / SOFTNESS))

    def _posterior(self, seen: _Seen) -> Array:
        """Draws of the unknowns: from the prior by importance, then moved about (Metropolis). Always the same ones."""
        chance = np.random.default_rng(20240229)
        draws = self._centre + self._spread * chance.standard_normal((DRAWS, len(self._centre)))
        if not len(seen.points):
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
        lives = MISTAKE / 2 + (1 - MISTAKE) * self._lives(draws, seen.points)
        logs = np.log(np.where(seen.died, 1.0 - lives, lives)) @ seen.counts
        told = np.isfinite(seen.left)
        if not told.any():
            return np.asarray(logs)
        off = self._left(draws, seen.points[told]) - seen.left[told]
        width = np.where(off > 0, KEPT_BACK, SOFTNESS)
        return np.asarray(logs - 0.5 * ((off / width) ** 2) @ seen.counts[told])

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
