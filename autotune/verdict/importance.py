"""Which parameters matter, with intervals; "no measurable effect" and "cannot tell" are answers.

An additive regression of the log figure: a parabola per numeric parameter (on the log of positive ones that
span a factor of four or more), a level per value of the others. The effect of a parameter is the difference
between its best and its worst tried setting on the fitted curve. Its interval is Scheffe's, which holds for
all contrasts of that parameter at once, so choosing best and worst after the fit does not flatter it.
Interactions, such as a cliff where two parameters meet, are not in the model: they widen the intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

from autotune.values import ParamValue, Value
from autotune.verdict.noise import NoiseModel, Tried, log_mean
from autotune.verdict.objective import merit, metric_of
from autotune.verdict.recommend import rank

Floats = npt.NDArray[np.float64]
Answer = Literal["matters", "no measurable effect", "cannot tell"]

SPARE_DF = 2
LOG_SPAN = 4.0
SMALL_EFFECT = 0.05
"""An effect whose interval ends below this is not worth a parameter in the search."""


class Importance(Value, frozen=True, kw_only=True):
    """``effect`` is the relative difference between the best and the worst tried setting of the parameter."""

    parameter: str
    answer: Answer
    effect: float
    low: float
    high: float
    best: ParamValue | None = None

    def __str__(self) -> str:
        if self.answer == "cannot tell" and math.isinf(self.high):
            return f"{self.parameter}: cannot tell (too few trials)"
        return (
            f"{self.parameter}: {self.answer} ({100 * self.effect:.0f} %, {100 * self.low:.0f}–{100 * self.high:.0f})"
        )


class _Block(Value, frozen=True, kw_only=True):
    """Columns of one parameter, one row per tried configuration."""

    parameter: str
    rows: list[list[float]]


def importance(
    tried: Sequence[Tried], noise: NoiseModel, metric: str, *, confidence: float = 0.95, small: float = SMALL_EFFECT
) -> list[Importance]:
    """One answer per parameter that took at least two values, the largest effect first.

    ``tried`` are configurations with an explicit value for the parameters (the baseline with its values in
    force); those that lack one of the parameters most others have are left out. With fewer than the number
    of columns plus ``SPARE_DF`` configurations every answer is "cannot tell".
    """
    names = _names(tried)
    usable = [t for t in tried if t.values and all(n in t.params for n in names)]
    blocks = [_block(n, [t.params[n] for t in usable], bend=True) for n in names]
    if len(usable) < _columns(blocks) + 1 + SPARE_DF:
        blocks = [_block(n, [t.params[n] for t in usable], bend=False) for n in names]
    if len(usable) < _columns(blocks) + 1 + SPARE_DF:
        return [Importance(parameter=n, answer="cannot tell", effect=0.0, low=0.0, high=math.inf) for n in names]
    turn = 1.0 if metric_of(metric).direction == "maximise" else -1.0
    means = [log_mean(t, noise) for t in usable]
    fit = _Regression(blocks, np.array([turn * m for m, _ in means]), np.array([e for _, e in means]), noise.df)
    found = [_answer(fit, i, usable, (confidence, small)) for i in range(len(blocks))]
    return sorted(found, key=lambda f: -f.effect)


def _names(tried: Sequence[Tried]) -> list[str]:
    """Parameters with at least two values that more than half of the configurations set."""
    measured = [t for t in tried if t.values]
    names = sorted({n for t in measured for n in t.params})
    seen = {n: [t.params[n] for t in measured if n in t.params] for n in names}
    return [n for n in names if len({repr(v) for v in seen[n]}) > 1 and 2 * len(seen[n]) > len(measured)]


def _block(name: str, values: Sequence[ParamValue], *, bend: bool) -> _Block:
    numeric = [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numeric) == len(values):
        return _Block(parameter=name, rows=_curve(numeric, bend=bend))
    levels = sorted({repr(v) for v in values})[1:]
    return _Block(parameter=name, rows=[[float(repr(v) == level) for level in levels] for v in values])


def _curve(values: Sequence[float], *, bend: bool) -> list[list[float]]:
    """Value scaled to [-1, 1], on the log where it spans enough, and its square with three values or more."""
    if not values:
        return []
    low, high = min(values), max(values)
    scaled = np.log(values) if low > 0 and high >= LOG_SPAN * low else np.asarray(values, dtype=float)
    start, width = float(scaled.min()), float(scaled.max() - scaled.min()) or 1.0
    unit = [2 * (float(x) - start) / width - 1 for x in scaled]
    return [[x, x * x] if bend and len(set(values)) > 2 else [x] for x in unit]


def _columns(blocks: Sequence[_Block]) -> int:
    return sum(len(b.rows[0]) for b in blocks if b.rows)


class _Regression:
    """Weighted least squares; the residual variance is pooled with the noise model's."""

    def __init__(self, blocks: Sequence[_Block], logs: Floats, errors: Floats, noise_df: float) -> None:
        self.blocks = [np.array(b.rows) for b in blocks]
        self.names = [b.parameter for b in blocks]
        design = np.column_stack([np.ones(len(logs)), *self.blocks])
        weighted = design / errors[:, None]
        self.inverse = np.linalg.pinv(weighted.T @ weighted)
        self.beta = self.inverse @ weighted.T @ (logs / errors)
        residual = (logs - design @ self.beta) / errors
        df = len(logs) - int(np.linalg.matrix_rank(design))
        squares = float(residual @ residual)
        # Lack of fit counts in full; a fit closer than the noise allows is luck and is pooled with it.
        alone, pooled = squares / df, (squares + noise_df) / (df + noise_df)
        self.variance: float = max(alone, pooled)
        self.df: float = df if alone > pooled else df + noise_df

    def contrast(self, index: int) -> tuple[int, float, float, int]:
        """Row of the best setting, the difference to the worst, its standard error, columns of the parameter."""
        start = 1 + sum(b.shape[1] for b in self.blocks[:index])
        columns = slice(start, start + self.blocks[index].shape[1])
        partial = self.blocks[index] @ self.beta[columns]
        best, worst = int(np.argmax(partial)), int(np.argmin(partial))
        step = self.blocks[index][best] - self.blocks[index][worst]
        error = math.sqrt(max(0.0, float(step @ self.inverse[columns, columns] @ step) * self.variance))
        return best, float(partial[best] - partial[worst]), error, self.blocks[index].shape[1]


def _answer(fit: _Regression, index: int, tried: Sequence[Tried], limits: tuple[float, float]) -> Importance:
    confidence, small = limits
    best, difference, error, columns = fit.contrast(index)
    reach = error * math.sqrt(columns * float(stats.f.ppf(confidence, columns, fit.df)))
    low, high = max(0.0, difference - reach), difference + reach
    answer: Answer = "matters" if low > 0 else "no measurable effect" if math.expm1(high) < small else "cannot tell"
    name = fit.names[index]
    return Importance(
        parameter=name,
        answer=answer,
        effect=math.expm1(difference),
        low=math.expm1(low),
        high=math.expm1(high),
        best=tried[best].params[name] if answer == "matters" else None,
    )


SAFER_WHEN_LOWER = (
    "mem_fraction_static",
    "gpu_memory_utilization",
    "max_running_requests",
    "max_num_seqs",
    "cuda_graph_max_bs",
    "chunked_prefill_size",
)
"""Less of any of these leaves more memory free (design arithmetic), the first being the most direct."""


def equal_within_noise(
    tried: Sequence[Tried],
    noise: NoiseModel,
    metric: str,
    *,
    confidence: float = 0.95,
    safer_when_lower: Sequence[str] = SAFER_WHEN_LOWER,
) -> list[Tried]:
    """Configurations that cannot be told from the best by posterior value, the safer ones first.

    Two differ when the gap of their means exceeds the two-sided t bound of its error; the noise of one start
    has ``noise.df`` degrees of freedom. A parameter that is absent counts as riskier than any value. Not
    being told apart is no proof of being equal: with one start each the list is long, and ought to be.
    """
    ranked = rank(tried, noise, metric)
    if not ranked:
        return []
    quantile = float(stats.t.ppf((1 + confidence) / 2, max(noise.df, 1.0)))
    top, top_error = log_mean(ranked[0].tried, noise)
    top = merit(math.exp(top), metric)
    close = []
    for one in ranked:
        mean, error = log_mean(one.tried, noise)
        if top - merit(math.exp(mean), metric) <= quantile * math.hypot(error, top_error):
            close.append(one.tried)
    return sorted(close, key=lambda t: tuple(_risk(t, name) for name in safer_when_lower))


def _risk(tried: Tried, name: str) -> float:
    value = tried.params.get(name, tried.params.get(name.replace("_", "-")))
    return float(value) if isinstance(value, int | float) else math.inf
