"""Every fault of the simulated server does what its name says, in a real process."""

from __future__ import annotations

import json
import os
import signal
import time

import psutil
import pytest

from tests.sim.conftest import Sim, Start, events

KILLED = -signal.SIGKILL


@pytest.mark.parametrize(
    ("fault", "status", "evidence"),
    [
        ("exit_start=7", 7, "simulated exit"),
        ("die_start=kv_pool", KILLED, "Load weight end."),
        ("oom_weights", KILLED, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"),
        ("oom_kv", KILLED, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"),
        ("no_kv", KILLED, "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."),
        ("oom_graph", KILLED, "Exception: Capture cuda graph failed: CUDA out of memory."),
        ("nccl", KILLED, "NCCL error in:"),
        ("oom_host", 1, "exit code: -9"),
        ("warmup_error", KILLED, "Initialization failed. warmup error"),
        ("port_taken", 1, "[Errno 98]"),
    ],
)
def test_start_faults(start: Start, fault: str, status: int, evidence: str) -> None:
    """A fault of the start ends the process with its status and its evidence, never ready."""
    sim = start("--sim-fault", fault)
    assert sim.exit_status() == status
    assert evidence in sim.log
    assert "fired up" not in sim.log


def test_memory_arithmetic_kills_as_the_faults_do(start: Start) -> None:
    """Flags that do not fit die at their stage: too small a pool, too many graphs, too little left for the load."""
    pool = start("--mem-fraction-static", "0.3")
    graphs = start("--cuda-graph-max-bs", "400")
    load = start("--mem-fraction-static", "0.93").ready()
    assert pool.exit_status() == graphs.exit_status() == KILLED
    assert "Not enough memory" in pool.log
    assert "Capture cuda graph failed" in graphs.log
    assert load.generate()[0] == 200
    load.load(8)
    assert load.exit_status() == KILLED
    assert "torch.OutOfMemoryError" in load.log


@pytest.mark.parametrize(
    ("fault", "evidence"),
    [
        ("oom_load", "SIGQUIT received. signum=None, frame=None. It usually means one child failed."),
        ("kernel_error", "CUDA error: an illegal memory access"),
        ("death_under_load=0.1", "fired up"),
    ],
)
def test_death_under_load(start: Start, fault: str, evidence: str) -> None:
    """A probe is served, a load kills the server, and no request of it succeeds."""
    sim = start("--sim-fault", fault).ready()
    assert sim.generate()[0] == 200
    assert 200 not in sim.load(8, tokens=200)
    assert sim.exit_status() == KILLED
    assert evidence in sim.log


@pytest.mark.parametrize("fault", ["hang_start=weights", "scheduler_dead", "hang_load=0"])
def test_hangs_stay_alive_and_silent(start: Start, fault: str) -> None:
    """A hanging server neither ends nor answers a generation; its front end is healthy once it is up."""
    sim = start("--sim-fault", fault)
    if fault.startswith("hang_start"):
        sim.wait_for("Load weight begin.")
        time.sleep(0.5)
        assert "Load weight end." not in sim.log
        assert sim.process.poll() is None
        return
    sim.ready()
    with pytest.raises(TimeoutError):
        _load_hanging(sim)
    assert sim.request("GET", "/health")[0] == 200


def _load_hanging(sim: Sim) -> None:
    import threading

    body = {"input_ids": [1], "sampling_params": {"max_new_tokens": 400}}
    for _ in range(4):
        threading.Thread(target=lambda: _ignore_timeout(sim, body), daemon=True).start()
    time.sleep(0.5)
    sim.request("POST", "/generate", body, timeout_s=1.0)


def _ignore_timeout(sim: Sim, body: object) -> None:
    try:
        sim.request("POST", "/generate", body, timeout_s=3.0)
    except OSError:
        return


def test_hung_front_end(start: Start) -> None:
    """With a hung front end even /health gets no answer under load."""
    sim = start("--sim-fault", "hang_front=0").ready()
    assert sim.request("GET", "/health")[0] == 200
    with pytest.raises(TimeoutError):
        _load_hanging(sim)
    with pytest.raises(TimeoutError):
        sim.request("GET", "/health", timeout_s=0.5)


def test_untrue_answers(start: Start) -> None:
    """Empty, short, broken and miscounted answers all come with status 200 and look as they are named."""
    empty = start("--sim-fault", "empty").ready()
    broken = start("--sim-fault", "error_stream").ready()
    short = start("--sim-fault", "short_output=0.5").ready()
    wrong = start("--sim-fault", "wrong_usage=2").ready()
    assert events(empty.generate(8, stream=True)[1]) == []
    assert json.loads(empty.generate(8)[1])["meta_info"]["completion_tokens"] == 0
    first, error = events(broken.generate(8, stream=True)[1])
    assert first["meta_info"]["completion_tokens"] == 1
    assert "error" in error
    assert "error" in json.loads(broken.generate(8)[1])
    meta = json.loads(short.generate(8)[1])["meta_info"]
    assert (meta["completion_tokens"], meta["finish_reason"]["type"]) == (4, "stop")
    assert json.loads(wrong.generate(8)[1])["meta_info"]["completion_tokens"] == 16


def test_cache_retractions_and_ignored_flags(start: Start) -> None:
    """Forced cache hits, forced retractions and an ignored flag show where a tuner can see them."""
    cache = start("--sim-fault", "prefix_cache", "--disable-radix-cache").ready()
    assert json.loads(cache.generate()[1])["meta_info"]["cached_tokens"] == 2
    ignored = start("--sim-fault", "ignored_flag=max_running_requests", "--max-running-requests", "8").ready()
    info = ignored.get("/server_info")
    assert info["max_running_requests"] == 8
    assert info["internal_states"][0]["effective_max_running_requests_per_dp"] == 24
    retract = start("--sim-fault", "retract", "--enable-metrics").ready()
    assert retract.load(12, tokens=100) == [200] * 12
    metrics = retract.request("GET", "/metrics")[1].decode()
    line = next(text for text in metrics.splitlines() if text.startswith("sglang:num_retracted_reqs"))
    assert float(line.split()[-1]) > 0
    assert "KV cache pool is full. Retract requests." in retract.log


def test_flood(start: Start) -> None:
    """A flooding server writes megabytes of log as soon as it is under load."""
    sim = start("--sim-fault", "flood_log=20").ready()
    sim.load(8, tokens=60)
    assert sim.log_path.stat().st_size > 200_000


def test_crawl_and_drift_stretch_the_steps(start: Start) -> None:
    """Under load a crawling server takes many times as long for the same request."""
    sim = start("--sim-fault", "crawl=60").ready()
    began = time.monotonic()
    sim.load(4, tokens=10)
    # Nine decode steps and a prefill of about 7 ms each, sixty times as long.
    assert time.monotonic() - began > 1.0


def test_deaf_needs_sigkill(start: Start) -> None:
    """A deaf server ignores SIGTERM and ends by SIGKILL only."""
    sim = start("--sim-fault", "deaf").ready()
    sim.process.send_signal(signal.SIGTERM)
    sim.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert sim.generate()[0] == 200
    sim.process.kill()
    assert sim.exit_status() == KILLED


def test_child_left_survives_in_its_own_session(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child outlives its server outside of its session, and carries its environment."""
    monkeypatch.setenv("SIM_TEST_MARK", str(os.getpid()))
    sim = start("--sim-fault", "child_left").ready()
    (child,) = psutil.Process(sim.process.pid).children()
    try:
        assert os.getsid(child.pid) != os.getsid(sim.process.pid)
        assert child.environ()["SIM_TEST_MARK"] == str(os.getpid())
        sim.stop()
        assert child.is_running()
    finally:
        child.kill()


def test_stale_port_stays_taken(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the end a leftover child keeps the port, so the next server cannot have it."""
    mark = f"stale-{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setenv("SIM_TEST_MARK", mark)
    sim = start("--sim-fault", "stale_port=30").ready()
    assert sim.stop() == 0
    monkeypatch.delenv("SIM_TEST_MARK")
    leftovers = [process for process in psutil.process_iter() if _mark_of(process) == mark]
    try:
        assert len(leftovers) == 1
        assert start(port=sim.port).exit_status() == 1
    finally:
        for process in leftovers:
            process.kill()


def _mark_of(process: psutil.Process) -> str:
    try:
        return process.environ().get("SIM_TEST_MARK", "")
    except psutil.Error:
        return ""


def test_linger_keeps_a_crashed_process(start: Start) -> None:
    """With the linger fault the process stays after its crash, then dies by SIGKILL."""
    sim = start("--sim-fault", "oom_load", "--sim-fault", "linger=1").ready()
    sim.load(4)
    assert "Waiting 1.0 seconds for CUDA coredumps" in sim.log
    assert sim.exit_status() == KILLED


def test_a_hung_server_never_drains(start: Start) -> None:
    """SIGTERM on a server that hangs under load does not end it: it waits for its requests for ever."""
    sim = start("--sim-fault", "hang_load=0").ready()
    with pytest.raises(TimeoutError):
        _load_hanging(sim)
    sim.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert sim.process.poll() is None
    assert "Remaining number of requests" in sim.log
