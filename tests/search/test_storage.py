"""Storages that are locked, corrupt, lost, or of another study."""

from __future__ import annotations

import contextlib
import sqlite3
import stat
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from autotune.errors import InputError
from autotune.search import Searcher, repair_storage
from autotune.search.mirror import Mirror

from .worlds import STRATEGY, WIDE, baseline, infeasible, measured, result


def test_a_storage_of_another_study_is_refused_and_rebuilt_on_demand(tmp_path: Path) -> None:
    """Trials that the records do not have are an input error naming `autotune repair`."""
    with Searcher.open("s", tmp_path / "study.db", STRATEGY) as searcher:
        searcher.tell(baseline(), WIDE)
        searcher.tell(result(1, {"limit": 64}, measured(5.0)), WIDE)
    with Searcher.open("s", tmp_path / "study.db", STRATEGY) as searcher:
        with pytest.raises(InputError, match="autotune repair"):
            searcher.reconcile([baseline()], WIDE)
        with pytest.raises(InputError, match="trial 1"):
            searcher.reconcile([baseline(), result(1, {"limit": 72}, measured(5.0))], WIDE)
        searcher.rebuild([baseline()], WIDE)
        assert searcher.next_number == 1
    with Searcher.open("s", tmp_path / "study.db", STRATEGY) as searcher:
        assert searcher.reconcile([baseline()], WIDE) == []


def test_a_trial_that_was_shown_and_never_written_down_is_no_other_study(tmp_path: Path) -> None:
    """It is closed there with its parameters, once; its number is not given again, and the study goes on."""
    config = result(1, {"limit": 64}, measured(5.0)).config
    with Searcher.open("s", tmp_path / "study.db", STRATEGY) as searcher:
        searcher.tell(baseline(), WIDE)
        searcher.begin(1, config, WIDE)
    for _ in range(2):
        with Searcher.open("s", tmp_path / "study.db", STRATEGY) as searcher:
            searcher.reconcile([baseline()], WIDE)
            assert searcher.next_number == 2


def test_a_database_that_is_locked_for_a_while_costs_nothing(tmp_path: Path) -> None:
    """The night goes on, says what is wrong, and the next tell completes what was missed."""
    path = tmp_path / "study.db"
    mirror = Mirror.open("s", path, "maximize", busy_s=0.05)
    searcher = Searcher(mirror, STRATEGY)
    searcher.tell(baseline(), WIDE)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        searcher.tell(result(1, {"limit": 64}, measured(5.0)), WIDE)
        assert "locked" in searcher.trouble
        other.rollback()
    searcher.tell(result(2, {"limit": 72}, measured(6.0)), WIDE)
    assert searcher.trouble == ""
    assert [t.value for t in mirror.trials()] == [100.0, 5.0, 6.0]
    searcher.close()


def test_a_locked_database_is_refused_at_the_start(tmp_path: Path) -> None:
    """The remedy is to close the other program."""
    path = tmp_path / "study.db"
    Searcher.open("s", path, STRATEGY).close()
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InputError, match="close it and try again"):
            Mirror.open("s", path, "maximize", busy_s=0.05)


def broken(path: Path, how: str) -> None:
    """Damage a database."""
    data = bytearray(path.read_bytes())
    match how:
        case "not a database":
            path.write_bytes(b"hello " * 1000)
        case "torn":
            path.write_bytes(data[: len(data) // 2])
        case "overwritten":
            data[4096:] = b"\xff" * (len(data) - 4096)
            path.write_bytes(data)
        case "without tables":
            path.unlink()
            with contextlib.closing(sqlite3.connect(path)) as other:
                other.execute("CREATE TABLE studies (x)")
                other.commit()


@pytest.mark.parametrize("how", ["not a database", "torn", "overwritten", "without tables"])
def test_a_corrupt_database_is_refused_and_repaired_from_the_records(tmp_path: Path, how: str) -> None:
    """The damaged file is kept under another name."""
    path = tmp_path / "study.db"
    told = [baseline(), result(1, {"limit": 64}, infeasible())]
    with Searcher.open("s", path, STRATEGY) as searcher:
        searcher.reconcile(told, WIDE)
    broken(path, how)
    with pytest.raises(InputError, match="autotune repair"):
        Searcher.open("s", path, STRATEGY)
    aside = repair_storage(path)
    assert aside is not None
    assert aside.name.startswith("study.db.damaged")
    with Searcher.open("s", path, STRATEGY) as searcher:
        searcher.rebuild(told, WIDE)
    assert repair_storage(path) is None
    states = [t.state for t in optuna.load_study(study_name="s", storage=f"sqlite:///{path}").trials]
    assert states == [TrialState.COMPLETE, TrialState.PRUNED]


def test_the_database_is_private_and_any_path_will_do(tmp_path: Path) -> None:
    """Characters that mean something in a URL mean nothing in a path."""
    folder = tmp_path / "a?b #%41 {c} é"
    folder.mkdir()
    with Searcher.open("s", folder / "study.db", STRATEGY) as searcher:
        searcher.tell(baseline(), WIDE)
    assert [entry.name for entry in folder.iterdir()] == ["study.db"]
    assert stat.S_IMODE((folder / "study.db").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "url",
    ["nonsense", "nosuchdb://host/x", "postgresql+nosuch://host/x", "sqlite:////no/such/folder/study.db", "a://b:c"],
)
def test_a_storage_url_that_does_not_work_is_an_input_error(url: str) -> None:
    """Never a traceback."""
    with pytest.raises(InputError, match=r"^storage "):
        Searcher.open("s", url, STRATEGY)


def test_a_password_in_a_url_is_never_shown() -> None:
    """The message has the URL with the password hidden."""
    with pytest.raises(InputError) as error:
        Searcher.open("s", "nosuchdb://user:hunter2@host/x", STRATEGY)
    assert "hunter2" not in str(error.value)


def test_a_url_of_sqlite_works_like_any_other(tmp_path: Path) -> None:
    """The storage of a study is an Optuna URL."""
    url = f"sqlite:///{tmp_path}/other.db"
    with Searcher.open("s", url, STRATEGY) as searcher:
        searcher.tell(baseline(), WIDE)
    assert optuna.load_study(study_name="s", storage=url).best_value == 100.0
