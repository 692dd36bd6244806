"""The metric table, scores and limits."""

from __future__ import annotations

import pytest

from autotune.errors import InputError
from autotune.study.file import Objective
from autotune.values import Estimate
from autotune.verdict.limits import check_limit
from autotune.verdict.noise import NoiseModel
from autotune.verdict.objective import (
    METRICS,
    UNKNOWN_RELATIVE_STDERR,
    better,
    check_objective,
    figure,
    gain,
    metric_of,
    score,
    violations,
)
from tests.verdict.builders import THROUGHPUT, measurement


def test_metrics_have_direction_and_unit() -> None:
    """Rates are maximised, latencies minimised, and the unit is that of the name."""
    assert len(METRICS) == 25
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.direction == ("minimise" if metric.unit == "s" else "maximise")
        assert name.endswith("_" + metric.unit.replace("/", "_"))


def test_unknown_metric_names_the_nearest() -> None:
    """A misspelt metric is an input error that proposes the known one and says where it stands."""
    with pytest.raises(InputError, match=r"my.toml: objective.metric: unknown metric 'ttft_99_s'.*'ttft_p99_s'"):
        check_objective(Objective(metric="ttft_99_s"), file="my.toml")
    with pytest.raises(InputError, match=r"objective.constraints: unknown metric 'tpot'"):
        check_objective(Objective(constraints={"tpot": 1.0}))
    with pytest.raises(InputError, match=r"constraints.ttft_p99_s: -1.0 is no limit"):
        check_objective(Objective(constraints={"ttft_p99_s": -1.0}))
    check_objective(Objective(constraints={"ttft_p99_s": 0.5}))


def test_score_takes_the_estimate_else_the_figure() -> None:
    """With an estimate its error is kept; a bare figure gets the assumed error and no batches; absent is an error."""
    known = Estimate(value=100.0, stderr=1.0, batches=20)
    seen = measurement({THROUGHPUT: 101.0, "ttft_p99_s": 0.4}, output_throughput_tok_s=known)
    assert score(seen, Objective()) == known
    bare = figure(seen, "ttft_p99_s")
    assert (bare.value, bare.batches) == (0.4, 0)
    assert bare.stderr == pytest.approx(0.4 * UNKNOWN_RELATIVE_STDERR)
    with pytest.raises(InputError, match="no tpot_mean_s"):
        score(seen, Objective(metric="tpot_mean_s"))


@pytest.mark.parametrize(
    ("value", "violated", "certain"), [(0.3, False, False), (0.49, True, False), (0.6, True, True)]
)
def test_a_latency_holds_only_with_confidence(value: float, violated: bool, certain: bool) -> None:
    """A latency below its limit by less than its uncertainty counts as a violation, though not a certain one."""
    seen = measurement({}, ttft_p99_s=Estimate(value=value, stderr=0.02, batches=10))
    found = violations(seen, Objective(constraints={"ttft_p99_s": 0.5}))
    assert bool(found) == violated
    if found:
        assert found[0].certain == certain
        assert "ttft_p99_s " + ("is" if certain else "may be") in str(found[0])


def test_a_rate_may_not_fall_below_its_limit() -> None:
    """For a metric that is maximised the limit is the smallest value allowed."""
    seen = measurement({}, request_throughput_req_s=Estimate(value=10.0, stderr=0.1, batches=10))
    assert not violations(seen, Objective(metric="ttft_p99_s", constraints={"request_throughput_req_s": 9.0}))
    assert violations(seen, Objective(metric="ttft_p99_s", constraints={"request_throughput_req_s": 9.95}))


def test_gain_turns_with_the_direction() -> None:
    """Ten per cent more throughput and a latency divided by 1.1 are the same gain."""
    assert gain(110.0, 100.0, THROUGHPUT) == pytest.approx(0.1)
    assert gain(1.0, 1.1, "ttft_p99_s") == pytest.approx(0.1)
    assert better(1.0, 2.0, "e2e_mean_s")
    assert not better(1.0, 2.0, THROUGHPUT)
    assert metric_of("goodput_req_s").unit == "req/s"


def test_limit_over_starts_counts_the_noise_between_them() -> None:
    """Five starts well below the limit hold it; five around it do not; one start carries the assumed noise."""
    noise = NoiseModel()
    low = [Estimate(value=v, stderr=0.001, batches=9) for v in (0.40, 0.41, 0.39, 0.40, 0.42)]
    near = [Estimate(value=v, stderr=0.001, batches=9) for v in (0.48, 0.50, 0.49, 0.51, 0.49)]
    assert check_limit(low, "ttft_p99_s", 0.5, noise).holds
    check = check_limit(near, "ttft_p99_s", 0.5, noise)
    assert not check.holds
    assert check.bound > check.limit > check.value > 0.48
    assert not check_limit(low[:1], "ttft_p99_s", 0.42, noise).holds
    rates = [Estimate(value=v, stderr=1.0, batches=9) for v in (1000.0, 1010.0, 990.0)]
    assert check_limit(rates, THROUGHPUT, 900.0, noise).holds
    assert not check_limit(rates, THROUGHPUT, 999.0, noise).holds
    with pytest.raises(InputError, match="no start"):
        check_limit([], "ttft_p99_s", 0.5, noise)
