"""The machine under the night: disks, locks, damaged files, limits, sleep, clocks, and the user's own command."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autotune import rig, trial
from autotune.brief import read_brief
from autotune.events import Event, Note, PhaseEntered
from autotune.load import driver
from autotune.repairing import repair
from autotune.search.mirror import Mirror
from autotune.server import process as server_process
from autotune.server.cancel import CancelFlag

from .cells import Limits, outcome, signals_of
from .conftest import Make, Told

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB of its own; needs root."""
    root = tmp_path / "disk"
    root.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(root)], capture_output=True)
    if done.returncode:
        pytest.skip("no permission to mount a file system")
    try:
        yield root
    finally:
        os.chdir(tmp_path)
        subprocess.run(["umount", "-l", str(root)], check=True)


def fill(root: Path) -> None:
    """Leave no room at all."""
    with contextlib.suppress(OSError), (root / "filler").open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)


def on_phase(phase: str, act: Callable[[], object]) -> Callable[[Event], None]:
    def hear(event: Event) -> None:
        if isinstance(event, PhaseEntered) and event.phase == phase and event.number == 1:
            act()

    return hear


@pytest.mark.parametrize("phase", ["start", "read back", "warm-up", "stop"])
def test_disk_fills_during_a_trial(
    phase: str, make: Make, told: Told, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The night stops with the remedy; what was measured is kept, and with room the study is completed."""
    monkeypatch.setattr(trial, "DISK_BYTES", 0)
    cell = make(root=small_disk)
    seen = cell.night(on_phase(phase, partial(fill, small_disk)))
    assert "NightStopped" in seen.stopped
    assert "room" in seen.stopped or "space" in seen.stopped, seen.stopped
    assert outcome(cell.records.results()[0]) == "measured"
    (small_disk / "filler").unlink()
    cell.goes_on()
    told("disk full", phase, "night stopped, all kept; resumed")


def test_disk_is_nearly_full_between_trials(make: Make, told: Told, small_disk: Path) -> None:
    """A trial that may not fit is not begun."""
    cell = make(root=small_disk)
    seen = cell.night()
    assert "make room" in seen.stopped
    assert not cell.records.trial(1).log.exists()
    told("disk nearly full", "between trials", "night stopped before the server's start")


@pytest.mark.parametrize("phase", ["before", "warm-up"])
def test_folder_becomes_read_only(
    phase: str, make: Make, told: Told, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The night stops and says so; after a remount the study is completed."""
    monkeypatch.setattr(trial, "DISK_BYTES", 0)
    cell = make(root=small_disk)

    def remount(how: str) -> None:
        # A file system with open writers cannot become read-only by itself; what the kernel does on errors can.
        subprocess.run(["mount", "-o", f"remount,{how}", str(small_disk)], check=False, capture_output=True)

    if phase == "before":
        remount("ro")
        seen = cell.night()
    else:
        monkeypatch.setattr(rig, "now_text", rig.now_text)
        refuse = partial(_refuse, OSError(errno.EROFS, os.strerror(errno.EROFS)))
        with pytest.MonkeyPatch.context() as patch:
            seen = cell.night(on_phase(phase, lambda: patch.setattr(os, "replace", refuse)))
    assert "read-only" in seen.stopped.lower(), seen.stopped
    remount("rw")
    cell.goes_on()
    told("folder read-only", phase, "night stopped; resumed")


def _refuse(error: BaseException, *_: Any, **__: Any) -> Any:
    raise error


@pytest.mark.parametrize("what", ["server", "worker"])
@pytest.mark.parametrize("times", [1, 99], ids=["once", "always"])
@pytest.mark.parametrize("code", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE], ids=lambda c: errno.errorcode[c])
def test_no_process_can_be_started(
    what: str, times: int, code: int, make: Make, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full process table, no memory, no descriptors: tried again, then the night stops with the remedy."""
    cell = make()
    module = server_process if what == "server" else driver
    real, left = subprocess.Popen, [times]

    def popen(*args: Any, **options: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise OSError(code, os.strerror(code))
        return real(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.subprocess, "Popen", popen)
        seen = cell.night()
    if times == 1:
        assert not seen.stopped
        assert outcome(cell.records.results()[1]) == "measured"
    else:
        assert "raise ulimit" in seen.stopped
    cell.goes_on()
    told(
        f"{errno.errorcode[code]} for a {what}",
        "start" if what == "server" else "load",
        f"{'measured' if times == 1 else 'night stopped; resumed'}",
    )


def test_descriptor_limit_below_the_concurrency(make: Make, told: Told) -> None:
    """The night stops before its first start and names the limit."""
    cell = make()
    limits = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (200, 200))
    process = cell.begin(preexec_fn=limits)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "ulimit" in err
    assert "Traceback" not in err
    cell.goes_on()
    told("descriptor limit below the concurrency", "begin", "night stopped; resumed")


def test_two_tuners(make: Make, told: Told) -> None:
    """The second is refused with exit code 4 and names the first."""
    cell = make()
    refused: list[subprocess.CompletedProcess[str]] = []

    def second() -> None:
        argv = [sys.executable, "-m", "tests.tuner", "tune", str(cell.study)]
        refused.append(subprocess.run(argv, capture_output=True, text=True, timeout=60))

    seen = cell.night(on_phase("start", second))
    assert not seen.stopped
    assert refused[0].returncode == 4
    assert f"process {os.getpid()}" in refused[0].stderr
    cell.check_nothing_lost(2)
    told("a second tuner", "start", "refused; the first goes on")


def impatient_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Mirror.open
    monkeypatch.setattr(Mirror, "open", lambda name, storage, way: opened(name, storage, way, busy_s=0.3))


def test_storage_is_locked_at_the_beginning(make: Make, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused with the remedy; later the study is completed."""
    cell = make()
    impatient_storage(monkeypatch)
    with contextlib.closing(sqlite3.connect(cell.folder.database)) as other:
        other.execute("BEGIN EXCLUSIVE")
        seen = cell.night()
    assert "another program holds the database" in seen.stopped
    cell.goes_on()
    told("SQLite locked", "begin", "refused; resumed")


@pytest.mark.parametrize("phase", ["start", "stop"])
def test_storage_is_locked_during_a_trial(phase: str, make: Make, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """The night goes on, the records have all, and the storage is completed afterwards."""
    cell = make()
    impatient_storage(monkeypatch)
    other = sqlite3.connect(cell.folder.database, timeout=20)
    seen = cell.night(on_phase(phase, lambda: other.executescript("BEGIN EXCLUSIVE;")))
    other.close()
    assert not seen.stopped
    assert any("storage" in event.text for event in seen.events if isinstance(event, Note))
    cell.check_nothing_lost(2)
    cell.goes_on()
    with contextlib.closing(sqlite3.connect(cell.folder.database)) as read:
        assert read.execute("SELECT count(*) FROM trials WHERE state = 'COMPLETE'").fetchone() == (2,)
    told("SQLite locked", phase, "night completed, storage caught up later")


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    path.write_bytes({"torn": data[: len(data) // 2], "zeros": bytes(len(data)), "empty": b""}[how])


@pytest.mark.parametrize(
    ("what", "how"),
    [
        ("study.db", "torn"),
        ("study.db", "zeros"),
        ("manifest.json", "torn"),
        ("bounds.json", "empty"),
        ("machine.json", "zeros"),
        ("trials/0000/result.json", "torn"),
        ("trials/0000/config.json", "empty"),
    ],
)
def test_damaged_file(what: str, how: str, make: Make, told: Told) -> None:
    """Refused, naming the file and `autotune repair`; after the repair the study is completed from its records."""
    cell = make()
    damage(cell.folder.root / what, how)
    seen = cell.night()
    if seen.stopped:
        assert "repair" in seen.stopped
        repair(read_brief(cell.study))
    cell.goes_on()
    told(f"{what} damaged ({how})", "between nights", "refused, repaired, resumed" if seen.stopped else "not needed")


def test_storage_is_missing(make: Make, told: Told) -> None:
    """A database that somebody deleted is written again from the records."""
    cell = make()
    cell.folder.database.unlink()
    cell.goes_on()
    told("study.db deleted", "between nights", "written again")


def test_machine_sleeps_during_a_trial(make: Make, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial that slept is interrupted and runs again; one sleep is no reason to stop."""
    cell = make()
    looks = iter([0.0, 3600.0])
    monkeypatch.setattr(trial, "slept_s", lambda: next(looks, 3600.0))
    seen = cell.night()
    assert not seen.stopped
    assert [outcome(result) for result in cell.records.results()[1:]] == ["interrupted", "measured"]
    cell.check_nothing_lost(2)
    told("machine sleeps, once", "load", "interrupted, run again")


def test_machine_that_always_sleeps(make: Make, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third sleep in a row stops the night with the remedy."""
    cell = make()
    now = [0.0]

    def slept() -> float:
        now[0] += 60.0
        return now[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "slept_s", slept)
        seen = cell.night()
    assert "systemd-inhibit" in seen.stopped
    cell.goes_on()
    told("machine sleeps, always", "load", "night stopped; resumed")


@pytest.mark.parametrize("days", [400, -400])
def test_wall_clock_jumps(days: int, make: Make, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """No deadline, no budget and no order of trials depends on the wall clock."""
    cell = make(Limits(trials=3))

    class Jumped:
        @staticmethod
        def now(_zone: object) -> datetime:
            return datetime.now(UTC) + timedelta(days=days)

    seen = cell.night(on_phase("warm-up", lambda: monkeypatch.setattr(rig, "datetime", Jumped)))
    assert not seen.stopped
    cell.check_nothing_lost(3)
    told(f"wall clock jumps by {days:+} days", "load", outcome(cell.records.results()[1]))


@pytest.mark.parametrize(
    ("hook", "name"),
    [
        ('["/nonexistent/command"]', "is missing"),
        ('["false"]', "fails"),
        ('["sleep", "600"]', "hangs"),
        ('["sh", "-c", "kill -9 $$"]', "is killed"),
    ],
)
def test_notification_command(hook: str, name: str, make: Make, told: Told) -> None:
    """Whatever the user's command does, the night is complete, in time, and says what went wrong."""
    cell = make(Limits(more=f"[notify]\ncommand = {hook}\ntimeout_s = 0.5"))
    seen = cell.night()
    assert not seen.stopped
    cell.check_nothing_lost(2)
    assert any("notify" in event.text for event in seen.events if isinstance(event, Note))
    told(f"notification command {name}", "settle and end", "night completed, with a note")


def test_notification_of_a_stop(make: Make, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """A night that stops says so to the user's command, with the reason on its standard input."""
    heard = make().root / "heard"
    script = 'cat >> "$1"; echo "$2" >> "$1"'
    cell = make(Limits(more=f'[notify]\ncommand = ["sh", "-c", \'{script}\', "sh", "{heard}"]'))
    signals_of(monkeypatch, 1, "--sim-fault", "nccl")
    seen = cell.night()
    assert "nccl" in seen.stopped
    text = heard.read_text()
    assert '"event":"stop"' in text
    assert "nccl after 3 attempts" in text
    assert text.endswith("stop\n")
    cell.goes_on()
    assert '"event":"end"' in heard.read_text()
    told("nccl, with a notification command", "launch", "told of the stop and of the end")


def test_secrets_are_in_no_file(make: Make, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token in the environment reaches no record, log, event or script, and every file is private."""
    cell = make()
    monkeypatch.setenv("SOME_SERVICE_TOKEN", "very-secret-value")
    seen = cell.night(flag=CancelFlag())
    assert not seen.stopped
    files = [path for path in cell.folder.root.rglob("*") if path.is_file()]
    assert not [path for path in files if b"very-secret-value" in path.read_bytes()]
    private = [path for path in files if path.name != "launch-best.sh"]
    assert not [path for path in private if path.stat().st_mode & 0o077]
    told("a token in the environment", "all", "in no file; files private")
