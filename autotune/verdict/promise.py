"""What an exported configuration promises: its figure, and where the figure of one more start should lie. Pure.

The promise travels in the head of a launch script as one line of text, and is read back from there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from scipy import stats

from autotune.values import Estimate, Value
from autotune.verdict.noise import PRIOR_BETWEEN, PRIOR_DF
from autotune.verdict.objective import METRICS, metric_of

LEVEL = 0.95
_NUMBER = r"[\d.,]+(?:e[-+]?\d+)?"
_LINE = re.compile(
    rf"(?P<metric>\w+) (?P<value>{_NUMBER}); another start (?P<low>{_NUMBER}) to (?P<high>{_NUMBER})"
    rf" \(95 %; starts: (?P<starts>\d+), noise of one: (?P<noise>{_NUMBER}) %\)"
)
_SCORE = re.compile(rf"(?P<metric>\w+) (?P<value>{_NUMBER}) \+- (?P<stderr>{_NUMBER}) within one start")


class Promise(Value, frozen=True, kw_only=True):
    """``low`` to ``high`` is the 95 % interval for the figure of one more start.

    ``starts`` were averaged for ``value``; ``noise`` is the relative deviation of one.
    """

    metric: str
    value: float
    low: float
    high: float
    starts: int
    noise: float

    def __str__(self) -> str:
        span = f"{_shown(self.low)} to {_shown(self.high)}"
        told = f"(95 %; starts: {self.starts}, noise of one: {100 * self.noise:.2f} %)"
        return f"{self.metric} {_shown(self.value)}; another start {span} {told}"


class Spread(Value, frozen=True, kw_only=True):
    """How one more start scatters: its relative deviation, with the degrees of freedom, and the value's own error."""

    noise: float
    df: float
    stderr: float = 0.0


def promise(metric: str, value: float, starts: int, spread: Spread) -> Promise:
    """The promise of a figure: a prediction interval on the log scale, by Student's t."""
    reach = float(stats.t.ppf((1 + LEVEL) / 2, spread.df)) * math.hypot(spread.noise, spread.stderr)
    low, high = value * math.exp(-reach), value * math.exp(reach)
    return Promise(metric=metric, value=value, low=low, high=high, starts=starts, noise=spread.noise)


def of_starts(metric: str, values: Sequence[float], noise: float, df: float) -> Promise:
    """The promise of fresh starts: their geometric mean. ``values`` are positive, one at least."""
    centre = math.exp(sum(map(math.log, values)) / len(values))
    return promise(metric, centre, len(values), Spread(noise=noise, df=df, stderr=noise / math.sqrt(len(values))))


def read_promise(text: str) -> Promise | None:
    """The promise in a line that ``str`` of one wrote; None for any other text."""
    match = _LINE.fullmatch(text.strip())
    if not match or match["metric"] not in METRICS:
        return None
    numbers = {name: _number(match[name]) for name in ("value", "low", "high", "noise")}
    if not all(0 < number < math.inf for name, number in numbers.items() if name != "noise"):
        return None
    return Promise(metric=match["metric"], starts=int(match["starts"]), **{**numbers, "noise": numbers["noise"] / 100})


def read_score(text: str) -> Promise | None:
    """A promise from the line ``score`` of a script that has no other, with the noise that is assumed at first."""
    match = _SCORE.fullmatch(text.strip())
    if not match or match["metric"] not in METRICS:
        return None
    value, stderr = _number(match["value"]), _number(match["stderr"])
    if not 0 < value < math.inf:
        return None
    noise = math.hypot(PRIOR_BETWEEN, stderr / value)
    return promise(match["metric"], value, 1, Spread(noise=noise, df=PRIOR_DF, stderr=noise))


class Comparison(Value, frozen=True, kw_only=True):
    """``change`` is the measured figure over the promised one, less 1; ``holds``: it is not worse than promised."""

    promise: Promise
    measured: Estimate
    change: float
    holds: bool

    def __str__(self) -> str:
        unit = metric_of(self.promise.metric).unit
        side = "above" if self.change >= 0 else "below"
        gap = f"{100 * abs(self.change):.1f} % {side} the promised {_shown(self.promise.value)}"
        span = f"{_shown(self.promise.low)} to {_shown(self.promise.high)}"
        verb = "holds" if self.holds else "does not hold"
        text = f"{verb}: {_shown(self.measured.value)} {unit}, {gap} (95 % of starts: {span})"
        inside = self.promise.low <= self.measured.value <= self.promise.high
        return f"{text}; better than promised" if self.holds and not inside else text


def compare(promised: Promise, measured: Estimate) -> Comparison:
    """Whether one start keeps the promise: no worse than the interval's end; better is no breach."""
    up = metric_of(promised.metric).direction == "maximise"
    holds = measured.value >= promised.low if up else measured.value <= promised.high
    return Comparison(promise=promised, measured=measured, change=measured.value / promised.value - 1, holds=holds)


def _shown(value: float) -> str:
    return f"{value:,.1f}" if value >= 100 else f"{value:.4g}"


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return math.nan
