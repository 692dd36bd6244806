"""Every validity gate on the server double, through the real loading path: tripped by its fault, silent without one."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from autotune.load.gates import GateLimits, Surroundings
from autotune.load.records import RawRun
from autotune.rig import Rig
from autotune.server.serve import RunningServer
from autotune.trouble import Retry, Trouble
from autotune.values import Measured
from tests.gates.loads import Case, Reduced, load, load_again, ready

REAL = GateLimits()
ALL_GATES = (
    "generator_cpu",
    "generator_lag",
    "generator_late",
    "in_flight",
    "failed_requests",
    "output_lengths",
    "prompt_lengths",
    "starved",
    "score",
    "prefix_cache",
    "retractions",
    "token_counters",
    "window",
    "requests",
    "drift",
    "host_load",
    "gpu_clocks",
    "gpu_load",
)
LENIENT = {"failed_limit": 0.5}
"""Failures up to a half are not given up early, so that the gates get to see them."""
FAULTS = {
    "failed_requests": Case(flags=("--sim-fault", "error_stream"), workload=LENIENT),
    "output_lengths": Case(flags=("--sim-fault", "short_output=0.5"), workload=LENIENT),
    "prefix_cache": Case(flags=("--sim-fault", "prefix_cache")),
    "retractions": Case(flags=("--sim-fault", "retract=1"), workload={"output_tokens": 48}),
    "drift": Case(
        flags=("--sim-fault", "drift=240"),
        workload={"warmup_max_s": 0.2, "min_s": 1.5, "max_s": 1.5},
        gates={"drift": REAL.drift},
    ),
    "requests": Case(flags=("--sim-fault", "crawl=300")),
}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Rig, RunningServer]]:
    """One sound server for all loads without a fault of the server."""
    folder: Path = tmp_path_factory.mktemp("sound")
    with ready(("--enable-metrics",), folder) as pair:
        yield pair


@pytest.fixture(scope="module")
def sound(up: tuple[Rig, RunningServer]) -> Reduced:
    """A load on a sound server and a quiet machine; drift stays wide open, for the test machine is not quiet."""
    strict = {"requests": REAL.requests, "generations": REAL.generations, "in_flight_share": REAL.in_flight_share}
    return load_again(Case(around=quiet, gates=strict), *up)


@pytest.fixture(scope="module")
def saturated(up: tuple[Rig, RunningServer]) -> Reduced:
    """The same load by a client that could not keep up."""
    strict = {name: getattr(REAL, name) for name in ("cpu_share", "lag_typical_s", "in_flight_share")}
    return load_again(Case(around=quiet, raw=overworked, gates=strict), *up)


@pytest.fixture(scope="module")
def disturbed(up: tuple[Rig, RunningServer]) -> Reduced:
    """The same load while others use host and GPU, and with a server that counts half as many tokens again."""
    return load_again(Case(around=crowded, gates={"host_busy": REAL.host_busy}), *up)


def quiet(seen: Surroundings) -> Surroundings:
    return msgspec.structs.replace(seen, host_busy=0.0, throttled=0.0)


def crowded(seen: Surroundings) -> Surroundings:
    assert seen.after is not None
    made = seen.after.generated_tokens
    assert made
    after = msgspec.structs.replace(seen.after, generated_tokens=made * 3 // 2)
    return msgspec.structs.replace(seen, after=after, host_busy=0.8, throttled=0.9, gpu_others=("pid 7 on GPU 0",))


def overworked(raw: RawRun) -> RawRun:
    few = tuple((at, 3) for at, _ in raw.meta.client.in_flight)
    client = msgspec.structs.replace(raw.meta.client, cpu_share=(0.99,), lag_typical_s=(0.3,), in_flight=few)
    return msgspec.structs.replace(raw, meta=msgspec.structs.replace(raw.meta, client=client))


def beginning(raw: RawRun) -> RawRun:
    nothing = np.zeros(0)
    return msgspec.structs.replace(
        raw, requests=raw.requests[:0], chunk_times=nothing, chunk_totals=nothing.astype(np.int64)
    )


def late(raw: RawRun) -> RawRun:
    client = msgspec.structs.replace(raw.meta.client, late_max_s=1.0)
    return msgspec.structs.replace(raw, meta=msgspec.structs.replace(raw.meta, client=client))


@pytest.mark.parametrize("gate", ALL_GATES)
def test_a_sound_load_passes(sound: Reduced, gate: str) -> None:
    """A sound server, a client with room and a quiet machine are measured, and this gate has nothing to say."""
    assert isinstance(sound.outcome, Measured)
    assert gate not in sound.findings


@pytest.mark.parametrize("gate", FAULTS)
def test_a_fault_of_the_server_is_refused(gate: str) -> None:
    """What is wrong with the server gives no score, and the reason names it."""
    seen = load(FAULTS[gate])
    assert isinstance(seen.outcome, Retry)
    assert seen.outcome.kind == "refused"
    assert seen.fatal(gate)


@pytest.mark.parametrize("faults", [("wrong_usage=2",), ("empty",), ("short_output=0.5", "wrong_usage=2")])
def test_a_load_that_only_fails_is_given_up(faults: tuple[str, ...]) -> None:
    """A usage that is not true, even of the length asked for, and replies without a token never end with a score."""
    seen = load(Case(flags=tuple(flag for fault in faults for flag in ("--sim-fault", fault))))
    assert isinstance(seen.outcome, Trouble)
    assert seen.outcome.failing
    assert "requests failed" in seen.outcome.reason


@pytest.mark.parametrize("gate", ["generator_cpu", "generator_lag", "in_flight"])
def test_a_saturated_client_is_refused(saturated: Reduced, gate: str) -> None:
    """A client at the end of its core, late, or with places empty gives no score."""
    assert isinstance(saturated.outcome, Retry)
    assert saturated.fatal(gate)


@pytest.mark.parametrize(("change", "tripped"), [(late, True), (lambda raw: raw, False)], ids=["late", "in time"])
def test_an_open_loop_must_send_in_time(up: tuple[Rig, RunningServer], change: object, tripped: bool) -> None:
    """Requests sent long after they were due are another load than was asked."""
    assert callable(change)
    workload: dict[str, float | bool | str] = {"arrival": "open", "request_rate": 40.0, "concurrency": 0}
    # A busy test machine may be late by itself: only the injected second counts.
    seen = load_again(Case(workload=workload, around=quiet, raw=change, gates={"late_s": 0.9}), *up)
    assert seen.fatal("generator_late") == tripped


def test_a_load_without_a_steady_window_is_refused(up: tuple[Rig, RunningServer]) -> None:
    """Records that end within the first generation hold nothing that could be called steady."""
    seen = load_again(Case(around=quiet, raw=beginning), *up)
    assert isinstance(seen.outcome, Retry)
    assert seen.fatal("window")


@pytest.mark.parametrize("gate", ["token_counters", "host_load", "gpu_clocks", "gpu_load"])
def test_a_disturbed_machine_is_refused(disturbed: Reduced, gate: str) -> None:
    """Other load on host or GPU, clocks held down, and a server that counts other tokens give no score."""
    assert isinstance(disturbed.outcome, Retry)
    assert disturbed.fatal(gate)
