"""What a wrapper started somewhere else: found and ended through the wrapper's own commands.

A client that is killed leaves its container, job or remote process behind, so these are asked for by name or mark: at
every stop, and for what a killed tuner left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from autotune.server.asking import Unreachable, find, run
from autotune.server.clock import Clock, SystemClock
from autotune.server.process import ServerIdentity
from autotune.server.stop import Hurry, Members, StopLimits, StopReport, never, orphans, stop_all
from autotune.values import Wrapper
from autotune.wrappers import Wrapping, wrapping
from autotune.wrappers.base import Argv

_UNREACHABLE_S = 5.0
_POLL_S = 0.05
_GRACE_S = 5.0
"""A runtime that has killed a container itself at the end of the polite time needs a moment to clear it away."""
_AGAIN_S = 1.0


def end_everywhere(
    wrapper: Wrapper, mark: str, members: Members, limits: StopLimits, hurry: Hurry = never, clock: Clock | None = None
) -> StopReport:
    """Stop the marked servers behind their wrapper, then the processes ``members`` of this machine, and look again."""
    clock = clock or SystemClock()
    there = wrapping(wrapper)
    if there is None:
        return stop_all(members, limits, hurry, clock)
    begin_s = clock.now()
    # A client that was still creating its container when it was asked: only after its end is all there to be seen.
    reports: list[StopReport] = []
    try:
        reports.append(Ending(there, mark, clock).end(limits, hurry))
    finally:
        reports.append(stop_all(members, limits, hurry, clock))
    if not reports[0].survivors:
        reports.append(Ending(there, mark, clock).end(limits, hurry))
    return StopReport(
        terminated=sum(report.terminated for report in reports),
        killed=sum(report.killed for report in reports),
        seconds=clock.now() - begin_s,
        survivors=tuple(name for report in reports for name in report.survivors),
    )


class Ending:
    """One stop of what a wrapper started."""

    def __init__(self, there: Wrapping, mark: str, clock: Clock) -> None:
        self._there = there
        self._mark = mark
        self._clock = clock
        self._deaf = False
        self._stopped: set[str] = set()
        self._killed: set[str] = set()

    def end(self, limits: StopLimits, hurry: Hurry) -> StopReport:
        """Politely for ``term_s``, or until somebody is in a hurry, then firmly for ``kill_s``; never raises.

        An interrupt that arrives here goes on with the firm part before it is passed on.
        """
        begin_s = self._clock.now()
        try:
            left = self._until_gone(self._politely(limits.term_s), self._stopped, limits.term_s, hurry)
        except BaseException:
            self._until_gone(self._firmly, self._killed, limits.kill_s, never)
            raise
        if left and not self._deaf:
            left = self._until_gone(self._firmly, self._killed, limits.kill_s, never)
        return StopReport(
            terminated=len(self._stopped),
            killed=len(self._killed),
            seconds=self._clock.now() - begin_s,
            survivors=left,
        )

    def _politely(self, term_s: float) -> Callable[[Sequence[str]], tuple[Argv, ...]]:
        return lambda left: self._there.stop(left, self._mark, term_s)

    def _firmly(self, left: Sequence[str]) -> tuple[Argv, ...]:
        return self._there.kill(left, self._mark)

    def _until_gone(
        self, act: Callable[[Sequence[str]], tuple[Argv, ...]], done: set[str], limit_s: float, hurry: Hurry
    ) -> tuple[str, ...]:
        """Find and act until nothing is left or the time is up; returns what is left, or why that is not known."""
        begin_s = self._clock.now()
        end_s, rounds = begin_s + limit_s, 0
        while True:
            if rounds > 1:
                self._pause(min(_AGAIN_S, end_s - self._clock.now()), hurry)
            # Whoever is in a hurry still waits for the listing: without it nobody knows what to end.
            try:
                left = find(self._there, self._mark, self._clock)
            except Unreachable as error:
                described: tuple[str, ...] = (f"what cannot be asked for ({error})",)
                end_s = min(end_s, begin_s + _UNREACHABLE_S)
                self._deaf = True
            else:
                self._deaf = False
                if not left:
                    return ()
                described = tuple(self._there.describe(name) for name in left)
                self._run_all(act(left), end_s, hurry)
                done.update(left)
            if self._clock.now() >= end_s or hurry():
                return described
            rounds += 1

    def _run_all(self, commands: Sequence[Argv], end_s: float, hurry: Hurry) -> None:
        for argv in commands:
            try:
                run(argv, self._clock, lambda: self._clock.now() >= end_s + _GRACE_S or hurry(), limit_s=math.inf)
            except Unreachable:
                continue  # what it did not end is found again

    def _pause(self, seconds: float, hurry: Hurry) -> None:
        end_s = self._clock.now() + seconds
        while self._clock.now() < end_s and not hurry():
            self._clock.sleep(_POLL_S)


def reap_everywhere(
    wrapper: Wrapper,
    identities: Sequence[ServerIdentity],
    limits: StopLimits,
    study_id: str,
    hurry: Hurry = never,
) -> StopReport:
    """Stop the servers of a dead tuner, wherever they run. Call it under the study's lock."""
    return end_everywhere(wrapper, f"{study_id}/", orphans(identities, study_id), limits, hurry)
