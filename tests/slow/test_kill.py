"""A night that is killed at ten random moments ends as one that was not."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import optuna
import pytest

from autotune.confirmation import ConfirmationPlan
from autotune.search.outcomes import trial_state
from autotune.server.process import ServerIdentity
from autotune.standing import settled
from autotune.study.folder import StudyFolder
from autotune.study.record import Records, read_record
from autotune.values import Infeasible, Interrupted, Measured
from tests.nights import Night, autotune, begin, events, left, records, result_bytes, stop

pytestmark = pytest.mark.slow

TRIALS = 6
KILLS = 10


def finish(study: Path) -> None:
    """Give the same command until the night ends by itself."""
    for _ in range(3):
        done = autotune("tune", study)
        if done.returncode == 0:
            return
        assert done.returncode == 3, done.stderr
    pytest.fail(done.stderr)


def check(study: Path) -> None:
    """The study is complete, nothing is double, nothing is left, and Optuna agrees."""
    results = records(study).results()
    counted = settled(results)
    assert len(counted) == TRIALS
    assert all(isinstance(r.outcome, Measured | Infeasible) for r in counted)
    measured = Counter(r.config.key() for r in counted if isinstance(r.outcome, Measured))
    assert set(measured.values()) == {1}
    started = [event["number"] for event in events(study, "trial_started") if event["role"] != "confirm"]
    assert len(started) == len(set(started))
    assert left(study) == []
    mirror = optuna.load_study(study_name="short", storage=f"sqlite:///{records(study).folder.database}")
    states = {trial.number: trial.state for trial in mirror.get_trials()}
    for result in results:
        assert states.pop(result.number) is trial_state(result)
    assert set(states.values()) <= {optuna.trial.TrialState.FAIL}


def keeps(study: Path, before: dict[str, bytes]) -> dict[str, bytes]:
    """Every result that was there is there, byte for byte; returns what is there now."""
    now = result_bytes(study)
    assert {place: now.get(place) for place in before} == before
    return now


@pytest.mark.parametrize("seed", [1])
def test_tuner_killed_ten_times_loses_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    """``kill -9`` of the tuner at ten random moments, each followed by the same command."""
    study, rng = Night(trials=TRIALS, confirm=2).write(tmp_path), random.Random(seed)
    kept: dict[str, bytes] = {}
    for _ in range(KILLS):
        process = begin("tune", study)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=rng.uniform(0.5, 6.0))
        stop(process)
        kept = keeps(study, kept)
    finish(study)
    keeps(study, kept)
    check(study)
    assert any(isinstance(r.outcome, Interrupted) for r in records(study).results())
    # Every start of the confirmation, once.
    folder = StudyFolder(records(study).folder.root / "confirm")
    plan = read_record(folder.root / "plan.json", ConfirmationPlan)
    assert plan is not None
    assert len(settled(Records(folder).results())) == len(plan.schedule.slots)


def leader(study: Path) -> int | None:
    """The server of the trial that runs now."""
    found = records(study)
    cut = found.interrupted()
    identity = read_record(found.trial(cut[-1].number).identity, ServerIdentity) if cut else None
    return identity.pid if identity and os.path.exists(f"/proc/{identity.pid}") else None


@pytest.mark.parametrize("seed", [1])
def test_server_killed_ten_times_loses_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    """``kill -9`` of the server at ten random moments; the same command goes on where a night gave up."""
    study, rng = Night(trials=TRIALS).write(tmp_path), random.Random(seed)
    kills, kept = 0, result_bytes(study)
    process, due_s = begin("tune", study), time.monotonic() + rng.uniform(0.5, 3.0)
    while kills < KILLS:
        if process.poll() is not None:
            _, told = process.communicate()
            assert process.returncode in (0, 3), told
            if process.returncode == 0:
                break
            process = begin("tune", study)
        if time.monotonic() >= due_s and (pid := leader(study)) is not None:
            os.kill(pid, signal.SIGKILL)
            kills, kept = kills + 1, keeps(study, kept)
            due_s = time.monotonic() + rng.uniform(0.5, 3.0)
        time.sleep(0.05)
    process.communicate(timeout=120)
    finish(study)
    keeps(study, kept)
    check(study)
    assert kills > KILLS // 2
