"""Stopping real process groups, and the orphans of a dead tuner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from autotune.server.clock import FakeClock
from autotune.server.process import new_mark, start
from autotune.server.proctable import MARK_NAME, ProcessRow, read_row, send
from autotune.server.stop import StopLimits, orphan_members, reap_orphans, stop_all

from .conftest import STUDY, Starter, double_plan, eventually
from .double import SLEEPER

FIRM = StopLimits(term_s=0.3, kill_s=60.0)
POLITE = StopLimits(term_s=60.0, kill_s=60.0)


def ready(process: object, text: str = "double listens") -> None:
    log = process.reader()  # type: ignore[attr-defined]
    eventually(lambda: text in "\n".join(log.new_lines()), text)


def test_a_well_behaved_group_needs_only_sigterm(starter: Starter) -> None:
    """Leader, child and stray are terminated politely, and nobody is killed."""
    process = starter("--child", "--stray")
    ready(process)
    report = stop_all(process.members, POLITE)
    assert (report.terminated, report.killed, report.clean) == (3, 0, True)
    assert process.poll() == -signal.SIGTERM


def test_a_deaf_server_is_killed(starter: Starter) -> None:
    """What ignores SIGTERM gets SIGKILL after the polite time, children included."""
    process = starter("--deaf", "--child")
    ready(process)
    report = stop_all(process.members, FIRM)
    assert report.killed >= 1
    assert report.clean
    assert process.poll() == -signal.SIGKILL


def test_a_hurry_skips_the_polite_wait(starter: Starter) -> None:
    """With a second Ctrl-C the SIGKILL follows at once."""
    process = starter("--deaf")
    ready(process)
    report = stop_all(process.members, StopLimits(term_s=10_000.0), hurry=lambda: True)
    assert (report.killed, report.clean) == (1, True)


def test_children_of_a_dead_leader_are_stopped(starter: Starter) -> None:
    """A leader that is gone, reaped and forgotten by the kernel leaves no survivors."""
    process = starter("--die", "0", "--child", "--stray")
    eventually(lambda: process.poll() == 0, "the leader exits")
    assert len(process.members()) == 2
    report = stop_all(process.members, POLITE)
    assert (report.terminated, report.clean) == (2, True)


def test_a_leader_ends_its_children_itself(starter: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM goes to the leader alone at first, since some engines take one to a child for a crash; then to all."""
    process = starter("--deaf", "--child")
    ready(process)
    signalled: list[int] = []

    def noted(row: ProcessRow, sig: signal.Signals) -> bool:
        signalled.append(row.pid)
        return send(row, sig)

    monkeypatch.setattr("autotune.server.stop.send", noted)
    report = stop_all(process.members, StopLimits(term_s=2.0, kill_s=60.0))
    assert signalled[0] == process.pid
    assert (len(set(signalled)), report.terminated, report.clean) == (2, 2, True)


def test_a_stopped_process_hears_sigterm(starter: Starter) -> None:
    """A process frozen by SIGSTOP is woken to die politely."""
    process = starter()
    ready(process)
    os.kill(process.pid, signal.SIGSTOP)
    assert stop_all(process.members, POLITE).killed == 0


def test_unkillable_processes_are_named() -> None:
    """What survives SIGKILL (a driver call that never returns) is reported after the limit."""
    row = ProcessRow(pid=2**22 + 1, ppid=1, pgid=1, sid=1, start_ticks=5, name="stuck")
    report = stop_all(lambda: [row], StopLimits(term_s=5.0, kill_s=7.0), clock=FakeClock())
    assert report.survivors == (f"stuck (pid {row.pid})",)
    assert report.seconds == pytest.approx(12.0, abs=0.2)
    assert not report.clean


def test_an_interrupt_during_the_stop_kills_first(starter: Starter) -> None:
    """Ctrl-C while a stop waits leaves nothing behind."""
    process = starter("--deaf")
    ready(process)

    def impatient() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop_all(process.members, POLITE, hurry=impatient)
    assert process.members() == ()


def test_nothing_to_stop_takes_no_time() -> None:
    """An empty server needs no signal."""
    none: Sequence[ProcessRow] = ()
    report = stop_all(lambda: none, POLITE, clock=FakeClock())
    assert (report.terminated, report.killed, report.seconds) == (0, 0, 0.0)


def test_orphans_of_a_dead_tuner_are_reaped_and_only_those(starter: Starter, tmp_path: Path) -> None:
    """By its recorded identity a server and its strays are stopped; another server of the same study lives on."""
    other = starter()
    process = starter("--child", "--stray")
    ready(process)
    report = reap_orphans([process.identity()], POLITE)
    assert (report.terminated, report.clean) == (3, True)
    assert other.poll() is None


def test_a_reused_pid_is_not_ours(starter: Starter) -> None:
    """A recorded pid that now names another process, or is from before a reboot, is left alone."""
    bystander = starter()
    identity = bystander.identity()
    reused = msgspec.structs.replace(identity, start_ticks=identity.start_ticks - 1, mark=f"{STUDY}-x/0/0")
    rebooted = msgspec.structs.replace(identity, boot_id="another boot", mark=f"{STUDY}-x/0/0")
    assert orphan_members([reused, rebooted]) == ()
    assert reap_orphans([reused, rebooted], POLITE).terminated == 0
    assert bystander.poll() is None


def test_a_server_that_was_never_recorded_is_found_by_its_study(starter: Starter) -> None:
    """A tuner killed between start and record leaves a mark that begins with the study's id."""
    process = starter("--stray")
    ready(process)
    assert {row.pid for row in orphan_members([], STUDY)} == {row.pid for row in process.members()}
    assert orphan_members([], STUDY[:-1]) == ()
    assert reap_orphans([], POLITE, study_id=STUDY).terminated == 2


def test_unmarked_children_in_the_session_of_a_dead_leader_are_reaped(starter: Starter) -> None:
    """One marked member vouches for its whole session, also for a child that wiped its environment."""
    process = starter("--die", "0", "--child")
    wiped = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {SLEEPER!r}], env={{}})"
    mark = new_mark(STUDY, 99)
    parent = subprocess.Popen(
        [sys.executable, "-c", f"{wiped}; time.sleep(300)"],
        env={**os.environ, MARK_NAME: mark},
        start_new_session=True,
    )
    identity = msgspec.structs.replace(process.identity(), mark=mark, pid=2**22 + 1)
    eventually(lambda: len(orphan_members([identity])) == 2, "the wiped child")
    report = reap_orphans([identity], POLITE)
    assert (report.terminated, report.clean) == (2, True)
    parent.wait()


def test_a_tuner_killed_hard_leaves_a_server_that_the_next_one_reaps(tmp_path: Path) -> None:
    """kill -9 of the process that started the server: the mark still leads to it."""
    plan = double_plan("--child")
    code = (
        "import sys, time, msgspec; from pathlib import Path\n"
        "from autotune.server.process import start; from autotune.values import LaunchPlan\n"
        f"plan = msgspec.json.decode({msgspec.json.encode(plan)!r}, type=LaunchPlan)\n"
        f"process = start(plan, Path({str(tmp_path / 'log')!r}), {new_mark(STUDY, 1)!r})\n"
        "print(process.pid, flush=True); time.sleep(300)\n"
    )
    tuner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert tuner.stdout is not None
    pid = int(tuner.stdout.readline())
    eventually(lambda: len(orphan_members([], STUDY)) == 2, "server and child")
    tuner.kill()
    tuner.wait()
    tuner.stdout.close()
    assert reap_orphans([], POLITE, study_id=STUDY).clean
    assert read_row(pid) is None


def test_newcomers_during_the_stop_are_stopped_too(starter: Starter) -> None:
    """A server that forks while it is being stopped does not get away."""
    process = starter("--deaf")
    ready(process)
    rows: list[list[ProcessRow]] = []
    late = start(double_plan(), process.log.path.with_name("late.log"), process.mark)
    rows.append(list(process.members()))
    report = stop_all(process.members, FIRM)
    assert report.clean
    assert late.poll() is not None or read_row(late.pid) is None
    late.close()
    assert threading.active_count() < 10
