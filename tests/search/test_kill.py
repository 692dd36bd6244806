"""A tuner that is killed anywhere loses no trial and measures none twice."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import optuna
import pytest
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState

from autotune.search import Searcher
from autotune.search.mirror import Mirror
from autotune.search.outcomes import trial_state
from autotune.study.record import Records
from autotune.values import Config, Interrupted, Measured

from .worlds import NOW, STRATEGY, WIDE, baseline, begun, judge, records_in, result


def drive(
    records: Records, searcher: Searcher, trials: int, run: Callable[[Config], None] = lambda config: None
) -> None:
    """A whole night in the order that the story keeps; ``run`` is called where the server would run."""
    records.settle_interrupted("killed", NOW)
    settled = records.results()
    base = next((r for r in settled if isinstance(r.outcome, Measured) and not r.config.params), None)
    searcher.reconcile(settled, WIDE if base else None)
    if base is None:
        number = searcher.next_number
        records.begin_trial(begun(number, {}))
        searcher.begin(number, Config(params={}))
        run(Config(params={}))
        searcher.tell(records.settle(result(number, {}, baseline().outcome)), WIDE)
    while searcher.fresh_trials < trials:
        suggestion = searcher.ask(WIDE)
        assert suggestion is not None
        config = suggestion.config
        records.begin_trial(begun(suggestion.number, config.params))
        searcher.begin(suggestion.number, config, WIDE)
        run(config)
        searcher.tell(records.settle(result(suggestion.number, config.params, judge(config))), WIDE)


def finished_keys(records: Records) -> list[str]:
    """Keys of the trials that count, in order."""
    return [r.config.key() for r in records.results() if not isinstance(r.outcome, Interrupted)]


def assert_mirrored(storage: Any, records: Records) -> None:
    """The storage holds exactly what the records hold."""
    trials = optuna.load_study(study_name="s", storage=storage).trials
    by_number = {r.number: r for r in records.results()}
    for trial in trials:
        settled = by_number.pop(trial.number, None)
        if settled is None:
            assert trial.state is TrialState.FAIL
            assert trial.user_attrs["kind"] == "not_begun"
        else:
            assert trial.state is trial_state(settled)
            assert trial.user_attrs["config_key"] == settled.config.key()
    assert not by_number


class Killed(BaseException):
    """Stands for kill -9: nobody may catch it."""


class Fuse:
    """Counts steps and burns at one of them."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1

    def around(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Burn before the step, or after it."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            self()
            value = step(*args, **kwargs)
            self()
            return value

        return watched


class World(NamedTuple):
    """Where servers run: counts, and refuses to run what is settled."""

    fuse: Fuse
    runs: Counter[str]
    settled: frozenset[str]

    def run(self, config: Config) -> None:
        assert config.key() not in self.settled, "a finished trial was run again"
        self.runs[config.key()] += 1
        self.fuse()


STORAGE_STEPS = (
    "create_new_trial",
    "set_trial_param",
    "set_trial_user_attr",
    "set_trial_system_attr",
    "set_trial_intermediate_value",
    "set_trial_state_values",
)


@contextlib.contextmanager
def wired(fuse: Fuse, storage: InMemoryStorage) -> Iterator[None]:
    """Put the fuse around every step that leaves a trace on disk or in the storage."""
    with pytest.MonkeyPatch.context() as patch:
        for name in STORAGE_STEPS:
            patch.setattr(storage, name, fuse.around(getattr(storage, name)))
        patch.setattr(os, "replace", fuse.around(os.replace))
        patch.setattr(Path, "mkdir", fuse.around(Path.mkdir))
        yield


def test_a_kill_between_any_two_steps_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Killed before and after every write, twice over, the night ends with the same trials in the same order."""
    straight = records_in(tmp_path / "straight")
    drive(straight, Searcher(Mirror("s", InMemoryStorage(), "maximize"), STRATEGY), 3)
    expected = finished_keys(straight)
    steps = 0
    while killed_at(steps, tmp_path, expected):
        steps += 1
    assert steps > 60


def killed_at(step: int, folder: Path, expected: list[str]) -> bool:
    """Kill a night at ``step`` and again at half of it, let it end, and say whether it was killed at all."""
    records, storage = records_in(folder / str(step)), InMemoryStorage()
    runs, settled, killed = Counter[str](), set[str](), False
    for at in (step, step // 2, 10**9):
        fuse = Fuse(at)
        world = World(fuse, runs, frozenset(settled))
        try:
            with wired(fuse, storage):
                drive(records, Searcher(Mirror("s", storage, "maximize"), STRATEGY), 3, world.run)
        except Killed:
            killed = True
            settled = set(finished_keys(records))
    assert finished_keys(records) == expected
    assert_mirrored(storage, records)
    assert max(runs.values()) <= 3
    return killed


NIGHT = """
import os, signal, sys, pathlib
sys.path.insert(0, {root!r})
from tests.search.test_kill import STRATEGY, Searcher, drive
from tests.search.worlds import records_in
left = int(sys.argv[2])
def run(config):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
folder = pathlib.Path(sys.argv[1])
with Searcher.open("s", folder / "study" / "study.db", STRATEGY) as searcher:
    drive(records_in(folder), searcher, 5, run)
"""


def test_kill_9_of_a_real_process_with_a_real_database(tmp_path: Path) -> None:
    """Killed in its third trial, and then in its first, a night on SQLite ends like one that was left alone."""
    straight = records_in(tmp_path / "straight")
    drive(straight, Searcher(Mirror("s", InMemoryStorage(), "maximize"), STRATEGY), 5)
    records = records_in(tmp_path / "killed")
    script = NIGHT.format(root=str(Path(__file__).parents[2]))
    codes = [
        subprocess.run([sys.executable, "-c", script, str(tmp_path / "killed"), at], check=False).returncode
        for at in ("2", "0", "99")
    ]
    assert codes == [-9, -9, 0]
    assert finished_keys(records) == finished_keys(straight)
    assert sum(isinstance(r.outcome, Interrupted) for r in records.results()) == 2
    assert_mirrored(f"sqlite:///{records.folder.database}", records)
