"""A server from start to verified end, on real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from autotune.errors import NightStopped
from autotune.server.cancel import CancelFlag, Waiting
from autotune.server.gpu import FileGpu, GpuLimits
from autotune.server.ports import is_free
from autotune.server.process import ServerIdentity, new_mark
from autotune.server.readiness import Blocked, Cancelled, Died, Ready, StartLimits, TimedOut
from autotune.server.serve import RunningServer, Seams, ServeOptions, running
from autotune.server.stop import StopLimits
from autotune.server.watchdog import LoadLimits
from autotune.values import LaunchPlan

from .conftest import STUDY, DoubleProbe, double_plan, eventually


def options(tmp_path: Path, **changes: object) -> ServeOptions:
    fields: dict[str, object] = {
        "log_path": tmp_path / "server.log",
        "mark": new_mark(STUDY, 7),
        "start": StartLimits(start_s=100.0, silence_s=50.0),
        "stop": StopLimits(term_s=30.0),
    }
    return ServeOptions(**fields | changes)  # type: ignore[arg-type]


def test_a_server_becomes_ready_and_everything_comes_back(tmp_path: Path) -> None:
    """A late binder is waited for, recorded before the wait, and leaves neither process, port nor GPU memory."""
    gpu_file = tmp_path / "gpu.json"
    gpu_file.write_text('{"0": 0}')
    recorded: list[ServerIdentity] = []
    plan = double_plan("--bind-delay-s", "1", "--child", "--stray", "--gpu-file", str(gpu_file))
    seams = Seams(gpu=FileGpu(gpu_file), on_started=recorded.append)
    with running(plan, options(tmp_path), DoubleProbe(), seams) as server:
        assert isinstance(server.start, Ready)
        assert server.process is not None
        assert server.process.identity() == recorded[0]
        assert len(server.process.members()) == 3
        assert FileGpu(gpu_file).devices()[0].used_bytes == 40 << 30
    assert server.teardown is not None
    assert server.teardown.problem() is None
    assert server.teardown.stop.terminated == 3
    assert server.teardown.port_free
    assert server.log is not None
    assert "double listens" in server.log.last_words()
    assert (tmp_path / "server.log").stat().st_mode & 0o777 == 0o600


def test_death_at_start_is_told_with_its_exit_code(tmp_path: Path) -> None:
    """A server that exits is dead, not late, and its last words are in the log."""
    with running(double_plan("--die", "3", "--child"), options(tmp_path), DoubleProbe()) as server:
        assert isinstance(server.start, Died)
        assert server.start.exit_code == 3
    assert server.teardown is not None
    assert server.teardown.stop.terminated == 1, "the child outlived its parent"
    assert "double starts" in (tmp_path / "server.log").read_text()


def test_an_answer_without_tokens_is_not_ready(tmp_path: Path) -> None:
    """A server that says 200 and generates nothing runs into the limit, although its access log grows."""
    limits = StartLimits(start_s=100.0, silence_s=2.5)
    plan = double_plan("--answer", '{"tokens": 0}')
    with running(plan, options(tmp_path, start=limits), DoubleProbe()) as server:
        assert isinstance(server.start, TimedOut)
        assert server.start.kind in ("no_tokens", "silence")


def test_a_refusal_is_told_early(tmp_path: Path) -> None:
    """A server that wants another key is not waited for to the end."""
    limits = StartLimits(refused_s=1.0)
    with running(double_plan("--status", "401"), options(tmp_path, start=limits), DoubleProbe()) as server:
        assert isinstance(server.start, TimedOut)
        assert server.start.kind == "refused"
        assert "401" in server.start.reason


def test_a_stranger_that_takes_the_port_during_the_start_is_named_at_once(tmp_path: Path) -> None:
    """Ours has not bound yet and never can: its silence is not waited out, and the stranger goes on."""
    plan = double_plan("--bind-delay-s", "1000")
    with socket.socket() as foreign:

        def squat(_: ServerIdentity) -> None:
            foreign.bind((plan.host, plan.port))
            foreign.listen()

        with running(plan, options(tmp_path), DoubleProbe(), Seams(on_started=squat)) as server:
            assert isinstance(server.start, Blocked)
            assert f"on port {plan.port} listens" in server.start.reason
        assert not is_free(plan.host, plan.port)
    assert server.teardown is not None
    assert server.teardown.problem() is None


def test_a_foreign_listener_is_an_error_not_a_server(tmp_path: Path) -> None:
    """With the port taken nothing is started, and the holder is named."""
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        plan = double_plan(port=foreign.getsockname()[1])
        with running(plan, options(tmp_path), DoubleProbe()) as server:
            assert isinstance(server.start, Blocked)
            assert server.start.kind == "port_in_use"
            assert str(os.getpid()) in server.start.reason
    assert server.teardown is None
    assert not (tmp_path / "server.log").exists()


def test_a_listener_that_came_during_the_start_is_not_adopted(tmp_path: Path) -> None:
    """When somebody else answers on our port, it is not our server, however well it generates."""
    plan = double_plan("--bind-delay-s", "200")
    imposter_plan = double_plan(port=plan.port)
    options_b = options(tmp_path, log_path=tmp_path / "other.log")
    entered = threading.Event()
    results: list[object] = []

    def ours() -> None:
        seams = Seams(on_started=lambda _: entered.set())
        with running(plan, options(tmp_path), DoubleProbe(), seams) as server:
            results.append(server.start)

    thread = threading.Thread(target=ours)
    with running(double_plan(), options_b, DoubleProbe()):
        thread.start()
        assert entered.wait(60)
        with running(imposter_plan, options(tmp_path, log_path=tmp_path / "imposter.log"), DoubleProbe()) as imposter:
            thread.join(60)
            assert isinstance(imposter.start, Ready)
    [outcome] = results
    assert isinstance(outcome, Blocked)
    assert "not our server" in outcome.reason


def test_busy_gpu_memory_blocks_the_start_and_names_the_holder(tmp_path: Path) -> None:
    """Memory above the baseline before the start means that somebody else is on the GPU."""
    gpu_file = tmp_path / "gpu.json"
    gpu_file.write_text(json.dumps({"0": {str(os.getpid()): 9 << 30}}))
    limits = options(tmp_path, gpu=GpuLimits(release_s=0.5), gpu_baseline={0: 0})
    with running(double_plan(), limits, DoubleProbe(), Seams(gpu=FileGpu(gpu_file))) as server:
        assert isinstance(server.start, Blocked)
        assert server.start.kind == "gpu_busy"
        assert f"pid {os.getpid()}" in server.start.reason
        assert "not ours" in server.start.reason


def test_cancel_ends_the_wait_and_stops_the_server(tmp_path: Path) -> None:
    """A wish to end during the start is heard at once, and a second one skips the polite part of the stop."""
    flag = CancelFlag()
    seams = Seams(waiting=Waiting(cancel=flag), on_vitals=lambda *_: flag.cancel("SIGINT"))
    plan = double_plan("--bind-delay-s", "200", "--deaf")
    with running(plan, options(tmp_path), DoubleProbe(), seams) as server:
        assert isinstance(server.start, Cancelled)
        flag.cancel("SIGINT")
    assert server.teardown is not None
    assert server.teardown.stop.clean


def test_an_exception_in_the_body_stops_the_server(tmp_path: Path) -> None:
    """Whatever the body raises, the server is stopped before it is passed on."""
    plan = double_plan("--stray")
    servers: list[RunningServer] = []

    def body() -> None:
        with running(plan, options(tmp_path), DoubleProbe()) as server:
            servers.append(server)
            assert isinstance(server.start, Ready)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        body()
    [server] = servers
    assert server.teardown is not None
    assert server.teardown.stop.terminated == 2
    assert is_free(plan.host, plan.port)


def test_the_guard_sees_a_death_under_load(tmp_path: Path) -> None:
    """A server killed from outside while loaded raises the alarm at the next look."""
    with running(double_plan(), options(tmp_path), DoubleProbe()) as server:
        assert server.process is not None
        guard = server.guard(LoadLimits())
        assert guard.check(tokens=10, in_flight=4) is None
        os.kill(server.process.pid, signal.SIGKILL)
        eventually(lambda: server.poll() is not None, "the death is seen")
        alarm = guard.check(tokens=20, in_flight=4)
        assert alarm is not None
        assert (alarm.kind, alarm.exit_code) == ("dead", -signal.SIGKILL)


def test_a_lost_child_shortens_the_patience(tmp_path: Path) -> None:
    """A scheduler that died behind a healthy front end is a stall after seconds, not after a minute."""
    with running(double_plan("--child"), options(tmp_path), DoubleProbe()) as server:
        assert server.process is not None
        guard = server.guard(LoadLimits(stall_s=1000.0, lost_member_s=0.5))
        child = next(row for row in server.process.members() if row.pid != server.process.pid)
        os.kill(child.pid, signal.SIGKILL)
        end_s = time.monotonic() + 60
        while (alarm := guard.check(tokens=10, in_flight=4)) is None:
            assert time.monotonic() < end_s
            time.sleep(0.1)
        assert alarm.kind == "stall"
        assert "processes are gone" in alarm.reason


def test_a_missing_program_stops_the_night(tmp_path: Path) -> None:
    """A command that does not exist is no outcome of a trial."""
    plan = LaunchPlan(engine="x", argv=("/nonexistent/server",), host="127.0.0.1", port=double_plan().port)
    with pytest.raises(NightStopped, match=r"engine\.command"), running(plan, options(tmp_path), DoubleProbe()):
        pass
