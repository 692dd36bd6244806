"""The night: the baseline, then ask, run, record, tell, until the budget or a reason ends it."""

from __future__ import annotations

from autotune.budget import Standing, eta_s, repeats_ahead
from autotune.confirm import Ask, confirm
from autotune.confirmation import read_confirmation
from autotune.doctor import look
from autotune.drifting import DriftRecord, record_of, steadied
from autotune.errors import NightStopped
from autotune.events import NightEnded, NightStarted, Note, TrialSettled, TrialStarted
from autotune.exporting import export_best
from autotune.fleet.crew import Crew
from autotune.fleet.muster import baseline_scores, crew_of, judge_interference
from autotune.guiding import guide_of
from autotune.night import Night
from autotune.picking import BASELINE, Searched, again, pick
from autotune.rig import now_text
from autotune.search.region import Region
from autotune.standing import baseline_of, fresh, score_of, settled
from autotune.study.record import read_record, write_record
from autotune.study.rules import parse_duration
from autotune.transferring import look_back
from autotune.trial import SLEPT, Ticket
from autotune.values import Infeasible, Interrupted, Measured, Refused, TrialResult

INTERRUPTIONS = 3
MORE_BLOCKS = 2
"""A search that ended with time left is confirmed by up to so many times the starts."""


def tune(night: Night) -> NightEnded:
    """Run the night to its end. Raises NightStopped with the reason where it cannot go on; all is kept."""
    greet(night)
    with crew_of(night.rig) as crew:
        baseline = _baseline(night, crew)
        searched = Searched(reason=_cancelled(night)) if baseline is None else _search(night, crew, baseline)
    if baseline is not None:
        confirm_found(night, searched)
    ended = farewell(night, searched.reason)
    night.rig.say(ended)
    return ended


def greet(night: Night) -> None:
    """Say what begins, and what the doctor sees."""
    budget = night.brief.study.budget
    night.rig.say(
        NightStarted(
            study=night.brief.study.name,
            settled=len(fresh(night.records.results())),
            trials=budget.trials,
            budget_s=parse_duration(budget.wall_clock),
            folder=str(night.folder.root),
        )
    )
    for frozen in night.brief.frozen():
        night.rig.say(Note(text=f"{frozen.name}: {frozen.reason}", level="warning"))
    for check in look(night.brief):
        if not check.ok:
            night.rig.say(Note(text=f"doctor: {check.name}: {check.text}", level="warning"))


def _baseline(night: Night, crew: Crew) -> TrialResult | None:
    """The measured trial of the server's defaults; None when somebody wants to end.

    Raises NightStopped when the defaults cannot be measured: nothing could be compared with anything.
    """
    while (done := baseline_of(night.records.results())) is None:
        result = _run(night, crew, Ticket(number=night.searcher.next_number, config=BASELINE, role="baseline"))
        if _cancelled(night):
            return None
        _check_interruptions(night)
        if not isinstance(result.outcome, Measured | Interrupted):
            raise NightStopped(f"the baseline cannot be measured: {in_words(result)}")
    assert isinstance(done.outcome, Measured)
    region = night.fix_region(done.outcome.effective)
    night.searcher.tell(done, region)
    return done


def _search(night: Night, crew: Crew, baseline: TrialResult) -> Searched:
    """Ask, run, record, tell; returns why it ended."""
    region = night.region()
    assert region is not None
    _compare_with_neighbours(night, crew, baseline)
    while True:
        searched = _fill(night, crew, baseline, region)
        if not crew.running:
            return searched
        results = settled(night.records.results())
        look_at(night, _settle(night, crew), results)


def _fill(night: Night, crew: Crew, baseline: TrialResult, region: Region) -> Searched:
    """Begin trials until all slots have one; why no further one is begun, without a reason where that is all."""
    while crew.room:
        picked = pick(night, crew.running, baseline, region)
        if isinstance(picked, Searched):
            return picked
        _begin(night, crew, picked)
    return Searched(reason="")


def look_at(night: Night, result: TrialResult, earlier: list[TrialResult]) -> None:
    """What a settled trial says beyond its score. Raises NightStopped where the machine will not stay awake."""
    _check_interruptions(night)
    if result.config == BASELINE:
        _look_for_drift(night)
    elif result.repeat_of is None:
        _say_if_equal(night, result, earlier)
        look_back(night.transfer, night.region(), [*earlier, result], night.rig, night.searcher)


def _look_for_drift(night: Night) -> None:
    """Write down what the baseline's starts say by now, and say so when that has changed."""
    found = record_of(steadied(settled(night.records.results())))
    path = night.folder.drift
    before = read_record(path, DriftRecord)
    write_record(path, found)
    if found.corrected != (before is not None and before.corrected):
        night.rig.say(Note(text=found.sentence, level="warning" if found.corrected else "info"))


def confirm_found(night: Night, searched: Searched) -> None:
    """The last part of a night: what the search found, against the baseline on fresh starts, as time allows.

    Time that the search did not want makes the verdict sharper.
    """
    budget = night.brief.study.budget
    if budget.confirm_starts and not _cancelled(night):
        spent_s = Standing.of(settled(night.records.results())).spent_s
        blocks = budget.confirm_starts * (MORE_BLOCKS if searched.enough else 1)
        confirm(night, Ask(blocks=blocks, left_s=parse_duration(budget.wall_clock) - spent_s))


def _run(night: Night, crew: Crew, ticket: Ticket) -> TrialResult:
    """One trial alone, from its record to its result."""
    _begin(night, crew, ticket)
    return _settle(night, crew)


def _compare_with_neighbours(night: Night, crew: Crew, baseline: TrialResult) -> None:
    """What slots side by side cost each other, by the baseline: alone, and in all of them at once."""
    if crew.size == 1:
        return
    wanted, results = night.brief.study.resources.alone_starts, night.records.results()
    for _ in range(wanted - len(baseline_scores(results, beside=False))):
        if not _cancelled(night):
            _run(night, crew, again(night, baseline))
    for _ in range(wanted - len(baseline_scores(results, beside=True)) // crew.size):
        while crew.room and not _cancelled(night):
            _begin(night, crew, again(night, baseline))
        while crew.running:
            _settle(night, crew)
    judge_interference(night, crew.size)


def _begin(night: Night, crew: Crew, ticket: Ticket) -> None:
    """Write a trial down before anything can fail, show it, and start it."""
    night.records.begin_trial(ticket.begun(now_text()))
    night.searcher.begin(ticket.number, ticket.config, night.region())
    budget = night.brief.study.budget
    standing = Standing.of(settled(night.records.results()))
    ahead = repeats_ahead(standing, budget.trials, budget.baseline_every)
    eta = eta_s(standing, budget.trials, ahead, at_once=crew.size)
    night.rig.say(
        TrialStarted(number=ticket.number, role=ticket.role, config=ticket.config, eta_s=eta, where=crew.place)
    )
    crew.start(ticket, guide_of(night, ticket))


def _settle(night: Night, crew: Crew) -> TrialResult:
    """Wait for the next trial to end, settle it on disk, and then tell Optuna."""
    roles = {ticket.number: ticket.role for ticket in crew.running}
    before = night.judge.best(night.records.results())
    result = night.records.settle(crew.wait())
    night.searcher.tell(result, night.region())
    if night.searcher.trouble:
        night.rig.say(Note(text=f"storage: {night.searcher.trouble}; the records are kept", level="warning"))
    announce(night, result, roles[result.number])
    after = night.judge.best(night.records.results())
    if after is not None and (before is None or after.number != before.number):
        export_best(night.brief)
    return result


def _check_interruptions(night: Night) -> None:
    """Raises NightStopped when trial after trial is cut off by the machine, not by a person."""
    last = [r.outcome for r in night.records.results()[-INTERRUPTIONS:] if isinstance(r.outcome, Interrupted)]
    if len(last) == INTERRUPTIONS and all(SLEPT in outcome.reason for outcome in last):
        raise NightStopped(
            f"{last[-1].reason}, the third in a row: keep it awake (systemd-inhibit --what=sleep autotune ...)"
        )


def announce(night: Night, result: TrialResult, role: str) -> None:
    """Say what became of a trial."""
    results = night.records.results()
    best = night.judge.best(results)
    base = baseline_of(results)
    night.rig.say(
        TrialSettled(
            number=result.number,
            role=role,
            config=result.config,
            outcome=result.outcome,
            timings=result.timings,
            best=score_of(best),
            baseline=score_of(base),
        )
    )


def _say_if_equal(night: Night, result: TrialResult, earlier: list[TrialResult]) -> None:
    """Configurations that come out equal in force are one: their measurements are repeats of each other."""
    if not isinstance(result.outcome, Measured) or not (key := result.outcome.effective.key()):
        return
    same = [r.number for r in earlier if isinstance(r.outcome, Measured) and r.outcome.effective.key() == key]
    if same:
        text = f"trial {result.number} is in force the same server as trial {same[0]}: a repeat of it"
        night.rig.say(Note(text=text))


def _cancelled(night: Night) -> str:
    return night.rig.waiting.cancel.reason() or ""


def in_words(result: TrialResult) -> str:
    """Why a trial has no score, for a person."""
    match result.outcome:
        case Infeasible(diagnosis=found):
            return f"{found.kind}: {'; '.join(found.evidence[:2])}. {found.advice}"
        case Refused(findings=findings):
            return "; ".join(f.message for f in findings)
        case Interrupted(reason=reason):
            return reason
        case Measured():
            return "it has a score"


def farewell(night: Night, reason: str) -> NightEnded:
    """The last words, with the script written."""
    results = night.records.results()
    confirmation = read_confirmation(night.folder)
    best = night.judge.chosen(results, confirmation)
    script = export_best(night.brief) if best else None
    return NightEnded(
        reason=reason,
        confirmed=confirmation.sentence if confirmation else "",
        settled=len(fresh(results)),
        best_number=best.number if best else None,
        script=str(script) if script else None,
    )
