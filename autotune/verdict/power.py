"""How many starts a question costs."""

from __future__ import annotations

import math

from scipy import stats

from autotune.verdict.confirm import Rules
from autotune.verdict.noise import PRIOR_BETWEEN

MAX_STARTS = 2000


def power(gain: float, *, noise: float = PRIOR_BETWEEN, starts: int = 5, extra: tuple[int, int] = (0, 0)) -> float:
    """Chance that a true relative ``gain`` is called reliable with ``starts`` of each of two sides.

    ``noise`` is the relative deviation of one start. ``extra`` are baseline starts beyond that number (2 with
    the default schedule) and degrees of freedom that the study's noise model adds. One finalist, the default rules.
    """
    more, df = extra
    freedom = 2 * starts + more - 2 + df
    shift = math.log1p(gain) / (noise * math.sqrt(1 / starts + 1 / (starts + more)))
    return float(stats.nct.sf(stats.t.isf(Rules().gain_error, freedom), freedom, min(shift, 35.0)))


def starts_needed(
    gain: float, *, noise: float = PRIOR_BETWEEN, wanted: float = 0.9, extra: tuple[int, int] = (0, 0)
) -> int | None:
    """Starts a side that resolve a relative ``gain`` with probability ``wanted``; None above ``MAX_STARTS``."""
    if gain <= 0 or power(gain, noise=noise, starts=MAX_STARTS, extra=extra) < wanted:
        return None
    low, high = 2, MAX_STARTS
    while low < high:
        middle = (low + high) // 2
        if power(gain, noise=noise, starts=middle, extra=extra) >= wanted:
            high = middle
        else:
            low = middle + 1
    return low
