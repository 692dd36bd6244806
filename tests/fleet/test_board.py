"""The board keeps its promises on a real PostgreSQL."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from autotune.fleet.board import Board
from autotune.fleet.claims import BoardLost, Right, Terms
from autotune.trial import Ticket
from autotune.values import Config, Interrupted, Timings, TrialResult
from tests.fleet.database import Database
from tests.nights import score

pytestmark = pytest.mark.slow

TERMS = Terms(fingerprint={"engine.kind": "sglang"}, hardware={"gpu": "H200"})
LEASE_S = 60.0
names = (f"study-{number}" for number in itertools.count())


@pytest.fixture
def board(postgres: Database) -> Iterator[Board]:
    """An empty board of a study of its own."""
    with closing(Board(postgres.url, next(names), LEASE_S)) as made:
        made.create()
        made.join(TERMS)
        yield made


def take(board: Board, number: int, worker: str = "a") -> Right:
    """Claim a trial."""
    with board.hold() as held:
        return held.claim(Ticket(number=number, config=Config(params={"x": number})), worker)


def tell(board: Board, right: Right, value: float = 1.0) -> bool:
    """Settle it with that score."""
    with board.hold() as held:
        return held.settle(right, result(right.number, value))


def result(number: int, value: float) -> TrialResult:
    """A measured trial."""
    return TrialResult(
        number=number,
        config=Config(params={"x": number}),
        outcome=score(value),
        timings=Timings(),
        started_at="",
        finished_at="",
    )


def lose(postgres: Database, number: int) -> None:
    """Let the lease of every trial with this number run out."""
    postgres.ask(f"UPDATE autotune_claims SET lease_until = now() - interval '1 s' WHERE number = {number}")


def told(board: Board) -> list[TrialResult]:
    """All that is settled, in order."""
    with board.hold() as held:
        return [each.result for each in held.told_after(0)]


def fail_in_a_turn(board: Board) -> None:
    """Claim a trial, and stumble."""
    with board.hold() as held:
        held.claim(Ticket(number=0, config=Config(params={})), "a")
        raise ZeroDivisionError


def freeze_in_a_turn(board: Board) -> None:
    """Claim a trial, and sleep for three seconds before the commit."""
    with board.hold() as held:
        held.claim(Ticket(number=0, config=Config(params={})), "a")
        time.sleep(3.0)
        held.live()


def test_whoever_comes_first_sets_the_terms(board: Board) -> None:
    """Later workers hear them, and do not change them."""
    assert board.join(Terms(fingerprint={}, hardware={})) == TERMS
    assert board.exists()


def test_a_trial_is_told_once_and_telling_it_again_is_no_other_telling(board: Board) -> None:
    """An answer that was lost on the way may be asked for again; another result may not."""
    right = take(board, 0)
    assert [claim.number for claim in board.live()] == [0]
    assert tell(board, right)
    assert tell(board, right)
    assert not tell(board, right, 2.0)
    assert told(board) == [result(0, 1.0)]
    assert board.live() == []


def test_a_worker_whose_lease_ran_out_is_fenced_once_it_was_taken_over(board: Board, postgres: Database) -> None:
    """Until then it may still tell: nothing is lost for a delay that hurt nobody."""
    late, lost = take(board, 0), take(board, 1)
    lose(postgres, 0)
    assert tell(board, late)
    lose(postgres, 1)
    with board.hold() as held:
        assert [claim.number for claim in held.expire("b")] == [1]
    assert board.renew([lost]) == set()
    assert not tell(board, lost)
    settled = told(board)
    assert [r.number for r in settled] == [0, 1]
    assert isinstance(settled[1].outcome, Interrupted)


def test_a_lease_is_renewed_only_for_its_token(board: Board, postgres: Database) -> None:
    """Somebody else's trial of the same number is not kept alive by mistake."""
    right = take(board, 0)
    lose(postgres, 0)
    assert board.renew([Right(number=0, token=right.token + 1000, worker="b")]) == set()
    assert board.renew([right]) == {0}
    assert board.live()[0].left_s > LEASE_S / 2


def test_claims_of_a_worker_that_runs_nothing_are_lost(board: Board) -> None:
    """An answer to a claim that never arrived leaves no trial behind that nobody runs."""
    take(board, 0, "a")
    take(board, 1, "b")
    with board.hold() as held:
        assert [claim.number for claim in held.expire("a")] == [0]


def test_nothing_of_a_turn_that_fails_comes_to_pass(board: Board) -> None:
    """All or nothing."""
    with pytest.raises(ZeroDivisionError):
        fail_in_a_turn(board)
    assert board.live() == []


def test_one_worker_at_a_time_holds_a_study(board: Board) -> None:
    """The second waits until the first lets go."""
    order: list[str] = []

    def second() -> None:
        with board.hold():
            order.append("second")

    with board.hold():
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.5)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_worker_frozen_while_it_holds_the_study_is_cut_off(postgres: Database) -> None:
    """After a lease others go on, and what it had begun is undone."""
    with closing(Board(postgres.url, next(names), 1.0)) as board:
        board.create()
        board.join(TERMS)
        with pytest.raises(BoardLost):
            freeze_in_a_turn(board)
        take(board, 0, "b")
        assert [claim.worker for claim in board.live()] == ["b"]
