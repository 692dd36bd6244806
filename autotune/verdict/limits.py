"""Whether the winner holds the study's limits, from several starts of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import stats

from autotune.errors import InputError
from autotune.values import Estimate, Value
from autotune.verdict.noise import NoiseModel
from autotune.verdict.objective import merit, metric_of


class LimitCheck(Value, frozen=True, kw_only=True):
    """``value`` is the geometric mean over the starts, ``bound`` the same moved against us by its uncertainty."""

    metric: str
    value: float
    bound: float
    limit: float
    holds: bool

    def __str__(self) -> str:
        unit = metric_of(self.metric).unit
        seen = f"{self.value:.4g} ({self.bound:.4g} with confidence)"
        if self.holds:
            return f"{self.metric} {seen} keeps {self.limit:.4g} {unit}"
        beyond = merit(self.value, self.metric) < merit(self.limit, self.metric)
        return f"{self.metric} {'is' if beyond else 'may be'} beyond its limit: {seen} against {self.limit:.4g} {unit}"


def check_limit(
    seen: Sequence[Estimate], name: str, limit: float, noise: NoiseModel, *, confidence: float = 0.95
) -> LimitCheck:
    """One limit over several starts of one configuration, held when the one-sided bound of the mean holds it.

    The deviation of a start is pooled from these starts and the noise model (of the objective, taken as that
    of the limited metric too, weighing ``noise.df``), so one start can be judged as well.
    Raises ``InputError`` without a start.
    """
    if not seen:
        raise InputError(f"objective.constraints.{name}: no start of the winner has this figure")
    merits = [merit(e.value, name) for e in seen]
    mean = sum(merits) / len(merits)
    squares = sum((m - mean) ** 2 for m in merits) + noise.df * noise.total**2
    df = len(merits) - 1 + noise.df
    own = sum((e.stderr / e.value) ** 2 for e in seen) / len(seen)
    error = math.sqrt(max(squares / df, own) / len(merits))
    bound = mean - error * float(stats.t.ppf(confidence, df))
    turn = 1.0 if merit(math.e, name) > 0 else -1.0
    return LimitCheck(
        metric=name,
        value=math.exp(turn * mean),
        bound=math.exp(turn * bound),
        limit=limit,
        holds=bound >= merit(limit, name),
    )
