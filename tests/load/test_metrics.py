"""Tests of the figures, against loads whose figures are known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.load.metrics import (
    LATENCIES,
    PERCENTILES,
    THROUGHPUTS,
    estimate_metric,
    estimates,
    percentile,
    slo_limits,
    steady_figures,
    whole_figures,
)
from autotune.load.records import FAILED, RawRun
from autotune.load.sample import Window, find_window, from_raw
from autotune.load.stats import half_width
from autotune.study.file import Workload
from tests.load.synthetic import Plan, closed_loop, edited

WORKLOAD = Workload(concurrency=8, input_tokens=30, output_tokens=20)
LIFE_S = 0.05 + 19 * 0.02
RATE = 8 * 20 / LIFE_S


def steady(raw: RawRun, workload: Workload = WORKLOAD, slo: dict[str, float] | None = None) -> dict[str, float]:
    sample = from_raw(raw)
    window = find_window(sample, workload)
    assert window is not None
    return steady_figures(sample, window, slo or {})


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("spread", [True, False])
@pytest.mark.parametrize("per_chunk", [1, 7])
def test_steady_throughput_is_the_true_rate(stream: bool, spread: bool, per_chunk: int) -> None:
    """Streamed or not, in step or not, chunk by chunk or several tokens at once: the window shows the true rate."""
    raw = closed_loop(Plan(stream=stream, spread=spread, per_chunk=per_chunk, jitter=0.05))
    figures = steady(raw)
    assert figures["output_throughput_tok_s"] == pytest.approx(RATE, rel=0.03)
    assert figures["request_throughput_req_s"] == pytest.approx(RATE / 20, rel=0.05)
    assert figures["total_throughput_tok_s"] == pytest.approx(RATE * 50 / 20, rel=0.05)
    assert figures["concurrency"] == pytest.approx(8, rel=0.06)


def test_latencies_by_the_definitions_of_bench_serving() -> None:
    """TTFT from send, TPOT without the first token, ITL per token, E2E to the end."""
    figures = steady(closed_loop(Plan(jitter=0.0)))
    assert figures["ttft_mean_s"] == pytest.approx(0.05)
    assert figures["tpot_p50_s"] == pytest.approx(0.02)
    assert figures["itl_p99_s"] == pytest.approx(0.02)
    assert figures["e2e_p99_s"] == pytest.approx(LIFE_S)
    assert figures["e2e_std_s"] == pytest.approx(0, abs=1e-9)


def test_itl_divides_a_chunk_by_its_tokens() -> None:
    """Chunks of several tokens do not look like long gaps between tokens."""
    figures = steady(closed_loop(Plan(jitter=0.0, per_chunk=5)))
    assert figures["itl_p50_s"] == pytest.approx(0.02)


def test_without_streaming_there_are_no_gaps() -> None:
    """A load that is not streamed has no ITL; the other latencies are the whole life."""
    figures = steady(closed_loop(Plan(stream=False)))
    assert "itl_mean_s" not in figures
    assert figures["e2e_p50_s"] == pytest.approx(LIFE_S, rel=0.05)


def test_whole_run_counts_successes_only() -> None:
    """The whole run divides the tokens of successful requests by the time from first send to last end."""
    raw = edited(closed_loop(Plan(jitter=0.0)), state=(slice(0, 8), FAILED))
    sample = from_raw(raw)
    figures = whole_figures(raw, sample, {})
    good = raw.requests[raw.ok]
    over = raw.requests[raw.requests["state"] != 2]
    duration = over["end"].max() - over["send"].min()
    assert figures["output_throughput_tok_s"] == pytest.approx(good["output_tokens"].sum() / duration)
    assert figures["input_throughput_tok_s"] == pytest.approx(30 * len(good) / duration)
    assert figures["concurrency"] == pytest.approx((good["end"] - good["send"]).sum() / duration)


def test_failed_requests_give_no_tokens_to_the_window() -> None:
    """Tokens of requests that failed later are not counted as output."""
    raw = closed_loop(Plan(jitter=0.0))
    half = edited(raw, state=(raw.requests["index"] % 2 == 0, FAILED))
    assert steady(half)["output_throughput_tok_s"] < 0.7 * steady(raw)["output_throughput_tok_s"]


def test_goodput_counts_requests_within_every_limit() -> None:
    """Goodput equals request throughput under wide limits and is nothing under limits that no request keeps."""
    raw = closed_loop(Plan())
    base = steady(raw)
    wide = steady(raw, slo={"ttft": 1.0, "tpot": 1.0, "e2e": 9.0})
    assert wide["goodput_req_s"] == pytest.approx(base["request_throughput_req_s"])
    assert steady(raw, slo={"ttft": 1.0, "tpot": 0.001})["goodput_req_s"] == 0.0
    middle = float(np.median((raw.requests["end"] - raw.requests["send"])[raw.ok]))
    assert steady(raw, slo={"e2e": middle})["goodput_req_s"] == pytest.approx(
        base["request_throughput_req_s"] / 2, rel=0.2
    )


def test_slo_limits_are_the_tightest_of_each_kind() -> None:
    """Of an objective's limits those of TTFT, TPOT and E2E become limits per request."""
    limits = slo_limits({"ttft_p99_s": 2.0, "ttft_mean_s": 1.0, "e2e_s": 9.0, "output_throughput_tok_s": 5.0})
    assert limits == {"ttft": 1.0, "e2e": 9.0}


@settings(deadline=None)
@given(
    values=st.lists(st.integers(0, 50), min_size=1, max_size=30),
    weights=st.lists(st.integers(1, 5), min_size=30, max_size=30),
    q=st.sampled_from([0.0, 25.0, 50.0, 90.0, 99.0, 100.0]),
)
def test_weighted_percentile_is_that_of_repeated_values(values: list[int], weights: list[int], q: float) -> None:
    """A value with weight n counts like n equal values in numpy's percentile."""
    data, w = np.array(values, float), np.array(weights[: len(values)])
    assert percentile(data, w.astype(float), q) == pytest.approx(np.percentile(np.repeat(data, w), q))


def test_every_figure_has_an_estimate_that_agrees() -> None:
    """Each throughput and latency of the window comes with a standard error around its own value."""
    sample = from_raw(closed_loop(Plan(seconds=30)))
    window = find_window(sample, WORKLOAD)
    assert window is not None
    figures, found = steady_figures(sample, window, {}), estimates(sample, window, {})
    names = {*THROUGHPUTS, *(f"{kind}_{stat}_s" for kind in LATENCIES for stat in ("mean", *PERCENTILES))}
    assert set(found) == names
    for name, estimate in found.items():
        assert estimate.value == pytest.approx(figures[name], rel=0.05), name
        assert estimate.stderr >= 0
        assert estimate.batches >= 2


def test_intervals_of_throughput_cover_the_true_rate() -> None:
    """Over many noisy loads most intervals contain the long-run rate, and they are narrow."""
    truth = steady(closed_loop(Plan(jitter=0.3, seconds=400)))["output_throughput_tok_s"]
    hits, widths = 0, []
    for seed in range(40):
        sample = from_raw(closed_loop(Plan(jitter=0.3, seconds=12, seed=seed)))
        window = find_window(sample, WORKLOAD)
        assert window is not None
        estimate = estimate_metric(sample, window, "output_throughput_tok_s", {})
        assert estimate is not None
        hits += abs(estimate.value - truth) <= half_width(estimate)
        widths.append(half_width(estimate) / estimate.value)
    assert hits >= 36
    assert np.median(widths) < 0.05


def test_unknown_metric_has_no_estimate() -> None:
    """A figure that the sample cannot tell has no estimate."""
    sample = from_raw(closed_loop(Plan(stream=False)))
    window = Window(start=5, end=15, bin_s=0.1, period=0)
    assert estimate_metric(sample, window, "itl_p99_s", {}) is None
    assert estimate_metric(sample, window, "nonsense", {}) is None
