"""The confirmation: baseline and finalists on fresh starts, interleaved in random order, and what can be claimed.

Its starts are records of their own, in ``confirm/`` inside the study's folder. The order is fixed when it begins; after
an interruption the same starts that are missing are made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from autotune.budget import Standing
from autotune.concluding import conclude
from autotune.confirmation import Arm, Confirmation, ConfirmationPlan, latest_folder, walk
from autotune.drifting import steadied
from autotune.errors import InputError
from autotune.events import Note, TrialSettled, TrialStarted
from autotune.fleet.crew import Crew
from autotune.fleet.muster import crew_of
from autotune.night import Night
from autotune.rig import Rig, now_text
from autotune.standing import baseline_of, settled
from autotune.study.folder import StudyFolder, fresh_name
from autotune.study.record import Records, read_record, write_record
from autotune.study.rules import parse_duration
from autotune.trial import Ticket
from autotune.values import Interrupted, Refused, TrialResult, Value
from autotune.verdict.schedule import Schedule, Slot, plan_schedule

PROMPTS = 1
FEWEST_BLOCKS = 2
FEWEST_ARMS = 2
MORE_BASELINE = 2
"""Starts that the baseline has more than a finalist."""


class Ask(Value, frozen=True, kw_only=True):
    """What is to be compared. ``left_s`` is the time that a new confirmation may take, None: as long as it takes."""

    blocks: int
    finalists: int = 1
    anew: bool = False
    left_s: float | None = None


def confirm(night: Night, ask: Ask) -> Confirmation | None:
    """Run the missing starts and judge; None when there is nothing to compare, no time, or somebody wants to end.

    Raises InputError without a measured baseline.
    """
    begun = _begin(night, ask)
    if begun is None:
        return None
    folder, plan = begun
    version = night.rig.known_version
    rig = msgspec.structs.replace(night.rig, records=Records(folder), prompts=PROMPTS, version=version)
    rig.records.settle_interrupted("the tuner was ended before this start was settled", now_text())
    with crew_of(rig, alone=night.brief.study.resources.confirm_alone) as crew:
        whole = _run_slots(rig, plan, crew)
    return _conclude(night, folder, plan) if whole else None


def _run_slots(rig: Rig, plan: ConfirmationPlan, crew: Crew) -> bool:
    """Make the starts that are missing; whether all are made."""
    cut = False
    while True:
        while not cut and crew.room and not rig.waiting.cancel.reason():
            slot = _next_slot(plan, rig.records, crew.running)
            if slot is None:
                break
            _begin_slot(rig, plan, slot, crew)
        if not crew.running:
            return _next_slot(plan, rig.records) is None
        cut |= isinstance(_settle(rig, crew).outcome, Interrupted)


def _begin(night: Night, ask: Ask) -> tuple[StudyFolder, ConfirmationPlan] | None:
    """The plan to go on with: the unfinished one, else a new one in a folder of its own."""
    latest = latest_folder(night.folder)
    plan = read_record(latest.root / "plan.json", ConfirmationPlan) if latest else None
    if latest and plan and not ask.anew and not _stale(night, plan, ask.finalists):
        _say_if_finished(night, ask, latest, plan)
        return latest, plan
    arms = _arms(night, ask.finalists)
    if len(arms) < FEWEST_ARMS:
        night.rig.say(Note(text="confirmation: no configuration beside the baseline is measured"))
        return None
    schedule = _schedule(night, ask, len(arms))
    if schedule is None:
        text = f"no time is left to confirm anything: run `autotune confirm {night.brief.path.name}` when there is some"
        night.rig.say(Note(text=text, level="warning"))
        return None
    plan = ConfirmationPlan(arms=arms, schedule=schedule, metric=night.brief.study.objective.metric)
    folder = StudyFolder(night.folder.root / fresh_name(night.folder.root, "confirm"))
    folder.create()
    write_record(folder.root / "plan.json", plan)
    return folder, plan


def _schedule(night: Night, ask: Ask, arms: int) -> Schedule | None:
    """As many blocks as were asked for and fit into the time that is left; None where two do not."""
    seed = night.brief.study.seed + len(night.records.numbers())
    each_s = Standing.of(settled(night.records.results())).start_s
    blocks, more_baseline = max(ask.blocks, FEWEST_BLOCKS), True
    if ask.left_s is not None and each_s:
        # Half a start too long is better than a comparison that loses a block.
        starts = math.floor(ask.left_s / each_s + 0.5)
        more_baseline = starts >= FEWEST_BLOCKS * arms + MORE_BASELINE
        blocks = min(blocks, (starts - MORE_BASELINE * more_baseline) // arms)
    if blocks < FEWEST_BLOCKS:
        return None
    return plan_schedule(finalists=arms - 1, blocks=blocks, seed=seed, more_baseline=more_baseline)


def _say_if_finished(night: Night, ask: Ask, latest: StudyFolder, plan: ConfirmationPlan) -> None:
    """Another number of starts is not made up by a confirmation that is over: looking again would cost its level."""
    blocks = plan.schedule.blocks
    if ask.left_s is None and ask.blocks != blocks and _next_slot(plan, Records(latest)) is None:
        text = (
            f"confirmation: {latest.root.name} is finished with {blocks} starts a side, and its verdict stands; "
            f"{ask.blocks} a side are made by `autotune confirm {night.brief.path.name} --anew --starts {ask.blocks}`"
        )
        night.rig.say(Note(text=text, level="warning"))


def _stale(night: Night, plan: ConfirmationPlan, finalists: int) -> bool:
    """A finished confirmation of other finalists says nothing of the present ones."""
    latest = latest_folder(night.folder)
    finished = latest is not None and _next_slot(plan, Records(latest)) is None
    return finished and [a.config for a in plan.arms] != [a.config for a in _arms(night, finalists)]


def _arms(night: Night, finalists: int) -> tuple[Arm, ...]:
    results = settled(night.records.results())
    base = baseline_of(results)
    if base is None:
        raise InputError(f"{night.brief.path.name}: no baseline is measured; run `autotune tune` first")
    chosen = [Arm(trial=r.number, config=r.config) for r in night.judge.finalists(results, finalists)]
    return (Arm(trial=base.number, config=base.config), *chosen)


def _next_slot(plan: ConfirmationPlan, records: Records, running: Sequence[Ticket] = ()) -> Slot | None:
    """The first start that has no result and is not under way."""
    return walk(plan, [*records.results(), *map(_under_way, running)])[1]


def _under_way(ticket: Ticket) -> TrialResult:
    """Stands for a start that will have some result."""
    return ticket.begun("").unmeasured(Refused(findings=()), "")


def _begin_slot(rig: Rig, plan: ConfirmationPlan, slot: Slot, crew: Crew) -> None:
    arm = plan.arms[slot.arm]
    ticket = Ticket(number=rig.records.next_number(), config=arm.config, role="confirm", repeat_of=arm.trial)
    rig.records.begin_trial(ticket.begun(now_text()))
    rig.say(TrialStarted(number=ticket.number, role=ticket.role, config=ticket.config, where=crew.place))
    crew.start(ticket)


def _settle(rig: Rig, crew: Crew) -> TrialResult:
    result = rig.records.settle(crew.wait())
    rig.say(
        TrialSettled(
            number=result.number, role="confirm", config=result.config, outcome=result.outcome, timings=result.timings
        )
    )
    return result


def _conclude(night: Night, folder: StudyFolder, plan: ConfirmationPlan) -> Confirmation:
    done, _ = walk(plan, Records(folder).results())
    noise = steadied(settled(night.records.results())).noise
    found = conclude(plan, done, night.brief.study.objective, noise)
    write_record(folder.root / "confirmation.json", found)
    night.rig.say(Note(text=f"confirmation: {found.sentence}"))
    return found


def reserve_s(night: Night) -> float:
    """Seconds of the night's budget that the confirmation will need, as far as can be told."""
    blocks = night.brief.study.budget.confirm_starts
    each = Standing.of(settled(night.records.results())).start_s
    if not blocks or each is None:
        return 0.0
    needed = (FEWEST_ARMS * blocks + MORE_BASELINE) * each
    # A short night is for searching: never more than 40 % of it is kept back.
    return min(needed, 0.4 * parse_duration(night.brief.study.budget.wall_clock))
