"""A study that several hosts share: its board, and this worker's folder, which is a full copy of what was settled.

Everything else reads the folder, as in a night of one host.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from autotune.aftermath import settle_cut_off, verdict
from autotune.bounding import derive_region
from autotune.errors import NightStopped
from autotune.events import Note
from autotune.fleet.board import Board, Held, Pulse
from autotune.fleet.claims import CONFIRMATION, BoardLost, Claim, Confirmed, Right, worker_name
from autotune.fleet.copies import copy_confirmation, copy_trial, keep_aside
from autotune.fleet.leases import Leases
from autotune.night import Night
from autotune.picking import BASELINE, Searched
from autotune.rig import now_text
from autotune.server.cancel import Cancel
from autotune.standing import baseline_of, settled
from autotune.study.atomic import make_private_folder
from autotune.study.record import Records, read_record, storable, write_record
from autotune.trial import Ticket
from autotune.values import Measured, TrialResult

T = TypeVar("T")
Pick = Callable[[Sequence[Ticket]], Ticket | Searched | None]
"""The next trial beside those that run; why there is none; or None: wait for one of them."""
POLL_S = 1.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0


class Shared:
    """One worker's view. Its methods wait for a database that is away, until somebody wants to end (NightStopped)."""

    def __init__(self, night: Night, board: Board, leases: Leases, outer: Cancel) -> None:
        """``outer`` are a person's wishes, without the loss of a lease."""
        self.night = night
        self.name = worker_name()
        self._board = board
        self._leases = leases
        self._outer = outer
        self._place = 0
        self._seen = Pulse(place=0, live=0, expired=0)
        self._right: Right | None = None
        self._confirmed = ""
        self._told_trouble = ""

    @property
    def records(self) -> Records:
        return self.night.records

    @property
    def wish(self) -> str:
        """Why a person wants to end; empty: nobody does."""
        return self._outer.reason() or ""

    def join(self) -> None:
        """Bring this folder and the board together. Raises InputError when they are of different studies."""
        if not self._patiently(self._adopt):
            self._patiently(self._recover)
        self._patiently(self._succeed)
        self._patiently(self._catch_up)

    def leave(self) -> None:
        """Bring this folder and Optuna's tables level with the board; whoever comes next does where it is away."""
        with contextlib.suppress(NightStopped):
            self._patiently(self._catch_up)

    def turn(self, pick: Pick) -> Ticket | Searched | None:
        """Agree with all others on what is settled, and claim what ``pick`` wants; see ``Pick`` for the answer.

        The confirmation is claimed as a ticket of that role. A trial is on disk when this returns.
        """
        return self._patiently(lambda: self._turn(pick))

    def wait(self) -> None:
        """Until another worker has settled or begun something, or was lost."""
        self._pause(POLL_S)
        try:
            while not self.wish and (now := self._board.pulse()) == self._seen and not now.expired:
                self._pause(POLL_S)
        except BoardLost:
            return

    def settle(self, result: TrialResult) -> bool:
        """Tell the result of the trial that is claimed; False when others had taken it over: it is kept aside."""
        right, self._right = self._right, None
        assert right is not None
        result = storable(result)
        self.records.keep(result)
        plan = self.records.plan(result.number)

        def tell() -> bool:
            with self._board.hold() as held:
                return held.settle(right, result, plan)

        told = self._patiently(tell)
        self._leases.drop()
        self._keep(result, told)
        return told

    def settle_confirmation(self, confirmed: Confirmed | None) -> None:
        """Tell the confirmation; None: it was not finished, and is another worker's to make."""
        right, self._right = self._right, None
        assert right is not None

        def tell() -> None:
            with self._board.hold() as held:
                if confirmed is None:
                    held.release(right)
                else:
                    held.settle(right, confirmed)

        self._patiently(tell)
        self._leases.drop()

    def _turn(self, pick: Pick) -> Ticket | Searched | None:
        while True:
            with self._hold() as held:
                # What is written here is read back only once it is committed.
                if self._expire(held) or self._fix_bounds(held):
                    continue
                live = self._level(held)
                picked = self._choose(held, live, pick)
                if not isinstance(picked, Ticket):
                    self._seen = self._board.pulse()
                    return picked
                if picked.number != CONFIRMATION:
                    self.night.searcher.begin(picked.number, picked.config, self.night.region())
                asked_s = time.monotonic()
                right = held.claim(picked, self.name)
            self._begin(picked, right, asked_s)
            return picked

    @contextlib.contextmanager
    def _hold(self) -> Iterator[Held]:
        """The board, and Optuna's tables with it: the claim of a trial and its showing there are one."""
        try:
            with self._board.hold() as held, self.night.searcher.within(held.connection):
                yield held
        except BaseException:
            self.night.searcher.forget()
            raise

    def _catch_up(self) -> None:
        """A turn that claims nothing. What this worker has claimed and could not tell stays its own."""
        while True:
            with self._hold() as held:
                if not self._fix_bounds(held):
                    self._level(held)
                    return

    def _begin(self, ticket: Ticket, right: Right, asked_s: float) -> None:
        self._right = right
        self._leases.keep(right, asked_s)
        if ticket.number == CONFIRMATION:
            return
        # The right comes first: a trial on disk without one could never be told.
        trial = self.records.trial(ticket.number)
        make_private_folder(trial.root)
        write_record(trial.claim, right)
        self.records.begin_trial(ticket.begun(now_text()))

    def _choose(self, held: Held, live: Sequence[Claim], pick: Pick) -> Ticket | Searched | None:
        picked = pick([claim.ticket for claim in live if claim.number != CONFIRMATION])
        if not isinstance(picked, Searched):
            return picked
        if live:
            return None
        return self._confirmation(held) or picked

    def _confirmation(self, held: Held) -> Ticket | None:
        """The confirmation of what is settled by now, where it is wanted and not made."""
        results = self.records.results()
        basis = len(settled(results))
        wanted = self.night.brief.study.budget.confirm_starts and baseline_of(results) and not self.wish
        if not wanted or (held.confirmed() or (None,))[0] == basis:
            return None
        held.forget_confirmation()
        return Ticket(number=CONFIRMATION, config=BASELINE, role="confirm", repeat_of=basis)

    def _expire(self, held: Held) -> bool:
        lost = held.expire(self.name)
        for claim in lost:
            what = "the confirmation" if claim.number == CONFIRMATION else f"trial {claim.number}"
            self._note(f"{what} of worker {claim.worker} is lost: its lease ran out; it runs again")
        return bool(lost)

    def _fix_bounds(self, held: Held) -> bool:
        """Whether the bounds had to be derived: by whoever first sees the baseline."""
        base = baseline_of([told.result for told in held.told_after(0)]) if held.region() is None else None
        if base is None:
            return False
        assert isinstance(base.outcome, Measured)
        held.fix_region(self.night.region() or derive_region(self.night.brief, base.outcome.effective))
        return True

    def _pull(self, held: Held) -> None:
        """Copy into this folder what others have settled."""
        region = held.region()
        if region is not None and self.night.region() is None:
            write_record(self.night.folder.bounds, region)
            for bound in region.bounds:
                self._note(f"bounds: {bound.name}: {bound.derivation}")
        for told in held.told_after(self._place):
            copy_trial(self.records, told)
            self._place = told.place
        _, text = held.confirmed() or (0, "")
        if text and text != self._confirmed:
            copy_confirmation(self.night.folder, msgspec.json.decode(text, type=Confirmed))
            self._confirmed = text

    def _level(self, held: Held) -> list[Claim]:
        """Copy what is settled into this folder and into Optuna's tables; what is under way."""
        self._pull(held)
        live, night = held.live(), self.night
        running = {claim.number: claim.config for claim in live if claim.number != CONFIRMATION}
        night.searcher.take_over(self.records.results(), running, night.region())
        trouble = night.searcher.trouble
        if trouble and trouble != self._told_trouble:
            self._note(f"storage: Optuna's tables: {trouble}; the records are kept", level="warning")
        self._told_trouble = trouble
        return live

    def _adopt(self) -> bool:
        """Whether the board was empty: then the trials of this folder, if any, are the study's."""
        with self._board.hold() as held:
            if not held.empty():
                return False
            settle_cut_off(self.records, self.night.rig.say)
            held.adopt(self.name, [(r, self.records.plan(r.number)) for r in self.records.results()])
            return True

    def _recover(self) -> None:
        """Tell what an earlier worker of this folder did not come to telling."""
        for begun in self.records.interrupted():
            right = read_record(self.records.trial(begun.number).claim, Right)
            if right is None:
                continue
            result = storable(verdict(self.records, begun))
            with self._board.hold() as held:
                told = held.settle(right, result, self.records.plan(begun.number))
            self._keep(result, told)

    def _succeed(self) -> None:
        """Whoever worked in this folder before is gone, since its lock is ours: what it claimed last is free."""
        before = read_record(self.night.folder.worker, str)
        if before:
            with self._board.hold() as held:
                held.expire(before)
        write_record(self.night.folder.worker, self.name)

    def _keep(self, result: TrialResult, told: bool) -> None:
        """On disk, as it was told; aside where others were faster."""
        if told:
            self.records.settle(result)
            return
        path = keep_aside(self.records, result)
        text = f"trial {result.number} was taken over by another worker: what was measured here is not told"
        self._note(f"{text}, see {path.relative_to(self.night.folder.root)}", level="warning")

    def _patiently(self, act: Callable[[], T]) -> T:
        pause_s, told = FIRST_PAUSE_S, False
        while True:
            try:
                done = act()
            except BoardLost as error:
                if self.wish:
                    raise NightStopped(
                        f"the database is out of reach ({error}): what is not told yet is on disk, and the same "
                        "command tells it"
                    ) from None
                if not told:
                    self._note(f"the database is out of reach ({error}); trying again", level="warning")
                told = True
                self._pause(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                if told:
                    self._note("the database answers again")
                return done

    def _pause(self, seconds: float) -> None:
        clock = self.night.rig.waiting.clock
        end_s = clock.now() + seconds
        while clock.now() < end_s and not self.wish:
            self.night.rig.waiting.pause(end_s - clock.now())

    def _note(self, text: str, level: str = "info") -> None:
        self.night.rig.say(Note(text=text, level="warning" if level == "warning" else "info"))
