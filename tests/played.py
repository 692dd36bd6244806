"""Nights whose trials are played, not run: ``run_trial`` is replaced by a function of the configuration."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from autotune.brief import read_brief
from autotune.events import Event, Note
from autotune.fleet import crew
from autotune.guidance import NO_GUIDE, Guide
from autotune.night import Night, open_night
from autotune.rig import Rig
from autotune.server.cancel import CancelFlag, Waiting
from autotune.server.clock import FakeClock
from autotune.trial import Ticket
from autotune.values import Outcome, Timings, TrialResult

from .nights import score

TRIAL_S = 100.0
Play = Callable[[Ticket, float], Outcome]
"""What becomes of a ticket that is run so many seconds into the night."""


class Killed(BaseException):
    """Stands for kill -9: nothing of the tuner runs on."""


def linear(ticket: Ticket, now_s: float) -> Outcome:
    """More running requests, more tokens; the baseline has 24."""
    limit = ticket.config.params.get("max_running_requests", 24)
    return score(1000.0 + float(limit))


class Stage:
    """Plays trials of one study and keeps what was asked and said."""

    def __init__(self, study: Path, monkeypatch: pytest.MonkeyPatch, play: Play = linear) -> None:
        self.study = study
        self.play = play
        self.asked: list[tuple[str, Ticket]] = []
        self.heard: list[Event] = []
        self.cancel = CancelFlag()
        self._began = datetime(2026, 1, 1, tzinfo=UTC)
        monkeypatch.setattr(crew, "run_trial", self.run_trial)

    @property
    def notes(self) -> list[str]:
        """All notes, in order."""
        return [event.text for event in self.heard if isinstance(event, Note)]

    def asked_of(self, role: str) -> list[int]:
        """Numbers of the trials with this role."""
        return [ticket.number for _, ticket in self.asked if ticket.role == role]

    @contextmanager
    def night(self, source: Path | None = None) -> Iterator[Night]:
        """The study, opened; ``source`` is another one to start from."""
        waiting = Waiting(clock=FakeClock(), cancel=self.cancel)
        with open_night(read_brief(self.study), self.heard.append, waiting, source) as n:
            yield n

    def run_trial(self, rig: Rig, ticket: Ticket, guide: Guide = NO_GUIDE) -> TrialResult:
        """In place of ``autotune.trial.run_trial``; time is counted by the settled trials of the folder."""
        folder = rig.records.folder.root
        now_s = TRIAL_S * len(rig.records.results())
        self.asked.append((folder.name, ticket))
        outcome = self.play(ticket, now_s)
        rig.records.write_plan(ticket.number, rig.plan(ticket.config, port=30000))
        at = [(self._began + timedelta(seconds=s)).isoformat() for s in (now_s, now_s + TRIAL_S)]
        return TrialResult(
            number=ticket.number,
            config=ticket.config,
            outcome=outcome,
            timings=Timings(total_s=TRIAL_S),
            started_at=at[0],
            finished_at=at[1],
            repeat_of=ticket.repeat_of,
        )


def killed_at(play: Play, count: int) -> Play:
    """``play``, until the tuner is killed in trial ``count`` (from 1)."""
    counter = itertools.count(1)

    def cut(ticket: Ticket, now_s: float) -> Outcome:
        if next(counter) == count:
            raise Killed
        return play(ticket, now_s)

    return cut


def without_numbers(results: list[TrialResult]) -> list[TrialResult]:
    """Results in order, as if none had been cut off."""
    return [msgspec.structs.replace(r, number=0, started_at="", finished_at="") for r in results]
