"""The claim: is a finalist better than the baseline, and by how much, on fresh server starts?

The finalists were chosen on the search's data and are judged only on the confirmation's, so the luck that
made them finalists is not in the answer. Work is on the log scale with one variance for all arms.

Intervals are of 95 %. For effects above zero both tails have 2.5 %; for effects at or below zero the tail that
guards a claimed gain has nearly all 5 %. This is one family of tests, inverted (Benjamini, Hochberg and Stark
1998), so the interval covers with 95 % whatever the truth, and a gain is claimed only when it has nothing below zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

from autotune.errors import InputError
from autotune.values import Value
from autotune.verdict.levels import finalist_levels, look_levels
from autotune.verdict.noise import PRIOR_BETWEEN, NoiseModel
from autotune.verdict.objective import merit
from autotune.verdict.schedule import BASELINE

Floats = npt.NDArray[np.float64]
Kind = Literal["gain", "no difference", "worse"]

MIN_OWN_DF = 6
"""Below this many degrees of freedom of the study's own, the prior joins with PRIOR_DF of them: the claim
then rests on an assumption, and ``Judgement.noise_source`` says so."""
PRIOR_JOINS_DF = 2
DRIFT_LEVEL = 0.01
"""Blocks are taken out of the comparison when they differ at this level. Without it the comparison is still
valid (every block has every arm), only wider; a small level keeps the choice from bending the claim."""
CONFLICT_LEVEL = 0.01


JUST_ABOVE_ZERO = 1e-12
"""A claimed gain's interval is open at zero."""


class Start(Value, frozen=True, kw_only=True):
    """One measured start of the confirmation. ``stderr`` is the error within the start, in the metric's unit."""

    arm: int
    block: int | None
    value: float
    stderr: float = 0.0


class Rules(Value, frozen=True, kw_only=True):
    """How the claim is guarded.

    ``error`` is the total level of the interval; ``worse_error`` the part of it that guards "worse". ``first_share``
    of the level goes to the finalist that the search prefers. ``looks`` are the numbers of complete blocks at
    which one may judge and stop; empty: once, at the end. ``planned`` is the number of blocks planned.
    """

    error: float = 0.05
    worse_error: float = 0.002
    first_share: float = 0.8
    looks: tuple[int, ...] = ()
    planned: int = 5


class Verdict(Value, frozen=True, kw_only=True):
    """What can be said of one finalist. ``gain``, ``low`` and ``high`` are relative (0.1 is 10 %)."""

    arm: int
    kind: Kind
    gain: float
    low: float
    high: float
    starts: int
    p_value: float

    def __str__(self) -> str:
        span = f"{100 * self.low:.1f}–{100 * self.high:.1f}"
        match self.kind:
            case "gain":
                return f"reliable gain of {100 * self.gain:.1f} % ({span})"
            case "worse":
                return f"worse by {-100 * self.gain:.1f} % ({span})"
            case _:
                return f"no reliable difference ({100 * self.gain:+.1f} %, {span})"


class Judgement(Value, frozen=True, kw_only=True):
    """All verdicts, the arm to use (the baseline when no gain is reliable), and what they rest on."""

    verdicts: tuple[Verdict, ...]
    winner: int
    noise: float
    df: int
    noise_source: Literal["confirmation", "study", "prior"]
    by_block: bool

    @property
    def headline(self) -> Verdict:
        """The winner's verdict, else that of the finalist that the search preferred."""
        return next((v for v in self.verdicts if v.arm == self.winner), self.verdicts[0])


class _Fit(Value, frozen=True, kw_only=True):
    """Effects of the finalists over the baseline, their variances in units of the noise, and the residual."""

    effects: list[float]
    factors: list[float]
    squares: float
    df: int


class _Variance(Value, frozen=True, kw_only=True):
    value: float
    df: int
    source: Literal["confirmation", "study", "prior"]


def judge(
    starts: Sequence[Start], *, metric: str, noise: NoiseModel | None = None, rules: Rules | None = None
) -> Judgement:
    """The verdicts from the confirmation's starts.

    ``noise`` is the study's noise model from starts outside the confirmation; it adds degrees of freedom and
    nothing else. Raises ``InputError`` when a side has fewer than two starts.
    """
    rules = rules or Rules()
    arms = _arms(starts)
    logs = np.array([merit(s.value, metric) for s in starts])
    by_block = _blocks_differ(starts, logs)
    kept = [i for i, s in enumerate(starts) if not by_block or s.block is not None]
    used = [starts[i] for i in kept]
    fit = _fit(used, logs[kept], arms, by_block=by_block)
    variance = _variance(fit, noise, floor=_own_error(used))
    verdicts = _verdicts(fit, variance, [sum(s.arm == a for s in used) for a in [BASELINE, *arms]], arms, rules)
    reliable = [v for v in verdicts if v.kind == "gain"]
    return Judgement(
        verdicts=tuple(verdicts),
        winner=max(reliable, key=lambda v: v.gain).arm if reliable else BASELINE,
        noise=math.sqrt(variance.value),
        df=variance.df,
        noise_source=variance.source,
        by_block=by_block,
    )


def judge_pair(
    baseline: Sequence[float], candidate: Sequence[float], *, metric: str, noise: NoiseModel | None = None
) -> Verdict:
    """The verdict on one candidate from figures alone, without blocks."""
    starts = [Start(arm=BASELINE, block=None, value=v) for v in baseline]
    starts += [Start(arm=1, block=None, value=v) for v in candidate]
    return judge(starts, metric=metric, noise=noise).headline


def _arms(starts: Sequence[Start]) -> list[int]:
    arms = sorted({s.arm for s in starts} - {BASELINE})
    few = [a for a in [BASELINE, *arms] if sum(s.arm == a for s in starts) < 2]
    if few or not arms:
        raise InputError("confirmation: at least two starts of the baseline and of each finalist are needed")
    return arms


def _design(starts: Sequence[Start], arms: Sequence[int], blocks: Sequence[int | None]) -> Floats:
    """Columns: the finalists' effects first, then one level per block (or a single one)."""
    effects = [[float(s.arm == a) for a in arms] for s in starts]
    levels = [[float(s.block == b) for b in blocks] if blocks else [1.0] for s in starts]
    return np.array([e + level for e, level in zip(effects, levels, strict=True)])


def _fit(starts: Sequence[Start], logs: Floats, arms: Sequence[int], *, by_block: bool) -> _Fit:
    blocks = sorted({s.block for s in starts if s.block is not None}) if by_block else []
    design = _design(starts, arms, blocks)
    inverse = np.linalg.pinv(design.T @ design)
    beta = inverse @ design.T @ logs
    residual = logs - design @ beta
    return _Fit(
        effects=[float(x) for x in beta[: len(arms)]],
        factors=[float(x) for x in np.diag(inverse)[: len(arms)]],
        squares=float(residual @ residual),
        df=len(starts) - int(np.linalg.matrix_rank(design)),
    )


def _blocks_differ(starts: Sequence[Start], logs: Floats) -> bool:
    """F test of the blocks over the starts that belong to one, at ``DRIFT_LEVEL``."""
    inside = [i for i, s in enumerate(starts) if s.block is not None]
    chosen = [starts[i] for i in inside]
    arms = sorted({s.arm for s in chosen} - {BASELINE})
    if not arms or not _complete(chosen, arms):
        return False
    plain = _fit(chosen, logs[inside], arms, by_block=False)
    blocked = _fit(chosen, logs[inside], arms, by_block=True)
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


def _own_error(starts: Sequence[Start]) -> float:
    """Mean relative variance within a start: the noise cannot be smaller than that."""
    return sum((s.stderr / s.value) ** 2 for s in starts) / len(starts)


def _variance(fit: _Fit, noise: NoiseModel | None, *, floor: float) -> _Variance:
    """Residual variance of the confirmation, pooled with the study's where the two agree."""
    squares, df = fit.squares, fit.df
    source: Literal["confirmation", "study", "prior"] = "confirmation"
    if noise is not None and noise.observed_df > 0 and _agree(squares, df, noise):
        squares, df, source = squares + noise.observed_df * noise.observed**2, df + noise.observed_df, "study"
    if df < MIN_OWN_DF:
        squares, df, source = squares + PRIOR_JOINS_DF * PRIOR_BETWEEN**2, df + PRIOR_JOINS_DF, "prior"
    return _Variance(value=max(squares / df, floor), df=df, source=source)


def _agree(squares: float, df: int, noise: NoiseModel) -> bool:
    if df < 1 or noise.observed <= 0:
        return df < 1
    ratio = squares / df / noise.observed**2
    tail = min(stats.f.sf(ratio, df, noise.observed_df), stats.f.cdf(ratio, df, noise.observed_df))
    return bool(2 * tail >= CONFLICT_LEVEL)


class _Tails(Value, frozen=True, kw_only=True):
    """One-sided error levels: of a false gain, of either side above zero, and of a false "worse"."""

    gain: float
    side: float
    worse: float


def _verdicts(
    fit: _Fit, variance: _Variance, counts: Sequence[int], arms: Sequence[int], rules: Rules
) -> list[Verdict]:
    """One verdict per arm. When the first gain is reliable its share of the level passes to the others (Holm)."""
    guard = rules.error - rules.worse_error
    others = len(arms) - 1
    shares = (rules.first_share, *[(1 - rules.first_share) / others] * others) if others else (1.0,)
    levels = finalist_levels(guard, shares, tuple(counts), variance.df)
    blocks = min(counts[1:])
    first = _verdict(arms[0], fit, variance, (0, counts[1]), _tails(levels[0], rules, blocks))
    if others and first.kind == "gain":
        levels = (0.0, *finalist_levels(guard, (1 / others,) * others, (counts[0], *counts[2:]), variance.df))
    rest = [
        _verdict(arms[i], fit, variance, (i, counts[i + 1]), _tails(levels[i], rules, blocks))
        for i in range(1, len(arms))
    ]
    return [first, *rest]


def _tails(level: float, rules: Rules, blocks: int) -> _Tails:
    gain, side, worse = (_at_look(x, rules, blocks) for x in (level, rules.error / 2, rules.worse_error))
    return _Tails(gain=gain, side=side, worse=worse)


def _at_look(level: float, rules: Rules, blocks: int) -> float:
    if not rules.looks:
        return level
    if blocks not in rules.looks:
        raise InputError(f"confirmation: {blocks} blocks are done, but one may judge only after {list(rules.looks)}")
    return look_levels(level, rules.looks, rules.planned)[rules.looks.index(blocks)]


def _verdict(arm: int, fit: _Fit, variance: _Variance, which: tuple[int, int], tails: _Tails) -> Verdict:
    index, starts = which
    effect, error = fit.effects[index], math.sqrt(fit.factors[index] * variance.value)
    low, high = _interval(effect, error, variance.df, tails)
    kind: Kind = "gain" if low > 0 else "no difference"
    return Verdict(
        arm=arm,
        kind="worse" if high < 0 else kind,
        gain=math.expm1(effect),
        low=math.expm1(low),
        high=math.expm1(high),
        starts=starts,
        p_value=float(stats.t.sf(effect / error, variance.df)) if error > 0 else float(effect <= 0),
    )


def _interval(effect: float, error: float, df: int, tails: _Tails) -> tuple[float, float]:
    """All effects that the tests keep: [gain, worse] tails at or below zero, two equal ones above it."""
    gain, side, worse = (error * float(stats.t.isf(level, df)) for level in (tails.gain, tails.side, tails.worse))
    low = effect - gain if effect <= gain else max(JUST_ABOVE_ZERO, effect - side)
    high = effect + side if effect > -side else min(0.0, effect + worse)
    return low, high
