"""What a dead tuner left is settled: run again, or left alone where the machine went down under it twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune import aftermath
from autotune.aftermath import CUT_OFF, RESTARTED, restarts_under, settle_cut_off
from autotune.events import Event
from autotune.server.process import ServerIdentity
from autotune.study.folder import StudyFolder
from autotune.study.record import Begun, Records, write_record
from autotune.values import Config, Infeasible, Interrupted

CONFIG = Config(params={"a": 1})


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Records:
    monkeypatch.setattr(aftermath, "boot_id", lambda: "this boot")
    folder = StudyFolder(tmp_path / "study")
    folder.create()
    return Records(folder)


def cut(records: Records, number: int, boot: str, config: Config = CONFIG) -> None:
    records.begin_trial(Begun(number=number, config=config, started_at="then"))
    identity = ServerIdentity(pid=1, start_ticks=1, mark="s/1/x", port=1, boot_id=boot)
    write_record(records.trial(number).identity, identity)


def settle(records: Records) -> list[str]:
    heard: list[Event] = []
    settle_cut_off(records, heard.append)
    return [getattr(event, "text", "") for event in heard]


def test_a_killed_tuner_says_nothing_about_the_parameters(records: Records) -> None:
    """However often: they run again."""
    for number in range(3):
        cut(records, number, "this boot")
        assert "runs again" in settle(records)[0]
    assert all(r.outcome == Interrupted(reason=CUT_OFF) for r in records.results())


def test_two_restarts_under_the_same_parameters_are_enough(records: Records) -> None:
    """The first may be chance; after the second they are infeasible."""
    cut(records, 0, "an earlier boot")
    settle(records)
    assert restarts_under(CONFIG, records.results()) == 1
    cut(records, 1, "another boot")
    assert "given up" in settle(records)[0]
    first, second = (result.outcome for result in records.results())
    assert first == Interrupted(reason=RESTARTED)
    assert isinstance(second, Infeasible)


def test_the_baseline_is_never_given_up(records: Records) -> None:
    """There would be nothing to compare with."""
    for number in range(3):
        cut(records, number, f"boot {number}", Config(params={}))
        settle(records)
    assert all(isinstance(result.outcome, Interrupted) for result in records.results())


def test_a_trial_without_a_server_was_only_cut_off(records: Records) -> None:
    """A restart before the server's start was not its doing."""
    records.begin_trial(Begun(number=0, config=CONFIG, started_at="then"))
    settle(records)
    assert records.results()[0].outcome == Interrupted(reason=CUT_OFF)
