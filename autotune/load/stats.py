"""Standard errors for correlated series: batch means whose length grows until batches are independent."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from autotune.values import Estimate

Floats = NDArray[np.float64]

MIN_BATCHES = 8
MIN_PERIODS = 3
CONFIDENCE = 0.95
LEAST_RELATIVE_STDERR = 1e-3
"""Batches that agree to the last digit (whole waves of equal requests) do not make a figure exact: time stamps are
read by a busy process.
"""


def lag1(values: Floats) -> float:
    """Lag-1 autocorrelation, corrected for its small-sample bias -(1 + 3 r) / n (Kendall 1954; Marriott and Pope
    1954).
    """
    n = len(values)
    centred = values - values.mean()
    total = float(centred @ centred)
    if n < 3 or total <= 0:
        return 0.0
    r = float(centred[1:] @ centred[:-1]) / total
    return min(0.99, (r + 1.0 / n) / (1.0 - 3.0 / n)) if n > 3 else r


def batch_length(values: Floats, period: float = 0.0) -> int:
    """Entries per batch: the smallest length whose batch means have no significant lag-1 correlation.

    ``period`` (in entries) is the length of a known wave, for example one generation of a closed loop: batches then
    span whole waves, and fewer of them are accepted. With too few entries the longest length that leaves the minimum
    of batches.
    """
    step = max(1, round(period))
    least = MIN_PERIODS if period > 1 else MIN_BATCHES
    longest = max(step, len(values) // least // step * step)
    length = step
    while length < longest:
        means = batched(values, length)
        if abs(lag1(means)) < stats.norm.ppf((1 + CONFIDENCE) / 2) / math.sqrt(len(means)):
            return length
        length = min(longest, max(length + step, length * 3 // 2 // step * step))
    return length


def batched(values: Floats, length: int) -> Floats:
    """Means of consecutive batches; the remainder is left out at the front."""
    count = len(values) // length
    return np.asarray(values[len(values) - count * length :].reshape(count, length).mean(axis=1))


def mean_estimate(values: Floats, period: float = 0.0) -> Estimate | None:
    """Mean of a stationary series with its standard error; None when it is too short to tell (fewer than two
    batches).
    """
    if len(values) < 2:
        return None
    means = batched(values, batch_length(values, period))
    return from_batches(means)


def from_batches(means: Floats, value: float | None = None) -> Estimate | None:
    """Estimate from batch values, with the effective sample size n (1 - r) / (1 + r) of what correlation is left.

    ``value`` replaces the batches' mean, for statistics (percentiles) that are not the mean of their batches.
    """
    n = len(means)
    if n < 2:
        return None
    r = max(0.0, lag1(means))
    effective = max(2.0, n * (1 - r) / (1 + r))
    figure = float(means.mean()) if value is None else value
    stderr = max(float(means.std(ddof=1)) / math.sqrt(effective), LEAST_RELATIVE_STDERR * abs(figure))
    return Estimate(value=figure, stderr=stderr, batches=max(2, math.floor(effective)))


def half_width(estimate: Estimate) -> float:
    """Half of the 95 % interval, by Student's t."""
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, estimate.batches - 1)) * estimate.stderr


def relative_half_width(estimate: Estimate) -> float:
    return half_width(estimate) / abs(estimate.value) if estimate.value else math.inf
