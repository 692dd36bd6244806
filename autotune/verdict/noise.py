"""How much a figure changes when nothing was changed: between server starts, and within one.

Both parts are relative (log scale), estimated from configurations that were started more than once and
pooled over them: one variance for the whole study, because a configuration alone has too few starts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from autotune.values import Estimate, Measured, ParamValue, TrialResult, Value

PRIOR_BETWEEN = 0.05
"""Restart noise before anything was repeated: one H200 showed 5-10 % between equal starts of SGLang, of
which a part was compilation in the first repeat; the lower end is the noise of warmed-up measurements."""
PRIOR_DF = 2.0
"""What the prior is worth, in repeats. Small: at 2 % and 10 % true noise it would otherwise mislead."""


class Tried(Value, frozen=True, kw_only=True):
    """One configuration with all its starts. ``values[i]`` was measured in start i, with error ``stderrs[i]``."""

    params: dict[str, ParamValue]
    values: tuple[float, ...]
    stderrs: tuple[float, ...]
    trials: tuple[int, ...] = ()


class NoiseModel(Value, frozen=True, kw_only=True):
    """Relative standard deviations of one start.

    ``between`` is shrunk to the prior and worth ``df`` degrees of freedom (those of the prior included).
    ``observed`` is the total deviation (both parts) that the data alone show, with ``observed_df``; the
    confirmation uses these two, so that a prior can never make a claim.
    """

    between: float = PRIOR_BETWEEN
    within: float = 0.0
    df: float = PRIOR_DF
    observed: float = 0.0
    observed_df: int = 0

    @property
    def total(self) -> float:
        return math.hypot(self.between, self.within)


def estimate_noise(groups: Iterable[Tried], *, prior: float = PRIOR_BETWEEN, prior_df: float = PRIOR_DF) -> NoiseModel:
    """The pooled noise of a study; with no repeated configuration, the prior.

    Between-start variance is what the scatter of equal starts has beyond their own errors, shrunk as
    (prior_df * prior^2 + df * seen^2) / (prior_df + df), the conjugate (inverse chi-squared) posterior mean.
    """
    kept = [g for g in groups if g.values]
    relative = [(e / abs(v)) ** 2 for g in kept for v, e in zip(g.values, g.stderrs, strict=True)]
    within = sum(relative) / len(relative) if relative else 0.0
    repeated = [[math.log(v) for v in g.values] for g in kept if len(g.values) > 1]
    df = sum(len(logs) - 1 for logs in repeated)
    observed = sum(_squares(logs) for logs in repeated) / df if df else 0.0
    between = (prior_df * prior**2 + df * max(0.0, observed - within)) / (prior_df + df) if prior_df + df else 0.0
    return NoiseModel(
        between=math.sqrt(between),
        within=math.sqrt(within),
        df=prior_df + df,
        observed=math.sqrt(observed),
        observed_df=df,
    )


def _squares(logs: Sequence[float]) -> float:
    mean = sum(logs) / len(logs)
    return sum((x - mean) ** 2 for x in logs)


def predict_stderr(noise: NoiseModel, seen: Estimate, *, starts: int = 1) -> float:
    """Standard error of ``seen.value`` as a figure of the configuration, not only of this start.

    ``starts`` is the number of starts that were averaged; ``seen.stderr`` is then that of their mean.
    """
    return math.hypot(abs(seen.value) * noise.between / math.sqrt(starts), seen.stderr)


def log_mean(tried: Tried, noise: NoiseModel) -> tuple[float, float]:
    """Mean over the starts on the log scale, and its standard error."""
    n = len(tried.values)
    own = sum((e / v) ** 2 for v, e in zip(tried.values, tried.stderrs, strict=True)) / n**2
    return sum(map(math.log, tried.values)) / n, math.sqrt(noise.between**2 / n + own)


def group_trials(results: Iterable[TrialResult]) -> list[Tried]:
    """Measured trials, those equal in force joined as repeats of one configuration, in order of appearance.

    Trials that were stopped early are left out: their value is not that of a whole load. So is a figure that is no
    positive number (a goodput of zero): it has no ratio to any other.
    """
    groups: dict[str, list[tuple[TrialResult, Estimate]]] = {}
    for result in results:
        if isinstance(result.outcome, Measured) and not result.outcome.stopped_early:
            key = result.outcome.effective.key() or result.config.key()
            if 0 < result.outcome.score.value < math.inf:
                groups.setdefault(key, []).append((result, result.outcome.score))
    return [
        Tried(
            params=members[0][0].config.params,
            values=tuple(score.value for _, score in members),
            stderrs=tuple(score.stderr for _, score in members),
            trials=tuple(result.number for result, _ in members),
        )
        for members in groups.values()
    ]
