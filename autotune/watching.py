"""``autotune watch``: the state of a night from its files alone, without a lock."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from autotune.brief import Brief
from autotune.errors import InputError
from autotune.events import Event, NightEnded, Note, PhaseEntered, TrialSettled, TrialStarted
from autotune.overview import Overview, overview
from autotune.values import Config, Value

KEPT_NOTES = 4
TAIL_BYTES = 1 << 20


class Watched(Value, frozen=True, kw_only=True):
    """``trial``, ``role``, ``config``, ``phase`` and ``phase_s`` are of the trial that runs, None where none does."""

    seen: Overview
    trial: int | None = None
    role: str = ""
    config: Config | None = None
    phase: str = ""
    trial_s: float = 0.0
    phase_s: float = 0.0
    notes: tuple[str, ...] = ()
    ended: str = ""


class Logged(Value, frozen=True, kw_only=True):
    """One line of events.jsonl."""

    at: datetime
    event: Event


def look(brief: Brief, now: datetime | None = None) -> Watched:
    """How the study stands at this moment. Raises InputError for a study that has not begun."""
    if not brief.folder.exists:
        raise InputError(f"{brief.path}: nothing to watch in {brief.folder.root}; run `autotune tune {brief.path}`")
    return assemble(overview(brief), read_events(brief.folder.events), now or datetime.now(UTC))


def read_events(path: Path) -> list[Logged]:
    """The last events; a line that is being written, or of another version, is left out."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return []
    return [logged for line in lines if (logged := _parsed(line)) is not None]


def _parsed(line: bytes) -> Logged | None:
    try:
        fields = msgspec.json.decode(line, type=dict[str, object])
        at = datetime.fromisoformat(str(fields.pop("at")))
        return Logged(at=at, event=msgspec.convert(fields, Event))
    except (msgspec.MsgspecError, KeyError, ValueError):
        return None


def assemble(seen: Overview, events: Iterable[Logged], now: datetime) -> Watched:
    """What runs now, and the last notes. A night without a live tuner runs nothing."""
    started: tuple[datetime, TrialStarted] | None = None
    phase: tuple[datetime, str] | None = None
    notes: list[str] = []
    ended = ""
    for logged in events:
        match logged.event:
            case TrialStarted():
                started, phase, ended = (logged.at, logged.event), None, ""
            case PhaseEntered(phase=name):
                phase = (logged.at, name)
            case Note(text=text):
                notes.append(text)
            case NightEnded(reason=why):
                started, ended = None, why
            case TrialSettled():
                started = None
            case _:
                pass
    last = tuple(notes[-KEPT_NOTES:])
    if started is None or seen.running is None:
        return Watched(seen=seen, notes=last, ended=ended)
    return Watched(
        seen=seen,
        trial=started[1].number,
        role=started[1].role,
        config=started[1].config,
        phase=phase[1] if phase else "",
        trial_s=max(0.0, (now - started[0]).total_seconds()),
        phase_s=max(0.0, (now - phase[0]).total_seconds()) if phase else 0.0,
        notes=last,
    )
