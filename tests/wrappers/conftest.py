"""The doubles on the search path, and servers behind them. Whatever a test starts is gone when it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from autotune.server.ports import fresh_port
from autotune.server.proctable import read_table
from autotune.server.readiness import StartLimits
from autotune.server.serve import ServeOptions
from autotune.server.stop import StopLimits
from autotune.study.file import EngineSpec
from autotune.values import LaunchPlan, Wrapper
from autotune.wrappers import place
from tests.server.conftest import DOUBLE as SERVER

SCRIPT = Path(__file__).with_name("double.py")
NAMES = ("docker", "podman", "srun", "squeue", "scancel", "ssh")
# ssh's end of the port and the server's are on one machine here, so on two of its loopback addresses.
HOSTS = {"ssh": "127.0.0.2"}
SETTINGS = {
    "docker": Wrapper(kind="docker", image="engine:1", gpus=""),
    "podman": Wrapper(kind="podman", image="engine:1", options=("--volume", "/models:/models")),
    "bridge": Wrapper(kind="docker", image="engine:1", network="bridge"),
    "srun": Wrapper(kind="srun", options=("--partition", "gpu")),
    "ssh": Wrapper(kind="ssh", destination="gpu7", options=("-p", "22")),
}


class Doubles(msgspec.Struct, frozen=True):
    """The folder of the doubles' daemons."""

    state: Path

    def fault(self, name: str) -> None:
        """From now on."""
        (self.state / name).touch()

    def heal(self, name: str) -> None:
        (self.state / name).unlink()

    def kept(self) -> list[dict[str, object]]:
        """What was ever started, as the daemons wrote it down."""
        found: list[dict[str, object]] = [
            msgspec.json.decode(path.read_bytes()) for path in sorted(self.state.glob("*/*/spec.json"))
        ]
        return found

    def alive(self) -> list[int]:
        """First processes of containers and jobs that still run, and their keepers."""
        wanted = str(self.state)
        return [row.pid for row in read_table() if wanted in _command(row.pid) and row.pid != os.getpid()]


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


@pytest.fixture
def doubles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Doubles]:
    """The doubles stand in front of what the machine has."""
    programs, state = tmp_path / "bin", tmp_path / "daemon"
    programs.mkdir()
    state.mkdir()
    for name in NAMES:
        shim = programs / name
        shim.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {SCRIPT} {state} {name} "$@"\n')
        shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    found = Doubles(state)
    yield found
    left = found.alive()
    for pid in left:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    assert not left


def wrapped_plan(setting: str, *flags: str, **changes: object) -> LaunchPlan:
    """A server of bad manners behind one of ``SETTINGS``; its state is in its command line, so that it can be seen."""
    wrapper = msgspec.structs.replace(SETTINGS[setting], **changes)
    host = HOSTS.get(setting, "127.0.0.1")
    where = place(EngineSpec(command=["server"], host=host, wrapper=wrapper), fresh_port(host))
    argv = (sys.executable, "-IS", SERVER, "--port", str(where.port), *flags)
    return LaunchPlan(engine="double", argv=argv, host=where.host, port=where.port, wrapper=wrapper)


def serve_options(tmp_path: Path, mark: str, term_s: float = 20.0) -> ServeOptions:
    return ServeOptions(
        log_path=tmp_path / "server.log",
        mark=mark,
        start=StartLimits(start_s=100.0, silence_s=50.0),
        stop=StopLimits(term_s=term_s, kill_s=20.0),
    )
