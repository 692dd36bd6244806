"""What GPUs held before the study's first server: what must be there again before each of the next ones."""

from __future__ import annotations

from pathlib import Path

from autotune.events import Listener, Note
from autotune.server.gpu import GpuProbe, used_by_device
from autotune.server.proctable import boot_id
from autotune.study.folder import StudyFolder
from autotune.study.record import read_record, write_record
from autotune.values import Value

OCCUPIED_SHARE = 0.05


class Machine(Value, frozen=True, kw_only=True):
    """What the GPUs held before the study's first server of this boot."""

    boot_id: str
    gpu_used_bytes: dict[str, int]


def machine_file(folder: StudyFolder) -> Path:
    return folder.root / "machine.json"


def gpu_baseline(folder: StudyFolder, gpu: GpuProbe, say: Listener) -> dict[int, int]:
    """The least that was seen in use before a server of this study, in this boot."""
    path, boot = machine_file(folder), boot_id()
    now = used_by_device(gpu)
    for device in gpu.devices():
        if device.used_bytes > OCCUPIED_SHARE * device.total_bytes:
            used = f"{device.used_bytes >> 20:,} of {device.total_bytes >> 20:,} MiB"
            say(Note(text=f"GPU {device.index} is already in use: {used}; measurements may suffer", level="warning"))
    known = read_record(path, Machine)
    if known is not None and known.boot_id == boot:
        now = {index: min(used, known.gpu_used_bytes.get(str(index), used)) for index, used in now.items()}
    write_record(path, Machine(boot_id=boot, gpu_used_bytes={str(index): used for index, used in now.items()}))
    return now
