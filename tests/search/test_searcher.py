"""Ask and tell."""

from __future__ import annotations

from pathlib import Path

import optuna
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState

from autotune.search import Searcher
from autotune.search.mirror import Mirror
from autotune.values import Config

from .worlds import SMALL, STRATEGY, WIDE, baseline, infeasible, interrupted, measured, refused, result


def test_the_baseline_is_trial_0_with_the_values_in_force(tmp_path: Path) -> None:
    """It begins before the bounds are known and is told with them."""
    with Searcher.open("s", tmp_path / "study.db", STRATEGY) as searcher:
        searcher.begin(0, Config(params={}))
        running = optuna.load_study(study_name="s", storage=f"sqlite:///{tmp_path}/study.db").trials[0]
        assert running.state is TrialState.RUNNING
        searcher.tell(baseline())
    with Searcher.open("s", tmp_path / "study.db", STRATEGY) as searcher:
        searcher.reconcile([baseline()])
        waiting = optuna.load_study(study_name="s", storage=f"sqlite:///{tmp_path}/study.db").trials[0]
        assert waiting.state is TrialState.RUNNING
        assert searcher.next_number == 1
        searcher.tell(baseline(), WIDE)
    told = optuna.load_study(study_name="s", storage=f"sqlite:///{tmp_path}/study.db").trials[0]
    assert told.state is TrialState.COMPLETE
    assert told.params["limit"] == 256
    assert told.params["ceiling_share"] == 0.5
    assert told.user_attrs["effective"]["values"]["ceiling"] == 128


def test_running_and_missing_trials_are_completed_to_the_same(tmp_path: Path) -> None:
    """Whether a trial was seen running or only after it ended, the storage ends up the same."""
    told = [
        baseline(),
        result(1, {"limit": 64}, infeasible()),
        result(2, {"limit": 72}, refused()),
        result(3, {"limit": 80}, interrupted()),
        result(5, {"limit": 80, "fraction": 0.7}, measured(7.0)),
    ]
    seen, late = InMemoryStorage(), InMemoryStorage()
    watched = Searcher(Mirror("s", seen, "maximize"), STRATEGY)
    for settled in told:
        watched.begin(settled.number, settled.config, WIDE if settled.number else None)
        watched.tell(settled, WIDE)
        watched.tell(settled, WIDE)
    Searcher(Mirror("s", late, "maximize"), STRATEGY).reconcile(told, WIDE)
    one, other = (optuna.load_study(study_name="s", storage=s).trials for s in (seen, late))
    assert [t.number for t in one] == [0, 1, 2, 3, 4, 5]
    for a, b in zip(one, other, strict=True):
        assert (a.state, a.values, a.params, a.distributions) == (b.state, b.values, b.params, b.distributions)
        assert (a.user_attrs, a.constraints, a.intermediate_values) == (
            b.user_attrs,
            b.constraints,
            b.intermediate_values,
        )


def test_an_interrupted_config_is_asked_first_and_once() -> None:
    """It gets a new number; once a later trial has taken it up it is not pending any more."""
    searcher = Searcher(Mirror("s", InMemoryStorage(), "maximize"), STRATEGY)
    cut = result(1, {"limit": 64}, interrupted())
    assert [s.rerun_of for s in searcher.reconcile([baseline(), cut], WIDE)] == [1]
    again = searcher.ask(WIDE)
    assert again is not None
    assert (again.number, again.config, again.rerun_of) == (2, cut.config, 1)
    searcher.tell(result(2, {"limit": 64}, infeasible()), WIDE)
    assert searcher.pending() == []
    assert searcher.ask(WIDE) != again


def test_the_end_of_a_region_is_told() -> None:
    """No suggestion is left when every config is settled."""
    searcher = Searcher(Mirror("s", InMemoryStorage(), "maximize"), STRATEGY)
    searcher.reconcile([baseline()], SMALL)
    for _ in range(8):
        suggestion = searcher.ask(SMALL)
        assert suggestion is not None
        searcher.tell(result(suggestion.number, suggestion.config.params, measured(1.0)), SMALL)
    assert searcher.ask(SMALL) is None
