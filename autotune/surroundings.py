"""What else went on around a load: other processes on host and GPUs, clocks held down, memory left free, the server's
own counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.engines.base import Counters
from autotune.load.gates import Surroundings
from autotune.rig import Rig, control_client, fetcher
from autotune.server.gpu import Device, GpuLimits
from autotune.server.host import HostMeter
from autotune.server.serve import RunningServer
from autotune.trouble import read_log

LOOK_S = 1.0
HARMLESS = frozenset({"power"})
"""A busy GPU at its power limit is in its normal state; heat and hardware slow-downs are not."""


class Onlooker:
    """Looks around about once a second while a load runs."""

    def __init__(self, rig: Rig, server: RunningServer) -> None:
        self._rig = rig
        self._server = server
        self._host = HostMeter(self._server_cpu_s, rig.slot.cpus)
        self._before = self._counters()
        self._looked_s = rig.waiting.clock.now()
        self._looks = self._held = 0
        self._others: set[str] = set()
        self._free: list[float] = []

    def look(self) -> None:
        """Cheap to call often."""
        now_s = self._rig.waiting.clock.now()
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        devices = self._rig.gpu.devices()
        if devices:
            self._looks += 1
            self._held += any(set(device.throttling) - HARMLESS for device in devices)
            self._others |= self._foreign_holders()
            self._free += self._free_shares(devices)

    def result(self) -> Surroundings:
        """All that was seen since the beginning; ends the watch."""
        # What a peak took stays with the allocator: a last look sees it, however short the load was.
        self._free += self._free_shares(self._rig.gpu.devices())
        load = self._host.read()
        return Surroundings(
            before=self._before,
            after=self._counters(),
            host_busy=None if self._mingled else min(1.0, load.other_cores / self._rig.cores),
            throttled=self._held / self._looks if self._looks else None,
            gpu_others=tuple(sorted(self._others)),
            gpu_free_share=None if self._others or not self._free else round(min(self._free), 4),
        )

    def _free_shares(self, devices: Sequence[Device]) -> list[float]:
        """What is free of each GPU on which the server holds memory: those in use since the night began."""
        before, tolerance = self._rig.gpu_baseline, GpuLimits().tolerance_bytes
        held = [d for d in devices if d.total_bytes and d.used_bytes - before.get(d.index, 0) > tolerance]
        return [max(0.0, 1.0 - device.used_bytes / device.total_bytes) for device in held]

    @property
    def _mingled(self) -> bool:
        """Servers side by side without processors of their own cannot be told from strangers."""
        return self._rig.beside and not self._rig.slot.cpus

    def _counters(self) -> Counters:
        with control_client(self._server.plan) as client:
            return self._rig.engine.counters(fetcher(client, self._rig.waiting), read_log(self._server.log_path))

    def _server_cpu_s(self) -> float:
        return self._server.vitals().cpu_s if self._server.process else 0.0

    def _foreign_holders(self) -> set[str]:
        if self._server.process is None:
            return set()
        ours = {row.pid for row in self._server.process.members()}
        return {f"pid {h.pid} on GPU {h.index}" for h in self._rig.gpu.holders() if h.pid not in ours}
