"""What goes wrong in live loads of a whole night: kills and signals in the middle, servers that do not take them."""

from __future__ import annotations

import signal
from pathlib import Path

import msgspec
import pytest

from autotune.values import Interrupted, Measured
from tests.nights import Night, autotune, begin, events, left, records, result, stop, wait_for
from tests.test_livelimits import longer
from tests.test_loading import write

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

# The region goes down to 8, so that every start has smaller limits to offer; loads are whole seconds.
LIMITS = "[space.override.max_running_requests]\nlow = 8\nhigh = 48"
NIGHT = Night(live="auto", sampler="autotune", stream=True, trials=2, overrides=LIMITS)


def study(folder: Path, *flags: str) -> Path:
    """A night of a baseline and one trial with live loads."""
    return longer(write(folder, msgspec.structs.replace(NIGHT, flags=flags)))


def in_live_load(path: Path) -> bool:
    """Whether a live load has begun."""
    return any(event["phase"] == "live" for event in events(path, "phase"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda n: n.name)
def test_an_end_in_a_live_load_keeps_the_trials_own_result(tmp_path: Path, number: signal.Signals) -> None:
    """Measured, not run again, told to Optuna; nothing is left running."""
    path = study(tmp_path)
    process = begin("tune", path)
    wait_for(lambda: in_live_load(path))
    stop(process, number)
    cut = next(event["number"] for event in events(path, "phase") if event["phase"] == "live")
    kept = records(path).kept(cut)
    assert (kept is not None) == (number == signal.SIGKILL)
    done = autotune("tune", path)
    assert done.returncode == 0, done.stderr
    results = records(path).results()
    assert [type(r.outcome) for r in results] == [Measured, Measured]
    assert not any(isinstance(r.outcome, Interrupted) for r in results)
    if kept is not None:
        assert results[cut].outcome == kept.outcome
        assert any("what it had measured is kept" in note["text"] for note in events(path, "note"))
    assert records(path).kept(cut) is None
    assert left(path) == []


@pytest.mark.parametrize("fault", ["live_refused", "live_ignored"])
def test_a_server_that_does_not_take_limits_ends_them_for_the_night(tmp_path: Path, fault: str) -> None:
    """One sentence, and the search goes on with restarts."""
    path = study(tmp_path, "--sim-fault", fault)
    path.write_text(path.read_text().replace("trials = 2", "trials = 3"))
    assert autotune("tune", path).returncode == 0
    said = [note["text"] for note in events(path, "note") if "live values:" in note["text"]]
    assert len(said) == 1
    assert "every running limit takes a start of its own" in said[0]
    assert len([e for e in events(path, "phase") if e["phase"] == "live"]) == 1
    assert all(isinstance(r.outcome, Measured) and r.outcome.live == () for r in records(path).results())
    assert left(path) == []


def test_a_server_that_dies_of_them_costs_no_trial(tmp_path: Path) -> None:
    """Every trial has its own score; after some deaths the night does without live loads."""
    path = study(tmp_path, "--sim-fault", "live_death=0.3")
    path.write_text(path.read_text().replace("trials = 2", "trials = 4"))
    assert autotune("tune", path).returncode == 0
    outcomes = [result(path, number).outcome for number in range(4)]
    assert all(isinstance(outcome, Measured) and outcome.live == () for outcome in outcomes)
    said = [note["text"] for note in events(path, "note")]
    assert sum("a live load brought nothing" in text for text in said) == 2
    assert sum("live values: 2 live loads brought nothing" in text for text in said) == 1
    assert left(path) == []
