"""Throughput over time, and what it says: when the warm-up is over, and when the load may end. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from autotune.load.stats import batch_length, batched, lag1
from autotune.study.file import Workload
from autotune.values import Estimate

Floats = NDArray[np.float64]

BIN_S = 0.1
TREND_TOLERANCE = 0.02
TREND_P = 0.02
COARSE_TREND = 0.25
MIN_TREND_BATCHES = 4
STEP_S = 0.5


def steps(times: Floats, gains: Floats) -> tuple[Floats, Floats]:
    """Cumulative count of things that happen at moments: (times, totals), ordered by time."""
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(gains[order])


def step_counts(times: Floats, gains: Floats, edges: Floats) -> Floats:
    """What fell between each pair of edges."""
    when, totals = steps(times, gains)
    at = np.searchsorted(when, edges, side="left")
    return np.diff(np.concatenate([[0.0], totals])[at])


def span_counts(starts: Floats, ends: Floats, gains: Floats, edges: Floats) -> Floats:
    """What fell between each pair of edges when every gain is spread evenly from its start to its end."""
    if not len(starts):
        return np.zeros(len(edges) - 1)
    rates = gains / np.maximum(ends - starts, 1e-9)
    moments, changes = np.concatenate([starts, ends]), np.concatenate([rates, -rates])
    order = np.argsort(moments, kind="stable")
    moments, slope = moments[order], np.cumsum(changes[order])
    area = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(moments))])
    return np.diff(np.interp(edges, moments, area))


def edges_between(start: float, end: float, bin_s: float = BIN_S) -> Floats:
    """Edges of whole bins, aligned to the end."""
    count = max(0, math.floor((end - start) / bin_s + 1e-9))
    return np.asarray(end - bin_s * np.arange(count, -1, -1), dtype=np.float64)


def interpolated(ticks: Sequence[tuple[Floats, Floats]], edges: Floats) -> Floats:
    """Sum over workers of their sampled counters, taken between the edges."""
    total = np.zeros(len(edges))
    for times, counts in ticks:
        if len(times):
            total += np.interp(edges, times, counts)
    return np.diff(total)


def generation_end(ends: Floats, in_flight: int) -> float:
    """When ``in_flight`` requests have ended: every place of a closed loop has been used once. Infinity: not yet."""
    if in_flight <= 0 or len(ends) < in_flight:
        return math.inf
    return float(np.partition(ends, in_flight - 1)[in_flight - 1])


def trending(rates: Floats, period: float = 0.0) -> bool:
    """The beginning of the series differs from its second half by more than chance and by more than 2 %.

    Geweke's comparison (1992) of the first fifth with the last half. Chance is judged by the second half alone, since
    a warm-up in the first would hide itself in its own variance. ``period`` is a wave in bins, 0: none.
    """
    wave = max(1, round(period))
    early, late = _leading(rates, wave), _trailing(rates, wave)
    if not len(early) or not len(late):
        return False
    middle, change = float(late.mean()), float(early.mean() - late.mean())
    if abs(change) <= TREND_TOLERANCE * abs(middle):
        return False
    means = batched(_without_slope(late), batch_length(_without_slope(late), period))
    if len(means) < MIN_TREND_BATCHES:
        return abs(change) > COARSE_TREND * abs(middle)
    r = max(0.0, lag1(means))
    variance = float(means.var(ddof=1)) * (len(late) // len(means)) * (1 + r) / (1 - r)
    error = math.sqrt(variance * (1 / len(early) + 1 / len(late)))
    return error == 0 or bool(2 * stats.t.sf(abs(change) / error, len(means) - 2) < TREND_P)


def _leading(rates: Floats, wave: int) -> Floats:
    """The first fifth, in whole waves, one wave at least."""
    length = max(1, len(rates) // 5 // wave) * wave
    return rates[:length] if 2 * length <= len(rates) else rates[:0]


def _trailing(rates: Floats, wave: int) -> Floats:
    """The last half, in whole waves."""
    length = len(rates) // 2 // wave * wave
    return rates[len(rates) - length :]


def _without_slope(values: Floats) -> Floats:
    """The values with their straight line taken out."""
    at = np.arange(len(values)) - (len(values) - 1) / 2
    slope = float(at @ values) / max(1.0, float(at @ at))
    return np.asarray(values - slope * at)


def window_start(rates: Floats, start: float, latest: float, period: float = 0.0, bin_s: float = BIN_S) -> float:
    """Where the steady window begins: the first moment from which throughput no longer trends, at the latest
    ``latest``.

    ``rates`` are bins of ``bin_s`` whose first one begins at ``start`` (the end of the first generation).
    """
    step = max(1, round(STEP_S / bin_s))
    skip = 0
    while start + skip * bin_s < latest and len(rates) - skip > 2 * step and trending(rates[skip:], period):
        skip += step
    return min(start + skip * bin_s, max(start, latest))


def should_end(window_s: float, estimate: Estimate | None, half_width: float, workload: Workload) -> str:
    """Why the load may end now, or an empty text: the interval is narrow enough, or the window is full."""
    if window_s >= workload.max_s:
        return "max_s"
    if workload.kind == "trace":
        return ""  # another end would be another stretch of the trace
    if window_s >= workload.min_s and estimate is not None and half_width <= workload.precision:
        return "precise"
    return ""
