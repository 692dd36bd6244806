"""The gates on whole loads: the simulated server with the fault that a gate is for, and without."""

from pathlib import Path

import httpx
import pytest

from autotune.engines.sglang import SGLang
from autotune.load.driver import run_load
from autotune.load.gates import Surroundings
from autotune.load.reduce import reduce
from autotune.load.selftest import simulator
from autotune.load.spec import LoadSpec
from autotune.study.file import Objective, Workload
from autotune.values import Measurement

WORKLOAD = Workload(input_tokens=40, output_tokens=16, concurrency=8, min_s=1.0, max_s=1.2, warmup_max_s=1.5, workers=1)


def measure(folder: Path, workload: Workload, *faults: str) -> Measurement:
    """One short load on a simulated server with these faults, with the server's counters around it."""
    flags = [flag for fault in faults for flag in ("--sim-fault", fault)]
    with simulator("--enable-metrics", "--sim-noise", "0", "--disable-radix-cache", *flags) as url:

        def fetch(path: str) -> tuple[int, bytes]:
            reply = httpx.get(url + path, trust_env=False)
            return reply.status_code, reply.content

        before = SGLang().counters(fetch)
        raw = run_load(LoadSpec(base_url=url, workload=workload, seed=(1, 1, 1), folder=str(folder)))
        around = Surroundings(before=before, after=SGLang().counters(fetch))
    return reduce(raw, workload, Objective(), around)


@pytest.mark.parametrize(("route", "stream"), [("generate", True), ("completions", True), ("generate", False)])
def test_a_sound_server_is_measured(tmp_path: Path, route: str, stream: bool) -> None:
    """Without a fault no gate about the server trips, by either route, streamed or not."""
    workload = Workload(
        input_tokens=40,
        output_tokens=16,
        concurrency=8,
        min_s=1.0,
        max_s=1.2,
        warmup_max_s=1.5,
        workers=1,
        route="generate" if route == "generate" else "completions",
        stream=stream,
    )
    measured = measure(tmp_path, workload)
    # A busy test machine may trip the gates about the client or the drift; those have tests of their own.
    noise = {"generator_lag", "generator_cpu", "drift", "window", "requests"}
    assert {f.gate for f in measured.findings} - noise == set()
    assert measured.requests_failed == 0
    assert measured.steady["output_throughput_tok_s"] > 0


@pytest.mark.parametrize(
    ("fault", "gate"),
    [
        ("error_stream", "failed_requests"),
        ("short_output=0.5", "output_lengths"),
        ("wrong_usage=2", "output_lengths"),
        ("prefix_cache", "prefix_cache"),
        ("retract=0.9", "retractions"),
    ],
)
def test_a_faulty_server_is_refused(tmp_path: Path, fault: str, gate: str) -> None:
    """Each fault of a server trips its gate and refuses the load, instead of becoming a score."""
    measured = measure(tmp_path, WORKLOAD, fault)
    assert gate in {f.gate for f in measured.refused} | {f.gate for f in measured.findings if gate == "retractions"}
