"""``autotune watch``: the state of a night from its files alone, without a lock."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from autotune.brief import Brief
from autotune.errors import InputError
from autotune.events import Event, NightEnded, NightStarted, Note, PhaseEntered, TrialPlaced, TrialSettled, TrialStarted
from autotune.overview import Overview, overview
from autotune.values import Config, Value

KEPT_NOTES = 4
TAIL_BYTES = 1 << 20


class Current(Value, frozen=True, kw_only=True):
    """A trial that runs: since when, in which phase, and ``where`` if there are several places."""

    trial: int
    role: str
    config: Config
    where: str = ""
    phase: str = ""
    trial_s: float = 0.0
    phase_s: float = 0.0


class Watched(Value, frozen=True, kw_only=True):
    """``now`` has the trials that run, by number."""

    seen: Overview
    now: tuple[Current, ...] = ()
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
    started: dict[int, tuple[datetime, TrialStarted]] = {}
    places: dict[int, str] = {}
    phases: dict[int, tuple[datetime, str]] = {}
    notes: list[str] = []
    ended = ""
    for logged in events:
        match logged.event:
            case NightStarted():
                started, ended = {}, ""
            case TrialStarted(number=number):
                started[number] = (logged.at, logged.event)
                phases.pop(number, None)
                ended = ""
            case TrialPlaced(number=number, where=where):
                places[number] = where
            case PhaseEntered(number=number, phase=name):
                phases[number] = (logged.at, name)
            case Note(text=text):
                notes.append(text)
            case NightEnded(reason=why):
                started, ended = {}, why
            case TrialSettled(number=number):
                started.pop(number, None)
            case _:
                pass
    running = started if seen.running is not None else {}
    current = tuple(
        _current(at, event, (places.get(number, event.where), phases.get(number)), now)
        for number, (at, event) in sorted(running.items())
    )
    return Watched(seen=seen, now=current, notes=tuple(notes[-KEPT_NOTES:]), ended=ended)


def _current(
    at: datetime, event: TrialStarted, seen: tuple[str, tuple[datetime, str] | None], now: datetime
) -> Current:
    where, phase = seen
    return Current(
        trial=event.number,
        role=event.role,
        config=event.config,
        where=where,
        phase=phase[1] if phase else "",
        trial_s=max(0.0, (now - at).total_seconds()),
        phase_s=max(0.0, (now - phase[0]).total_seconds()) if phase else 0.0,
    )
