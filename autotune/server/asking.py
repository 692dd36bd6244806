"""Running a wrapper's own commands, and what they say of a server that another program holds."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from autotune.server.clock import Clock, SystemClock
from autotune.server.proctable import mark_of, read_row
from autotune.wrappers import Wrapping
from autotune.wrappers.base import Argv

COMMAND_S = 30.0
"""How long one command may take: a batch system that is busy answers late."""
_INSIDE_S = 5.0
_POLL_S = 0.05


class Unreachable(Exception):
    """A wrapper's command could not be run or failed: what is left is not known. The message says which and why."""


def find(there: Wrapping, mark: str, clock: Clock | None = None) -> tuple[str, ...]:
    """Names of what is left of the marked servers. Raises Unreachable."""
    outputs = (run(argv, clock or SystemClock()) for argv in there.find(mark))
    return tuple(dict.fromkeys(name for output in outputs for name in there.left(output, mark)))


def run(argv: Argv, clock: Clock, give_up: Callable[[], bool] = lambda: False, limit_s: float = COMMAND_S) -> str:
    """The standard output of a command that succeeded. Raises Unreachable, also when it was given up.

    In a session of its own: a Ctrl-C at the terminal is for the tuner, which ends it when it wants to.
    """
    shown = " ".join(word for word in argv[:2] if not word.startswith("-"))
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
        except OSError as error:
            raise Unreachable(f"{shown}: {error.strerror}") from error
        end_s = clock.now() + limit_s
        try:
            while process.poll() is None and clock.now() < end_s and not give_up():
                clock.sleep(_POLL_S)
        finally:
            if (code := process.poll()) is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        out.seek(0)
        err.seek(0)
        told = err.read().decode(errors="replace").strip().rpartition("\n")[2]
        if code is None:
            raise Unreachable(f"{shown}: no answer")
        if code != 0:
            told = told or f"exit code {code}"
            raise Unreachable(told if told.startswith(f"{shown}:") else f"{shown}: {told}")
        return out.read().decode(errors="replace")


class Inside:
    """The first process of a container, as this machine numbers it, once its runtime tells.

    A runtime in a virtual machine has numbers of its own: one counts only if the kernel here says that it is the
    container's, by the control group or by the mark.
    """

    def __init__(self, there: Wrapping | None, mark: str) -> None:
        self.root: tuple[int, int] | None = None
        self._argv = there.inside(mark) if there else None
        self._mark = mark

    @property
    def asks(self) -> bool:
        """Whether there is a container to ask for."""
        return self._argv is not None

    def ask(self) -> None:
        """Find ``root``, its pid and start, unless it is known. Runs a command."""
        if self.root is None and self._argv:
            self.root = self._proven(self._argv)

    def _proven(self, argv: Argv) -> tuple[int, int] | None:
        try:
            pid, _, group = run(argv, SystemClock(), limit_s=_INSIDE_S).strip().partition(" ")
        except Unreachable:  # there is no container yet
            return None
        row = read_row(int(pid)) if pid.isdecimal() and int(pid) > 1 else None
        if row is None or not (mark_of(row.pid) == self._mark or (group and group in _groups(row.pid))):
            return None
        return row.identity


def _groups(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return ""
