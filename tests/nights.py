"""Short nights on the simulated server: study files, the command line as a process, and looks at what it left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from autotune.server.proctable import mark_of, read_table
from autotune.study.folder import StudyFolder
from autotune.study.record import Records
from autotune.values import TrialResult

ROOT = Path(__file__).parent.parent
LIMIT_S = 90.0

TEMPLATE = """
name = "{name}"
seed = 1
[engine]
kind = "sglang"
command = ["{{python}}", "-m", "autotune.sim", "--sim-profile", "demo", "--sim-noise", "0"{flags}]
version = "0.5.14"
[model]
config = "{model}"
gpu_memory_gb = 24
weight_gb = 8
[space]
parameters = {parameters}
[workload]
input_tokens = 8
output_tokens = 8
concurrency = 160
stream = false
min_s = 0.3
max_s = 0.5
warmup_max_s = 0.5
precision = 0.5
{workload}
[budget]
trials = {trials}
wall_clock = "30m"
[timeouts]
start_s = 60
start_silence_s = {silence_s}
stop_s = 3
gpu_release_s = 5
load_stall_s = {stall_s}
request_s = 20
[search]
startup_trials = 2
"""


class Night(msgspec.Struct, frozen=True, kw_only=True):
    """What of a short study differs from test to test."""

    name: str = "short"
    flags: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ("max_running_requests", "cuda_graph_max_bs")
    workload: str = ""
    trials: int = 3
    silence_s: float = 30.0
    stall_s: float = 20.0

    def write(self, folder: Path) -> Path:
        """The study file in ``folder``."""
        values = msgspec.structs.asdict(self)
        values["flags"] = "".join(f", {json.dumps(flag)}" for flag in self.flags)
        values["parameters"] = json.dumps(self.parameters)
        path = folder / "study.toml"
        path.write_text(TEMPLATE.format(model=ROOT / "studies/models/demo.json", **values))
        return path


def begin(*arguments: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
    """``autotune`` with these arguments, its gates wide open for a busy machine."""
    argv = [sys.executable, "-m", "tests.tuner", *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, env=env)


def autotune(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    process = begin(*arguments, cwd=cwd)
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def records(study: Path, name: str = "short") -> Records:
    """The records beside a study file."""
    return Records(StudyFolder.beside(study, name))


def result_bytes(study: Path) -> dict[int, bytes]:
    """Every settled result as it lies on disk."""
    found = records(study)
    files = {number: found.trial(number).result for number in found.numbers()}
    return {number: path.read_bytes() for number, path in files.items() if path.exists()}


def servers(study: Path) -> list[int]:
    """Live processes that carry the mark of a server of this study."""
    marks = {json.loads(path.read_text())["mark"] for path in study.parent.glob("*/trials/*/server.json")}
    ids = {mark.split("/")[0] for mark in marks}
    found = [(row.pid, mark_of(row.pid)) for row in read_table()]
    return [pid for pid, mark in found if mark and mark.split("/")[0] in ids]


def wait_for(what: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
    """Until ``what`` is true; fails after a long time."""
    end = time.monotonic() + limit_s
    while not (found := what()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return found


def stop(process: subprocess.Popen[str], number: signal.Signals = signal.SIGKILL) -> tuple[str, str]:
    """Signal a process and take its last words."""
    process.send_signal(number)
    return process.communicate(timeout=LIMIT_S)


def result(study: Path, number: int) -> TrialResult:
    """A trial that must be settled."""
    found = records(study).result(number)
    assert found is not None
    return found
