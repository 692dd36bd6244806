"""Trials as Ray tasks on the nodes of a cluster; asking, telling and all records stay with this driver."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import ray
from ray.exceptions import RayError, RayTaskError, TaskCancelledError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from autotune.errors import InputError, NightStopped
from autotune.events import Event, Note, TrialPlaced
from autotune.fleet.crew import Several
from autotune.fleet.parcel import Homecoming, Parcel, pack, reap, run_parcel, to_bytes, unpack
from autotune.guidance import NO_GUIDE, Guide
from autotune.rig import Rig, now_text
from autotune.study.file import Resources, Study
from autotune.study.record import read_record, write_record
from autotune.trial import Ticket
from autotune.values import Diagnosis, Infeasible, Interrupted, Outcome, TrialResult

POLL_S = 0.5
LOST = "its worker or its node was lost"
REAP_S = 60.0
CONNECT_S = 10.0
LOSSES = 3
"""So many losses under one configuration are taken for its doing."""


class Bulletin:
    """Lives with the driver; the trials post there what they say."""

    def __init__(self) -> None:
        self._posted: list[bytes] = []

    def post(self, event: bytes) -> None:
        """One event, as ``to_bytes`` writes it."""
        self._posted.append(event)

    def take(self) -> list[bytes]:
        """What was posted since the last time."""
        posted, self._posted = self._posted, []
        return posted


@ray.remote(max_retries=0)
def _run_there(packed: bytes, board: Any) -> bytes:
    """One trial on whichever node has room; NightStopped comes back as a text, since its class may be another there."""
    parcel = msgspec.msgpack.decode(packed, type=Parcel)
    node = ray.get_runtime_context().get_node_id()[:8]

    def say(event: Event) -> None:
        board.post.remote(to_bytes(event))

    say(TrialPlaced(number=parcel.ticket.number, where=f"node {node}"))
    return to_bytes(run_parcel(parcel, say))


@ray.remote(num_cpus=0, max_retries=0)
def _reap_there(study: bytes, study_id: str, newest: int) -> int:
    """End all servers of the study up to that number on the node of this task; how many processes were left."""
    report = reap(msgspec.msgpack.decode(study, type=Study), study_id, newest)
    return report.terminated + report.killed


class RayCrew(Several[Any]):
    """One trial in each place of a cluster that ``resources`` finds room for."""

    def __init__(self, rig: Rig, address: str, *, alone: bool = False) -> None:
        """Connect to the cluster at ``address`` (``auto``: the one that runs on this host).

        Raises InputError when there is none, or no node has room for a trial.
        """
        super().__init__()
        self._rig = rig
        _connect(address)
        self._demand = demand(rig.study.resources)
        room = places(self._demand, [node["Resources"] for node in live_nodes()])
        if not room:
            raise InputError(
                f"resources: no node of the cluster at {address} has {self._demand}; lower what a trial asks"
            )
        self._size = 1 if alone else min(room, rig.study.resources.slots or room)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._board: Any = ray.remote(num_cpus=0)(Bulletin).options(scheduling_strategy=here).remote()
        self._dataset = pack(Path(rig.dataset), set()) if rig.dataset else b""
        self._ending = False
        self._reaping: list[Any] = []
        self._reap()

    @property
    def size(self) -> int:
        return self._size

    @property
    def place(self) -> str:
        return "waiting for a node"

    def start(self, ticket: Ticket, guide: Guide = NO_GUIDE) -> None:
        """Submit ``ticket``. A guide does not travel: the trials of a cluster are measured and no more."""
        under_way = (*(other.number for other in self.running), ticket.number)
        parcel = Parcel(
            study=self._rig.study,
            study_id=self._rig.study_id,
            space=self._rig.space,
            version=self._rig.known_version,
            searched=self._rig.searched,
            ticket=ticket,
            gates=self._rig.gates,
            dataset=self._dataset,
            prompts=self._rig.prompts,
            under_way=under_way,
        )
        job = _run_there.options(**self._demand, max_retries=0).remote(to_bytes(parcel), self._board)
        self._add(job, ticket)

    def end(self, reason: str) -> None:
        """See ``Crew.end``: each task is interrupted, and stops its server before it ends."""
        if self._ending:
            return
        self._ending = True
        for job in self._jobs:
            with contextlib.suppress(RayError):
                ray.cancel(job, force=False)

    def __enter__(self) -> RayCrew:
        return self

    def __exit__(self, *_: object) -> None:
        self.end("the night ends")
        for job in list(self._jobs):
            with contextlib.suppress(RayError):
                ray.get(job, timeout=self._rig.study.timeouts.stop_s + POLL_S)
        self._tell()
        self._reap()
        done, late = ray.wait(self._reaping, num_returns=len(self._reaping), timeout=REAP_S)
        for job in done:
            with contextlib.suppress(RayError):  # its node is gone
                ray.get(job)
        for job in late:
            ray.cancel(job)
        ray.kill(self._board)

    def _done(self) -> Any | None:
        self._tell()
        if reason := self._rig.waiting.cancel.reason():
            self.end(reason)
        done, _ = ray.wait(list(self._jobs), num_returns=1, timeout=POLL_S)
        self._rig.waiting.pause(0.0)  # a sign of life
        return done[0] if done else None

    def _tell(self) -> None:
        for data in ray.get(self._board.take.remote()):
            self._rig.say(msgspec.msgpack.decode(data, type=Event))

    def _result(self, job: Any, ticket: Ticket) -> TrialResult:
        try:
            home = msgspec.msgpack.decode(ray.get(job), type=Homecoming)
        except TaskCancelledError:
            return self._without(ticket, Interrupted(reason=self._rig.waiting.cancel.reason() or "the night ended"))
        except RayTaskError as error:
            if isinstance(error.cause, NightStopped):
                raise NightStopped(f"on a node of the cluster: {error.cause}") from None
            raise
        except RayError as error:
            self._reap()
            return self._without(ticket, self._after_loss(ticket, error))
        self._check_hardware(home)
        unpack(home.files, self._rig.records.trial(ticket.number).root)
        return home.result

    def _after_loss(self, ticket: Ticket, error: RayError) -> Outcome:
        reason = f"{LOST}: {type(error).__name__}"
        same = [r.outcome for r in self._rig.records.results() if r.config == ticket.config]
        lost = sum(isinstance(outcome, Interrupted) and outcome.reason.startswith(LOST) for outcome in same)
        if ticket.config.params and lost + 1 >= LOSSES:
            advice = "look at the nodes' memory at those moments; its parameters are left alone"
            evidence = (f"{LOST}, {LOSSES} times",)
            return Infeasible(diagnosis=Diagnosis(kind="crash_other", action="prune", evidence=evidence, advice=advice))
        self._rig.say(Note(text=f"trial {ticket.number}: {reason}; it runs again", level="warning"))
        return Interrupted(reason=reason)

    def _without(self, ticket: Ticket, outcome: Outcome) -> TrialResult:
        begun = self._rig.records.begun(ticket.number) or ticket.begun(now_text())
        return begun.unmeasured(outcome, now_text())

    def _check_hardware(self, home: Homecoming) -> None:
        """The first trial's hardware is the study's. Raises NightStopped for another kind where it may not be mixed."""
        path = self._rig.records.folder.hardware
        known = read_record(path, dict[str, str])
        if known is None:
            write_record(path, home.hardware)
        elif known != home.hardware and not self._rig.study.resources.mixed_hardware:
            raise NightStopped(
                f"{home.host} has {home.hardware}, the study began on {known}: results of different hardware are not "
                "comparable; leave that node out, or write resources.mixed_hardware = true"
            )

    def _reap(self) -> None:
        """On every node at once: end servers of trials that nobody runs. Only the end of a night waits for it.

        Late is early enough: a trial looks round by itself before it begins, and all that begin from now on have higher
        numbers.
        """
        running = [ticket.number for ticket in self._jobs.values()]
        newest = min(running, default=max(self._rig.records.numbers(), default=-1) + 1) - 1
        study = msgspec.msgpack.encode(self._rig.study)
        for node in live_nodes():
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            reap_it = _reap_there.options(scheduling_strategy=there)
            self._reaping.append(reap_it.remote(study, self._rig.study_id, newest))


def live_nodes() -> list[dict[str, Any]]:
    """What Ray tells of each node that answers: ``NodeID``, ``Resources`` and more."""
    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def demand(wanted: Resources) -> dict[str, Any]:
    """What Ray is asked for, for each trial."""
    return {
        "num_gpus": wanted.gpus_per_trial,
        "num_cpus": wanted.cpus_per_trial,
        "resources": dict(wanted.ray_resources),
    }


def places(wanted: Mapping[str, Any], nodes: Sequence[Mapping[str, float]]) -> int:
    """How many trials the nodes have room for, each of which runs on one node."""
    needs = {"GPU": wanted["num_gpus"], "CPU": wanted["num_cpus"], **wanted["resources"]}
    needs = {name: need for name, need in needs.items() if need > 0}
    return sum(min((int(node.get(name, 0.0) // need) for name, need in needs.items()), default=0) for node in nodes)


def _connect(address: str) -> None:
    if ray.is_initialized():
        return
    host, _, port = address.rpartition(":")
    try:
        if host and port.isdecimal():
            # Ray itself would try for minutes.
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING, namespace="autotune")
    except (OSError, RuntimeError, ValueError) as error:
        first = str(error).strip().split("\n")[0]
        raise InputError(f"ray cluster at {address}: {first}; start one with `ray start --head`") from None
