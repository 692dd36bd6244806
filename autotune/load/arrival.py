"""When requests are sent: pure schedules that are asked "how many by now?" and never look at a clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from autotune.load.dataset.stored import Dataset
from autotune.load.dataset.times import span_s
from autotune.study.file import Workload


class Schedule(Protocol):
    """``take`` moves time on to ``elapsed_s`` and gives the due times, in seconds from the start, of what is to be
    sent.
    """

    def take(self, elapsed_s: float, in_flight: int) -> list[float]: ...

    def wait_s(self, elapsed_s: float) -> float:
        """Seconds until ``take`` may have something new without a reply coming in; infinity: only a reply helps."""
        ...


class ClosedLoop:
    """Keeps ``concurrency`` requests in flight; each is due the moment a place is free."""

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency

    def take(self, elapsed_s: float, in_flight: int) -> list[float]:
        return [elapsed_s] * (self.concurrency - in_flight)

    def wait_s(self, elapsed_s: float) -> float:
        return math.inf


class TraceTimes:
    """Sends one worker's requests of a trace (indices ``worker``, ``worker + workers``, ...) when they are due.

    ``at`` are the arrivals of the trace in seconds; after ``span_s`` it begins again. At most ``limit`` in flight
    where it is above 0.
    """

    def __init__(self, at: NDArray[np.float64], span_s: float, limit: int, part: tuple[int, int]) -> None:
        self._at = at
        self._span_s = span_s
        self._limit = limit
        self._index, self._step = part
        self._waiting: list[float] = []

    def take(self, elapsed_s: float, in_flight: int) -> list[float]:
        while (due_s := self._due_s()) <= elapsed_s:
            self._waiting.append(due_s)
            self._index += self._step
        free = len(self._waiting) if self._limit <= 0 else max(0, self._limit - in_flight)
        due, self._waiting = self._waiting[:free], self._waiting[free:]
        return due

    def wait_s(self, elapsed_s: float) -> float:
        return max(0.0, self._due_s() - elapsed_s)

    def _due_s(self) -> float:
        turn, row = divmod(self._index, len(self._at))
        return turn * self._span_s + float(self._at[row])


class OpenLoop:
    """Poisson arrivals at ``rate`` per second; at most ``limit`` in flight where it is above 0, the rest wait in line.

    Due times do not move when the client or the server is slow, so lateness can be seen afterwards.
    """

    def __init__(self, rate: float, limit: int, seed: Sequence[int]) -> None:
        self.rate = rate
        self.limit = limit
        self._rng = np.random.default_rng(list(seed))
        self._waiting: list[float] = []
        self._next_s = self._gap()

    def take(self, elapsed_s: float, in_flight: int) -> list[float]:
        while self._next_s <= elapsed_s:
            self._waiting.append(self._next_s)
            self._next_s += self._gap()
        free = len(self._waiting) if self.limit <= 0 else max(0, self.limit - in_flight)
        due, self._waiting = self._waiting[:free], self._waiting[free:]
        return due

    def wait_s(self, elapsed_s: float) -> float:
        return max(0.0, self._next_s - elapsed_s)

    def _gap(self) -> float:
        return float(self._rng.exponential(1.0 / self.rate))


def share(total: int, parts: int, part: int) -> int:
    """The part's share of ``total``; the shares of all parts add up to it and differ by one at most."""
    return total // parts + (1 if part < total % parts else 0)


def schedule_for(
    workload: Workload, part: tuple[int, int], seed: Sequence[int], dataset: Dataset | None = None
) -> Schedule:
    """The schedule of ``part`` (worker, workers). n Poisson streams of rate r/n, independent of each other, are one of
    rate r.
    """
    worker, workers = part
    limit = share(workload.concurrency, workers, worker)
    if workload.kind == "trace" and dataset is not None:
        at = dataset.table["at"] / workload.trace_speed
        return TraceTimes(at, span_s(at), limit, part)
    if workload.closed:
        return ClosedLoop(limit)
    # 2**32 - 1 keeps these words apart from every request index (workload.plan_request).
    return OpenLoop(workload.request_rate / workers, limit, [*seed, 2**32 - 1, worker])
