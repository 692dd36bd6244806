"""GPU memory: selection, the pretended driver, the return to the baseline."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from autotune.server.cancel import CancelFlag, Waiting
from autotune.server.clock import FakeClock
from autotune.server.gpu import (
    CANCELLED_S,
    Device,
    FileGpu,
    GpuLimits,
    Holder,
    NoGpu,
    used_by_device,
    wait_for_baseline,
)
from autotune.server.nvml import find_gpu, select_devices

GIB = 1 << 30
UUIDS = ["GPU-aaaa-1", "GPU-bbbb-2", "GPU-cccc-3"]


@pytest.mark.parametrize(
    ("visible", "chosen"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("2,0", [2, 0]),
        ("1, 7, 0", [1]),
        ("GPU-bbbb", [1]),
        ("GPU-cccc-3,GPU-aaaa-1", [2, 0]),
        ("-1", []),
        ("NoDevFiles", []),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(visible: str | None, chosen: list[int]) -> None:
    """Numbers or UUIDs, in order; the first that names nothing ends the list."""
    assert select_devices(visible, UUIDS) == chosen


def test_the_pretended_driver_frees_what_the_dead_held(tmp_path: Path) -> None:
    """Memory of a live process counts, that of a dead one does not, and a plain number is nobody's."""
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps({"0": {str(os.getpid()): 5, str(2**22 + 1): 7}, "1": 11}))
    assert used_by_device(FileGpu(path)) == {0: 5, 1: 11}
    assert FileGpu(path).holders() == (Holder(index=0, pid=os.getpid(), used_bytes=5),)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"x": 1}', '{"0": null}', '{"0": {"a": 1}}'])
def test_a_torn_file_shows_no_devices(tmp_path: Path, text: str) -> None:
    """A file that is being written is no error."""
    (tmp_path / "gpu.json").write_text(text)
    assert FileGpu(tmp_path / "gpu.json").devices() == ()
    assert FileGpu(tmp_path / "none.json").devices() == ()


def test_without_a_driver_there_is_no_gpu() -> None:
    """A machine without GPUs works with none; one that hides them does too."""
    assert find_gpu({"CUDA_VISIBLE_DEVICES": ""}).devices() == ()
    assert NoGpu().devices() == ()
    assert NoGpu().holders() == ()


def test_nvml_is_read_device_by_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures and holders are NVML's; what a device does not tell is None, and one that fails is not listed."""

    def memory(handle: int) -> SimpleNamespace:
        if handle == 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return SimpleNamespace(total=80 * GIB, used=handle * GIB)

    def temperature(handle: int, sensor: int) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    answers = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 3,
        "nvmlDeviceGetHandleByIndex": lambda i: i,
        "nvmlDeviceGetUUID": lambda handle: UUIDS[handle],
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetName": lambda handle: "H200",
        "nvmlDeviceGetClockInfo": lambda handle, kind: 1980,
        "nvmlDeviceGetTemperature": temperature,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: pynvml.nvmlClocksThrottleReasonSwPowerCap,
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: [SimpleNamespace(pid=77, usedGpuMemory=None)],
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, answer)
    gpu = find_gpu({"CUDA_VISIBLE_DEVICES": "2,1"})
    [device] = gpu.devices()
    assert (device.index, device.used_bytes, device.sm_clock_mhz, device.temperature_c) == (2, 2 * GIB, 1980, None)
    assert device.throttling == ("power",)
    assert [(holder.index, holder.pid, holder.used_bytes) for holder in gpu.holders()] == [(2, 77, None), (1, 77, None)]


class Draining(NoGpu):
    """A device whose memory comes back at a given time."""

    def __init__(self, clock: FakeClock, free_s: float) -> None:
        self.clock, self.free_s = clock, free_s

    def devices(self) -> tuple[Device, ...]:
        used = GIB if self.clock.now() >= self.free_s else 70 * GIB
        return (Device(index=3, name="x", total_bytes=80 * GIB, used_bytes=used),)

    def holders(self) -> tuple[Holder, ...]:
        return (Holder(index=3, pid=os.getpid(), used_bytes=69 * GIB), Holder(index=2, pid=1))


def test_memory_that_comes_back_is_waited_for() -> None:
    """The driver takes seconds after a SIGKILL."""
    clock = FakeClock()
    found = wait_for_baseline(Draining(clock, 4.0), {3: GIB}, GpuLimits(), Waiting(clock=clock))
    assert found.clean
    assert found.seconds == pytest.approx(4.0, abs=0.25)


def test_memory_that_stays_is_laid_at_its_holders_door() -> None:
    """After the limit the holders on that device are named, and whether one of them is ours."""
    clock = FakeClock()
    found = wait_for_baseline(Draining(clock, 1e9), {3: GIB}, GpuLimits(release_s=9.0), Waiting(clock=clock))
    assert found.excess_bytes == {"3": 69 * GIB}
    assert found.seconds == pytest.approx(9.0, abs=0.25)
    [holder] = found.holders
    assert "not ours" in holder
    assert f"pid {os.getpid()}" in holder
    assert not found.ours
    ours = wait_for_baseline(
        Draining(clock, 1e9), {3: GIB}, GpuLimits(release_s=0.0), Waiting(clock=clock), lambda: [os.getpid()]
    )
    assert ours.ours


def test_an_urgent_cancel_does_not_wait_for_memory() -> None:
    """After the second Ctrl-C nobody waits for a minute."""
    clock, flag = FakeClock(), CancelFlag()
    flag.cancel("SIGINT")
    flag.cancel("SIGINT")
    found = wait_for_baseline(Draining(clock, 1e9), {}, GpuLimits(), Waiting(clock=clock, cancel=flag))
    assert (found.clean, found.seconds) == (False, 0.0)


def test_a_first_wish_to_end_shortens_the_wait() -> None:
    """Not a minute, not nothing: five seconds for memory that is on its way back."""
    clock, flag = FakeClock(), CancelFlag()
    flag.cancel("SIGTERM")
    limits = GpuLimits(release_s=60.0)
    found = wait_for_baseline(Draining(clock, 1e9), {}, limits, Waiting(clock=clock, cancel=flag))
    assert not found.clean
    assert CANCELLED_S <= found.seconds < CANCELLED_S + 1.0
