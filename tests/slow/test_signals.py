"""A person's wish to end reaches every part of a night within seconds."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from autotune.standing import settled
from autotune.values import Interrupted
from tests.nights import Night, autotune, begin, events, left, records, stop, wait_for

pytestmark = pytest.mark.slow

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("number", ENDING, ids=lambda n: n.name)
@pytest.mark.parametrize("phase", ["start", "warm-up"])
def test_one_signal_ends_the_night_cleanly(tmp_path: Path, number: signal.Signals, phase: str) -> None:
    """Exit code 128 + N, nothing left, and the same command runs the trial again."""
    flags = ("--sim-fault", "slow_start=60") if phase == "start" else ()
    study = Night(trials=1, flags=flags).write(tmp_path)
    process = begin("tune", study)
    wait_for(lambda: any(event["phase"] == phase for event in events(study, "phase")))
    begun_s = time.monotonic()
    out, err = stop(process, number)
    assert process.returncode == 128 + number, err
    # Within seconds; the rest is for a busy machine.
    assert time.monotonic() - begun_s < 30
    assert f"ended by {number.name}" in out
    assert isinstance(records(study).results()[0].outcome, Interrupted)
    assert left(study) == []


def test_a_night_that_was_ended_goes_on(tmp_path: Path) -> None:
    """The interrupted trial runs again under a new number, and the night is as long as it should be."""
    study = Night(trials=2).write(tmp_path)
    process = begin("tune", study)
    wait_for(lambda: events(study, "phase"))
    stop(process, signal.SIGTERM)
    done = autotune("resume", study)
    assert done.returncode == 0, done.stderr
    assert len(settled(records(study).results())) == 2


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    """A server that is deaf to SIGTERM is waited for a moment only, then killed."""
    study = Night(trials=1, flags=("--sim-fault", "deaf")).write(tmp_path)
    study.write_text(study.read_text().replace("stop_s = 3", "stop_s = 600"))
    process = begin("tune", study)
    wait_for(lambda: any(event["phase"] == "warm-up" for event in events(study, "phase")))
    begun_s = time.monotonic()
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    _, err = stop(process, signal.SIGINT)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert time.monotonic() - begun_s < 30
    assert left(study) == []
