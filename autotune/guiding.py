"""What a night tells a trial while its server runs: which smaller running limits to try, as far as time allows."""

from __future__ import annotations

from collections.abc import Callable

from autotune.budget import Standing
from autotune.confirm import reserve_s
from autotune.events import Note
from autotune.guidance import NO_GUIDE, Guide
from autotune.night import Night, derive_region
from autotune.search.region import Region
from autotune.standing import settled
from autotune.study.rules import parse_duration
from autotune.trial import Ticket
from autotune.values import Measured


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

    return Guide(next_limit=_next_limit(night, ticket), no_live=no_live, setback=setback)


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
        if study.search.sampler == "autotune":
            return night.searcher.ask_live(ticket.config, measured.effective, measured, region)
        return halves(measured, region, night.brief.engine.live_parameter) if ticket.config.params else None

    return ask


def _load_s(measured: Measured) -> float:
    """Seconds that one more load of this start may take."""
    return max([measured.measurement.duration_s, *(live.load_s for live in measured.live)])


def halves(measured: Measured, region: Region, parameter: str) -> int | None:
    """Half of the running limit that was loaded last, down to the least that is searched."""
    full = measured.effective.running_limit
    bound = next((b for b in region.bounds if b.name == parameter), None)
    if full is None or bound is None or bound.low is None:
        return None
    in_flight = measured.measurement.steady.get("concurrency", full)
    last = measured.live[-1].limit if measured.live else min(full, int(in_flight))
    return last // 2 if last // 2 >= bound.low else None
