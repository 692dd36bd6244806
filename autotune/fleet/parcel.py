"""A trial as it travels to another host, and what comes home: plain bytes both ways."""

from __future__ import annotations

import io
import os
import platform
import tarfile
import tempfile
from pathlib import Path

import msgspec

from autotune.engines import engine
from autotune.events import Event, Listener
from autotune.load.gates import GateLimits
from autotune.rig import Rig
from autotune.server.cancel import Waiting
from autotune.server.gpu import used_by_device
from autotune.server.nvml import find_gpu
from autotune.server.stop import StopLimits, StopReport, reap_orphans
from autotune.space.parameters import Space
from autotune.study.file import Study
from autotune.study.folder import StudyFolder
from autotune.study.record import Records
from autotune.trial import Ticket, run_trial
from autotune.values import TrialResult, Value

IN_MEMORY_BYTES = 512 << 20
"""Raw records and logs of one trial come home as one archive; larger ones stay behind, and that is said."""


class Parcel(Value, frozen=True, kw_only=True):
    """All that a host needs to run one trial. ``under_way`` are the trials of this study that run now, this one among
    them: whatever else carries the study's mark there belongs to a driver or a worker that is gone.
    """

    study: Study
    study_id: str
    space: Space
    version: str
    searched: tuple[str, ...]
    ticket: Ticket
    gates: GateLimits
    dataset: bytes = b""
    prompts: int = 0
    under_way: tuple[int, ...] = ()


class Homecoming(Value, frozen=True, kw_only=True):
    """A settled trial, the host it ran on, what is built into that host, and the trial's files as a tar archive."""

    result: TrialResult
    host: str
    hardware: dict[str, str]
    files: bytes


def run_parcel(parcel: Parcel, say: Listener) -> Homecoming:
    """Run the trial here, in a folder of its own that is gone afterwards.

    Raises NightStopped when an assumption of the night is broken on this host.
    """
    reap(parcel.study, parcel.study_id, max(parcel.under_way, default=-1), parcel.under_way)
    with tempfile.TemporaryDirectory(prefix="autotune-") as name:
        rig = _rig(parcel, Path(name), say)
        rig.records.begin_trial(parcel.ticket.begun(""))
        result = run_trial(rig, parcel.ticket)
        files = pack(rig.records.trial(parcel.ticket.number).root, leave={"config.json", "result.json"})
        return Homecoming(result=result, host=platform.node(), hardware=hardware(rig), files=files)


def reap(study: Study, study_id: str, newest: int, under_way: tuple[int, ...] = ()) -> StopReport:
    """End the servers on this host that a lost worker or an earlier driver of this study left.

    Spared are the trials ``under_way``, and those above ``newest``: they began after the order was given.
    """

    def lost(mark: str) -> bool:
        number = mark.removeprefix(f"{study_id}/").partition("/")[0]
        return number.isdecimal() and int(number) <= newest and int(number) not in under_way

    limits = StopLimits(term_s=study.timeouts.stop_s)
    return reap_orphans((), limits, study_id=study_id, lost=lost)


def hardware(rig: Rig) -> dict[str, str]:
    """What must be alike on all hosts of one study: the GPUs of a trial, or without GPUs the processor."""
    gpus = sorted(device.name for device in rig.gpu.devices())
    return {"gpu": ", ".join(gpus)} if gpus else {"processor": processor()}


def processor() -> str:
    """The processor's name, as Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def pack(folder: Path, leave: set[str]) -> bytes:
    """The files of ``folder`` but those named in ``leave``, compressed."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name not in leave and buffer.tell() + path.stat().st_size < IN_MEMORY_BYTES:
                archive.add(path, arcname=str(path.relative_to(folder)), recursive=False)
    return buffer.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """Write packed files into ``folder``, readable by their owner alone. Links and outside paths are refused."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        archive.extractall(folder, filter="data")
    for path in folder.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)


def to_bytes(value: Parcel | Homecoming | Event) -> bytes:
    """For the way."""
    return msgspec.msgpack.encode(value)


def _rig(parcel: Parcel, root: Path, say: Listener) -> Rig:
    study = parcel.study
    folder = StudyFolder(root / "study")
    folder.create()
    gpu = find_gpu({**os.environ, **study.engine.env})
    dataset = ""
    if parcel.dataset:
        unpack(parcel.dataset, root / "dataset")
        dataset = str(root / "dataset")
    return Rig(
        study=study,
        study_id=parcel.study_id,
        engine=engine(study.engine.kind).for_study(study),
        space=parcel.space,
        version=parcel.version,
        searched=parcel.searched,
        records=Records(folder),
        gpu=gpu,
        gpu_baseline=used_by_device(gpu),
        waiting=Waiting(),
        say=say,
        prompts=parcel.prompts,
        gates=parcel.gates,
        dataset=dataset,
        # Other trials may run on this host: their processors cannot be told from strangers'.
        beside=True,
    )
