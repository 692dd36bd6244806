"""Renders the events of a night: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from types import TracebackType

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.status import Status

from autotune.cli.text import outcome_text, params_text, span
from autotune.events import (
    Event,
    LoadProgress,
    NightEnded,
    NightStarted,
    Note,
    PhaseEntered,
    TrialPlaced,
    TrialSettled,
    TrialStarted,
)


class _Console(Console):
    """Rich would end the process, and swap stdout for /dev/null, when whoever reads stderr is gone."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Narrator:
    """Hears events, prints to stderr. With ``json`` each event but load progress is a line of JSON."""

    def __init__(self, *, json: bool = False, console: Console | None = None) -> None:
        self._json = json
        self._console = console or _Console(stderr=True, highlight=False, soft_wrap=True)
        self._status = Status("", console=self._console) if self._console.is_terminal and not json else None
        self._trials: dict[int, str] = {}
        self._phases: dict[int, str] = {}
        self._begun_s: dict[int, float] = {}
        self._ends_at: float | None = None
        self._standing = ""

    def __enter__(self) -> Narrator:
        if self._status:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_status()

    def _stop_status(self) -> None:
        if self._status:
            with contextlib.suppress(OSError):  # it gives back the standard streams even so
                self._status.stop()

    def hear(self, event: Event) -> None:
        """A terminal that is gone does not end a night."""
        try:
            self._render(event)
        except OSError:
            self._stop_status()
            self._status = None

    def _render(self, event: Event) -> None:
        if self._json:
            if not isinstance(event, LoadProgress):
                self._console.file.write(msgspec.json.encode(event).decode() + "\n")
                self._console.file.flush()
            return
        for line in self._lines(event):
            self._console.print(line)
        if self._status and self._trials:
            self._status.update(self._live_line())

    def _lines(self, event: Event) -> list[str]:
        match event:
            case NightStarted():
                head = f"study {event.study}: {event.settled} of {event.trials} trials settled, budget "
                return [escape(f"{head}{span(event.budget_s)}, results in {event.folder}")]
            case Note(level="warning"):
                return [f"[yellow]note[/yellow]  {escape(event.text)}"]
            case Note():
                return [f"[dim]note  {escape(event.text)}[/dim]"]
            case TrialStarted():
                return self._begin(event)
            case TrialPlaced():
                self._trials[event.number] = f"{event.where}: {self._trials.get(event.number, '')}"
                return []
            case PhaseEntered():
                self._phases[event.number] = event.phase
                return []
            case LoadProgress():
                what = "load" if event.warm else "warm-up"
                self._phases[event.number] = f"{what} {event.throughput_tok_s:,.0f} tok/s"
                return []
            case TrialSettled():
                self._trials.pop(event.number, None)
                return [self._settled(event)]
            case NightEnded():
                self._trials.clear()
                return []

    def _begin(self, event: TrialStarted) -> list[str]:
        what = event.role if event.role != "search" else params_text(event.config)
        self._trials[event.number] = f"trial {event.number} {what}"
        self._phases[event.number] = ""
        self._begun_s[event.number] = now_s = time.monotonic()
        self._ends_at = None if event.eta_s is None else now_s + event.eta_s
        return []

    def _settled(self, event: TrialSettled) -> str:
        name = "baseline" if not event.config.params else params_text(event.config)
        took = span(event.timings.total_s)
        if event.best is not None and event.baseline:
            gain = 100 * (event.best / event.baseline - 1)
            self._standing = f"best {event.best:,.0f} ({gain:+.1f} %)"
        what = "confirm" if event.role == "confirm" else "trial"
        line = f"{what} {event.number:<3} {outcome_text(event.outcome):<34} {took:>7}  {self._standing:<24} {name}"
        return escape(line)

    def _live_line(self) -> str:
        now_s = time.monotonic()
        parts = [
            part
            for number, trial in sorted(self._trials.items())
            for part in (trial, self._phases[number], f"{span(now_s - self._begun_s[number])} elapsed")
        ]
        if self._ends_at is not None:
            parts.append(f"night ends in {span(max(0.0, self._ends_at - now_s))}")
        if self._standing:
            parts.append(self._standing)
        return escape("  ".join(parts))
