"""Servers behind wrappers, from start to verified end, on real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from autotune.diagnosis.case import Facts
from autotune.diagnosis.diagnose import diagnose
from autotune.errors import NightStopped
from autotune.server.asking import find
from autotune.server.cancel import CancelFlag, Waiting
from autotune.server.outside import Ending, end_everywhere, reap_everywhere
from autotune.server.process import ServerProcess, new_mark, start
from autotune.server.proctable import mark_of, read_row
from autotune.server.readiness import Blocked, Cancelled, Died, Ready
from autotune.server.serve import Seams, running
from autotune.server.stop import StopLimits
from autotune.server.watchdog import LoadLimits
from autotune.values import LaunchPlan
from autotune.wrappers import Wrapping, wrapping
from tests.server.conftest import DoubleProbe, eventually

from .conftest import SETTINGS, Doubles, serve_options, wrapped_plan

STUDY = f"wrapped-{os.getpid()}"
each = pytest.mark.parametrize("setting", SETTINGS)


def there_of(plan: LaunchPlan) -> Wrapping:
    found = wrapping(plan.wrapper)
    assert found is not None
    return found


def left_of(plan: LaunchPlan, mark: str = f"{STUDY}/") -> tuple[str, ...]:
    return find(there_of(plan), mark)


@each
def test_a_server_becomes_ready_and_everything_comes_back(setting: str, doubles: Doubles, tmp_path: Path) -> None:
    """It is found under its mark while it serves, its output is in the log, and afterwards nothing is left of it."""
    plan = wrapped_plan(setting, "--child")
    mark = new_mark(STUDY, 3)
    with running(plan, serve_options(tmp_path, mark), DoubleProbe()) as server:
        assert isinstance(server.start, Ready), server.start
        assert len(left_of(plan, mark)) >= 1
        assert left_of(plan) == left_of(plan, mark)
        assert left_of(plan, new_mark(STUDY, 3)) == ()
        assert server.guard(LoadLimits()).check(tokens=1, in_flight=1) is None
    assert server.teardown is not None
    assert server.teardown.problem() is None
    assert server.teardown.stop.killed == 0
    assert server.teardown.port_free
    assert left_of(plan) == ()
    assert "double listens" in (tmp_path / "server.log").read_text()


@each
def test_death_at_start_is_told_with_its_exit_code(setting: str, doubles: Doubles, tmp_path: Path) -> None:
    """The exit code of the server is that of its client, and it is the server's failure, not the wrapper's."""
    plan = wrapped_plan(setting, "--die", "3")
    with running(plan, serve_options(tmp_path, new_mark(STUDY, 0)), DoubleProbe()) as server:
        assert isinstance(server.start, Died), server.start
        assert server.start.exit_code == 3
        log = (tmp_path / "server.log").read_text()
        assert there_of(plan).own_failure(3, log) == ""
    assert "double starts" in (tmp_path / "server.log").read_text()


@each
def test_a_server_that_ignores_its_stop_is_ended_all_the_same(setting: str, doubles: Doubles, tmp_path: Path) -> None:
    """After the polite time comes the firm part, and nothing is left."""
    plan = wrapped_plan(setting, "--deaf")
    with running(plan, serve_options(tmp_path, new_mark(STUDY, 0), term_s=1.0), DoubleProbe()) as server:
        assert isinstance(server.start, Ready), server.start
    assert server.teardown is not None
    assert server.teardown.problem() is None
    assert left_of(plan) == ()
    assert doubles.alive() == []


@each
def test_a_client_that_is_killed_leaves_nothing_behind(setting: str, doubles: Doubles, tmp_path: Path) -> None:
    """The server outlives its client, is seen as dead by the watch, and is ended by its name."""
    plan = wrapped_plan(setting)
    with running(plan, serve_options(tmp_path, new_mark(STUDY, 0)), DoubleProbe()) as server:
        assert isinstance(server.start, Ready), server.start
        assert server.process is not None
        guard = server.guard(LoadLimits())
        os.kill(server.process.pid, signal.SIGKILL)
        eventually(lambda: server.poll() is not None, "the end of the client")
        alarm = guard.check(tokens=1, in_flight=1)
        assert alarm is not None
        assert alarm.kind == "dead"
        if setting != "ssh":
            assert left_of(plan) != ()
    assert server.teardown is not None
    assert server.teardown.problem() is None
    assert left_of(plan) == ()


@each
def test_a_tuner_that_is_killed_leaves_what_the_next_one_finds(setting: str, doubles: Doubles, tmp_path: Path) -> None:
    """kill -9 of the tuner: the server is ended under the study's name, and no server of another study."""
    plan = wrapped_plan(setting, "--child")
    other = wrapped_plan(setting)
    tuner = subprocess.Popen([sys.executable, "-c", TUNER, *arguments(plan, tmp_path)], stdout=subprocess.PIPE)
    assert tuner.stdout is not None
    assert tuner.stdout.readline() == b"started\n"
    neighbour = start(other, tmp_path / "other.log", new_mark(f"{STUDY}-2", 0))
    eventually(lambda: left_of(other, f"{STUDY}-2/"), "the other study's server")
    tuner.kill()
    tuner.communicate()
    assert reap_everywhere(plan.wrapper, [], StopLimits(), STUDY).survivors == ()
    assert left_of(plan) == ()
    assert left_of(other, f"{STUDY}-2/") != ()
    assert end(neighbour) == ()


TUNER = """
import sys, msgspec
from autotune.server.outside import find
from autotune.server.process import start, new_mark
from autotune.values import LaunchPlan
from autotune.wrappers import wrapping
from pathlib import Path
plan = msgspec.json.decode(sys.argv[1], type=LaunchPlan)
process = start(plan, Path(sys.argv[2]), new_mark(sys.argv[3], 0))
while not find(wrapping(plan.wrapper), process.mark):
    pass
print("started", flush=True)
sys.stdin.read() if sys.stdin.isatty() else __import__("time").sleep(600)
"""


def arguments(plan: LaunchPlan, tmp_path: Path) -> list[str]:
    return [msgspec.json.encode(plan).decode(), str(tmp_path / "tuner.log"), STUDY]


def end(process: ServerProcess) -> tuple[str, ...]:
    report = end_everywhere(process.plan.wrapper, process.mark, process.members, StopLimits())
    process.poll()
    process.close()
    return report.survivors


@each
def test_a_wish_to_end_is_heard_during_the_start(setting: str, doubles: Doubles, tmp_path: Path) -> None:
    """Ctrl-C twice ends client and server although both the server and its stop are slow."""
    flag = CancelFlag()
    plan = wrapped_plan(setting, "--bind-delay-s", "200", "--deaf")

    def once_it_is_there(*_: object) -> None:
        if left_of(plan):
            flag.cancel("SIGINT")

    seams = Seams(waiting=Waiting(cancel=flag), on_vitals=once_it_is_there)
    with running(plan, serve_options(tmp_path, new_mark(STUDY, 0), term_s=600.0), DoubleProbe(), seams) as server:
        assert isinstance(server.start, Cancelled), server.start
        flag.cancel("SIGINT")
    assert server.teardown is not None
    assert server.teardown.problem() is None
    assert left_of(plan) == ()


def test_a_stop_that_the_runtime_refuses_becomes_a_removal(doubles: Doubles, tmp_path: Path) -> None:
    """A container that `docker stop` cannot end is removed by force."""
    doubles.fault("stop-fails")
    doubles.fault("unmarked")
    plan = wrapped_plan("docker")
    with running(plan, serve_options(tmp_path, new_mark(STUDY, 0), term_s=1.0), DoubleProbe()) as server:
        assert isinstance(server.start, Ready), server.start
    assert server.teardown is not None
    assert server.teardown.problem() is None
    assert server.teardown.stop.killed == 1


@pytest.mark.slow
def test_a_container_that_cannot_be_ended_is_named(doubles: Doubles) -> None:
    """Where neither stop nor removal helps, the report says which container is still there."""
    plan = wrapped_plan("docker", "--deaf")
    process = start(plan, doubles.state.parent / "server.log", mark := new_mark(STUDY, 0))
    eventually(lambda: left_of(plan, mark), "the container")
    doubles.fault("stop-fails")
    doubles.fault("rm-fails")
    report = Ending(there_of(plan), mark, Waiting().clock).end(StopLimits(term_s=0.5, kill_s=0.5), lambda: False)
    assert report.survivors == (f"container autotune-{mark.replace('/', '-')}",)
    doubles.heal("stop-fails")
    doubles.heal("rm-fails")
    assert end(process) == ()


def test_a_daemon_that_does_not_answer_is_named(doubles: Doubles) -> None:
    """Nobody can say that nothing is left when the runtime cannot be asked."""
    doubles.fault("down")
    plan = wrapped_plan("docker")
    report = Ending(there_of(plan), f"{STUDY}/", Waiting().clock).end(StopLimits(term_s=0.2, kill_s=0.2), lambda: False)
    [survivor] = report.survivors
    assert "docker ps: Cannot connect to the daemon" in survivor


@pytest.mark.parametrize(
    ("setting", "changes", "told"),
    [
        ("docker", {"image": "missing"}, "No such image"),
        ("podman", {"options": ("--unknown",)}, "unknown flag: --unknown"),
        ("srun", {"options": ("--partition", "nowhere")}, "Unable to allocate resources"),
        ("ssh", {"destination": "nowhere"}, "Connection refused"),
    ],
)
def test_a_wrapper_that_fails_by_itself_is_told_apart(
    setting: str, changes: dict[str, object], told: str, doubles: Doubles, tmp_path: Path
) -> None:
    """A missing image or an unknown host says nothing about the parameters of a trial."""
    plan = wrapped_plan(setting, **changes)
    options = serve_options(tmp_path, new_mark(STUDY, 0), term_s=0.5)
    with running(plan, options, DoubleProbe()) as server:
        assert isinstance(server.start, Died), server.start
    log = (tmp_path / "server.log").read_text()
    assert told in there_of(plan).own_failure(server.start.exit_code, log)


def test_a_wrapper_that_is_not_installed_stops_the_night(tmp_path: Path) -> None:
    """The message names the setting to correct."""
    plan = wrapped_plan("docker", program="/nonexistent/docker")
    with (
        pytest.raises(NightStopped, match=r"engine\.wrapper"),
        running(plan, serve_options(tmp_path, new_mark(STUDY, 0)), DoubleProbe()),
    ):
        pass


def test_a_server_on_a_taken_port_at_the_other_end_is_not_started(doubles: Doubles, tmp_path: Path) -> None:
    """Behind ssh a stranger's answers could not be told from ours, so the port is looked at before the start."""
    plan = wrapped_plan("ssh")
    with (
        socket.create_server(("127.0.0.1", plan.port)),
        running(plan, serve_options(tmp_path, new_mark(STUDY, 0)), DoubleProbe()) as server,
    ):
        assert isinstance(server.start, Died), server.start
    log = (tmp_path / "server.log").read_text()
    assert f"address already in use: port {plan.port}" in log
    assert there_of(plan).own_failure(255, log) == ""
    assert diagnose(log, Facts(engine="sglang", phase="startup", exit_code=255)).kind == "port_in_use"


def test_a_stranger_on_a_container_s_port_is_not_adopted(doubles: Doubles, tmp_path: Path) -> None:
    """With the host's network the listener must be a process of the container."""
    plan = wrapped_plan("docker", "--bind-delay-s", "600")
    stranger = subprocess.Popen(
        [sys.executable, "-IS", "-c", STRANGER, str(plan.port), str(tmp_path / "go")], stdout=subprocess.PIPE
    )

    def squat(*_: object) -> None:
        (tmp_path / "go").touch()

    try:
        seams = Seams(on_started=squat)
        with running(plan, serve_options(tmp_path, new_mark(STUDY, 0)), DoubleProbe(), seams) as server:
            assert isinstance(server.start, Blocked), server.start
            assert "not our server" in server.start.reason
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.communicate()


STRANGER = """
import os, socket, sys, time
while not os.path.exists(sys.argv[2]): time.sleep(0.01)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(600)
"""


def test_a_container_of_another_user_is_known_by_its_first_process(doubles: Doubles, tmp_path: Path) -> None:
    """Without a readable mark the runtime says which process it is, and all below it belong to the server."""
    doubles.fault("unmarked")
    plan = wrapped_plan("docker", "--stray")
    with running(plan, serve_options(tmp_path, new_mark(STUDY, 0)), DoubleProbe()) as server:
        assert isinstance(server.start, Ready), server.start
        assert server.process is not None
        rows = server.process.members()
        assert {row.pid for row in rows if mark_of(row.pid) is None} >= {int(first(doubles))}
        assert len(rows) == 3, "client, server and its child"
    assert server.teardown is not None
    assert server.teardown.problem() is None


def first(doubles: Doubles) -> str:
    [path] = doubles.state.glob("containers/*/pid")
    return path.read_text()


def test_a_line_that_is_cut_ends_the_server_at_the_other_end(doubles: Doubles, tmp_path: Path) -> None:
    """Behind ssh the server does not outlive its connection, even if nobody comes back for it."""
    plan = wrapped_plan("ssh", "--child")
    process = start(plan, tmp_path / "server.log", mark := new_mark(STUDY, 0))
    eventually(lambda: len(left_of(plan, mark)) == 2, "server and child")
    remote = [int(pid) for pid in left_of(plan, mark)]
    os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: process.poll() is not None, "the end of the client")
    eventually(lambda: all(read_row(pid) is None for pid in remote), "the end of the server")
    process.close()


def test_a_job_in_an_allocation_is_a_step(doubles: Doubles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a job srun makes a step, which only the listing of steps shows."""
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    plan = wrapped_plan("srun")
    with running(plan, serve_options(tmp_path, new_mark(STUDY, 0)), DoubleProbe()) as server:
        assert isinstance(server.start, Ready), server.start
        assert left_of(plan) == ("77.100",)
    assert left_of(plan) == ()
    assert server.teardown is not None
    assert server.teardown.problem() is None


def test_variables_reach_the_server_and_no_command_line(
    doubles: Doubles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings and secrets are in the environment of the server; a secret's value is on nobody's command line."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret-value")
    for setting in SETTINGS:
        plan = wrapped_plan(setting, "--echo-env", "HF_TOKEN")
        there = there_of(plan)
        named = LaunchPlan(**{f: getattr(plan, f) for f in plan.__struct_fields__} | {"secret_env": ("HF_TOKEN",)})
        assert "hf_secret-value" not in str(there.launch(named, new_mark(STUDY, 0)))
        log = tmp_path / f"{setting}.log"
        process = start(named, log, new_mark(STUDY, 0))
        eventually(lambda log=log: "double listens" in log.read_text(), "the server")  # type: ignore[misc]
        assert end(process) == ()
        assert "double starts <redacted>" in log.read_text(), setting
