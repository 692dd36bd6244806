"""A trial that travels: what goes, what comes home, and what is reaped where it runs."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import msgspec
import pytest

from autotune.fleet.parcel import Homecoming, Parcel, pack, reap, run_parcel, to_bytes, unpack
from autotune.rig import Rig
from autotune.server.proctable import MARK_NAME
from autotune.trial import Ticket
from autotune.values import Config, Measured
from tests.nights import Night, rig, wait_for


def parcel(shared: Rig, number: int = 3) -> Parcel:
    """A search trial of the short study."""
    return Parcel(
        study=shared.study,
        study_id=shared.study_id,
        space=shared.space,
        version=shared.version,
        searched=shared.searched,
        ticket=Ticket(number=number, config=Config(params={"max_running_requests": 64, "cuda_graph_max_bs": 64})),
        gates=shared.gates,
        under_way=(number,),
    )


def test_a_trial_runs_from_bytes_and_its_files_come_home(tmp_path: Path) -> None:
    """What crosses the wire is enough; log and raw records are in the archive, the folder there is gone."""
    shared = rig(Night().write(tmp_path))
    there = msgspec.msgpack.decode(to_bytes(parcel(shared)), type=Parcel)
    said: list[object] = []
    home = msgspec.msgpack.decode(to_bytes(run_parcel(there, said.append)), type=Homecoming)
    assert isinstance(home.result.outcome, Measured)
    assert home.result.number == 3
    assert home.hardware.keys() <= {"gpu", "processor"}
    unpack(home.files, tmp_path / "home")
    names = {str(path.relative_to(tmp_path / "home")) for path in (tmp_path / "home").rglob("*") if path.is_file()}
    assert {"server.log", "plan.json", "server.json"} <= names
    assert any(name.startswith("load/raw-") for name in names)
    assert not names & {"config.json", "result.json"}
    assert said


def test_an_archive_writes_nothing_outside(tmp_path: Path) -> None:
    """A path that climbs out of the folder is refused."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("../outside"), io.BytesIO())
    with pytest.raises(tarfile.FilterError):
        unpack(buffer.getvalue(), tmp_path / "inside")
    assert not (tmp_path / "outside").exists()


def test_what_is_packed_is_unpacked_privately(tmp_path: Path) -> None:
    """Contents survive, the rights of others do not."""
    folder = tmp_path / "there" / "load"
    folder.mkdir(parents=True)
    (folder / "raw-0.npz").write_bytes(b"x" * 1000)
    (tmp_path / "there" / "result.json").write_text("{}")
    unpack(pack(tmp_path / "there", {"result.json"}), tmp_path / "home")
    arrived = tmp_path / "home" / "load" / "raw-0.npz"
    assert arrived.read_bytes() == b"x" * 1000
    assert arrived.stat().st_mode & 0o077 == 0
    assert not (tmp_path / "home" / "result.json").exists()


def test_only_servers_that_nobody_runs_are_reaped(tmp_path: Path) -> None:
    """Of this study, up to the newest number known, and not those under way; other studies are not touched."""
    shared = rig(Night().write(tmp_path))
    marks = {
        "lost": f"{shared.study_id}/2/aa",
        "under way": f"{shared.study_id}/3/bb",
        "newer": f"{shared.study_id}/9/cc",
        "other": "other-study/2/dd",
    }
    sleepers = {
        name: subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(60)"],
            env={**os.environ, MARK_NAME: mark},
            start_new_session=True,
        )
        for name, mark in marks.items()
    }
    try:
        wait_for(lambda: all(_started(process.pid) for process in sleepers.values()))
        report = reap(shared.study, shared.study_id, 4, (3,))
        assert report.clean
        assert sleepers["lost"].wait(10) != 0
        assert {name for name, process in sleepers.items() if process.poll() is None} == {"under way", "newer", "other"}
    finally:
        for process in sleepers.values():
            process.kill()
            process.wait()


def _started(pid: int) -> bool:
    return MARK_NAME.encode() in Path(f"/proc/{pid}/environ").read_bytes()
