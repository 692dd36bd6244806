"""Who runs the trials that the driver asks for: one after the other, or one in each slot of this host."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Generic, Protocol, TypeVar

import msgspec

from autotune.errors import NightStopped
from autotune.events import Event, Listener
from autotune.fleet.slots import Host, Slot, cut
from autotune.guidance import NO_GUIDE, Guide
from autotune.rig import Rig
from autotune.server.cancel import Cancel, CancelFlag
from autotune.server.gpu import GpuProbe
from autotune.study.file import Study
from autotune.trial import Ticket, run_trial
from autotune.values import TrialResult

Job = TypeVar("Job")


class Crew(Protocol):
    """Runs up to ``size`` tickets at once. The driver calls it from one thread.

    ``wait`` gives the result of whichever ends next. When an assumption of the night breaks in one trial, the others
    are ended, their results are given too, and then ``wait`` raises that ``NightStopped``.
    """

    @property
    def size(self) -> int: ...

    @property
    def running(self) -> tuple[Ticket, ...]: ...

    @property
    def room(self) -> bool:
        """Whether ``start`` may be called."""
        ...

    @property
    def place(self) -> str:
        """Where the next trial will run, in words; empty where there is but one place."""
        ...

    def start(self, ticket: Ticket, guide: Guide = NO_GUIDE) -> None: ...

    def wait(self) -> TrialResult: ...

    def end(self, reason: str) -> None:
        """Let whatever runs end as interrupted."""
        ...


class Alone:
    """One trial at a time, in the driver's own thread."""

    size = 1
    place = ""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._work: tuple[Ticket, Guide] | None = None

    @property
    def running(self) -> tuple[Ticket, ...]:
        return (self._work[0],) if self._work else ()

    @property
    def room(self) -> bool:
        return self._work is None

    def start(self, ticket: Ticket, guide: Guide = NO_GUIDE) -> None:
        self._work = ticket, guide

    def wait(self) -> TrialResult:
        """See ``Crew.wait``."""
        assert self._work is not None
        (ticket, guide), self._work = self._work, None
        return _bound(self._rig, ticket, guide)

    def end(self, reason: str) -> None:
        """See ``Crew.end``: between two waits nothing runs."""
        self._work = None


class Several(ABC, Generic[Job]):
    """The books of a crew with several places: whose job is whose, how many ran at its side, and what broke."""

    def __init__(self) -> None:
        self._jobs: dict[Job, Ticket] = {}
        self._beside: dict[int, int] = {}
        self._broken: NightStopped | None = None

    @property
    @abstractmethod
    def size(self) -> int: ...

    @property
    def running(self) -> tuple[Ticket, ...]:
        return tuple(self._jobs.values())

    @property
    def room(self) -> bool:
        return len(self._jobs) < self.size and self._broken is None

    def wait(self) -> TrialResult:
        """See ``Crew.wait``."""
        while self._jobs:
            if (job := self._done()) is None:
                continue
            ticket = self._jobs.pop(job)
            beside = self._beside.pop(ticket.number)
            try:
                return msgspec.structs.replace(self._result(job, ticket), beside=beside)
            except NightStopped as error:
                self._broken = self._broken or error
                self.end(f"another trial stopped the night: {error}")
        assert self._broken is not None
        raise self._broken

    @abstractmethod
    def end(self, reason: str) -> None:
        """See ``Crew.end``."""

    def _add(self, job: Job, ticket: Ticket) -> None:
        """``job`` runs that ticket from now on."""
        self._jobs[job] = ticket
        for each in self.running:
            self._beside[each.number] = max(self._beside.get(each.number, 0), len(self._jobs) - 1)

    @abstractmethod
    def _done(self) -> Job | None:
        """Wait a while for a job to end; None: none has."""

    @abstractmethod
    def _result(self, job: Job, ticket: Ticket) -> TrialResult:
        """What a job brought that has ended. Raises NightStopped."""


class EitherCancel:
    """Wishes to end from outside, or from within the crew."""

    def __init__(self, outer: Cancel, inner: CancelFlag) -> None:
        self._outer = outer
        self._inner = inner

    def reason(self) -> str | None:
        """See ``Cancel.reason``."""
        return self._outer.reason() or self._inner.reason()

    def urgent(self) -> bool:
        """See ``Cancel.urgent``."""
        return self._outer.urgent()


class SlotCrew(Several[Future[TrialResult]]):
    """One trial in each slot of this host, each in a thread bound to the slot's processors."""

    def __init__(self, rigs: Sequence[Rig]) -> None:
        """One rig a slot, see ``in_slot``."""
        super().__init__()
        self._flag = CancelFlag()
        self._rigs = [_cancelled_by(rig, self._flag) for rig in rigs]
        self._free = list(range(len(rigs)))[::-1]
        self._places: dict[Future[TrialResult], int] = {}
        self._pool = ThreadPoolExecutor(len(rigs), thread_name_prefix="slot")

    @property
    def size(self) -> int:
        return len(self._rigs)

    @property
    def place(self) -> str:
        return self._rigs[self._free[-1]].slot.place

    def start(self, ticket: Ticket, guide: Guide = NO_GUIDE) -> None:
        """Begin ``ticket`` in a free slot."""
        place = self._free.pop()
        job = self._pool.submit(_bound, self._rigs[place], ticket, guide)
        self._places[job] = place
        self._add(job, ticket)

    def _done(self) -> Future[TrialResult]:
        done, _ = wait(self._jobs, return_when=FIRST_COMPLETED)
        return min(done, key=lambda job: self._jobs[job].number)

    def _result(self, job: Future[TrialResult], ticket: Ticket) -> TrialResult:
        self._free.append(self._places.pop(job))
        return job.result()

    def end(self, reason: str) -> None:
        """See ``Crew.end``."""
        self._flag.cancel(reason)

    def __enter__(self) -> SlotCrew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flag.cancel("the night ends")
        self._pool.shutdown(wait=True)


def slots_of(study: Study, gpu: GpuProbe) -> tuple[Slot, ...]:
    """The slots that the study wants of this host. Raises InputError when it has too few GPUs."""
    wanted = study.resources
    host = Host(
        devices=tuple(device.index for device in gpu.devices()),
        cpus=tuple(sorted(os.sched_getaffinity(0))),
        near=gpu.near(),
    )
    return cut(host, gpus_per_trial=wanted.gpus_per_trial, slots=wanted.slots)


def in_slot(rig: Rig, slot: Slot, gpu: GpuProbe) -> Rig:
    """The rig of one slot. ``gpu`` sees all devices of the host."""
    return msgspec.structs.replace(rig, slot=slot, gpu=gpu.only(slot.devices) if slot.devices else gpu)


def shared(say: Listener) -> Listener:
    """A listener for several threads: one event at a time."""
    lock = threading.Lock()

    def hear(event: Event) -> None:
        with lock:
            say(event)

    return hear


def _cancelled_by(rig: Rig, flag: CancelFlag) -> Rig:
    waiting = msgspec.structs.replace(rig.waiting, cancel=EitherCancel(rig.waiting.cancel, flag))
    return msgspec.structs.replace(rig, waiting=waiting)


def _bound(rig: Rig, ticket: Ticket, guide: Guide) -> TrialResult:
    """Run it on the slot's processors: they are this thread's, and server and load workers inherit them."""
    before = os.sched_getaffinity(0)  # of the thread, see sched_setaffinity(2)
    if rig.slot.cpus:
        os.sched_setaffinity(0, rig.slot.cpus)
    try:
        return run_trial(rig, ticket, guide)
    finally:
        os.sched_setaffinity(0, before)
