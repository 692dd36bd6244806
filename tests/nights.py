"""Short nights on the simulated server: study files, the command line as a process, and looks at what it left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from autotune.brief import read_brief
from autotune.events import Listener
from autotune.load.gates import GateLimits
from autotune.rig import Rig
from autotune.sameness import gpu_of, write_manifest
from autotune.server.cancel import Waiting
from autotune.server.gpu import NoGpu
from autotune.server.proctable import read_table
from autotune.study.folder import StudyFolder
from autotune.study.record import Begun, Records
from autotune.values import (
    Config,
    Diagnosis,
    Effective,
    Estimate,
    Infeasible,
    Measured,
    Measurement,
    Outcome,
    ParamValue,
    Timings,
    TrialResult,
)

ROOT = Path(__file__).parent.parent
LIMIT_S = 120.0
OOM = Infeasible(diagnosis=Diagnosis(kind="oom_runtime", action="prune", evidence=("CUDA out of memory",)))
BRAND = "AUTOTUNE_TEST_NIGHT"

# A machine that is busy with other tests must not refuse a measurement.
WIDE = GateLimits(
    cpu_share=100.0,
    lag_typical_s=100.0,
    in_flight_share=0.0,
    generations=0.0,
    requests=1,
    window_share=0.0,
    drift=1e9,
    host_busy=2.0,
)

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
{overrides}
[workload]
input_tokens = 8
output_tokens = 8
concurrency = 160
stream = {stream}
min_s = 0.3
max_s = 0.5
warmup_max_s = 0.5
precision = 0.5
{workload}
{objective}
[budget]
trials = {trials}
wall_clock = "30m"
confirm_starts = {confirm}
baseline_every = {baseline_every}
[timeouts]
start_s = 60
start_silence_s = {silence_s}
stop_s = 3
gpu_release_s = 5
load_stall_s = {stall_s}
request_s = 20
[search]
sampler = "{sampler}"
startup_trials = 2
live = "{live}"
"""


class Night(msgspec.Struct, frozen=True, kw_only=True):
    """What of a short study differs from test to test."""

    name: str = "short"
    flags: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ("max_running_requests", "cuda_graph_max_bs")
    overrides: str = ""
    workload: str = ""
    stream: bool = False
    objective: str = ""
    trials: int = 3
    confirm: int = 0
    baseline_every: int = 0
    live: str = "off"
    sampler: str = "tpe"
    silence_s: float = 30.0
    stall_s: float = 20.0

    def write(self, folder: Path) -> Path:
        """The study file in ``folder``."""
        values = msgspec.structs.asdict(self)
        values["flags"] = "".join(f", {json.dumps(flag)}" for flag in self.flags)
        values["parameters"] = json.dumps(self.parameters)
        values["stream"] = json.dumps(self.stream)
        path = folder / "study.toml"
        path.write_text(TEMPLATE.format(model=ROOT / "studies/models/demo.json", **values))
        return path


def begin(*arguments: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
    """``autotune`` with these arguments, its gates wide open for a busy machine."""
    argv = [sys.executable, "-m", "tests.tuner", *map(str, arguments)]
    # Inherited by all that this command starts, so that whatever is left of it can be found.
    brand = next((str(path.parent) for path in arguments if isinstance(path, Path)), "")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(_paths()), BRAND: brand}
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, env=env)


def _paths() -> list[str]:
    """Where the commands find their modules: this tree, then what a test has put in front."""
    return [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]


def autotune(
    *arguments: str | Path, cwd: Path | None = None, limit_s: float = LIMIT_S
) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    process = begin(*arguments, cwd=cwd)
    try:
        out, err = process.communicate(timeout=limit_s)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def records(study: Path, name: str = "short") -> Records:
    """The records beside a study file."""
    return Records(StudyFolder.beside(study, name))


def result_bytes(study: Path, name: str = "short") -> dict[str, bytes]:
    """Every settled result as it lies on disk, those of a confirmation too, by its place in the study's folder."""
    root = StudyFolder.beside(study, name).root
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("result.json"))}


def left(study: Path) -> list[str]:
    """Live processes that commands on this study have started, by name and number."""
    wanted = f"{BRAND}={study.parent}".encode()
    return [f"{row.name} {row.pid}" for row in read_table() if wanted in _environment(row.pid)]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def events(study: Path, kind: str, name: str = "short") -> list[dict[str, Any]]:
    """What events.jsonl holds of one kind; a line that is being written is left out."""
    path = StudyFolder.beside(study, name).events
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [event for event in map(json.loads, lines) if event["type"] == kind]


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


def rig(study: Path, say: Listener = lambda _: None, waiting: Waiting | None = None) -> Rig:
    """What the trials of a study share, without a night around it."""
    brief = read_brief(study)
    brief.folder.create()
    return Rig(
        study=brief.study,
        study_id=f"test-{os.getpid()}-{time.monotonic_ns()}",
        engine=brief.engine,
        space=brief.space,
        version=brief.version,
        searched=brief.searched(),
        records=Records(brief.folder),
        gpu=gpu_of(brief.study) if "--sim-gpu-file" in brief.study.engine.command else NoGpu(),
        gpu_baseline={},
        waiting=waiting or Waiting(),
        say=say,
        gates=WIDE,
    )


def score(value: float) -> Measured:
    """An outcome with this score."""
    figures = Measurement(
        whole={},
        steady={"output_throughput_tok_s": value},
        estimates={},
        requests_completed=9,
        requests_failed=0,
        warmup_s=1.0,
        window_s=2.0,
        duration_s=3.0,
    )
    effective = Effective(source="server_info", kv_tokens=12190)
    return Measured(
        score=Estimate(value=value, stderr=0.01 * value, batches=9), measurement=figures, effective=effective
    )


def put(study: Path, number: int, params: dict[str, ParamValue], outcome: Outcome | None, at_s: float = 0.0) -> None:
    """Write a trial into the records as a night would; without an outcome it was cut off.

    It began ``at_s`` seconds into the night and took ten.
    """
    began, ended = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=s) for s in (at_s, at_s + 10))
    brief = read_brief(study)
    brief.folder.create()
    write_manifest(brief)
    found, config = Records(brief.folder), Config(params=params)
    found.begin_trial(Begun(number=number, config=config, started_at=began.isoformat()))
    found.write_plan(number, rig(study).plan(config, port=30000))
    if outcome is not None:
        found.settle(
            TrialResult(
                number=number,
                config=config,
                outcome=outcome,
                timings=Timings(total_s=10.0),
                started_at=began.isoformat(),
                finished_at=ended.isoformat(),
            )
        )
