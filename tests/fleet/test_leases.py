"""A lease ends the trial of a worker that cannot keep it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from autotune.fleet.board import Board
from autotune.fleet.claims import BoardLost, Right
from autotune.fleet.leases import TRUST, Leases
from autotune.server.cancel import CancelFlag

LEASE_S = 60.0
RIGHT = Right(number=3, token=7, worker="here/1")


class FakeBoard:
    """Answers as it is told to."""

    def __init__(self) -> None:
        self.reachable = True
        self.kept = True

    def renew(self, rights: Sequence[Right]) -> set[int]:
        """See ``Board.renew``."""
        if not self.reachable:
            raise BoardLost("no route")
        return {right.number for right in rights} if self.kept else set()


class Hours:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.board = FakeBoard()
        self.wish = CancelFlag()
        self.leases = Leases(cast(Board, self.board), LEASE_S, self.wish, lambda: self.now_s)

    def later(self, seconds: float) -> str | None:
        """Renew after that time; the reason to end."""
        self.now_s += seconds
        self.leases.renew()
        return self.leases.reason()


def test_a_lease_that_is_renewed_ends_nothing() -> None:
    """Time alone is no reason, nor is a worker that runs nothing."""
    hours = Hours()
    assert hours.later(10 * LEASE_S) is None
    hours.leases.keep(RIGHT, hours.now_s)
    assert [hours.later(0.3 * LEASE_S) for _ in range(9)] == [None] * 9


def test_silence_of_the_database_ends_the_trial_before_the_lease_is_over() -> None:
    """Shorter silences are borne; once given up, an answer does not bring it back."""
    hours = Hours()
    hours.leases.keep(RIGHT, hours.now_s)
    hours.board.reachable = False
    assert hours.later((TRUST - 0.1) * LEASE_S) is None
    assert "could not be renewed" in (hours.later(0.2 * LEASE_S) or "")
    assert hours.now_s < LEASE_S
    hours.board.reachable = True
    assert "could not be renewed" in (hours.later(1.0) or "")


def test_a_worker_that_was_frozen_sees_it_without_an_answer() -> None:
    """Whoever asks first after it wakes hears of it, before any renewal."""
    hours = Hours()
    hours.leases.keep(RIGHT, hours.now_s)
    hours.now_s += 2 * LEASE_S
    assert hours.leases.reason() is not None


def test_a_trial_that_was_taken_over_ends_and_the_next_one_is_free_of_it() -> None:
    """The loss belongs to one claim."""
    hours = Hours()
    hours.leases.keep(RIGHT, hours.now_s)
    hours.board.kept = False
    assert hours.later(1.0) == "another worker took this trial over"
    hours.leases.drop()
    assert hours.leases.reason() is None
    hours.board.kept = True
    hours.leases.keep(RIGHT, hours.now_s)
    assert hours.later(1.0) is None


def test_a_persons_wish_is_heard_first() -> None:
    """A signal ends a trial whatever its lease does."""
    hours = Hours()
    hours.leases.keep(RIGHT, hours.now_s)
    hours.wish.cancel("ended by SIGTERM")
    assert hours.leases.reason() == "ended by SIGTERM"
