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
from scipy import stats

from autotune.errors import InputError
from autotune.values import Value
from autotune.verdict.fit import Fit, Source, Start, Variance, blocks_differ, least_squares, own_error, pooled_variance
from autotune.verdict.levels import finalist_levels, look_levels
from autotune.verdict.noise import NoiseModel
from autotune.verdict.objective import merit
from autotune.verdict.schedule import BASELINE

Kind = Literal["gain", "no difference", "worse"]

LOOKS_DISCOUNT = 0.9
"""Of the level, when there are several looks: the boundaries are exact for a known variance, and estimating it
anew at each look let up to 5.6 % through in simulation."""
JUST_ABOVE_ZERO = 1e-12
"""A claimed gain's interval is open at zero."""


class Rules(Value, frozen=True, kw_only=True):
    """How the claim is guarded.

    ``error`` is the total level of the interval; ``worse_error`` the part of it that guards "worse"; the rest
    guards a gain, with some to spare for blocks and noise being chosen by the data. ``first_share`` of the level
    goes to the finalist that the search prefers. ``looks`` are the numbers of complete blocks at which one may
    judge and stop; empty: once, at the end. ``planned`` is the number of blocks planned.
    """

    error: float = 0.05
    worse_error: float = 0.004
    first_share: float = 0.8
    looks: tuple[int, ...] = ()
    planned: int = 5

    @property
    def gain_error(self) -> float:
        """Chance of any false gain, one-sided."""
        return (self.error - self.worse_error) * (LOOKS_DISCOUNT if self.looks else 1.0)


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
    noise_source: Source
    by_block: bool

    @property
    def headline(self) -> Verdict:
        """The winner's verdict, else that of the finalist that the search preferred."""
        return next((v for v in self.verdicts if v.arm == self.winner), self.verdicts[0])


def judge(
    starts: Sequence[Start], *, metric: str, noise: NoiseModel | None = None, rules: Rules | None = None
) -> Judgement:
    """The verdicts from the confirmation's starts.

    ``noise`` is the study's noise model from starts outside the confirmation; it adds degrees of freedom and
    nothing else. Raises ``InputError`` when a side has fewer than two starts, or a figure is no positive number.
    """
    rules = rules or Rules()
    arms = _arms(starts)
    if bad := [s.value for s in starts if not (math.isfinite(s.value) and s.value > 0)]:
        raise InputError(f"confirmation: {bad[0]} is no figure of {metric}: ratios need positive numbers")
    logs = np.array([merit(s.value, metric) for s in starts])
    by_block = blocks_differ(starts, logs)
    kept = [i for i, s in enumerate(starts) if not by_block or s.block is not None]
    used = [starts[i] for i in kept]
    fit = least_squares(used, logs[kept], arms, by_block=by_block)
    variance = pooled_variance(fit, noise, floor=own_error(used))
    verdicts = _verdicts(fit, variance, arms, rules)
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


class _Tails(Value, frozen=True, kw_only=True):
    """One-sided error levels: of a false gain; of the lower and upper end above zero; of a false "worse"."""

    gain: float
    low: float
    high: float
    worse: float


def _verdicts(fit: Fit, variance: Variance, arms: Sequence[int], rules: Rules) -> list[Verdict]:
    """One verdict per arm. When the first gain is reliable its share of the level passes to the others (Holm)."""
    guard = rules.gain_error
    levels = finalist_levels(guard, _shares(len(arms), rules.first_share), fit.counts, variance.df)
    # The ends of the intervals hold together, so the best of several reliable gains is not overstated.
    ends = finalist_levels(rules.error / 2, _shares(len(arms), 1 / len(arms)), fit.counts, variance.df)

    def verdict(i: int, level: float) -> Verdict:
        wanted = (level, ends[i], rules.error / 2, rules.worse_error)
        gain, low, high, worse = (_at_look(x, rules, fit.blocks) for x in wanted)
        return _verdict(arms[i], fit, variance, i, _Tails(gain=gain, low=low, high=high, worse=worse))

    first = verdict(0, levels[0])
    others = len(arms) - 1
    if others and first.kind == "gain":
        counts = (fit.counts[0], *fit.counts[2:])
        levels = (levels[0], *finalist_levels(guard, _shares(others, 1 / others), counts, variance.df))
    return [first, *(verdict(i, levels[i]) for i in range(1, len(arms)))]


def _shares(arms: int, first: float) -> tuple[float, ...]:
    return (1.0,) if arms == 1 else (first, *((1 - first) / (arms - 1),) * (arms - 1))


def _at_look(level: float, rules: Rules, blocks: int) -> float:
    if not rules.looks:
        return level
    passed = [i for i, look in enumerate(rules.looks) if look <= blocks]
    if not passed:
        raise InputError(f"confirmation: {blocks} blocks are done, but one may judge only after {list(rules.looks)}")
    return look_levels(level, rules.looks, rules.planned)[passed[-1]]


def _verdict(arm: int, fit: Fit, variance: Variance, index: int, tails: _Tails) -> Verdict:
    effect, error = fit.effects[index], math.sqrt(fit.factors[index] * variance.value)
    low, high = _interval(effect, error, variance.df, tails)
    kind: Kind = "gain" if low > 0 else "no difference"
    return Verdict(
        arm=arm,
        kind="worse" if high < 0 else kind,
        gain=math.expm1(effect),
        low=math.expm1(low),
        high=math.expm1(high),
        starts=fit.counts[index + 1],
        p_value=float(stats.t.sf(effect / error, variance.df)) if error > 0 else float(effect <= 0),
    )


def _interval(effect: float, error: float, df: int, tails: _Tails) -> tuple[float, float]:
    """All effects that the tests keep: [gain, worse] tails at or below zero, two equal ones above it."""
    levels = (tails.gain, tails.low, tails.high, tails.worse)
    gain, lower, upper, worse = (error * float(stats.t.isf(level, df)) for level in levels)
    low = effect - gain if effect <= gain else max(JUST_ABOVE_ZERO, effect - lower)
    high = effect + upper if effect > -upper else min(0.0, effect + worse)
    return low, high
