"""A worker's requests, made ahead of time."""

from __future__ import annotations

import collections
import time

import msgspec

from autotune.load.body import encode_body, exact_tokens, route_path
from autotune.load.dataset.stored import Dataset
from autotune.load.http import Target, request_bytes, request_head
from autotune.load.spec import WorkerSpec
from autotune.load.workload import plan_request

PREPARED = 2048
PREPARED_BYTES = 64 << 20
"""Requests made ahead of time: so many, or so much of them; a whole wave of a worker's places in any case."""
AT_A_TIME, AT_A_TIME_BYTES = 64, 1 << 20
"""What is made between two looks at anything else."""


class Prepared(msgspec.Struct, frozen=True):
    """A request ready to be written."""

    index: int
    wire: bytes
    asked_in: int
    asked_out: int


class Supply:
    """Prepares this worker's requests ahead of time, so that a wave of replies does not wait for random numbers."""

    def __init__(self, spec: WorkerSpec, target: Target, dataset: Dataset | None) -> None:
        self._spec = spec
        self._dataset = dataset
        self._head = request_head(target, route_path(spec.load.workload), spec.load.api_key)
        self._ready: collections.deque[Prepared] = collections.deque()
        self._bytes = 0
        self._next = spec.load.first + spec.worker
        self._wave = -(-spec.load.workload.concurrency // spec.workers)

    def __len__(self) -> int:
        return len(self._ready)

    def take(self) -> Prepared | None:
        """The next request; None when ``LoadSpec.requests`` are used up."""
        if not self._ready:
            return self._prepare()
        item = self._ready.popleft()
        self._bytes -= len(item.wire)
        return item

    @property
    def stocked(self) -> bool:
        """Whether enough is prepared."""
        count = len(self)
        return count >= self._wave and (count >= PREPARED or self._bytes >= PREPARED_BYTES)

    def refill(self) -> bool:
        """Prepare some more; False: there is enough, or no further request."""
        made = made_bytes = 0
        while made < AT_A_TIME and made_bytes < AT_A_TIME_BYTES:
            item = None if self.stocked else self._prepare()
            if item is None:
                return False
            self._ready.append(item)
            self._bytes += len(item.wire)
            made, made_bytes = made + 1, made_bytes + len(item.wire)
        return True

    def prepare(self, seconds: float) -> None:
        """Prepare as much as goes before a load, for so long at most: the rest is made when it is sent."""
        end = time.monotonic() + seconds
        while self.refill() and time.monotonic() < end:
            pass

    def _prepare(self) -> Prepared | None:
        load = self._spec.load
        if load.requests and self._next >= load.first + load.requests:
            return None
        request = plan_request(load.workload, load.seed, self._next, self._dataset)
        self._next += self._spec.workers
        wire = request_bytes(self._head, encode_body(request, load.workload, load.model))
        return Prepared(request.index, wire, exact_tokens(request, load.workload), request.output_tokens)
