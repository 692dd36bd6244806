"""Did the machine itself change during the night? Baselines measured again and again can tell.

Times are seconds of any one clock; values are figures of the baseline, greater than zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import stats

from autotune.values import Value
from autotune.verdict.noise import NoiseModel

Floats = npt.NDArray[np.float64]


class Drift(Value, frozen=True, kw_only=True):
    """What the baselines say. ``change`` is the relative change along the fitted line over the whole span.

    ``p_trend`` tests a steady change, ``p_scatter`` any change beyond the noise (a step, a bump). ``known``
    is false with fewer than three baselines: then nothing can be said.
    """

    drifting: bool
    known: bool
    change: float
    change_low: float
    change_high: float
    p_trend: float
    p_scatter: float

    def __str__(self) -> str:
        if not self.known:
            return "drift: cannot tell (fewer than three baseline starts)"
        span = (
            f"{100 * self.change:+.1f} % over the span ({100 * self.change_low:+.1f} to {100 * self.change_high:+.1f})"
        )
        return f"drift: the baseline changed by {span}" if self.drifting else f"no drift seen: {span}"


NOTHING_KNOWN = Drift(
    drifting=False, known=False, change=0.0, change_low=0.0, change_high=0.0, p_trend=1.0, p_scatter=1.0
)


def detect_drift(times_s: Sequence[float], values: Sequence[float], noise: NoiseModel, *, level: float = 0.05) -> Drift:
    """Trend and scatter of the baseline's repeats against the noise, each at half of ``level``.

    The noise must come from repeats close in time or from the prior: noise estimated from these very
    baselines contains their drift. It has ``noise.df`` degrees of freedom, so t and F tests are used.
    """
    if len(values) < 3 or max(times_s) == min(times_s):
        return NOTHING_KNOWN
    logs = np.log(np.asarray(values, dtype=float))
    span = max(times_s) - min(times_s)
    t = (np.asarray(times_s, dtype=float) - float(np.mean(times_s))) / span
    slope = float(t @ logs / (t @ t))
    error = noise.total / math.sqrt(float(t @ t))
    df = max(noise.df, 1.0)
    p_trend = float(2 * stats.t.sf(abs(slope) / error, df))
    ratio = float(np.var(logs, ddof=1)) / noise.total**2
    p_scatter = float(stats.f.sf(ratio, len(values) - 1, df))
    reach = error * float(stats.t.isf(level / 2, df))
    return Drift(
        drifting=min(p_trend, p_scatter) < level / 2,
        known=True,
        change=math.expm1(slope),
        change_low=math.expm1(slope - reach),
        change_high=math.expm1(slope + reach),
        p_trend=p_trend,
        p_scatter=p_scatter,
    )


class Corrected(Value, frozen=True, kw_only=True):
    """A value as its ratio to the baseline of the same time; ``relative_stderr`` includes the baseline's noise."""

    ratio: float
    relative_stderr: float


def correct(
    points: Sequence[tuple[float, float]], baselines: Sequence[tuple[float, float]], noise: NoiseModel
) -> list[Corrected]:
    """Each point ``(time_s, value)`` over the baseline interpolated at its time (log-linear, held at the ends).

    Worth it only where drift was found: without drift it adds the noise of one baseline start or two.
    """
    known = sorted(baselines)
    times = np.array([t for t, _ in known])
    logs = np.log([v for _, v in known])
    return [_corrected(t, v, times, logs, noise) for t, v in points]


def _corrected(time_s: float, value: float, times: Floats, logs: Floats, noise: NoiseModel) -> Corrected:
    weights = np.array([np.interp(time_s, times, unit) for unit in np.eye(len(times))])
    spread = math.sqrt(1 + float(weights @ weights))
    return Corrected(ratio=value / math.exp(float(weights @ logs)), relative_stderr=noise.total * spread)
