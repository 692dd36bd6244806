"""GPU memory: what is used, by whom, and whether it came back after a stop ("port free" is not "GPU free")."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

from autotune.server.cancel import Waiting
from autotune.server.proctable import read_row
from autotune.values import Value

MIB = 1 << 20
CANCELLED_S = 5.0
"""How long a wait for memory goes on after a first wish to end."""


class Device(Value, frozen=True, kw_only=True):
    """One visible GPU at one moment. ``throttling`` names the reasons that hold its clocks down now."""

    index: int
    name: str
    total_bytes: int
    used_bytes: int
    sm_clock_mhz: int | None = None
    temperature_c: int | None = None
    throttling: tuple[str, ...] = ()


class Holder(Value, frozen=True, kw_only=True):
    """A process with memory on a GPU; ``used_bytes`` is None where the driver does not tell."""

    index: int
    pid: int
    used_bytes: int | None = None


class GpuProbe(Protocol):
    """Reads the GPUs that the server will see. Never raises: a GPU that cannot be read is not listed."""

    def devices(self) -> tuple[Device, ...]: ...

    def holders(self) -> tuple[Holder, ...]: ...

    def only(self, devices: Collection[int]) -> GpuProbe:
        """The same view of these devices alone."""
        ...

    def near(self) -> dict[int, tuple[int, ...]]:
        """Device numbers to the processors of their NUMA node, where the driver tells."""
        ...


class NoGpu:
    """A machine without (readable) GPUs."""

    def devices(self) -> tuple[Device, ...]:
        return ()

    def holders(self) -> tuple[Holder, ...]:
        return ()

    def only(self, devices: Collection[int]) -> NoGpu:
        """See ``GpuProbe.only``."""
        return self

    def near(self) -> dict[int, tuple[int, ...]]:
        """See ``GpuProbe.near``."""
        return {}


class FileGpu:
    """A pretended driver: a JSON file maps device numbers to used bytes, or to ``{pid: bytes}``.

    As with a real driver, memory of a process that is gone is free.
    """

    def __init__(self, path: Path, total_bytes: int = 80 << 30, shown: Collection[int] | None = None) -> None:
        self._path = path
        self._total_bytes = total_bytes
        self._shown = shown

    def only(self, devices: Collection[int]) -> FileGpu:
        """See ``GpuProbe.only``."""
        return FileGpu(self._path, self._total_bytes, frozenset(devices))

    def near(self) -> dict[int, tuple[int, ...]]:
        """See ``GpuProbe.near``: nothing is told."""
        return {}

    def devices(self) -> tuple[Device, ...]:
        held = self._held()
        return tuple(
            Device(
                index=index,
                name="simulated",
                total_bytes=self._total_bytes,
                used_bytes=sum(bytes_ for pid, bytes_ in held[index].items() if pid == 0 or read_row(pid)),
            )
            for index in sorted(held)
        )

    def holders(self) -> tuple[Holder, ...]:
        return tuple(
            Holder(index=index, pid=pid, used_bytes=used)
            for index, by_pid in sorted(self._held().items())
            for pid, used in by_pid.items()
            if used and pid and read_row(pid)
        )

    def _held(self) -> dict[int, dict[int, int]]:
        try:
            raw = json.loads(self._path.read_text())
            held = {int(i): _by_pid(used) for i, used in raw.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}
        return {i: used for i, used in held.items() if self._shown is None or i in self._shown}


def _by_pid(used: Any) -> dict[int, int]:
    return {int(pid): int(b) for pid, b in used.items()} if isinstance(used, dict) else {0: int(used)}


class GpuLimits(Value, frozen=True, kw_only=True):
    """A device is back at its baseline when it uses at most ``tolerance_bytes`` more."""

    release_s: float = 60.0
    tolerance_bytes: int = 512 * MIB


class GpuReturn(Value, frozen=True, kw_only=True):
    """``excess_bytes`` per device number (as text) is empty when all memory came back.

    ``ours``: one of the holders is a process of the server that was stopped.
    """

    seconds: float
    excess_bytes: dict[str, int] = {}
    holders: tuple[str, ...] = ()
    ours: bool = False

    @property
    def clean(self) -> bool:
        return not self.excess_bytes


def used_by_device(gpu: GpuProbe) -> dict[int, int]:
    """Used bytes per device: the baseline, when taken before the first start."""
    return {device.index: device.used_bytes for device in gpu.devices()}


def wait_for_baseline(
    gpu: GpuProbe,
    baseline: Mapping[int, int],
    limits: GpuLimits,
    waiting: Waiting,
    our_pids: Callable[[], Collection[int]] = tuple,
) -> GpuReturn:
    """Wait until every device is back at ``baseline``; after ``release_s`` say who holds it.

    A wish to end shortens the wait to ``CANCELLED_S`` from then on, an urgent one ends it.

    A device without a baseline counts from zero.
    """
    begin_s = waiting.clock.now()
    end_s, cancelled = begin_s + limits.release_s, False
    while excess := _excess(gpu, baseline, limits.tolerance_bytes):
        if not cancelled and waiting.cancel.reason() is not None:
            cancelled, end_s = True, min(end_s, waiting.clock.now() + CANCELLED_S)
        if waiting.clock.now() >= end_s or waiting.cancel.urgent():
            break
        waiting.pause()
    seconds = waiting.clock.now() - begin_s
    if not excess:
        return GpuReturn(seconds=seconds)
    ours = frozenset(our_pids())
    held = [holder for holder in gpu.holders() if holder.index in excess]
    return GpuReturn(
        seconds=seconds,
        excess_bytes={str(index): size for index, size in excess.items()},
        holders=tuple(_describe(holder, holder.pid in ours) for holder in held),
        ours=any(holder.pid in ours for holder in held),
    )


def _excess(gpu: GpuProbe, baseline: Mapping[int, int], tolerance_bytes: int) -> dict[int, int]:
    over = {index: used - baseline.get(index, 0) for index, used in used_by_device(gpu).items()}
    return {index: size for index, size in over.items() if size > tolerance_bytes}


def _describe(holder: Holder, ours: bool) -> str:
    row = read_row(holder.pid)
    size = "" if holder.used_bytes is None else f", {holder.used_bytes / MIB:.0f} MiB"
    owner = "ours" if ours else "not ours"
    return f"GPU {holder.index}: {row.name if row else 'unseen process'} (pid {holder.pid}{size}, {owner})"
