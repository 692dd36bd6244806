"""Tells the user's own command what happened: a new best, the end of a night, a stop. It can never harm the night."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from autotune.brief import Brief
from autotune.errors import AutotuneError
from autotune.events import Event, Listener, NightEnded, Note, TrialSettled
from autotune.rig import now_text
from autotune.server.cancel import Waiting
from autotune.study.file import Notify
from autotune.values import Measured, ParamValue, Value

LAST_WORDS_S = 5.0
"""How long, beyond the time limit of one command, the end of a night waits for messages under way."""


class Message(Value, frozen=True, kw_only=True):
    """What the command reads as one line of JSON on its standard input; its last argument is ``event``.

    ``end``: the night ended by itself; ``stop``: a signal or a broken assumption ended it, ``reason`` says which.
    ``score`` and ``baseline`` are values of ``metric``.
    """

    event: str
    study: str
    at: str
    folder: str
    reason: str = ""
    metric: str = ""
    settled: int | None = None
    trial: int | None = None
    score: float | None = None
    baseline: float | None = None
    params: dict[str, ParamValue] = {}
    script: str | None = None


class Notifier:
    """Runs the command of ``[notify]`` in a thread of its own, one message after the other.

    ``send`` returns at once. What went wrong is told to ``complain``, as a sentence without the command's output,
    which may hold secrets.
    """

    def __init__(self, spec: Notify, complain: Callable[[str], None]) -> None:
        self._spec = spec
        self._complain = complain
        self._messages: queue.Queue[Message | None] = queue.Queue(maxsize=64)
        self._thread: threading.Thread | None = None

    def send(self, message: Message) -> None:
        """Hand a message over; one that nobody asked for, or that comes while 64 are waiting, is dropped."""
        if not self._spec.command or message.event not in self._spec.events:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="notify", daemon=True)
            self._thread.start()
        try:
            self._messages.put_nowait(message)
        except queue.Full:
            self._complain("notify: the command is too slow, a message was dropped")

    def close(self, hurry: bool = False) -> None:
        """Wait, within limits, for messages under way; in a hurry for none."""
        if self._thread is None:
            return
        try:
            self._messages.put_nowait(None)
        except queue.Full:
            return
        under_way = self._messages.qsize() + 1
        self._thread.join(0.0 if hurry else under_way * self._spec.timeout_s + LAST_WORDS_S)

    def _work(self) -> None:
        while (message := self._messages.get()) is not None:
            try:
                trouble = run_hook(self._spec, message)
            except Exception as error:  # Whatever a command does, the night goes on.
                trouble = repr(error)
            if trouble:
                self._complain(f"notify: {self._spec.command[0]} ({message.event}): {trouble}")


@contextlib.contextmanager
def heralded(brief: Brief, say: Listener, waiting: Waiting) -> Iterator[Listener]:
    """A listener that hands events on to ``say`` and what matters to the user's command; waits for it at the end."""

    def complain(text: str) -> None:
        with contextlib.suppress(Exception):
            say(Note(text=text, level="warning"))

    notifier = Notifier(brief.study.notify, complain)
    herald = Herald(brief, notifier, lambda: waiting.cancel.reason() is not None)

    def both(event: Event) -> None:
        say(event)
        herald.hear(event)

    try:
        yield both
    except AutotuneError as error:
        herald.stopped(str(error))
        raise
    finally:
        notifier.close(hurry=waiting.cancel.urgent())


class Herald:
    """Turns the events of a night into messages."""

    def __init__(self, brief: Brief, notifier: Notifier, cancelled: Callable[[], bool]) -> None:
        self._notifier = notifier
        self._cancelled = cancelled
        self._best: float | None = None
        self._blank = Message(
            event="",
            study=brief.study.name,
            at="",
            folder=str(brief.folder.root),
            metric=brief.study.objective.metric,
        )

    def hear(self, event: Event) -> None:
        match event:
            case TrialSettled(outcome=Measured(score=score)) if score.value == event.best and event.best != self._best:
                self._best = event.best
                self._send(
                    "new_best",
                    trial=event.number,
                    score=event.best,
                    baseline=event.baseline,
                    params=event.config.params,
                )
            case NightEnded():
                self._send(
                    "stop" if self._cancelled() else "end",
                    reason=event.reason,
                    settled=event.settled,
                    trial=event.best_number,
                    score=self._best,
                    script=event.script,
                )

    def stopped(self, reason: str) -> None:
        """An assumption of the night broke."""
        self._send("stop", reason=reason)

    def _send(self, name: str, **facts: Any) -> None:
        self._notifier.send(msgspec.structs.replace(self._blank, event=name, at=now_text(), **facts))


def run_hook(spec: Notify, message: Message) -> str:
    """Run the command for one message, without a shell; what went wrong, or an empty text. Returns within its limit."""
    argv = [*spec.command, message.event]
    silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True, **silent)
    except (OSError, ValueError) as error:
        return f"cannot be run ({error})"
    try:
        process.communicate(msgspec.json.encode(message) + b"\n", timeout=spec.timeout_s)
    except subprocess.TimeoutExpired:
        return f"ended after notify.timeout_s = {spec.timeout_s:g}"
    finally:
        _end_group(process)
    return f"exit code {process.returncode}" if process.returncode else ""


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """A command that is out of time, and its children; what one that ended by itself left running is its own affair."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
