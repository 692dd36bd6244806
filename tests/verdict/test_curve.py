"""Several concurrencies on one server start: which load is the score."""

from __future__ import annotations

import msgspec
import pytest

from autotune.study.file import Objective
from autotune.values import Estimate, Finding, Measurement
from autotune.verdict.curve import Level, answering_level

from .builders import measurement

P99 = "ttft_p99_s"
FREE = Objective()
LIMITED = Objective(constraints={P99: 0.5})


def level(concurrency: int, tokens: float, ttft_s: float, *gates: str) -> Level:
    """A load with a sure latency; ``gates`` refused it."""
    steady = {"output_throughput_tok_s": tokens, P99: ttft_s}
    seen = measurement(steady, **{P99: Estimate(value=ttft_s, stderr=0.01 * ttft_s, batches=9)})
    found = tuple(Finding(gate=gate, message=gate, fatal=True) for gate in gates)
    return Level(concurrency=concurrency, measurement=_with(seen, found))


def _with(seen: Measurement, found: tuple[Finding, ...]) -> Measurement:
    return Measurement(
        **{name: getattr(seen, name) for name in seen.__struct_fields__ if name != "findings"}, findings=found
    )


def chosen(*levels: Level, objective: Objective = LIMITED, named: int = 256) -> int:
    """The concurrency that answers."""
    return answering_level(levels, objective, named).concurrency


def test_without_limits_the_named_concurrency_answers() -> None:
    """Whether or not another level is faster."""
    assert chosen(level(64, 9000, 0.1), level(256, 5000, 0.2), objective=FREE) == 256


def test_with_limits_the_best_level_that_holds_them_answers() -> None:
    """Most throughput under the limit: not the fastest, which is too late, and not the earliest."""
    curve = level(64, 2000, 0.1), level(256, 5000, 0.3), level(1024, 9000, 1.5)
    assert chosen(*curve) == 256
    assert chosen(*curve, objective=Objective(constraints={P99: 2.0})) == 1024


def test_a_limit_that_may_be_broken_is_not_held() -> None:
    """The uncertainty of the percentile counts against the level."""
    assert chosen(level(64, 2000, 0.1), level(256, 5000, 0.498)) == 64


def test_where_no_level_holds_the_nearest_one_answers() -> None:
    """The search then sees by how much the limit is missed."""
    assert chosen(level(64, 2000, 0.9), level(256, 5000, 2.0)) == 64


def test_a_latency_is_minimised_over_the_levels_that_are_fast_enough() -> None:
    """The limit of a throughput is the least that is wanted."""
    objective = Objective(metric=P99, constraints={"output_throughput_tok_s": 3000})
    assert chosen(level(64, 2000, 0.1), level(256, 5000, 0.3), level(1024, 9000, 1.5), objective=objective) == 256
    objective = Objective(metric=P99, constraints={"output_throughput_tok_s": 20000})
    assert chosen(level(64, 2000, 0.1), level(1024, 9000, 1.5), objective=objective) == 1024


@pytest.mark.parametrize(
    ("last", "answers"),
    [(level(1024, 9000, 0.2, "generator_cpu"), 1024), (level(1024, 9000, 3.0, "generator_cpu"), 256)],
)
def test_a_refused_level_answers_only_where_it_might_have_been_chosen(last: Level, answers: int) -> None:
    """A level that is certainly too late is out of the question, valid or not."""
    assert chosen(level(256, 5000, 0.3), last) == answers


def test_a_level_without_any_figures_makes_the_start_doubtful() -> None:
    """Nothing is known of it: it might have been the best."""
    blind = Level(
        concurrency=1024, measurement=_with(measurement({}), (Finding(gate="window", message="", fatal=True),))
    )
    assert chosen(level(256, 5000, 0.3), blind) == 1024
    assert blind.figures().refused == ("window",)


def test_a_refused_load_without_latencies_is_no_error() -> None:
    """A window in which no request ended may be within the limit: the start has no valid score."""
    silent = Level(concurrency=256, measurement=measurement({"output_throughput_tok_s": 50.0}))
    refused = msgspec.structs.replace(silent.measurement, findings=level(1, 1, 1, "requests").measurement.findings)
    assert chosen(msgspec.structs.replace(silent, measurement=refused)) == 256
