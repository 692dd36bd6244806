"""Tests of the schedules, on a clock of numbers."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.load.arrival import ClosedLoop, OpenLoop, schedule_for, share
from autotune.study.file import Workload


def test_closed_loop_fills_every_place() -> None:
    """A closed loop asks for as many requests as places are free, due now."""
    loop = ClosedLoop(4)
    assert loop.take(0.0, 0) == [0.0] * 4
    assert loop.take(1.5, 3) == [1.5]
    assert loop.take(1.5, 4) == []
    assert loop.wait_s(1.5) == math.inf


def test_open_loop_is_poisson() -> None:
    """Gaps of an open loop have the mean and the spread of an exponential distribution."""
    due = OpenLoop(50.0, 0, (1, 2, 3)).take(400.0, 0)
    gaps = np.diff(due)
    assert len(due) == pytest.approx(50 * 400, rel=0.03)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)


def test_open_loop_does_not_depend_on_when_it_is_asked() -> None:
    """Asking often or once gives the same due times: a slow client does not thin out the load."""
    once = OpenLoop(20.0, 0, (5,)).take(10.0, 0)
    often = OpenLoop(20.0, 0, (5,))
    pieces = [due for step in range(1, 101) for due in often.take(step * 0.1, 0)]
    assert pieces == [due for due in once if due <= 10.0]


def test_open_loop_waits_until_the_next_request() -> None:
    """The wait ends exactly when something is due."""
    loop = OpenLoop(10.0, 0, (9,))
    wait = loop.wait_s(0.0)
    assert loop.take(wait * 0.999, 0) == []
    assert len(loop.take(wait, 0)) == 1


def test_open_loop_holds_back_at_its_limit_and_keeps_due_times() -> None:
    """At most ``limit`` are sent; the others keep their due time, so their lateness can be seen."""
    loop, free = OpenLoop(100.0, 3, (1,)), OpenLoop(100.0, 0, (1,))
    everything = free.take(1.0, 0)
    assert loop.take(1.0, 0) == everything[:3]
    assert loop.take(1.0, 3) == []
    assert loop.take(1.0, 1) == everything[3:5]


@settings(deadline=None)
@given(total=st.integers(0, 5000), parts=st.integers(1, 64))
def test_shares_add_up(total: int, parts: int) -> None:
    """The parts' shares sum to the whole and are as even as can be."""
    shares = [share(total, parts, part) for part in range(parts)]
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1


def test_workers_share_the_load() -> None:
    """Closed loops share the places, open loops the rate, with streams of their own."""
    closed = [schedule_for(Workload(concurrency=10), (w, 3), (1,)) for w in range(3)]
    assert [len(s.take(0.0, 0)) for s in closed] == [4, 3, 3]
    workload = Workload(arrival="open", request_rate=90.0)
    first, second = (schedule_for(workload, (w, 2), (1,)).take(100.0, 0) for w in range(2))
    assert len(first) + len(second) == pytest.approx(9000, rel=0.05)
    assert first[:3] != second[:3]
