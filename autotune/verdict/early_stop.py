"""Whether a running load is already certain to lose: the rest of it can then be saved."""

from __future__ import annotations

import math

from scipy import stats

from autotune.values import Estimate, Value
from autotune.verdict.noise import NoiseModel
from autotune.verdict.objective import gain, merit

LEAST_BATCHES = 4
"""Fewer batch means give no usable standard error."""


class StopDecision(Value, frozen=True, kw_only=True):
    """``losing`` is the probability that this configuration is no better than the incumbent."""

    stop: bool
    losing: float
    gain: float

    def __str__(self) -> str:
        how = "stopped early" if self.stop else "goes on"
        return f"{how}: {100 * self.gain:+.1f} % against the incumbent, losing with {100 * self.losing:.1f} %"


class StopRule(Value, frozen=True, kw_only=True):
    """``confidence`` that the configuration loses; ``looks`` is how often one will ask in this load."""

    metric: str
    noise: NoiseModel
    confidence: float = 0.95
    looks: int = 1


def should_stop_early(
    progress: Estimate, incumbent: Estimate, rule: StopRule, *, incumbent_starts: int = 1
) -> StopDecision:
    """Stop when the configuration behind ``progress`` is worse than the incumbent with the rule's confidence.

    Both sides carry the noise between starts, since a bad start of a good configuration must not end it;
    ``incumbent.stderr`` is that of the mean over its ``incumbent_starts``. The noise between starts is the same
    at every look, so only the error of the running load is widened for several looks (Bonferroni quantile).
    The two variances are joined by Welch and Satterthwaite. Never stops on fewer than ``LEAST_BATCHES`` batches.
    """
    gap = merit(progress.value, rule.metric) - merit(incumbent.value, rule.metric)
    between = rule.noise.between**2 * (1 + 1 / incumbent_starts)
    own = (progress.stderr / progress.value) ** 2 * _widening(rule)
    settled = between + (incumbent.stderr / incumbent.value) ** 2
    error, df = _join((settled, max(rule.noise.df, 1.0)), (own, max(progress.batches - 1, 1)))
    losing = float(stats.t.sf(gap / error, df)) if error > 0 else float(gap < 0)
    return StopDecision(
        stop=progress.batches >= LEAST_BATCHES and losing >= rule.confidence,
        losing=losing,
        gain=gain(progress.value, incumbent.value, rule.metric),
    )


def _widening(rule: StopRule) -> float:
    error = 1 - rule.confidence
    return float(stats.norm.isf(error / rule.looks) / stats.norm.isf(error)) ** 2


def _join(*parts: tuple[float, float]) -> tuple[float, float]:
    """Standard error and degrees of freedom of a sum; each part is a variance with its own."""
    total = sum(variance for variance, _ in parts)
    below = sum(variance**2 / df for variance, df in parts)
    return math.sqrt(total), total**2 / below if below > 0 else 1.0
