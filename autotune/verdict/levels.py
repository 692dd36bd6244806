"""Error levels that hold together: several finalists against one baseline, and several looks at the data."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

Floats = npt.NDArray[np.float64]

Z_NODES, Z_WEIGHTS = np.polynomial.hermite_e.hermegauss(48)
CHI_POINTS = 48


@lru_cache(maxsize=4096)
def finalist_levels(alpha: float, shares: tuple[float, ...], starts: tuple[int, ...], df: int) -> tuple[float, ...]:
    """One-sided levels per finalist whose chance of any false gain is ``alpha``, all finalists equal to the baseline.

    ``shares`` divide the level (they sum to 1); ``starts`` counts baseline first, then each finalist; ``df``
    are those of the common variance. Weighted Dunnett: the shared baseline makes the tests correlated,
    which is integrated numerically, so less is lost than by Bonferroni (Dunnett 1955; Xie 2012).
    """
    if len(shares) == 1:
        return (alpha,)
    weights = np.asarray(shares)

    def excess(total: float) -> float:
        return _any_false(stats.t.isf(np.minimum(0.5, total * weights), df), starts, df) - alpha

    total = float(optimize.brentq(excess, alpha, alpha * 2 * len(shares), xtol=1e-7))
    return tuple(float(x) for x in total * weights)


def _any_false(critical: Floats, starts: tuple[int, ...], df: int) -> float:
    """P(some finalist's t exceeds its critical value) when none differs: quadrature over baseline and variance."""
    quantiles = (np.arange(CHI_POINTS) + 0.5) / CHI_POINTS
    deviations = np.sqrt(stats.chi2.ppf(quantiles, df) / df)
    counts = np.asarray(starts[1:], dtype=float)
    spread = np.sqrt(1 / counts + 1 / starts[0])
    baseline = Z_NODES / math.sqrt(starts[0])
    reach = critical * spread * deviations[:, None, None] + baseline[None, :, None]
    none = np.prod(stats.norm.cdf(reach * np.sqrt(counts)), axis=2)
    return 1 - float(np.mean(none @ (Z_WEIGHTS / Z_WEIGHTS.sum())))


@lru_cache(maxsize=256)
def look_levels(alpha: float, looks: tuple[int, ...], planned: int) -> tuple[float, ...]:
    """One-sided nominal levels at each look (blocks done) that together spend ``alpha``.

    Spending 2 - 2 Phi(z(alpha/2) / sqrt(t)) (Lan and DeMets 1983, O'Brien-Fleming type): little is spent
    early, so a full confirmation loses almost nothing. The last of ``looks`` must be ``planned``.
    """
    times = np.asarray(looks, dtype=float) / planned
    spent = 2 * stats.norm.sf(stats.norm.isf(alpha / 2) / np.sqrt(times))
    grid = np.linspace(-8.0, 8.0, 1601)
    density: Floats | None = None
    levels: list[float] = []
    for i, time in enumerate(times):
        density = _advance(density, grid, 0.0 if i == 0 else float(times[i - 1]), float(time))
        share = float(spent[i] - (spent[i - 1] if i else 0.0))
        tail = np.cumsum((density * (grid[1] - grid[0]))[::-1])[::-1]
        edge = float(np.interp(-share, -tail, grid))
        levels.append(float(stats.norm.sf(edge / math.sqrt(float(time)))))
        density = np.where(grid < edge, density, 0.0)
    return tuple(levels)


def _advance(density: Floats | None, grid: Floats, before: float, now: float) -> Floats:
    """Density of the score process at ``now``, of the paths that have not crossed a boundary before."""
    if density is None:
        return np.asarray(stats.norm.pdf(grid, scale=math.sqrt(now)), dtype=np.float64)
    step = stats.norm.pdf(grid[:, None] - grid[None, :], scale=math.sqrt(now - before))
    return np.asarray(step @ density * (grid[1] - grid[0]), dtype=np.float64)
