"""What a night says while it runs: frozen events, rendered at the edge and appended to events.jsonl."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from autotune.values import Config, Outcome, Timings, Value

Phase = Literal["prepare", "start", "read back", "warm-up", "load", "live", "stop"]
"""``live``: a load at a running limit that was set while the server ran, entered once for each of them."""


def count(number: int, what: str, many: str = "") -> str:
    """``1 repeat``, ``2 repeats``; ``many`` where an s does not do."""
    return f"{number} {what if number == 1 else many or what + 's'}"


class NightStarted(Value, frozen=True, kw_only=True, tag="night_started"):
    """``settled`` trials were found on disk; the night ends at ``trials`` or after ``budget_s``."""

    study: str
    settled: int
    trials: int
    budget_s: float
    folder: str


class Note(Value, frozen=True, kw_only=True, tag="note"):
    """Something a reader of the log wants to know: a frozen flag, an orphan that was stopped, new bounds."""

    text: str
    level: Literal["info", "warning"] = "info"


class TrialStarted(Value, frozen=True, kw_only=True, tag="trial_started"):
    """``role`` is baseline, search, repeat or confirm; ``eta_s`` the expected time to the end of the night; ``where``
    the slot or host that runs it, if there are several.
    """

    number: int
    role: str
    config: Config
    eta_s: float | None = None
    where: str = ""


class TrialPlaced(Value, frozen=True, kw_only=True, tag="trial_placed"):
    """A trial that waited for a place has one: the node of a cluster."""

    number: int
    where: str


class PhaseEntered(Value, frozen=True, kw_only=True, tag="phase"):
    """A trial goes on to its next phase."""

    number: int
    phase: Phase


class LoadProgress(Value, frozen=True, kw_only=True, tag="load_progress"):
    """Seen every quarter of a second during a load."""

    number: int
    elapsed_s: float
    throughput_tok_s: float
    in_flight: int
    completed: int
    failed: int
    warm: bool


class TrialSettled(Value, frozen=True, kw_only=True, tag="trial_settled"):
    """``best`` and ``baseline`` are scores so far; None before there is one. ``role`` as in ``TrialStarted``."""

    number: int
    role: str = "search"
    config: Config
    outcome: Outcome
    timings: Timings
    best: float | None = None
    baseline: float | None = None


class NightEnded(Value, frozen=True, kw_only=True, tag="night_ended"):
    """``reason`` in words; ``confirmed`` the verdict in words, empty without a confirmation; ``script`` is the exported
    launch script, where there is one.
    """

    reason: str
    settled: int
    confirmed: str = ""
    best_number: int | None = None
    script: str | None = None


Event = NightStarted | Note | TrialStarted | TrialPlaced | PhaseEntered | LoadProgress | TrialSettled | NightEnded
Listener = Callable[[Event], None]
