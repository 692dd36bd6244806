"""What the cells of the matrix share: a short study whose baseline is settled, a night over it, a look at the end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from autotune.brief import read_brief
from autotune.errors import AutotuneError
from autotune.events import Event, NightEnded
from autotune.night import open_night
from autotune.sameness import resolve
from autotune.server.cancel import CancelFlag, Waiting
from autotune.server.proctable import read_table
from autotune.standing import settled
from autotune.study.folder import StudyFolder
from autotune.study.record import Records
from autotune.tune import tune
from autotune.values import Infeasible, Interrupted, Measured, Refused, TrialResult

ROOT = Path(__file__).parents[2]
BRAND = "FAULT_CELL"
DEADLINE_S = 60.0
"""No cell takes longer, on a machine that is busy with other things too; typical are 2 to 6 s."""

STUDY = """
name = "cell"
seed = 1
[engine]
command = ["{{python}}", "-m", "tests.faults.server", "--sim-profile", "demo", "--sim-noise", "0",
           "--sim-speed", "6", "--sim-gpu-file", "gpu.json", "--sim-gpu-release-s", "0"]
version = "0.5.14"
env = {{ PYTHONPATH = "{root}" }}
[model]
config = "{root}/studies/models/demo.json"
gpu_memory_gb = 24
weight_gb = 8
[space]
parameters = ["max_running_requests", "cuda_graph_max_bs"]
[workload]
input_tokens = 8
output_tokens = 4
concurrency = 64
stream = false
min_s = 0.2
max_s = 0.3
warmup_max_s = 0.2
precision = 0.5
[budget]
trials = {trials}
wall_clock = "30m"
confirm_starts = 0
[timeouts]
start_s = 40
start_silence_s = {silence_s}
stop_s = 2
gpu_release_s = {release_s}
load_stall_s = {stall_s}
request_s = 20
[search]
sampler = "tpe"
startup_trials = 8
live = "off"
{more}
"""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What of the study differs from cell to cell; all of it may change between two nights of one study."""

    trials: int = 2
    silence_s: float = 20.0
    stall_s: float = 20.0
    release_s: float = 5.0
    more: str = ""


HANG = Limits(silence_s=2.0, stall_s=2.0)


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """How a night in this process ended: its last words, or why it was stopped, and what it said on the way."""

    ended: NightEnded | None
    stopped: str
    events: tuple[Event, ...]


class Cell:
    """One study in one folder."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.study = folder / "study.toml"
        self.begun_s = time.monotonic()

    @property
    def records(self) -> Records:
        return Records(StudyFolder.beside(self.study, "cell"))

    @property
    def folder(self) -> StudyFolder:
        return self.records.folder

    def write(self, limits: Limits) -> None:
        self.study.write_text(STUDY.format(root=ROOT, **msgspec.structs.asdict(limits)))

    def night(self, hear: Callable[[Event], None] = lambda _: None, flag: CancelFlag | None = None) -> Seen:
        """A night in this process, to its end."""
        heard: list[Event] = []

        def both(event: Event) -> None:
            heard.append(event)
            hear(event)

        waiting = Waiting(cancel=flag or CancelFlag())
        try:
            with open_night(resolve(read_brief(self.study)), both, waiting) as night:
                ended = tune(night)
        except AutotuneError as error:
            return Seen(ended=None, stopped=f"{type(error).__name__}: {error}", events=tuple(heard))
        # What was said while the night closed counts too: of a notification under way, say.
        return Seen(ended=ended, stopped="", events=tuple(heard))

    def begin(self, *arguments: str, **options: object) -> subprocess.Popen[str]:
        """A night in its own process."""
        argv = [sys.executable, "-m", "tests.tuner", *(arguments or ("tune",)), str(self.study)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(argv, text=True, cwd=self.root, **{**pipes, **options})  # type: ignore[call-overload,no-any-return]

    def phases(self) -> list[str]:
        """The phases that trial 1 has entered."""
        if not self.folder.events.exists():
            return []
        events = [json.loads(line) for line in self.folder.events.read_text().splitlines()]
        return [event["phase"] for event in events if event["type"] == "phase" and event["number"] == 1]

    def wait_for_phase(self, phase: str) -> None:
        self.wait(lambda: phase in self.phases(), f"phase {phase}")

    def wait(self, what: Callable[[], object], name: str) -> None:
        end_s = time.monotonic() + DEADLINE_S
        while not what():
            assert time.monotonic() < end_s, f"never came: {name}"
            time.sleep(0.01)

    def server_pid(self) -> int:
        """The leader of trial 1's server."""
        path = self.records.trial(1).identity
        self.wait(path.exists, "server.json")
        return int(json.loads(path.read_text())["pid"])

    def check_nothing_lost(self, trials: int) -> None:
        """So many settled trials, none of them twice, every one that began settled."""
        results = self.records.results()
        done = settled(results)
        assert len(done) == trials, [outcome(result) for result in results]
        assert not self.records.interrupted()
        assert all(count == 1 for count in Counter(result.config.key() for result in done).values())

    def goes_on(self, trials: int = 2) -> None:
        """The same command, without the fault, completes the study."""
        os.environ.pop("FAULTS_AT", None)
        (self.root / "gpu.json").write_text("{}")  # what a pretended driver could not write on a full disk
        seen = self.night()
        assert seen.ended is not None, seen.stopped
        self.check_nothing_lost(trials)


def outcome(result: TrialResult) -> str:
    """A trial's outcome in a word or two."""
    match result.outcome:
        case Measured():
            return "measured"
        case Infeasible(diagnosis=found):
            return f"infeasible: {found.kind}"
        case Refused(findings=findings):
            return f"refused: {findings[0].gate}"
        case Interrupted():
            return "interrupted"


def left_over(brand: str) -> list[str]:
    """Live processes that inherited the cell's brand, this one aside."""
    wanted = f"{BRAND}={brand}".encode()
    return [f"{row.name} ({row.pid})" for row in read_table() if row.pid != os.getpid() and wanted in environ(row.pid)]


def environ(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def copy_seed(seed: Path, target: Path) -> Cell:
    """A cell whose baseline is settled."""
    shutil.copytree(seed, target, dirs_exist_ok=True)
    return Cell(target)


def signals_of(monkeypatch: pytest.MonkeyPatch, number: int, *arguments: str) -> None:
    """Trial ``number`` is started with these arguments."""
    monkeypatch.setenv("FAULTS_AT", json.dumps({str(number): list(arguments)}))
