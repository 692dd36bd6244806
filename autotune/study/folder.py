"""Where a study keeps what. Paths only; ``record`` writes, ``search`` owns the database."""

from __future__ import annotations

from pathlib import Path

import msgspec

from autotune.study.atomic import make_private_folder


class TrialFolder(msgspec.Struct, frozen=True):
    """The files of one trial, ``trials/0007/`` and the like."""

    root: Path

    @property
    def config(self) -> Path:
        """What the trial asks; written before anything can fail."""
        return self.root / "config.json"

    @property
    def plan(self) -> Path:
        """The launch plan."""
        return self.root / "plan.json"

    @property
    def identity(self) -> Path:
        """Which process is the server, so that a later tuner can end this one and no other."""
        return self.root / "server.json"

    @property
    def environment(self) -> Path:
        """The server's environment: every name, and the values that the study wrote itself."""
        return self.root / "environment.json"

    @property
    def log(self) -> Path:
        return self.root / "server.log"

    @property
    def load(self) -> Path:
        """Folder of the raw records of the requests."""
        return self.root / "load"

    def live(self, limit: int) -> Path:
        """Folder of the raw records of the load at a running limit that was set while the server ran."""
        return self.root / f"live-{limit}"

    @property
    def so_far(self) -> Path:
        """What the trial has measured while its server still runs, in the shape of a result; gone once settled."""
        return self.root / "so-far.json"

    @property
    def claim(self) -> Path:
        """The right of a worker to tell this trial to a shared study."""
        return self.root / "claim.json"

    @property
    def fenced(self) -> Path:
        """What a worker measured that had lost its claim by then: for a person, never told."""
        return self.root / "fenced.json"

    @property
    def result(self) -> Path:
        """The settled trial; its presence is what settles it."""
        return self.root / "result.json"


class StudyFolder(msgspec.Struct, frozen=True):
    """The folder of one study."""

    root: Path

    @classmethod
    def beside(cls, study_file: Path, name: str) -> StudyFolder:
        """The folder ``name`` next to the study file, as an absolute path."""
        return cls(study_file.absolute().parent / name)

    def create(self) -> None:
        """Make the folder, private to this user. Raises ``NightStopped`` when that cannot be."""
        make_private_folder(self.trials)

    @property
    def exists(self) -> bool:
        """Whether the study has begun: its manifest may be lost, and each trial keeps a copy."""
        return self.manifest.exists() or next(self.trials.glob("*/config.json"), None) is not None

    @property
    def manifest(self) -> Path:
        return self.root / "manifest.json"

    @property
    def database(self) -> Path:
        return self.root / "study.db"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def bounds(self) -> Path:
        """The bounds of the search, fixed once after the baseline."""
        return self.root / "bounds.json"

    @property
    def dataset(self) -> Path:
        """Folder of what the workload's dataset asks, as load workers read it."""
        return self.root / "dataset"

    @property
    def hardware(self) -> Path:
        """What the hosts of a cluster must have in common."""
        return self.root / "hardware.json"

    @property
    def worker(self) -> Path:
        """The name under which this folder's last worker claimed trials of a shared study."""
        return self.root / "worker.json"

    @property
    def interference(self) -> Path:
        """What trials side by side cost each other."""
        return self.root / "interference.json"

    @property
    def drift(self) -> Path:
        """What the baseline's starts say of the machine."""
        return self.root / "drift.json"

    @property
    def transfer(self) -> Path:
        """What was taken over from another study."""
        return self.root / "transfer.json"

    @property
    def trust(self) -> Path:
        """How far that is believed."""
        return self.root / "trust.json"

    @property
    def events(self) -> Path:
        return self.root / "events.jsonl"

    @property
    def heartbeat(self) -> Path:
        return self.root / "heartbeat"

    @property
    def report(self) -> Path:
        return self.root / "report"

    @property
    def launch_script(self) -> Path:
        return self.root / "launch-best.sh"

    @property
    def trials(self) -> Path:
        return self.root / "trials"

    def trial(self, number: int) -> TrialFolder:
        return TrialFolder(self.trials / f"{number:04d}")


def fresh_name(parent: Path, name: str) -> str:
    """``name``, or the first of ``name-2``, ``name-3``, ... that has no folder in ``parent``."""
    number, candidate = 1, name
    while (parent / candidate).exists():
        number += 1
        candidate = f"{name}-{number}"
    return candidate
