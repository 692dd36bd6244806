"""The GPUs of this machine as NVML, NVIDIA's library, shows them."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pynvml

from autotune.server.gpu import Device, GpuProbe, Holder, NoGpu

_THROTTLE = {
    "power": "nvmlClocksThrottleReasonSwPowerCap",
    "hardware slowdown": "nvmlClocksThrottleReasonHwSlowdown",
    "thermal (software)": "nvmlClocksThrottleReasonSwThermalSlowdown",
    "thermal (hardware)": "nvmlClocksThrottleReasonHwThermalSlowdown",
    "power brake": "nvmlClocksThrottleReasonHwPowerBrakeSlowdown",
}


class NvmlGpu:
    """NVML's view. It creates no context on a GPU, so looking uses no memory there."""

    def __init__(self, visible: str | None = None) -> None:
        """``visible`` is CUDA_VISIBLE_DEVICES; None: all. Raises pynvml.NVMLError without a working driver.

        Numbers are NVML's (PCI bus order), which CUDA shares for GPUs of one kind.
        """
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        uuids = [str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(i))) for i in range(count)]
        self._handles = {i: pynvml.nvmlDeviceGetHandleByIndex(i) for i in select_devices(visible, uuids)}

    def devices(self) -> tuple[Device, ...]:
        return tuple(device for i, handle in self._handles.items() for device in _read_device(i, handle))

    def holders(self) -> tuple[Holder, ...]:
        return tuple(holder for i, handle in self._handles.items() for holder in _read_holders(i, handle))

    def only(self, devices: Collection[int]) -> NvmlGpu:
        """See ``GpuProbe.only``."""
        view = copy.copy(self)
        view._handles = {i: handle for i, handle in self._handles.items() if i in devices}
        return view

    def near(self) -> dict[int, tuple[int, ...]]:
        """See ``GpuProbe.near``."""
        known = {i: _processors(handle) for i, handle in self._handles.items()}
        return {i: cpus for i, cpus in known.items() if cpus}


def _processors(handle: Any) -> tuple[int, ...]:
    """The bits of the driver's affinity mask, 64 a word."""
    words = ((os.cpu_count() or 1) + 63) // 64
    try:
        mask = pynvml.nvmlDeviceGetCpuAffinity(handle, words)
    except pynvml.NVMLError:
        return ()
    return tuple(64 * i + bit for i, word in enumerate(mask) for bit in range(64) if int(word) >> bit & 1)


def _read_device(index: int, handle: Any) -> Iterator[Device]:
    with contextlib.suppress(pynvml.NVMLError):
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        reasons = int(_or_none(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0)
        yield Device(
            index=index,
            name=str(pynvml.nvmlDeviceGetName(handle)),
            total_bytes=int(memory.total),
            used_bytes=int(memory.used),
            sm_clock_mhz=_or_none(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
            temperature_c=_or_none(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
            throttling=tuple(name for name, bit in _THROTTLE.items() if reasons & getattr(pynvml, bit)),
        )


def _or_none(ask: Callable[..., int], *args: Any) -> int | None:
    try:
        return int(ask(*args))
    except pynvml.NVMLError:
        return None


def _read_holders(index: int, handle: Any) -> Iterator[Holder]:
    with contextlib.suppress(pynvml.NVMLError):
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
            used = process.usedGpuMemory
            yield Holder(index=index, pid=int(process.pid), used_bytes=None if used is None else int(used))


def select_devices(visible: str | None, uuids: list[str]) -> list[int]:
    """The device numbers that CUDA_VISIBLE_DEVICES names: numbers or (abbreviated) UUIDs.

    As in CUDA, the first entry that names no device ends the list.
    """
    if visible is None:
        return list(range(len(uuids)))
    chosen: list[int] = []
    for entry in (part.strip() for part in visible.split(",")):
        match = _device(entry, uuids)
        if match is None:
            break
        chosen.append(match)
    return chosen


def _device(entry: str, uuids: list[str]) -> int | None:
    if entry.isdecimal():
        return int(entry) if int(entry) < len(uuids) else None
    return next((i for i, uuid in enumerate(uuids) if entry and uuid.startswith(entry)), None)


def find_gpu(env: Mapping[str, str] | None = None) -> GpuProbe:
    """NVML for the devices visible in ``env`` (the tuner's own by default); ``NoGpu`` without a driver."""
    env = os.environ if env is None else env
    try:
        return NvmlGpu(env.get("CUDA_VISIBLE_DEVICES"))
    except pynvml.NVMLError:
        return NoGpu()
