"""Tests of the measurement and of its row in bench_serving's names."""

import json

import msgspec
import pytest

from autotune.load.reduce import reduce
from autotune.load.row import bench_serving_row
from autotune.study.file import Objective, Workload
from autotune.values import Measurement
from tests.load.synthetic import Plan, closed_loop

WORKLOAD = Workload(concurrency=8, input_tokens=30, output_tokens=20, min_s=5, max_s=20)
KEYS = """
duration completed total_input_tokens total_output_tokens request_throughput input_throughput output_throughput
total_throughput mean_e2e_latency_ms median_e2e_latency_ms p99_e2e_latency_ms mean_ttft_ms median_ttft_ms std_ttft_ms
p99_ttft_ms mean_tpot_ms median_tpot_ms p99_tpot_ms mean_itl_ms median_itl_ms p95_itl_ms p99_itl_ms concurrency
max_output_tokens_per_s max_concurrent_requests
"""


def test_a_measurement_has_value_error_and_durations() -> None:
    """From raw records comes one measurement: figures, uncertainty, counts and how long all took."""
    raw = closed_loop(Plan())
    measurement = reduce(raw, WORKLOAD, Objective(constraints={"ttft_p99_s": 0.06}))
    estimate = measurement.estimates["output_throughput_tok_s"]
    assert estimate.value == pytest.approx(measurement.steady["output_throughput_tok_s"], rel=0.02)
    assert 0 < estimate.stderr < 0.05 * estimate.value
    assert measurement.requests_completed == int(raw.ok.sum())
    assert measurement.requests_failed == 0
    assert measurement.duration_s == 20.0
    assert measurement.warmup_s + measurement.window_s == pytest.approx(20.0)
    assert measurement.refused == ()
    assert measurement.steady["goodput_req_s"] == pytest.approx(measurement.steady["request_throughput_req_s"])


def test_a_measurement_can_be_stored() -> None:
    """A measurement survives JSON."""
    measurement = reduce(closed_loop(Plan()), WORKLOAD, Objective())
    assert msgspec.json.decode(msgspec.json.encode(measurement), type=Measurement) == measurement


def test_row_in_bench_serving_names() -> None:
    """The row has bench_serving's keys, milliseconds, and agrees with the measurement."""
    raw = closed_loop(Plan())
    measurement = reduce(raw, WORKLOAD, Objective())
    row = bench_serving_row(measurement, raw, WORKLOAD, tag="t")
    assert set(KEYS.split()) <= set(row)
    assert row["mean_ttft_ms"] == pytest.approx(measurement.whole["ttft_mean_s"] * 1e3)
    assert row["max_concurrent_requests"] == 8
    assert float(str(row["max_output_tokens_per_s"])) >= measurement.steady["output_throughput_tok_s"] * 0.95
    assert row["completed"] == measurement.requests_completed
    assert json.loads(json.dumps(row)) == row


def test_row_without_streaming_has_no_gaps() -> None:
    """Figures that a load does not have are left out rather than written as zero."""
    workload = msgspec.structs.replace(WORKLOAD, stream=False)
    raw = closed_loop(Plan(stream=False))
    row = bench_serving_row(reduce(raw, workload, Objective()), raw, workload)
    assert "mean_itl_ms" not in row
    assert row["request_rate"] is None
