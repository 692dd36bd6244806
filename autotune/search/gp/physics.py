"""The throughput that a decoding server should have: what is known before anything is measured.

A decode step of batch b takes a + c b seconds, and more where b exceeds the largest captured graph; the batch is the
running limit, or what fits the KV cache. Prompts are read in chunks of t tokens, each of which has a price of its own.
Some of a step is paid once there are requests enough: experts that are read as soon as one of them is used, and a
prefill in every step as soon as some request ends in every step.
So throughput is S b / (1 + w (1 - exp(-b / m)) + (1 + p / t) b / h + eager (e + d b / h)), h = a / c.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from autotune.search.gp.chart import Chart
from autotune.search.gp.model import Mean
from autotune.search.gp.observations import Group

Array = NDArray[np.float64]
# Log scale of: S, h, e, d, p, the share of the KV arithmetic that requests really get, w and m. Median and deviation.
# Half saturation: 454 on the H200 table (16 ms / 35.2 us). Eager: 30 ms of 16 ms there, and little per request.
CENTRES = np.log([1.0, 400.0, 1.3, 0.1, 400.0, 0.9, 0.3, 64.0])
SPREADS = np.array([4.0, 1.3, 0.9, 1.0, 1.0, 0.15, 1.4, 0.8])
# The rest that a smooth process explains, and the noise of a start, when the formula is fitted.
MISFIT = 0.08
# How far one start as a whole may lie off.
START = 0.05
# What a configuration of another study weighs in that fit, in starts.
OTHER_STARTS = 0.2
_SHARPNESS = 8.0
_EDGE = 0.02
_SECANT = 1.0


class Load(msgspec.Struct, frozen=True):
    """What decides the throughput at some points: running limit, graph ceiling, requests that fit the KV cache, and
    tokens of a prefill step (n,).
    """

    running: Array
    graph: Array
    fit: Array
    chunk: Array

    def batch(self, theta: Array) -> Array:
        """The smaller of limit and fit, smoothly."""
        fit = self.fit * math.exp(theta[5])
        return np.asarray((self.running**-_SHARPNESS + fit**-_SHARPNESS) ** (-1.0 / _SHARPNESS))

    def eager(self, theta: Array) -> Array:
        """How far the batch lies above the graph ceiling, 0 to 1."""
        above = np.log(self.batch(theta)) - np.log(np.maximum(self.graph, 0.5))
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip((above - _EDGE) / (_EDGE / 4), -50, 50))))


class Kv(msgspec.Struct, frozen=True):
    """KV tokens as a line in the memory fraction: ``tokens`` at ``at``, ``slope`` tokens per whole GPU."""

    tokens: float
    at: float = 0.0
    slope: float = 0.0

    def of(self, fraction: Array | float) -> Array:
        return np.maximum(1.0, self.tokens + self.slope * (np.asarray(fraction) - self.at))


class Physics:
    """The formula on one chart, fitted to the groups that were measured; ``others`` are of another study, whose level
    may be another one.
    """

    def __init__(
        self, chart: Chart, groups: Sequence[Group], request_tokens: float, others: Sequence[Group] = ()
    ) -> None:
        self._chart = chart
        self._tokens = request_tokens
        self._kv = kv_line(groups) if request_tokens > 0 else None
        self._default_graph = next((g.graph for g in groups if math.isfinite(g.graph)), math.inf)
        self._graphless = bool(groups) and all(math.isinf(g.graph) for g in groups)
        logs = np.array([sum(g.logs) / len(g.logs) for g in groups])
        self.load = self.load_of(groups)
        starts, curves = np.array([len(g.logs) for g in groups]), _curves(groups)
        if not others:
            self.theta = _fitted(self.load, logs, starts, curves)
            return
        logs = np.concatenate([logs, [sum(g.logs) / len(g.logs) for g in others]])
        starts = np.concatenate([starts, np.full(len(others), OTHER_STARTS)])
        curves = np.pad(curves, ((0, len(others)), (0, 0)))
        self.theta = _fitted(self.load_of([*groups, *others]), logs, starts, curves, len(others))

    def mean(self, load: Load) -> Mean:
        """The prior mean of the log throughput, linear in what is unknown of the formula."""
        slopes = _slopes(self.theta, load) * SPREADS
        off = (_centres(self.theta) - self.theta) / SPREADS
        return Mean(log_throughput(self.theta, load) + slopes @ off, slopes)

    def pace(self, load: Load) -> Array:
        """The logarithm of the time between two tokens of one request (by Little's law), up to a constant."""
        return np.asarray(np.log(load.batch(self.theta)) - log_throughput(self.theta, load))

    def load_at(self, units: Array) -> Load:
        """What decides the batch at points that were not tried."""
        chart = self._chart
        running, graph, memory = (chart.role(r) for r in ("running", "graph", "memory"))
        assert running is not None
        count = len(units)
        fit = np.full(count, 1e9)
        if self._kv is not None:
            fraction = chart.quantity(units, memory) if memory is not None else np.full(count, self._kv.at)
            fit = self._kv.of(fraction) / self._tokens
        fixed = np.full(count, self._default_graph)
        ceiling = fixed if graph is None or self._graphless else chart.quantity(units, graph)
        return Load(chart.quantity(units, running), ceiling, fit, self._chunk(units))

    def _chunk(self, units: Array) -> Array:
        """The smallest of the prefill limits that are searched; a constant where none is."""
        places = [i for i, hint in enumerate(self._chart.hints) if hint.role == "prefill"]
        limits = [self._chart.quantity(units, i) for i in places]
        return np.minimum.reduce(limits) if limits else np.full(len(units), 1e9)

    def load_of(self, groups: Sequence[Group]) -> Load:
        """The same where the server told what was in force."""
        asked = self.load_at(np.array([g.point for g in groups]))
        running = np.array([g.running for g in groups])
        graph = np.array([g.graph for g in groups])
        tokens = np.array([g.kv_tokens for g in groups])
        # A running limit in force above the searched range is the top of the range: clients fill no more.
        place = self._chart.role("running")
        top = self._chart.tops[place] if place is not None else math.inf
        running = np.where(np.isfinite(running), np.minimum(running, top), asked.running)
        fit = np.where(np.isfinite(tokens), tokens / self._tokens, asked.fit) if self._kv else asked.fit
        graph = np.where(np.isnan(graph), asked.graph, graph)
        return Load(running, graph, np.maximum(fit, 1.0), asked.chunk)


def log_throughput(theta: Array, load: Load, eager: Array | None = None) -> Array:
    """The formula, (n,). ``theta`` as in ``CENTRES``; ``eager`` replaces what follows from ``theta``."""
    scale, half, extra, extra_each, chunk_price, _, early, soon = theta
    above = load.eager(theta) if eager is None else eager
    batch = load.batch(theta)
    saturation = batch * math.exp(-half)
    step = 1.0 - math.exp(early) * np.expm1(-batch * math.exp(-soon))
    step = step + saturation * (1.0 + math.exp(chunk_price) / load.chunk)
    step = step + above * (math.exp(extra) + math.exp(extra_each) * saturation)
    return np.asarray(scale + np.log(batch) - np.log(step))


def kv_line(groups: Sequence[Group]) -> Kv | None:
    """From one server's own account of its memory; else a line through two fractions; else a constant."""
    told = [g for g in groups if math.isfinite(g.kv_tokens) and g.kv_tokens > 0]
    if not told:
        return None
    for g in told:
        pool_gb, weight_gb = g.memory("kvcache"), g.memory("weight")
        if pool_gb > 0 and weight_gb > 0 and math.isfinite(g.fraction) and g.fraction > 0:
            gpu_gb = (pool_gb + weight_gb) / g.fraction
            return Kv(g.kv_tokens, g.fraction, gpu_gb * g.kv_tokens / pool_gb)
    pairs = [(g.fraction, g.kv_tokens) for g in told if math.isfinite(g.fraction)]
    if len({f for f, _ in pairs}) > 1:
        low, high = min(pairs), max(pairs)
        return Kv(low[1], low[0], (high[1] - low[1]) / (high[0] - low[0]))
    return Kv(told[0].kv_tokens, pairs[0][0] if pairs else 0.0)


def _centres(theta: Array) -> Array:
    """The level has no prior worth the name: it is where the data put it."""
    centres = CENTRES.copy()
    centres[0] = theta[0]
    return centres


def _curves(groups: Sequence[Group]) -> Array:
    """Which groups are loads of one start, (n, starts): 1 where they are. Starts with one load are left out."""
    live = sorted({g.trials[0] for g in groups if g.live})
    return np.array([[float(number in g.trials) for number in live] for g in groups]).reshape(len(groups), len(live))


def _fitted(load: Load, logs: Array, starts: Array, curves: Array, others: int = 0) -> Array:
    """The most probable ``theta``. Loads of one start share its deviation, so that they tell the shape of a curve and
    only once its height; of the last ``others`` rows, another study's, only the differences between them count.
    """
    begin, mine = CENTRES.copy(), len(logs) - others
    begin[0] = float(np.mean((logs - log_throughput(CENTRES, load))[:mine]))
    count = len(begin)
    weight = np.sqrt(starts) / MISFIT

    def residuals(unknown: Array) -> Array:
        theta, own = unknown[:count], unknown[count:]
        rest = logs - log_throughput(theta, load) - curves @ own
        if others:
            rest[mine:] -= rest[mine:].mean()
        return np.concatenate([rest * weight, (theta - begin) / SPREADS, own / START])

    first = np.concatenate([begin, np.zeros(curves.shape[1])])
    return np.asarray(least_squares(residuals, first, loss="soft_l1", max_nfev=60 if curves.size else 30).x[:count])


def _slopes(theta: Array, load: Load) -> Array:
    """Sensitivities of the formula to ``theta``, (n, p): secants over a part of the prior's width.

    On which side of the graph ceiling a point lies is held: the cliff is one-sided, and linearised it would promise
    throughput that no configuration has.
    """
    eager = load.eager(theta)
    columns = []
    for i, width in enumerate(SPREADS * _SECANT):
        shift = np.zeros_like(theta)
        shift[i] = width
        rise = log_throughput(theta + shift, load, eager) - log_throughput(theta - shift, load, eager)
        columns.append(rise / (2 * width))
    return np.stack(columns, axis=1)
