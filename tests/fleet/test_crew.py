"""Who runs the trials: order, ends, and what one broken trial means for the others."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import msgspec
import pytest

from autotune.errors import NightStopped
from autotune.fleet import crew as module
from autotune.fleet.crew import Alone, SlotCrew
from autotune.fleet.slots import Slot
from autotune.guidance import Guide
from autotune.rig import Rig
from autotune.trial import Ticket
from autotune.values import Config, Interrupted, Timings, TrialResult
from tests.nights import Night, rig, score

LIMIT_S = 20.0


class Bench:
    """Trials that end when the test says so."""

    def __init__(self) -> None:
        self.go = {number: threading.Event() for number in range(4)}
        self.cpus: dict[int, set[int]] = {}
        self.breaks: set[int] = set()

    def run_trial(self, rig: Rig, ticket: Ticket, guide: Guide) -> TrialResult:
        """In place of ``autotune.trial.run_trial``."""
        self.cpus[ticket.number] = os.sched_getaffinity(0)
        end_s = time.monotonic() + LIMIT_S
        while not self.go[ticket.number].wait(0.01):
            assert time.monotonic() < end_s
            if reason := rig.waiting.cancel.reason():
                return settled(ticket, reason)
        if ticket.number in self.breaks:
            raise NightStopped("the disk is full")
        return settled(ticket)


def settled(ticket: Ticket, reason: str = "") -> TrialResult:
    """A result, of a trial that was cut off where there is a reason."""
    outcome = Interrupted(reason=reason) if reason else score(1000.0)
    return TrialResult(
        number=ticket.number, config=ticket.config, outcome=outcome, timings=Timings(), started_at="", finished_at=""
    )


def ticket(number: int) -> Ticket:
    """A search trial."""
    return Ticket(number=number, config=Config(params={"max_running_requests": 64 + number}))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Trials that are played."""
    found = Bench()
    monkeypatch.setattr(module, "run_trial", found.run_trial)
    return found


@pytest.fixture
def shared(tmp_path: Path) -> Rig:
    """What all slots share."""
    return rig(Night().write(tmp_path))


def slots(shared: Rig, count: int, cpus: tuple[int, ...] = ()) -> SlotCrew:
    """A crew of ``count`` slots."""
    return SlotCrew([msgspec.structs.replace(shared, slot=Slot(number=i, cpus=cpus)) for i in range(count)])


def test_alone_runs_in_the_callers_thread(bench: Bench, shared: Rig) -> None:
    """One trial at a time, begun when it is waited for."""
    crew = Alone(shared)
    bench.go[0].set()
    crew.start(ticket(0))
    assert not crew.room
    assert crew.wait().beside == 0
    assert crew.room


def test_whoever_ends_first_is_given_first(bench: Bench, shared: Rig) -> None:
    """Slots do not wait for each other, and a freed slot takes the next."""
    with slots(shared, 2) as crew:
        crew.start(ticket(0))
        crew.start(ticket(1))
        bench.go[1].set()
        found = crew.wait()
        assert (found.number, found.beside) == (1, 1)
        assert crew.place == "slot 1"
        crew.start(ticket(2))
        bench.go[2].set()
        assert crew.wait().number == 2
        bench.go[0].set()
        assert crew.wait().number == 0
        assert crew.running == ()


def test_a_broken_assumption_ends_the_others_and_loses_none(bench: Bench, shared: Rig) -> None:
    """The night stops after the trials beside it have ended as interrupted."""
    bench.breaks.add(0)
    with slots(shared, 3) as crew:
        for number in range(3):
            crew.start(ticket(number))
        bench.go[0].set()
        cut = [crew.wait(), crew.wait()]
        assert {result.number for result in cut} == {1, 2}
        assert all(isinstance(result.outcome, Interrupted) for result in cut)
        assert not crew.room
        with pytest.raises(NightStopped, match="disk is full"):
            crew.wait()


def test_leaving_ends_what_runs(bench: Bench, shared: Rig) -> None:
    """An error of the driver leaves no trial behind."""

    def erring_driver() -> None:
        with slots(shared, 2) as crew:
            crew.start(ticket(0))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        erring_driver()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("slot")]


def test_a_slots_processors_are_those_of_its_trials_alone(bench: Bench, shared: Rig) -> None:
    """The affinity is the thread's: the driver keeps its own."""
    before = os.sched_getaffinity(0)
    one = min(before)
    bench.go[0].set()
    with slots(shared, 1, (one,)) as crew:
        crew.start(ticket(0))
        crew.wait()
    assert bench.cpus[0] == {one}
    assert os.sched_getaffinity(0) == before
