"""A cell: a study with a settled baseline, and afterwards the look for what was left behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotune import night, trial
from autotune.rig import Rig
from tests.nights import WIDE
from tests.wrappers.conftest import doubles as doubles

from .cells import BRAND, DEADLINE_S, Cell, Limits, copy_seed, left_over

Make = Callable[..., Cell]
Told = Callable[[str, str, str], None]


def _impatient(rig: Rig, seconds: float) -> str | None:
    """The pause before a further attempt, without the wait."""
    rig.waiting.pause(0.01)
    return rig.waiting.cancel.reason()


@pytest.fixture(scope="session")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study whose baseline is settled, made once per worker."""
    folder = tmp_path_factory.mktemp("seed")
    cell = Cell(folder)
    cell.write(Limits(trials=1))
    here = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(night, "GATES", WIDE)
        os.chdir(folder)
        try:
            seen = cell.night()
        finally:
            os.chdir(here)
    assert seen.ended is not None, seen.stopped
    return folder


@pytest.fixture
def make(tmp_path: Path, seed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes the cell; afterwards: nothing left running, and not later than the deadline."""
    monkeypatch.setattr(night, "GATES", WIDE)
    monkeypatch.setattr(trial, "_back_off", _impatient)
    monkeypatch.setenv(BRAND, str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    begun_s = time.monotonic()

    def build(limits: Limits | None = None, root: Path = tmp_path) -> Cell:
        cell = copy_seed(seed, root)
        cell.write(limits or Limits())
        monkeypatch.chdir(root)
        return cell

    yield build
    end_s = time.monotonic() + 10.0
    while (left := left_over(str(tmp_path))) and time.monotonic() < end_s:
        time.sleep(0.05)  # what was killed a moment ago may still be on its way out
    for entry in left:
        os.kill(int(entry.rpartition("(")[2].rstrip(")")), signal.SIGKILL)
    assert not left
    assert time.monotonic() - begun_s < DEADLINE_S


@pytest.fixture
def told(record_property: Callable[[str, object], None]) -> Told:
    """Notes fault, stage and outcome of a cell for the table."""

    def tell(fault: str, stage: str, outcome: str) -> None:
        for name, value in (("fault", fault), ("stage", stage), ("outcome", outcome)):
            record_property(name, value)

    return tell
