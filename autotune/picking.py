"""What is run next, and why nothing is: the night's rules over what is settled and what runs."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.budget import Standing, baseline_due, stuck, why_stop
from autotune.confirm import reserve_s
from autotune.errors import NightStopped
from autotune.guiding import why_enough
from autotune.night import Night
from autotune.search.region import Region
from autotune.standing import fresh, settled
from autotune.study.rules import parse_duration
from autotune.trial import Ticket
from autotune.values import Config, TrialResult, Value

BASELINE = Config(params={})


class Searched(Value, frozen=True, kw_only=True):
    """Why a search ended; ``enough``: because nothing more was to be gained, with time left."""

    reason: str
    enough: bool = False


def pick(night: Night, running: Sequence[Ticket], baseline: TrialResult, region: Region) -> Ticket | Searched:
    """The next trial beside those that run, or why no further one is begun. Nothing is written.

    Raises NightStopped where trial after trial fails in one way.
    """
    budget, results = night.brief.study.budget, settled(night.records.results())
    standing = Standing.of(results, running)
    wish = night.rig.waiting.cancel.reason()
    if reason := wish or why_stop(standing, budget.trials, parse_duration(budget.wall_clock), reserve_s(night)):
        return Searched(reason=reason)
    if reason := stuck(fresh(results), budget.infeasible_in_a_row):
        raise NightStopped(reason)
    if reason := why_enough(night, results):
        return Searched(reason=reason, enough=True)
    ticket = _next(night, running, baseline, region)
    return ticket or Searched(reason="every configuration inside the bounds is settled", enough=True)


def again(night: Night, baseline: TrialResult) -> Ticket:
    """One more start of the baseline."""
    return Ticket(number=night.searcher.next_number, config=BASELINE, role="repeat", repeat_of=baseline.number)


def _next(night: Night, running: Sequence[Ticket], baseline: TrialResult, region: Region) -> Ticket | None:
    """The baseline where it is due, else what the search wants; None when that has nothing left."""
    due = baseline_due(settled(night.records.results()), night.brief.study.budget.baseline_every)
    if due and all(ticket.config != BASELINE for ticket in running):
        return again(night, baseline)
    wanted = night.searcher.ask(region)
    if wanted is None:
        return None
    role = "search" if wanted.repeat_of is None else "repeat"
    return Ticket(number=wanted.number, config=wanted.config, role=role, repeat_of=wanted.repeat_of)
