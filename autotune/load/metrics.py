"""Figures of a load. Latencies and the whole run follow the definitions of sglang.bench_serving.

TTFT: send to first token. TPOT: (latency - TTFT) / (tokens - 1). ITL: gap between chunks per token it brought,
counted once per token. E2E: send to end. All over successful requests.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from autotune.load.records import CANCELLED, RawRun
from autotune.load.sample import Bools, Sample, Window, batch_edges
from autotune.load.stats import from_batches, mean_estimate
from autotune.load.timeline import Floats, step_counts
from autotune.values import Estimate
from autotune.verdict.objective import PER_REQUEST

PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}
THROUGHPUTS = (
    "output_throughput_tok_s",
    "input_throughput_tok_s",
    "total_throughput_tok_s",
    "request_throughput_req_s",
    "goodput_req_s",
)
LATENCIES = ("ttft", "tpot", "itl", "e2e")


def slo_limits(constraints: dict[str, float]) -> dict[str, float]:
    """Per-request limits that goodput counts by, per kind: the tightest of an objective's TTFT, TPOT and E2E limits."""
    limits: dict[str, float] = {}
    for name, limit in constraints.items():
        kind = name.split("_")[0]
        if kind in PER_REQUEST:
            limits[kind] = min(limit, limits.get(kind, math.inf))
    return limits


def whole_figures(raw: RawRun, sample: Sample, slo: dict[str, float]) -> dict[str, float]:
    """The whole run as sglang.bench_serving counts it: sums over successful requests by the time from first send to
    last end.
    """
    duration = whole_duration_s(raw)
    if duration <= 0:
        return {}
    good = sample.ok
    tokens_in, tokens_out = float(sample.tokens_in[good].sum()), float(sample.tokens_out[good].sum())
    return {
        "output_throughput_tok_s": tokens_out / duration,
        "input_throughput_tok_s": tokens_in / duration,
        "total_throughput_tok_s": (tokens_in + tokens_out) / duration,
        "request_throughput_req_s": float(good.sum()) / duration,
        "goodput_req_s": float(_meets(sample, slo).sum()) / duration,
        "concurrency": float((sample.done - sample.send)[good].sum()) / duration,
        **_latency_figures(sample, -math.inf, math.inf),
    }


def whole_duration_s(raw: RawRun) -> float:
    """First send to last end of a request that was not cut off."""
    table = raw.requests[raw.requests["state"] != CANCELLED]
    return float(table["end"].max() - table["send"].min()) if len(table) else 0.0


def steady_figures(sample: Sample, window: Window, slo: dict[str, float]) -> dict[str, float]:
    """The same names inside the window: output tokens by when they came, requests and prompts by when the request
    ended.
    """
    span = window.length_s
    edges = np.array([window.start, window.end])
    figures = {name: float(_counts(sample, name, slo, edges)[0]) / span for name in THROUGHPUTS}
    overlap = np.minimum(sample.done, window.end) - np.maximum(sample.send, window.start)
    in_window = float(np.maximum(overlap, 0.0)[sample.ok].sum()) / span
    return {**figures, "concurrency": in_window, **_latency_figures(sample, window.start, window.end)}


def estimates(sample: Sample, window: Window, slo: dict[str, float]) -> dict[str, Estimate]:
    """Value and standard error of every figure of the window that has one."""
    names = [*THROUGHPUTS, *(name for name, _, _, _ in _latency_names(sample))]
    found = {name: estimate_metric(sample, window, name, slo) for name in dict.fromkeys(names)}
    return {name: estimate for name, estimate in found.items() if estimate is not None}


def estimate_metric(sample: Sample, window: Window, metric: str, slo: dict[str, float]) -> Estimate | None:
    """One figure with its standard error; None when the window is too short or the metric cannot be told (yet)."""
    if metric in THROUGHPUTS:
        rates = _counts(sample, metric, slo, window.edges()) / window.bin_s
        return mean_estimate(rates, window.period)
    for name, times, values, weights in _latency_names(sample):
        if name == metric:
            return _latency_estimate(name, (times, values, weights), batch_edges(sample, window))
    return None


def percentile(values: Floats, weights: Floats, q: float) -> float:
    """Percentile of values of which each stands for ``weight`` equal ones, interpolated as numpy does."""
    order = np.argsort(values)
    ordered, upto = values[order], np.cumsum(weights[order])
    rank = q / 100 * (upto[-1] - 1)
    low = ordered[np.searchsorted(upto, math.floor(rank), side="right")]
    high = ordered[np.searchsorted(upto, math.ceil(rank), side="right")]
    return float(low + (high - low) * (rank - math.floor(rank)))


def _counts(sample: Sample, name: str, slo: dict[str, float], edges: Floats) -> Floats:
    good = sample.ok
    if name == "output_throughput_tok_s":
        return sample.output(edges)
    if name == "input_throughput_tok_s":
        return step_counts(sample.done[good], sample.tokens_in[good], edges)
    if name == "total_throughput_tok_s":
        return sample.output(edges) + step_counts(sample.done[good], sample.tokens_in[good], edges)
    chosen = _meets(sample, slo) if name == "goodput_req_s" else good
    return step_counts(sample.done[chosen], np.ones(int(chosen.sum())), edges)


def _meets(sample: Sample, slo: dict[str, float]) -> Bools:
    """Successful requests that keep every limit."""
    meets = sample.ok.copy()
    for kind, limit in slo.items():
        with np.errstate(invalid="ignore"):
            meets &= _per_request(sample, kind) <= limit
    return np.asarray(meets)


def _per_request(sample: Sample, name: str) -> Floats:
    """One latency per finished request; NaN where it has none."""
    if name == "ttft":
        return sample.first - sample.send
    if name == "e2e":
        return sample.done - sample.send
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = (sample.done - sample.first) / (sample.tokens_out - 1)
    return np.where(sample.tokens_out > 1, tpot, np.nan)


def _latency_series(sample: Sample, name: str) -> tuple[Floats, Floats, Floats]:
    """(end time, seconds, weight) of every observation of one latency, successful requests only."""
    if name == "itl":
        return sample.gap_times, sample.gap_values, sample.gap_weights
    values = _per_request(sample, name)
    usable = sample.ok & np.isfinite(values)
    return sample.done[usable], values[usable], np.ones(int(usable.sum()))


def _latency_names(sample: Sample) -> Iterator[tuple[str, Floats, Floats, Floats]]:
    for name in LATENCIES:
        times, values, weights = _latency_series(sample, name)
        for stat in ("mean", *PERCENTILES):
            yield f"{name}_{stat}_s", times, values, weights


def _latency_figures(sample: Sample, start: float, end: float) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name in LATENCIES:
        times, values, weights = _latency_series(sample, name)
        inside = (times >= start) & (times <= end)
        values, weights = values[inside], weights[inside]
        if not len(values):
            continue
        mean = float(np.average(values, weights=weights))
        figures[f"{name}_mean_s"] = mean
        figures[f"{name}_std_s"] = math.sqrt(float(np.average((values - mean) ** 2, weights=weights)))
        figures.update({f"{name}_{stat}_s": percentile(values, weights, q) for stat, q in PERCENTILES.items()})
    return figures


def _latency_estimate(name: str, series: tuple[Floats, Floats, Floats], edges: Floats) -> Estimate | None:
    times, values, weights = series
    stat = name.rsplit("_", 2)[1]
    order = np.argsort(times, kind="stable")
    times, values, weights = times[order], values[order], weights[order]
    cuts = np.searchsorted(times, edges)
    parts = [
        _statistic(values[low:high], weights[low:high], stat) for low, high in itertools.pairwise(cuts) if high > low
    ]
    whole = slice(cuts[0], cuts[-1])
    if len(parts) < 2:
        return None
    return from_batches(np.array(parts), _statistic(values[whole], weights[whole], stat))


def _statistic(values: Floats, weights: Floats, stat: str) -> float:
    if stat == "mean":
        return float(np.average(values, weights=weights))
    return percentile(values, weights, PERCENTILES[stat])
