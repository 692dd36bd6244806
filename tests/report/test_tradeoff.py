"""Tests of throughput against latency."""

import msgspec

from autotune.report.tradeoff import tradeoff
from autotune.study.file import Objective
from autotune.values import LevelFigures, LiveFigures, Measured
from tests.report.builders import curved_night, facts, measured, out_of_memory, trial, whole_night


def test_the_front_is_what_nothing_beats() -> None:
    """With latency falling as throughput grows only the fastest trials are on the front."""
    found = tradeoff(whole_night())
    assert found is not None
    fastest = max(p.throughput for p in found.points)
    assert {p.trial for p in found.front} == {p.trial for p in found.points if p.throughput == fastest}


def test_every_load_of_a_start_is_a_point() -> None:
    """A start with several concurrencies is a curve, from the lightest load to the heaviest."""
    found = tradeoff(curved_night())
    assert found is not None
    curves = found.curves()
    assert [p.concurrency for p in curves[1]] == [8, 32, 128]
    assert found.limit == 0.05
    assert found.latency == "tpot_p99_s"


def test_a_front_over_curves_has_light_and_heavy_loads() -> None:
    """Short latency at a light load and much throughput at a heavy one are both worth having."""
    found = tradeoff(curved_night())
    assert found is not None
    waits = [p.latency_s for p in found.front]
    rates = [p.throughput for p in found.front]
    assert waits == sorted(waits)
    assert rates == sorted(rates)
    assert len(found.front) > 1


def test_a_refused_load_is_on_no_front() -> None:
    """A figure that did not pass the gates beats nothing, however good."""
    outcome = measured(1000.0)
    steady = {"output_throughput_tok_s": 9999.0, "tpot_p50_s": 0.0001}
    bad = LevelFigures(concurrency=64, steady=steady, refused=("starved",))
    good = LevelFigures(concurrency=8, steady=outcome.measurement.steady)
    night = facts(trial(0, {}, msgspec.structs.replace(outcome, curve=(good, bad))))
    found = tradeoff(night)
    assert found is not None
    assert [p.concurrency for p in found.front] == [8]
    assert [p.refused for p in found.points] == [False, True]
    assert found.curves() == {}


def test_without_latencies_there_is_no_tradeoff() -> None:
    """Loads without streaming have only one figure."""
    assert tradeoff(facts(trial(0, {}, out_of_memory()))) is None
    silent = measured(10.0)
    silent = msgspec.structs.replace(
        silent, measurement=msgspec.structs.replace(silent.measurement, steady={"output_throughput_tok_s": 10.0})
    )
    assert isinstance(silent, Measured)
    assert tradeoff(facts(trial(0, {}, silent), objective=Objective())) is None


def test_limits_set_on_a_running_server_are_points_of_its_curve() -> None:
    """A smaller limit is a lighter load of the same start, and has its limit in its name."""
    outcome = measured(1000.0)
    steady = {"output_throughput_tok_s": 700.0, "tpot_p50_s": 0.01}
    live = LiveFigures(limit=64, score=outcome.score, steady=steady, load_s=5.0)
    found = tradeoff(facts(trial(3, {}, msgspec.structs.replace(outcome, live=(live,)))))
    assert found is not None
    assert [p.name for p in found.curves()[3]] == ["3, limit 64", "3 at 8"]
    assert [p.trial for p in found.front] == [3, 3]
