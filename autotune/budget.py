"""When a night ends: budget and stop rules, as functions of what is on record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from autotune.values import Config, Infeasible, Measured, Refused, TrialResult, Value

RESERVE = 1.1
"""A trial is begun only where its expected time fits this many times into what is left."""
RECENT = 5
"""Trials from which the time of the next one is expected."""
STARTS_PER_TRIAL = 3
"""A search that only repeats the baseline ends at this many starts for each trial of its budget."""


class Start(Protocol):
    """A start of a server, settled or not."""

    @property
    def config(self) -> Config: ...

    @property
    def repeat_of(self) -> int | None: ...


def is_trial(start: Start) -> bool:
    """Whether it counts against the number of trials: all but further starts of the baseline."""
    return start.repeat_of is None or bool(start.config.params)


class Standing(Value, frozen=True, kw_only=True):
    """How a night stands. ``trial_s`` is the expected time of one more trial, ``start_s`` that of a start with one
    load; None before there is a measured one.

    ``settled`` leaves out further starts of the baseline, ``starts`` and ``spent_s`` count them; ``spent_s`` counts the
    time of trials side by side once. Trials that run now are in ``settled`` and ``starts``, being on their way.
    """

    settled: int
    spent_s: float
    trial_s: float | None
    start_s: float | None = None
    starts: int = 0

    @classmethod
    def of(cls, results: Sequence[TrialResult], running: Sequence[Start] = ()) -> Standing:
        """Time spent and time to expect, learned from the trials themselves; ``running`` are those that run now."""
        measured = [r.timings for r in results if isinstance(r.outcome, Measured)]
        # The first start of a night compiles and reads cold files: later ones are the better guide.
        recent = measured[1:][-RECENT:] or measured
        return cls(
            settled=sum(map(is_trial, (*results, *running))),
            spent_s=busy_s(results),
            trial_s=sum(t.total_s for t in recent) / len(recent) if recent else None,
            start_s=sum(t.total_s - t.live_s for t in recent) / len(recent) if recent else None,
            starts=len(results) + len(running),
        )


def busy_s(results: Sequence[TrialResult]) -> float:
    """Seconds in which at least one of these trials ran; those without a time of day are added as they are."""
    timed = sorted((at_s, at_s + r.timings.total_s) for r in results if (at_s := r.began_s) is not None)
    total, end_s = sum(r.timings.total_s for r in results if r.began_s is None), -math.inf
    for begin_s, finish_s in timed:
        total += max(0.0, finish_s - max(begin_s, end_s))
        end_s = max(end_s, finish_s)
    return total


def eta_s(standing: Standing, trials: int, starts_after: int = 0, at_once: int = 1) -> float | None:
    """Seconds until ``trials`` are settled and ``starts_after`` further starts are done, ``at_once`` side by side.

    None: cannot tell yet.
    """
    if standing.trial_s is None:
        return None
    return max(0, trials - standing.settled + starts_after) * standing.trial_s / at_once


def why_stop(standing: Standing, trials: int, budget_s: float, reserve_s: float = 0.0) -> str | None:
    """The reason to begin no further trial, or None. ``reserve_s`` is kept for confirmation and export."""
    if standing.settled >= trials:
        return f"all {trials} trials are settled"
    if standing.starts >= STARTS_PER_TRIAL * trials:
        return f"{standing.starts} starts were made for {standing.settled} of {trials} trials"
    left_s = budget_s - standing.spent_s - reserve_s
    if left_s <= 0:
        return f"the budget of {budget_s:.0f} s is used up"
    if standing.start_s is not None and left_s < RESERVE * standing.start_s:
        return f"{left_s:.0f} s are left of the budget and a trial takes about {standing.start_s:.0f} s"
    return None


def baseline_due(results: Sequence[TrialResult], every: int) -> bool:
    """Whether ``every`` trials were settled since the last start of the baseline. 0: never."""
    last = max((index for index, result in enumerate(results) if not result.config.params), default=None)
    return every > 0 and last is not None and len(results) - 1 - last >= every


def repeats_ahead(standing: Standing, trials: int, every: int) -> int:
    """Further starts of the baseline until ``trials`` are settled; none is made after the last trial."""
    ahead = trials - standing.settled
    return max(0, ahead - 1) // every if every > 0 else 0


def stuck(results: Sequence[TrialResult], limit: int) -> str | None:
    """The last ``limit`` trials all failed in one way: nothing is learned any more. In words, or None."""
    if limit <= 0 or len(results) < limit:
        return None
    kinds = {_failure(r) for r in results[-limit:]}
    kind = kinds.pop()
    if kinds or kind is None:
        return None
    return (
        f"the last {limit} trials all ended as {kind} (the server logs are in the trials' folders): narrow the bounds"
        " or mend the base command and begin anew with --force, or raise budget.infeasible_in_a_row to go on"
    )


def _failure(result: TrialResult) -> str | None:
    match result.outcome:
        case Infeasible(diagnosis=diagnosis):
            return diagnosis.kind
        case Refused(findings=findings):
            return f"refused ({findings[0].gate})" if findings else "refused"
        case _:
            return None
