"""The confirmation's arithmetic: least squares over arms and blocks, and the variance the comparison rests on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

from autotune.values import Value
from autotune.verdict.noise import PRIOR_BETWEEN, NoiseModel
from autotune.verdict.schedule import BASELINE

Floats = npt.NDArray[np.float64]
Source = Literal["confirmation", "study", "prior"]

MIN_OWN_DF = 6
"""Below this many degrees of freedom the prior joins with PRIOR_JOINS_DF of them where it widens the interval: starts
that agree by luck are not believed. Where the starts scatter more than the prior, it would help a claim by an
assumption (8 % false gains with two blocks at 20 % noise)."""
PRIOR_JOINS_DF = 2
DRIFT_LEVEL = 0.005
"""Blocks are taken out of the comparison when they differ at this level. Without it the comparison is still
valid (every block has every arm), only wider; a small level keeps the choice from bending the claim."""
CONFLICT_LEVEL = 0.0025
"""The study's noise is left out when it is larger than the confirmation's at this level."""
QUIET_LEVEL = 0.2
"""And when it is smaller at this level: quiet hours of the search must not vouch for starts of a noisier hour, and few
degrees of freedom seldom prove it (10 % false gains at a level of 0.0025, noise three times as large)."""
LEAST_NOISE = 0.001
"""No start repeats better than this: equal figures (an open loop below capacity) are no proof of any difference."""


class Start(Value, frozen=True, kw_only=True):
    """One measured start of the confirmation. ``stderr`` is the error within the start, in the metric's unit."""

    arm: int
    block: int | None
    value: float
    stderr: float = 0.0


class Fit(Value, frozen=True, kw_only=True):
    """Effects of the finalists over the baseline, their variances in units of the noise, and the residual.

    ``counts`` are the starts used, of the baseline first; ``blocks`` the distinct blocks among them.
    """

    effects: list[float]
    factors: list[float]
    squares: float
    df: int
    counts: tuple[int, ...]
    blocks: int


class Variance(Value, frozen=True, kw_only=True):
    """Variance of one start on the log scale, its degrees of freedom, and whose data it is."""

    value: float
    df: int
    source: Source


def _design(starts: Sequence[Start], arms: Sequence[int], blocks: Sequence[int | None]) -> Floats:
    """Columns: the finalists' effects first, then one level per block (or a single one)."""
    effects = [[float(s.arm == a) for a in arms] for s in starts]
    levels = [[float(s.block == b) for b in blocks] if blocks else [1.0] for s in starts]
    return np.array([e + level for e, level in zip(effects, levels, strict=True)])


def least_squares(starts: Sequence[Start], logs: Floats, arms: Sequence[int], *, by_block: bool) -> Fit:
    """Ordinary least squares of the log values (starts) on arms, and on blocks where asked."""
    blocks = sorted({s.block for s in starts if s.block is not None}) if by_block else []
    design = _design(starts, arms, blocks)
    inverse = np.linalg.pinv(design.T @ design)
    beta = inverse @ design.T @ logs
    residual = logs - design @ beta
    return Fit(
        effects=[float(x) for x in beta[: len(arms)]],
        factors=[float(x) for x in np.diag(inverse)[: len(arms)]],
        squares=float(residual @ residual),
        df=len(starts) - int(np.linalg.matrix_rank(design)),
        counts=tuple(sum(s.arm == a for s in starts) for a in [BASELINE, *arms]),
        blocks=len({s.block for s in starts if s.block is not None}),
    )


def blocks_differ(starts: Sequence[Start], logs: Floats) -> bool:
    """F test of the blocks over the starts that belong to one, at ``DRIFT_LEVEL``."""
    inside = [i for i, s in enumerate(starts) if s.block is not None]
    chosen = [starts[i] for i in inside]
    arms = sorted({s.arm for s in chosen} - {BASELINE})
    if not arms or not _complete(chosen, arms):
        return False
    plain = least_squares(chosen, logs[inside], arms, by_block=False)
    blocked = least_squares(chosen, logs[inside], arms, by_block=True)
    more = plain.df - blocked.df
    if blocked.df < 3 or more < 1 or blocked.squares <= 0:
        return False
    ratio = (plain.squares - blocked.squares) / more / (blocked.squares / blocked.df)
    return float(stats.f.sf(ratio, more, blocked.df)) < DRIFT_LEVEL


def _complete(starts: Sequence[Start], arms: Sequence[int]) -> bool:
    """Enough blocks with every arm that a comparison inside blocks exists."""
    per_block: dict[int | None, set[int]] = {}
    for s in starts:
        per_block.setdefault(s.block, set()).add(s.arm)
    return sum(len(seen) == len(arms) + 1 for seen in per_block.values()) >= 3


def own_error(starts: Sequence[Start]) -> float:
    """Mean relative variance within a start: the noise cannot be smaller than that."""
    return sum((s.stderr / s.value) ** 2 for s in starts) / len(starts)


def pooled_variance(fit: Fit, noise: NoiseModel | None, *, floor: float) -> Variance:
    """Residual variance of the confirmation, pooled with the study's where the two agree."""
    squares, df = fit.squares, fit.df
    source: Source = "confirmation"
    if noise is not None and noise.observed_df > 0 and _agree(squares, df, noise):
        squares, df, source = squares + noise.observed_df * noise.observed**2, df + noise.observed_df, "study"
    if (df < MIN_OWN_DF and squares < df * PRIOR_BETWEEN**2) or df < 1:
        squares, df, source = squares + PRIOR_JOINS_DF * PRIOR_BETWEEN**2, df + PRIOR_JOINS_DF, "prior"
    return Variance(value=max(squares / df, floor, LEAST_NOISE**2), df=df, source=source)


def _agree(squares: float, df: int, noise: NoiseModel) -> bool:
    if df < 1 or noise.observed <= 0:
        return df < 1
    ratio = squares / df / noise.observed**2
    quieter, louder = stats.f.sf(ratio, df, noise.observed_df), stats.f.cdf(ratio, df, noise.observed_df)
    return bool(quieter >= QUIET_LEVEL and louder >= CONFLICT_LEVEL)
