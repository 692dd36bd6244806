"""Which configuration to believe in after the search: shrunk estimates, not the best value seen."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.values import Value
from autotune.verdict.noise import NoiseModel, Tried, log_mean
from autotune.verdict.objective import merit, metric_of


class Ranked(Value, frozen=True, kw_only=True):
    """One configuration with its posterior value (in the metric's unit) and relative standard error.

    ``index`` points into the configurations that were ranked.
    """

    index: int
    tried: Tried
    value: float
    relative_stderr: float


def rank(tried: Sequence[Tried], noise: NoiseModel, metric: str) -> list[Ranked]:
    """Best first, by the posterior mean of a normal hierarchy: configurations differ by an unknown variance.

    A value seen once is pulled to the common mean as far as the noise explains the scatter; with only
    noise all are equal, and the order is then by what was measured more often (empirical Bayes; the
    variance between configurations is DerSimonian and Laird's moment estimate).
    """
    kept = [(i, t) for i, t in enumerate(tried) if t.values]
    if not kept:
        return []
    turn = 1.0 if metric_of(metric).direction == "maximise" else -1.0
    seen = [log_mean(t, noise) for _, t in kept]
    errors = [max(e, 1e-9) for _, e in seen]
    spread, centre = _hierarchy([m for m, _ in seen], errors)
    ranked = []
    for (index, one), (mean, _), error in zip(kept, seen, errors, strict=True):
        trust = spread / (spread + error**2)
        post = centre + trust * (mean - centre)
        relative = math.sqrt(trust) * error
        ranked.append(Ranked(index=index, tried=one, value=math.exp(post), relative_stderr=relative))
    return sorted(ranked, key=lambda r: (-turn * math.log(r.value), -len(r.tried.values), r.index))


def _hierarchy(means: Sequence[float], errors: Sequence[float]) -> tuple[float, float]:
    """Variance between configurations and their weighted mean, on the log scale."""
    weights = [1 / e**2 for e in errors]
    total = sum(weights)
    centre = sum(w * m for w, m in zip(weights, means, strict=True)) / total
    excess = sum(w * (m - centre) ** 2 for w, m in zip(weights, means, strict=True)) - (len(means) - 1)
    scale = total - sum(w * w for w in weights) / total
    spread = max(0.0, excess / scale) if scale > 0 else 0.0
    again = [1 / (spread + e**2) for e in errors]
    return spread, sum(w * m for w, m in zip(again, means, strict=True)) / sum(again)


def finalists(tried: Sequence[Tried], k: int, noise: NoiseModel, metric: str) -> list[Ranked]:
    """The ``k`` best by posterior mean that are not the baseline (``params`` empty), for the confirmation."""
    return [r for r in rank(tried, noise, metric) if r.tried.params][:k]


def promising(tried: Sequence[Tried], noise: NoiseModel, metric: str) -> bool:
    """Whether any configuration's posterior lies above that of the baseline; without one nothing needs confirming."""
    ranked = rank(tried, noise, metric)
    base = [r for r in ranked if not r.tried.params]
    if not base:
        return bool(ranked)
    return any(merit(r.value, metric) > merit(base[0].value, metric) for r in ranked if r.tried.params)
