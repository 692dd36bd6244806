"""Kills, stops and signals: of the tuner, the server, what the server started, and the load's workers."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable

import pytest

from autotune.events import Event, PhaseEntered
from autotune.server.proctable import read_table
from autotune.values import Interrupted

from .cells import HANG, Cell, Limits, environ, outcome, signals_of
from .conftest import Make, Told

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

SLOW_LOAD = ("--sim-speed", "0.3")
# What makes the phase long enough to be hit, where it is not long by itself.
PHASES = {
    "prepare": (),
    "start": ("--sim-fault", "slow_start=60"),
    "read back": (),
    "warm-up": SLOW_LOAD,
    "stop": ("--sim-fault", "deaf"),
}


@pytest.mark.parametrize("phase", PHASES)
def test_kill_of_the_tuner(phase: str, make: Make, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command ends the orphan, runs the trial again and completes the study."""
    cell = make()
    signals_of(monkeypatch, 1, *PHASES[phase])
    process = cell.begin()
    cell.wait_for_phase(phase)
    process.kill()
    process.communicate(timeout=30)
    if phase in ("start", "warm-up"):
        assert not cell.records.trial(1).result.exists()
    cell.goes_on()
    told("kill -9 of the tuner", phase, "resumed, trial run again" if len(cell.records.numbers()) > 2 else "resumed")


@pytest.mark.parametrize("phase", ["start", "warm-up", "stop"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda n: n.name)
def test_signal(number: signal.Signals, phase: str, make: Make, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 128 + N within seconds, the trial is kept or run again."""
    cell = make(Limits(trials=3))
    signals_of(monkeypatch, 1, *PHASES[phase])
    process = cell.begin()
    cell.wait_for_phase(phase)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number, err
    assert "Traceback" not in err
    shown = [outcome(result) for result in cell.records.results()[1:]]
    cell.goes_on(3)
    told(number.name, phase, f"clean end, trial {'/'.join(shown) or 'not begun'}; resumed")


@pytest.mark.parametrize("phase", ["start", "warm-up", "stop"])
def test_storm_of_signals(phase: str, make: Make, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty signals of all kinds within a second: one end, no traceback, nothing left."""
    cell = make()
    signals_of(monkeypatch, 1, *PHASES[phase], "--sim-fault", "deaf")
    process = cell.begin()
    cell.wait_for_phase(phase)
    for index in range(20):
        process.send_signal((signal.SIGTERM, signal.SIGINT, signal.SIGHUP)[index % 3])
        if process.poll() is not None:
            break
        time.sleep(0.02)
    _, err = process.communicate(timeout=30)
    assert process.returncode in (128 + signal.SIGTERM, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP), err
    assert "Traceback" not in err
    cell.goes_on()
    told("storm of 20 signals", phase, "ended at once; resumed")


def test_second_signal_does_not_wait_for_a_deaf_server(make: Make, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that ignores SIGTERM, drained for minutes by its limit, is killed on the second signal."""
    cell = make()
    cell.study.write_text(cell.study.read_text().replace("stop_s = 2", "stop_s = 600"))
    signals_of(monkeypatch, 1, *SLOW_LOAD, "--sim-fault", "deaf")
    process = cell.begin()
    cell.wait_for_phase("warm-up")
    process.send_signal(signal.SIGTERM)
    cell.wait_for_phase("stop")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    cell.goes_on()
    told("SIGTERM twice", "stop", "ended at once; resumed")


def at_phase(phase: str, act: Callable[[], None]) -> Callable[[Event], None]:
    """Calls ``act`` in a thread, once, when trial 1 enters the phase."""
    done: list[bool] = []

    def hear(event: Event) -> None:
        if isinstance(event, PhaseEntered) and event.phase == phase and event.number == 1 and not done:
            done.append(True)
            threading.Thread(target=act, daemon=True).start()

    return hear


@pytest.mark.parametrize("phase", ["start", "warm-up"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP], ids=lambda n: n.name)
def test_signal_to_the_server(
    number: signal.Signals, phase: str, make: Make, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that somebody else kills or stops, once, is started again; the trial gets its measurement."""
    cell = make(HANG)
    once = cell.root / "once"
    monkeypatch.setenv("FAULT_ONCE", str(once))
    signals_of(monkeypatch, 1, *(PHASES[phase] or SLOW_LOAD))

    def hit() -> None:
        cell.wait(once.exists, "the server's first breath")
        os.kill(cell.server_pid(), number)

    seen = cell.night(at_phase(phase, hit))
    assert not seen.stopped
    cell.check_nothing_lost(2)
    shown = outcome(cell.records.results()[1])
    assert shown == "measured"
    told(f"{number.name} to the server, once", phase, shown)


def workers() -> list[int]:
    """The load workers of this process."""
    rows = [row for row in read_table() if row.ppid == os.getpid() and row.name.startswith("python")]
    return [row.pid for row in rows if not any(entry.startswith(b"AUTOTUNE_TRIAL=") for entry in environ(row.pid))]


@pytest.mark.parametrize("times", [1, 9], ids=["once", "always"])
def test_kill_of_the_load_worker(times: int, make: Make, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once: the trial is measured by another worker. Again and again: the night stops and names the worker."""
    cell = make()
    signals_of(monkeypatch, 1, *SLOW_LOAD)
    monkeypatch.setenv("FAULT_ONCE", str(cell.root / "once") if times == 1 else "")
    left = [times]

    def hear(event: Event) -> None:
        if isinstance(event, PhaseEntered) and event.phase == "warm-up" and event.number == 1 and left[0]:
            left[0] -= 1
            for pid in workers():
                os.kill(pid, signal.SIGKILL)

    seen = cell.night(hear)
    if times == 1:
        assert not seen.stopped
        assert outcome(cell.records.results()[1]) == "measured"
        cell.check_nothing_lost(2)
    else:
        assert "load worker" in seen.stopped
        cell.goes_on()
    told("kill -9 of a load worker", "load", "measured by another" if times == 1 else "night stopped; resumed")


def test_kill_of_a_child_of_the_server(make: Make, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers goes on although a process of its is gone; tokens are what counts."""
    cell = make()
    signals_of(monkeypatch, 1, "--sim-fault", "child_left=600")
    seen = cell.night(at_phase("warm-up", lambda: kill_children_of(cell)))
    assert not seen.stopped
    cell.check_nothing_lost(2)
    told("kill -9 of a child of the server", "load", outcome(cell.records.results()[1]))


def kill_children_of(cell: Cell) -> None:
    """What carries the brand of this cell and the mark of a server, the server itself aside."""
    leader, brand = cell.server_pid(), f"FAULT_CELL={cell.root}".encode()
    for row in read_table():
        entries = environ(row.pid)
        if row.pid != leader and brand in entries and any(e.startswith(b"AUTOTUNE_TRIAL=") for e in entries):
            os.kill(row.pid, signal.SIGKILL)


@pytest.mark.parametrize("phase", ["start", "warm-up"])
def test_pause_of_the_tuner(phase: str, make: Make, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-Z and fg, or a debugger: the night goes on afterwards, and no trial is lost."""
    cell = make()
    signals_of(monkeypatch, 1, *(("--sim-fault", "slow_start=1") if phase == "start" else SLOW_LOAD))
    process = cell.begin()
    cell.wait_for_phase(phase)
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.0)
    process.send_signal(signal.SIGCONT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    cell.check_nothing_lost(2)
    told("SIGSTOP and SIGCONT to the tuner", phase, outcome(cell.records.results()[1]))


@pytest.mark.parametrize("how", ["closed", "pipe"])
def test_nobody_reads(how: str, make: Make, told: Told) -> None:
    """A terminal that is gone, or a closed standard error, does not end a night."""
    cell = make()
    if how == "pipe":
        process = cell.begin()
        assert process.stderr is not None
        process.stderr.close()
        process.stderr = None
        process.communicate(timeout=60)
    else:
        process = cell.begin(stderr=None, stdout=subprocess.DEVNULL, preexec_fn=lambda: os.close(2))
        process.wait(timeout=60)
    assert process.returncode == 0
    cell.check_nothing_lost(2)
    told(f"standard error is {'closed' if how == 'closed' else 'a broken pipe'}", "all", "night completed")


def test_terminal_is_gone(make: Make, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal's hang-up ends the night cleanly although writing to it fails."""
    cell = make(Limits(trials=3))
    signals_of(monkeypatch, 1, *SLOW_LOAD)
    main, terminal = os.openpty()
    process = cell.begin(stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True)
    os.close(terminal)
    cell.wait_for_phase("warm-up")
    os.close(main)
    process.send_signal(signal.SIGHUP)
    process.wait(timeout=30)
    assert process.returncode == 128 + signal.SIGHUP
    assert isinstance(cell.records.results()[1].outcome, Interrupted)
    cell.goes_on(3)
    told("terminal gone (SIGHUP, EIO)", "load", "clean end; resumed")
