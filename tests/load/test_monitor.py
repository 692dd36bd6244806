"""Tests of what the driver concludes from heartbeats, without a process or a clock."""

import math

import msgspec
import pytest

from autotune.load.monitor import Monitor
from autotune.load.spec import Done, Heartbeat, LoadSpec
from autotune.study.file import Workload

QUARTER = 0.25


def spec(requests: int = 0, **workload: object) -> LoadSpec:
    fields = {"concurrency": 4, "output_tokens": 10, "min_s": 5.0, "max_s": 20.0, "warmup_max_s": 10.0, **workload}
    return LoadSpec(
        base_url="http://x", workload=msgspec.convert(fields, Workload), seed=(0,), folder="", requests=requests
    )


def beat(number: int, rate: float = 100.0, **changes: object) -> Heartbeat:
    """Heartbeat ``number`` of a worker with a steady rate whose requests take 0.4 s."""
    now = (number + 1) * QUARTER
    before = now - QUARTER
    fields: dict[str, object] = {
        "now": now,
        "ticks": [(before + i * 0.05, int((before + i * 0.05) * rate)) for i in range(1, 6)],
        "done": [Done(before - 0.3, before - 0.2, before + 0.1, 8, 10, True)],
        "events": number * 10,
        "in_flight": 4,
        "completed": number,
        "failed": 0,
        "oldest_send": now - 0.3,
        "last_token": now - 0.01,
        "lag_max_s": 0.002,
        "late_max_s": 0.0,
        "cpu_s": now * 0.3,
        **changes,
    }
    return msgspec.convert(fields, Heartbeat, from_attributes=True)


def run(monitor: Monitor, beats: int, workers: int = 1, rate: float = 100.0) -> str:
    """Feed heartbeats until the monitor ends the load or they are used up."""
    for number in range(beats):
        for worker in range(workers):
            monitor.take(worker, beat(number, rate))
        if ended := monitor.ended((number + 1) * QUARTER):
            return ended
    return ""


def test_a_steady_load_ends_when_precise() -> None:
    """Constant throughput is precise at once, so the load ends at min_s after its first generation."""
    monitor = Monitor(spec(), 1)
    assert run(monitor, 400) == "precise"
    assert 5.0 <= monitor.window_s < 7.5
    assert monitor.estimate is not None
    assert monitor.estimate.value == pytest.approx(100, rel=0.02)


def test_workers_are_added_up() -> None:
    """Two workers' throughput is one figure."""
    monitor = Monitor(spec(), 2)
    run(monitor, 400, workers=2)
    assert monitor.estimate is not None
    assert monitor.estimate.value == pytest.approx(200, rel=0.02)
    assert monitor.progress(7.0).throughput_tok_s == pytest.approx(200, rel=0.05)


def test_a_load_without_streaming_is_judged_by_its_requests() -> None:
    """Without streaming tokens are spread over the requests' lives, up to the oldest one in flight."""
    monitor = Monitor(spec(stream=False), 1)
    assert run(monitor, 400) == "precise"
    assert monitor.estimate is not None
    assert monitor.estimate.value == pytest.approx(10 / QUARTER, rel=0.05)


def test_a_wild_load_ends_at_the_longest_window() -> None:
    """Throughput that is never precise ends the load at max_s."""
    monitor = Monitor(spec(precision=1e-9, max_s=8.0, stream=False), 1)
    for number in range(400):
        monitor.take(0, beat(number, done=[Done(number * QUARTER - 0.3, 0, number * QUARTER, 8, 1 + number % 7, True)]))
        if ended := monitor.ended((number + 1) * QUARTER):
            break
    assert ended == "max_s"
    assert 8.0 <= monitor.window_s <= 10.0


def test_a_load_that_answers_nothing_ends() -> None:
    """Without a single reply the load ends after the longest warm-up and the longest window."""
    monitor = Monitor(spec(), 1)
    for number in range(1000):
        monitor.take(0, beat(number, rate=0.0, done=[], completed=0))
        if monitor.ended((number + 1) * QUARTER):
            break
    assert monitor.now <= 32.0


def test_hopeless_failures_end_the_load() -> None:
    """When most requests fail for some seconds the load ends as failing."""
    monitor = Monitor(spec(), 1)
    for number in range(100):
        monitor.take(0, beat(number, failed=number * 5, last_error="status 500"))
        if ended := monitor.ended((number + 1) * QUARTER):
            break
    assert ended == "failing"
    assert monitor.progress(6.0).last_error == "status 500"


def test_silence_is_told() -> None:
    """Progress says how long no token has come from any worker."""
    monitor = Monitor(spec(), 2)
    monitor.take(0, beat(3, last_token=0.5))
    monitor.take(1, beat(3, last_token=0.9))
    assert monitor.progress(3.0).silent_s == pytest.approx(2.1)
    assert monitor.progress(3.0).phase == "warmup"
    assert Monitor(spec(), 1).progress(4.0).silent_s == 4.0


def test_a_load_of_fixed_size_ends_with_its_requests() -> None:
    """A number of requests is sent whatever the precision; the workers say when all are answered."""
    monitor = Monitor(spec(requests=10), 1)
    assert run(monitor, 200) == ""
    monitor.take(0, beat(200, finished=True))
    assert monitor.ended(50.0) == "requests"


def test_latency_objective_ends_on_its_own_interval() -> None:
    """The metric that is optimised decides, here a latency."""
    monitor = Monitor(msgspec.structs.replace(spec(), metric="e2e_mean_s"), 1)
    assert run(monitor, 400) == "precise"
    assert monitor.estimate is not None
    assert monitor.estimate.value == pytest.approx(0.4)


def test_health_is_taken_from_the_window() -> None:
    """Lag and CPU at the start, when connections are opened, do not count against the client."""
    monitor = Monitor(spec(), 1)
    monitor.take(0, beat(0, lag_max_s=3.0))
    run(monitor, 400)
    health = monitor.health()
    assert health.lag_max_s == (0.002,)
    assert health.cpu_share[0] == pytest.approx(0.3, rel=0.01)
    assert health.in_flight[-1][1] == 4
    assert math.isfinite(monitor.window_from)
