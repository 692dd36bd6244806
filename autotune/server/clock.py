"""Time as a seam: the loops of this package read it from a ``Clock``, tests give them a ``FakeClock``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import msgspec


class Clock(Protocol):
    """A clock that never jumps: ``now`` in seconds from an arbitrary origin."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """CLOCK_MONOTONIC: blind to settings of the wall clock, and it stands still while the machine sleeps."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class BeatingClock:
    """A clock that calls ``beat``, at most once a second, when somebody waits: whatever is waited for, the tuner lives.

    Loops of this package wait in steps of 0.2 s at most.
    """

    def __init__(self, clock: Clock, beat: Callable[[], None]) -> None:
        self._clock = clock
        self._beat = beat
        self._beaten_s = float("-inf")

    def now(self) -> float:
        return self._clock.now()

    def sleep(self, seconds: float) -> None:
        now_s = self._clock.now()
        if now_s - self._beaten_s >= 1.0:
            self._beaten_s = now_s
            self._beat()
        self._clock.sleep(seconds)


class FakeClock:
    """A clock that moves only when somebody sleeps."""

    def __init__(self, start_s: float = 0.0) -> None:
        self.time_s = start_s

    def now(self) -> float:
        return self.time_s

    def sleep(self, seconds: float) -> None:
        self.time_s += seconds


class Deadline(msgspec.Struct, frozen=True):
    """A point on a monotonic clock."""

    at_s: float

    @classmethod
    def after(cls, seconds: float, clock: Clock) -> Deadline:
        return cls(clock.now() + seconds)

    def left_s(self, clock: Clock) -> float:
        """Seconds to go, never negative."""
        return max(0.0, self.at_s - clock.now())

    def passed(self, clock: Clock) -> bool:
        return clock.now() >= self.at_s


def slept_s() -> float:
    """Seconds this machine has been suspended since its boot; a growth between two calls is a sleep in between.

    CLOCK_BOOTTIME counts suspension and CLOCK_MONOTONIC does not (clock_gettime(2)).
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
