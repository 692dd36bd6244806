"""The part of a worker that keeps requests in flight: slots on connections, driven by a schedule, noting what comes
back.

All times are ``time.monotonic`` seconds until the recorder writes them relative to the start of the load.
"""

from __future__ import annotations

import asyncio
import math
import time
from array import array

import numpy as np

from autotune.load.arrival import Schedule, schedule_for
from autotune.load.http import Connection, connect, parse_target
from autotune.load.records import CANCELLED, FAILED, OK, REQUESTS, Meta, RawRun
from autotune.load.spec import Done, WorkerSpec, stored_dataset
from autotune.load.stream import Reply, new_reply
from autotune.load.supply import Prepared, Supply

CONNECTING_AT_ONCE = 64
BACKOFF_S = 0.05
BACKOFF_MAX_S = 1.0
CLOSED_AT_ONCE_S = 1.0
"""A connection that is closed so soon after a reply was closed because of it."""


class Recorder:
    """Finished requests, column by column, and their chunks."""

    def __init__(self, worker: int) -> None:
        self.started = 0.0
        self.fresh: list[Done] = []
        self.completed = 0
        self.failed = 0
        self.last_error = ""
        self._worker = worker
        self._rows: list[tuple[object, ...]] = []
        self._reasons: dict[str, int] = {"": 0}
        self._times = array("d")
        self._totals = array("q")

    def add(self, slot: Slot, state: int, reason: str, end: float) -> None:
        reply, item = slot.reply, slot.item
        first = reply.times[0] if reply.times else math.nan
        tokens = (reply.tokens or 0) if state == OK else reply.received
        code = self._reasons.setdefault(reason, len(self._reasons))
        times = (slot.due - self.started, slot.sent - self.started, first - self.started, end - self.started)
        counts = (item.asked_in, item.asked_out, reply.prompt_tokens, tokens, reply.cached_tokens, len(reply.times))
        self._rows.append((item.index, self._worker, state, reply.status, code, *times, *counts))
        self._times.extend(reply.times)
        self._totals.extend(reply.totals)
        if state == CANCELLED:
            return
        self.completed += state == OK
        self.failed += state == FAILED
        self.last_error = reason or self.last_error
        self.fresh.append(
            Done(times[1], times[2] if reply.times else -1.0, times[3], reply.prompt_tokens, tokens, state == OK)
        )

    def raw(self, stream: bool) -> RawRun:
        return RawRun(
            requests=np.array(self._rows, dtype=REQUESTS),
            chunk_times=np.array(self._times, dtype=np.float64) - self.started,
            chunk_totals=np.array(self._totals, dtype=np.int64),
            meta=Meta(stream=stream, reasons=tuple(self._reasons)),
        )


class Slot:
    """One place for a request in flight, with a connection of its own. The sink of its connection's replies."""

    item: Prepared
    reply: Reply

    def __init__(self, client: Client) -> None:
        self.client = client
        self.connection: Connection | None = None
        self.due = self.sent = 0.0
        self.failures = 0
        self.replied = 0.0
        self.reused = False
        self.task: asyncio.Task[None] | None = None

    def start(self, item: Prepared, due: float) -> None:
        self.item, self.due = item, due
        self.sent = time.monotonic()
        self.reply = new_reply(self.client.workload.route, item.asked_out, self.client.workload.stream)
        self.reused = self.client.reuses and self.connection is not None and self.connection.ready
        if self.reused and self.connection is not None:
            self.connection.send(item.wire, self)
        else:
            if self.connection is not None:
                self.connection.close()
            self.task = asyncio.get_running_loop().create_task(self._connect_and_send())

    def cancel(self, now: float) -> None:
        if self.task is not None and not self.task.done():
            # Still waiting for a connection: never sent.
            self.sent = now
        self.drop()
        self.client.settle(self, CANCELLED, "", now)

    def drop(self) -> None:
        if self.task is not None:
            self.task.cancel()
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    # Sink
    def head(self, status: int) -> None:
        self.reply.status = status

    def body(self, data: bytes, now: float) -> None:
        if gained := self.reply.feed(data, now):
            self.client.tokens += gained
            self.client.last_token = now

    def complete(self, now: float) -> None:
        before = self.reply.received
        reason = self.reply.finish(now)
        if gained := self.reply.received - before:
            self.client.tokens += gained
            self.client.last_token = now
        self.failures = self.failures + 1 if reason else 0
        self.replied = now
        self.client.settle(self, FAILED if reason else OK, reason, now)

    def broken(self, reason: str, now: float) -> None:
        """The connection is lost. One that was kept may have been closed by the server while the request was under way,
        which says nothing of the request: it is sent once more, on a connection of its own (RFC 9112, 9.3.1).
        """
        if not self.reused or self.reply.status:
            self.fail(reason, now)
            return
        if now - self.replied < CLOSED_AT_ONCE_S:
            self.client.reuses = False  # llama.cpp does so after every stream, and does not announce it
        self.reused, self.connection = False, None
        self.task = asyncio.get_running_loop().create_task(self._connect_and_send())

    def fail(self, reason: str, now: float) -> None:
        """The request has failed."""
        self.failures += 1
        self.connection = None
        self.client.settle(self, FAILED, reason, now)

    async def _connect_and_send(self) -> None:
        if self.failures:
            await asyncio.sleep(min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(self.failures, 10)))
        try:
            async with self.client.connecting:
                self.connection = await connect(self.client.target)
        except OSError as error:
            self.fail(f"cannot connect: {error.strerror or error}", time.monotonic())
            return
        self.sent = time.monotonic()
        self.connection.send(self.item.wire, self)


class Client:
    """Keeps a worker's share of the load in flight until ``stop``."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.workload = spec.load.workload
        self.target = parse_target(spec.load.base_url)
        self.recorder = Recorder(spec.worker)
        dataset = stored_dataset(spec.load)
        self.supply = Supply(spec, self.target, dataset)
        self.schedule: Schedule = schedule_for(self.workload, (spec.worker, spec.workers), spec.load.seed, dataset)
        self.connecting = asyncio.Semaphore(CONNECTING_AT_ONCE)
        self.busy: dict[Slot, None] = {}
        self.idle: list[Slot] = []
        self.tokens = self.events = 0
        self.last_token = self.late_max = 0.0
        self.exhausted = False
        self.reuses = True
        self._running = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def finished(self) -> bool:
        """All requests of a load of fixed size have been answered."""
        return self.exhausted and not self.busy

    def begin(self, started: float) -> None:
        self.recorder.started = started
        self._running = True
        self._pump()

    def stop(self) -> RawRun:
        """Cut off what is in flight and give the records."""
        self._running = False
        now = time.monotonic()
        if self._timer is not None:
            self._timer.cancel()
        for slot in list(self.busy):
            slot.cancel(now)
        for slot in self.idle:
            slot.drop()
        return self.recorder.raw(self.workload.stream)

    def expire(self, now: float) -> None:
        """Fail the requests that are older than the limit."""
        while self.busy:
            slot = next(iter(self.busy))
            if now - slot.sent <= self.spec.load.request_timeout_s:
                return
            slot.drop()
            slot.fail(f"no reply within {self.spec.load.request_timeout_s:g} s", now)

    def settle(self, slot: Slot, state: int, reason: str, end: float) -> None:
        """A request is over: note it and send what is due next."""
        self.busy.pop(slot)
        self.events += slot.reply.events
        self.recorder.add(slot, state, reason, end)
        self.idle.append(slot)
        if self._running:
            self._pump()

    def _pump(self) -> None:
        now = time.monotonic()
        elapsed = now - self.recorder.started
        for due in self.schedule.take(elapsed, len(self.busy)):
            item = self.supply.take()
            if item is None:
                self.exhausted = True
                return
            slot = self.idle.pop() if self.idle else Slot(self)
            self.busy[slot] = None
            self.late_max = max(self.late_max, elapsed - due)
            slot.start(item, self.recorder.started + due)
        wait = self.schedule.wait_s(elapsed)
        if math.isfinite(wait):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(wait, self._pump)
