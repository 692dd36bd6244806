"""What a night tells a trial while its server runs: whether it loses, and which running limits to try; and when a
search has found enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from autotune.bounding import derive_region
from autotune.budget import Standing
from autotune.confirm import reserve_s
from autotune.events import Note
from autotune.guidance import NO_GUIDE, Guide
from autotune.load.monitor import JUDGE_EVERY_S
from autotune.night import Night
from autotune.search.outlook import why_enough as enough
from autotune.search.samplers import OWN
from autotune.standing import fresh, incumbent_of, settled
from autotune.study.rules import parse_duration
from autotune.trial import Ticket
from autotune.values import Estimate, Measured, TrialResult
from autotune.verdict.early_stop import StopRule, should_stop_early


def guide_of(night: Night, ticket: Ticket) -> Guide:
    """What is never the search's own, such as one more start of the baseline, is measured and no more."""
    if not ticket.config.params and night.region() is not None:
        return NO_GUIDE

    def no_live(reason: str) -> None:
        night.live.give_up(reason)
        text = f"live values: {reason}; from here on every running limit takes a start of its own"
        night.rig.say(Note(text=text, level="warning"))

    def setback(reason: str) -> None:
        night.live.count(reason)
        text = f"trial {ticket.number}: a live load brought nothing: {reason}; what was measured before is kept"
        night.rig.say(Note(text=text, level="warning"))
        if night.live.reason:
            no_live(night.live.reason)

    return Guide(loses=_loses(night, ticket), next_limit=_next_limit(night, ticket), no_live=no_live, setback=setback)


def _loses(night: Night, ticket: Ticket) -> Callable[[Estimate], str | None]:
    """Whether a load is certain to lose against the best so far. One more start of a known configuration runs on."""
    study = night.brief.study
    incumbent = incumbent_of(settled(night.records.results()), study.objective)
    searched = ticket.config.params and ticket.repeat_of is None
    if not study.search.early_stop or not searched or incumbent is None:
        return lambda _: None
    rule = StopRule(
        metric=study.objective.metric,
        noise=incumbent.noise,
        confidence=study.search.early_stop,
        looks=max(1, math.ceil(study.workload.max_s / JUDGE_EVERY_S)),
    )

    def judge(seen: Estimate) -> str | None:
        if not 0 < seen.value < math.inf:
            return None
        decision = should_stop_early(seen, incumbent.figure, rule, incumbent_starts=incumbent.starts)
        return str(decision) if decision.stop else None

    return judge


def why_enough(night: Night, results: Sequence[TrialResult]) -> str | None:
    """Why one more start is not worth its time, in words; None: it is, or nobody can tell.

    Only the sampler whose belief it is searches by what a start is expected to gain. Two starts in a row have to say
    so: after one alone a search stops too soon (``benchmarks.search.stopping``).
    """
    search = night.brief.study.search
    if search.sampler != OWN or not search.least_gain or night.searcher.pending():
        return None
    if len(fresh(results)) <= search.startup_trials:
        return None
    before = enough(night.judge.outlook(results[:-1]), search.least_gain)
    return enough(night.judge.outlook(results), search.least_gain) if before else None


def _next_limit(night: Night, ticket: Ticket) -> Callable[[Measured], int | None]:
    study = night.brief.study
    if night.live.reason or night.brief.why_no_live():
        return lambda _: None
    clock = night.rig.waiting.clock
    spent_s = Standing.of(settled(night.records.results())).spent_s
    end_s = clock.now() + parse_duration(study.budget.wall_clock) - spent_s - reserve_s(night)

    def ask(measured: Measured) -> int | None:
        enough = len(measured.live) >= study.search.live_loads or night.live.reason
        if enough or clock.now() + _load_s(measured) > end_s:
            return None
        region = night.region() or derive_region(night.brief, measured.effective)
        return night.searcher.ask_live(ticket.config, measured.effective, measured, region)

    return ask


def _load_s(measured: Measured) -> float:
    """Seconds that one more load of this start may take."""
    return max([measured.measurement.duration_s, *(live.load_s for live in measured.live)])
