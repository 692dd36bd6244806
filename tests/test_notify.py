"""The user's own command hears of a night, and cannot harm it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec

from autotune.notify import Message, Notifier, run_hook
from autotune.study.file import Notify

MESSAGE = Message(event="end", study="s", at="now", folder="/f", score=2.0)


def script(tmp_path: Path, body: str) -> list[str]:
    path = tmp_path / "hook.py"
    path.write_text(f"import sys, pathlib, time\nout = pathlib.Path({str(tmp_path / 'out')!r})\n{body}\n")
    return [sys.executable, str(path)]


def test_the_command_gets_event_and_json(tmp_path: Path) -> None:
    """The event is the last argument, the message one line on standard input."""
    command = script(tmp_path, "out.write_text(sys.argv[-1] + chr(10) + sys.stdin.read())")
    assert run_hook(Notify(command=command, timeout_s=60), MESSAGE) == ""
    event, line = (tmp_path / "out").read_text().splitlines()
    assert event == "end"
    assert msgspec.json.decode(line, type=Message) == MESSAGE


def test_a_command_that_hangs_is_ended(tmp_path: Path) -> None:
    """With its limit, not with its sleep."""
    begun_s = time.monotonic()
    said = run_hook(Notify(command=script(tmp_path, "time.sleep(600)"), timeout_s=0.3), MESSAGE)
    assert "notify.timeout_s" in said
    assert time.monotonic() - begun_s < 60


def test_a_command_that_reads_nothing_is_fine(tmp_path: Path) -> None:
    """A closed standard input is the command's own affair."""
    assert run_hook(Notify(command=["true"]), MESSAGE) == ""


def test_failures_are_told_without_output(tmp_path: Path) -> None:
    """What the command prints may hold secrets: only its exit code is told."""
    command = script(tmp_path, "print('secret', file=sys.stderr); sys.exit(3)")
    assert run_hook(Notify(command=command, timeout_s=60), MESSAGE) == "exit code 3"
    assert "cannot be run" in run_hook(Notify(command=["/nonexistent"]), MESSAGE)


def test_only_wanted_events_are_sent(tmp_path: Path) -> None:
    """Others, and all of them without a command, start no process."""
    command = script(tmp_path, "out.open('a').write(sys.argv[-1])")
    said: list[str] = []
    notifier = Notifier(Notify(command=command, events=("stop",), timeout_s=60), said.append)
    notifier.send(MESSAGE)
    notifier.send(msgspec.structs.replace(MESSAGE, event="stop"))
    notifier.close()
    assert (tmp_path / "out").read_text() == "stop"
    assert said == []


def test_complaints_arrive() -> None:
    """Whatever goes wrong becomes one sentence."""
    said: list[str] = []
    notifier = Notifier(Notify(command=["false"], timeout_s=60), said.append)
    notifier.send(MESSAGE)
    notifier.close()
    assert said == ["notify: false (end): exit code 1"]
