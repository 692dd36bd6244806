"""Tests of what is told of failures and gates."""

from autotune.report.remarks import remarks, spans
from autotune.report.text import summary
from autotune.values import Diagnosis, Finding, Infeasible, Refused
from tests.report.builders import facts, measured, trial, whole_night

WARM = Finding(gate="gpu_clocks", message="the clocks were held down", fatal=False)
BUSY = Finding(gate="host_load", message="others used the host", fatal=True)


def test_each_is_said_once_with_its_trials() -> None:
    """Failures come first, then notes; the trials that share one are listed."""
    dead = Infeasible(
        diagnosis=Diagnosis(
            kind="oom_kv", action="prune", advice="lower it", stage="kv_pool", evidence=("", " CUDA OOM ")
        )
    )
    night = facts(
        trial(0, {}, measured(1000.0, findings=(WARM,))),
        trial(1, {"limit": 64}, measured(1000.0, findings=(WARM,))),
        trial(2, {"limit": 96}, dead),
        trial(3, {"limit": 99}, dead),
        trial(4, {"limit": 128}, Refused(findings=(BUSY, WARM))),
    )
    found = remarks(night)
    assert [(one.about, one.fatal, one.trials) for one in found] == [
        ("oom_kv", True, ("2", "3")),
        ("host_load", True, ("4",)),
        ("gpu_clocks", False, ("0", "1", "4")),
    ]
    assert (found[0].text, found[0].evidence) == ("at kv_pool: lower it", "CUDA OOM")
    assert "host_load (trial 4): others used the host" in summary(night)


def test_a_clean_night_has_none() -> None:
    """Nothing is said where nothing was seen."""
    assert remarks(facts(trial(0, {}, measured(1000.0)))) == []
    assert "host_load" in {one.about for one in remarks(whole_night())}


def test_runs_of_trials_are_shortened() -> None:
    """A remark on every trial of a night is one line."""
    assert spans(("0", "1", "2", "5", "confirm 1", "confirm 2")) == "0-2, 5, confirm 1-2"
    assert spans(("9", "confirm 10")) == "9, confirm 10"
