"""Servers behind wrappers: kills, signals and failures of the wrapper itself, in whole nights."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune import night, trial
from tests.nights import WIDE
from tests.wrappers.conftest import Doubles

from .cells import BRAND, Cell, Limits, left_over, outcome, signals_of
from .conftest import Told, _impatient

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

SLOW_LOAD = ("--sim-speed", "0.3")
WRAPPERS = {
    "docker": 'kind = "docker"\nimage = "engine:1"\ngpus = ""',
    "podman": 'kind = "podman"\nimage = "engine:1"\nnetwork = "bridge"',
    "srun": 'kind = "srun"',
    "ssh": 'kind = "ssh"\ndestination = "gpu7"',
}


@pytest.fixture
def cell(tmp_path: Path, doubles: Doubles, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cell]:
    """A folder in which nothing of the machine is left running at the end."""
    monkeypatch.setattr(night, "GATES", WIDE)
    monkeypatch.setattr(trial, "_back_off", _impatient)
    monkeypatch.setenv(BRAND, str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    yield Cell(tmp_path)
    assert doubles.alive() == []
    assert left_over(str(tmp_path)) == []


def write(cell: Cell, kind: str, trials: int) -> None:
    """The study of the other cells, its server behind a wrapper."""
    cell.write(Limits(trials=trials))
    text = cell.study.read_text().replace("{python}", sys.executable)
    # Both ends of the forwarded port are on this machine.
    host = "127.0.0.2" if kind == "ssh" else "127.0.0.1"
    settings = f'host = "{host}"\npass_env = ["FAULTS_AT"]\n[engine.wrapper]\n{WRAPPERS[kind]}\n[model]'
    cell.study.write_text(text.replace("[model]", settings, 1))


def seeded(cell: Cell, kind: str, trials: int = 2) -> None:
    """The baseline is settled."""
    write(cell, kind, 1)
    seen = cell.night()
    assert seen.ended is not None, seen.stopped
    write(cell, kind, trials)


@pytest.mark.parametrize("phase", ["start", "warm-up"])
@pytest.mark.parametrize("kind", WRAPPERS)
def test_kill_of_the_tuner(
    kind: str, phase: str, cell: Cell, doubles: Doubles, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs behind the wrapper is ended by the same command, which runs the trial again."""
    seeded(cell, kind)
    signals_of(monkeypatch, 1, *(SLOW_LOAD if phase == "warm-up" else ("--sim-fault", "slow_start=60")))
    process = cell.begin()
    cell.wait_for_phase(phase)
    cell.wait(doubles.alive, "the server")
    process.kill()
    process.communicate(timeout=30)
    assert kind == "ssh" or doubles.alive(), "it outlives the tuner"
    cell.goes_on()
    told(f"kill -9 of the tuner, server behind {kind}", phase, "resumed, trial run again")


@pytest.mark.parametrize("kind", WRAPPERS)
def test_signal(kind: str, cell: Cell, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends server and client cleanly."""
    seeded(cell, kind)
    signals_of(monkeypatch, 1, *SLOW_LOAD)
    process = cell.begin()
    cell.wait_for_phase("warm-up")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, err
    assert "Traceback" not in err
    cell.goes_on()
    told(f"SIGINT, server behind {kind}", "warm-up", "clean end; resumed")


def test_container_that_ignores_its_stop(cell: Cell, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime kills it after the polite time, and the trial keeps its measurement."""
    seeded(cell, "docker")
    signals_of(monkeypatch, 1, "--sim-fault", "deaf")
    seen = cell.night()
    assert seen.ended is not None, seen.stopped
    cell.check_nothing_lost(2)
    told("container ignores its stop", "stop", outcome(cell.records.results()[1]))


@pytest.mark.parametrize("kind", ["docker", "ssh"])
def test_wrapper_that_fails_by_itself(kind: str, cell: Cell, doubles: Doubles, told: Told) -> None:
    """The parameters are not blamed: three attempts, then the night stops with the wrapper's own words."""
    seeded(cell, kind)
    doubles.fault("down")
    seen = cell.night()
    assert "env_error after 3 attempts" in seen.stopped
    assert ("Cannot connect to the daemon" if kind == "docker" else "Connection refused") in seen.stopped
    doubles.heal("down")
    cell.goes_on()
    told(f"{kind} fails by itself", "start", "night stopped; resumed")
