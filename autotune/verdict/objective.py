"""What is optimised: the known metrics, the score of a measurement, and whether the limits hold."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import Literal

from scipy import stats

from autotune.errors import InputError
from autotune.study.file import Objective, Workload
from autotune.values import Estimate, Measurement, Value

Direction = Literal["maximise", "minimise"]


class Metric(Value, frozen=True, kw_only=True):
    """One figure of the steady window that a study may optimise or limit."""

    name: str
    unit: str
    direction: Direction


def _metrics() -> dict[str, Metric]:
    rates = {
        "output_throughput_tok_s": "tok/s",
        "total_throughput_tok_s": "tok/s",
        "input_throughput_tok_s": "tok/s",
        "request_throughput_req_s": "req/s",
        "goodput_req_s": "req/s",
    }
    table = {n: Metric(name=n, unit=u, direction="maximise") for n, u in rates.items()}
    for kind in ("ttft", "tpot", "itl", "e2e"):
        for figure in ("mean", "p50", "p90", "p95", "p99"):
            name = f"{kind}_{figure}_s"
            table[name] = Metric(name=name, unit="s", direction="minimise")
    return table


METRICS: Mapping[str, Metric] = _metrics()

GOODPUT = "goodput_req_s"
PER_REQUEST = ("ttft", "tpot", "e2e")
"""Latencies of which each request has one, so that goodput can count the requests that keep their limits."""

FITS_ARRIVALS = "e2e_mean_s"
"""What to ask of a load that comes at times of its own: queue, prompt and reply all count."""

UNKNOWN_RELATIVE_STDERR = 0.05
"""Assumed within-start error of a figure that came without one: the restart noise of the H200 table."""


class Violation(Value, frozen=True, kw_only=True):
    """A limit that a measurement does not hold with confidence.

    ``bound`` is the value moved against us by its uncertainty; ``certain`` says that the value itself is
    already beyond the limit.
    """

    metric: str
    value: float
    bound: float
    limit: float
    certain: bool

    def __str__(self) -> str:
        how = "is" if self.certain else "may be"
        seen = f"{self.value:.4g} (up to {self.bound:.4g}) against {self.limit:.4g} {METRICS[self.metric].unit}"
        return f"{self.metric} {how} beyond its limit: {seen}"


def metric_of(name: str, *, where: str = "objective.metric") -> Metric:
    """The metric called ``name``, or an ``InputError`` that names ``where`` and the nearest known metric."""
    if name in METRICS:
        return METRICS[name]
    near = difflib.get_close_matches(name, METRICS, n=1, cutoff=0.0)[0]
    raise InputError(f"{where}: unknown metric {name!r}; did you mean {near!r}?")


def tells_the_arrivals(workload: Workload, metric: str) -> str:
    """Why such a throughput says little of the settings, in words; empty: it says something."""
    if workload.closed or not metric.endswith(("_throughput_tok_s", "_throughput_req_s")):
        return ""
    sent = "the trace's" if workload.kind == "trace" else "workload.request_rate's"
    return (
        f"requests come at times of their own, so while the server keeps up {metric} is {sent} whatever the settings; "
        f"ask for a latency ({FITS_ARRIVALS}, ...) or for {GOODPUT} with objective.constraints"
    )


def check_objective(objective: Objective, *, file: str = "study") -> None:
    """Raises ``InputError`` for an unknown metric or a limit that is not a positive number."""
    metric_of(objective.metric, where=f"{file}: objective.metric")
    for name, limit in objective.constraints.items():
        metric_of(name, where=f"{file}: objective.constraints")
        if not (math.isfinite(limit) and limit > 0):
            raise InputError(f"{file}: objective.constraints.{name}: {limit} is no limit; write a positive number")


def binding_limits(objective: Objective) -> dict[str, float]:
    """The limits that a configuration must hold as a whole.

    Goodput already counts the TTFT, TPOT and E2E limits request by request: they do not bind a second time.
    """
    if objective.metric != GOODPUT:
        return dict(objective.constraints)
    return {name: limit for name, limit in objective.constraints.items() if name.split("_")[0] not in PER_REQUEST}


def score(measurement: Measurement, objective: Objective) -> Estimate:
    """The objective's value in its own unit, never turned round.

    A figure without its own error (a percentile of too few batches) comes with ``batches`` 0 and
    ``UNKNOWN_RELATIVE_STDERR``. Raises ``InputError`` when the measurement lacks the metric.
    """
    return figure(measurement, metric_of(objective.metric).name)


def figure(measurement: Measurement, name: str) -> Estimate:
    """Any metric of the steady window with its uncertainty, see ``score``."""
    if name in measurement.estimates:
        return measurement.estimates[name]
    if name not in measurement.steady:
        raise InputError(f"the measurement has no {name}; latencies need a streaming workload (workload.stream = true)")
    value = measurement.steady[name]
    return Estimate(value=value, stderr=abs(value) * UNKNOWN_RELATIVE_STDERR, batches=0)


def violations(measurement: Measurement, objective: Objective, *, confidence: float = 0.95) -> tuple[Violation, ...]:
    """The binding limits that do not hold with one-sided ``confidence``.

    A latency must stay below its limit: value + t * stderr <= limit, t with batches - 1 degrees of freedom.
    For a metric that is maximised the limit is the smallest value allowed, and the sign turns.
    """
    found = (_violation(figure(measurement, m), m, limit, confidence) for m, limit in binding_limits(objective).items())
    return tuple(v for v in found if v is not None)


def _violation(seen: Estimate, name: str, limit: float, confidence: float) -> Violation | None:
    turn = 1.0 if metric_of(name).direction == "minimise" else -1.0
    quantile = float(stats.t.ppf(confidence, seen.batches - 1) if seen.batches > 1 else stats.norm.ppf(confidence))
    bound = seen.value + turn * quantile * seen.stderr
    if turn * bound <= turn * limit:
        return None
    return Violation(metric=name, value=seen.value, bound=bound, limit=limit, certain=turn * seen.value > turn * limit)


def merit(value: float, metric: str) -> float:
    """Log of ``value``, turned so that greater is better: differences are relative gains."""
    return math.log(value) * (1.0 if metric_of(metric).direction == "maximise" else -1.0)


def gain(value: float, reference: float, metric: str) -> float:
    """Relative gain of ``value`` over ``reference``: 0.1 is 10 % more throughput, or a latency divided by 1.1."""
    return math.expm1(merit(value, metric) - merit(reference, metric))


def better(value: float, than: float, metric: str) -> bool:
    """Whether ``value`` is the better figure of the two."""
    return merit(value, metric) > merit(than, metric)
