"""``autotune worker``: one of several that ask, run and tell the trials of a study they share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import msgspec

from autotune.brief import Brief
from autotune.choosing import strategy
from autotune.errors import InputError, NightStopped
from autotune.events import Listener, NightEnded, TrialStarted
from autotune.exporting import export_best
from autotune.fleet.board import Board
from autotune.fleet.claims import CONFIRMATION, BoardLost, Terms
from autotune.fleet.copies import confirmed_here
from autotune.fleet.crew import Alone
from autotune.fleet.leases import Leases
from autotune.fleet.parcel import hardware
from autotune.fleet.shared import Shared
from autotune.guiding import guide_of
from autotune.night import Night, open_folder
from autotune.picking import BASELINE, Searched, pick
from autotune.rig import Rig, now_text
from autotune.sameness import found_facts
from autotune.search.searcher import Searcher
from autotune.server.cancel import Waiting
from autotune.standing import baseline_of, settled
from autotune.study.manifest import differences, fingerprint
from autotune.trial import Ticket
from autotune.tune import announce, confirm_found, farewell, greet, in_words, look_at
from autotune.values import Interrupted, Measured

GPU_FACT = "found.gpu:"


@contextlib.contextmanager
def open_shared(brief: Brief, say: Listener, waiting: Waiting) -> Iterator[Shared]:
    """The study as all its workers have it, ready for this one's next trial.

    Raises InputError (no PostgreSQL, other terms than the first worker's), StudyLocked or NightStopped.
    """
    study = brief.study
    board = Board(study.storage, study.name, study.resources.lease_s)
    with contextlib.closing(board), Leases(board, study.resources.lease_s, waiting.cancel) as leases:
        _join(board, brief)
        with open_folder(brief, say, msgspec.structs.replace(waiting, cancel=leases)) as rig:
            _agree(brief, rig, board)
            with _searcher(board, brief) as searcher:
                shared = Shared(Night(brief=brief, rig=rig, searcher=searcher), board, leases, waiting.cancel)
                shared.join()
                try:
                    yield shared
                finally:
                    shared.leave()


def work(shared: Shared) -> NightEnded:
    """Run trials until there is nothing to do for anybody. Raises NightStopped where this host cannot go on."""
    night = shared.night
    greet(night)
    ended = farewell(night, _until_the_end(shared))
    night.rig.say(ended)
    return ended


def _until_the_end(shared: Shared) -> str:
    searched = Searched(reason="")

    def choose(running: Sequence[Ticket]) -> Ticket | Searched | None:
        nonlocal searched
        picked = _pick(shared.night, running)
        searched = picked if isinstance(picked, Searched) else searched
        return picked

    while not shared.wish:
        picked = shared.turn(choose)
        if picked is None:
            shared.wait()
        elif isinstance(picked, Searched):
            return picked.reason
        elif picked.number == CONFIRMATION:
            _confirm(shared, searched)
        else:
            _run(shared, picked)
    return shared.wish


def _pick(night: Night, running: Sequence[Ticket]) -> Ticket | Searched | None:
    """As in a night of one host, where the first worker measures the baseline and the others wait for it."""
    base, region = baseline_of(night.records.results()), night.region()
    if base is not None and region is not None:
        return pick(night, running, base, region)
    if any(ticket.config == BASELINE for ticket in running):
        return None
    return Ticket(number=night.searcher.next_number, config=BASELINE, role="baseline")


def _run(shared: Shared, ticket: Ticket) -> None:
    """One trial, from its claim to its telling."""
    night = shared.night
    night.rig.say(TrialStarted(number=ticket.number, role=ticket.role, config=ticket.config))
    earlier = settled(night.records.results())
    crew, began_at = Alone(night.rig), now_text()
    crew.start(ticket, guide_of(night, ticket))
    try:
        result = crew.wait()
    except NightStopped as error:
        # What is wrong with this host is not wrong with others.
        shared.settle(ticket.begun(began_at).unmeasured(Interrupted(reason=str(error)), now_text()))
        raise
    if not shared.settle(result):
        return
    announce(night, result, ticket.role)
    export_best(night.brief)
    if ticket.role == "baseline" and not isinstance(result.outcome, Measured | Interrupted):
        raise NightStopped(f"the baseline cannot be measured: {in_words(result)}")
    look_at(night, result, earlier)


def _confirm(shared: Shared, searched: Searched) -> None:
    """The confirmation runs on this host; the others wait for what it says."""
    whole = False
    try:
        confirm_found(shared.night, searched)
        whole = shared.night.rig.waiting.cancel.reason() is None
    finally:
        shared.settle_confirmation(confirmed_here(shared.night.folder) if whole else None)


def _join(board: Board, brief: Brief) -> None:
    try:
        board.create()
    except BoardLost as error:
        raise InputError(f"{brief.path.name}: storage: {error}; check the URL and that the database runs") from None


def _agree(brief: Brief, rig: Rig, board: Board) -> None:
    """One study is one thing: raises InputError for another file or engine, or hardware that may not be mixed."""
    if len(rig.slots) > 1:
        raise InputError(
            f"{brief.path.name}: resources: {len(rig.slots)} slots are here and a worker runs one trial at a time: "
            "start a worker for each, with its own CUDA_VISIBLE_DEVICES and a copy of the study file in its own folder"
        )
    mine = Terms(fingerprint=fingerprint(brief.study, found_facts(brief)), hardware=hardware(rig))
    theirs = board.join(mine)
    changed = [line for line in differences(theirs.fingerprint, mine.fingerprint) if not line.startswith(GPU_FACT)]
    if changed:
        raise InputError(
            f"{brief.path.name}: is not the study that its other workers share: {'; '.join(changed)}; "
            "give all of them the same file and engine, or this study another name"
        )
    if theirs.hardware != mine.hardware and not brief.study.resources.mixed_hardware:
        raise InputError(
            f"{brief.path.name}: this host has {mine.hardware}, the study began on {theirs.hardware}: results of "
            "different hardware are not comparable; leave this host out, or write resources.mixed_hardware = true"
        )


def _searcher(board: Board, brief: Brief) -> Searcher:
    """Optuna makes its tables and its study when it opens them: one worker at a time."""
    try:
        with board.hold():
            return Searcher.open(brief.study.name, brief.study.storage, strategy(brief))
    except BoardLost as error:
        raise InputError(f"{brief.path.name}: storage: {error}; check that the database runs") from None
