"""Trials that run side by side: the search looks elsewhere, and nothing made up stays."""

from __future__ import annotations

import pytest

from autotune.search import Region
from autotune.search.fantasies import expecting, propose_beside
from autotune.search.searcher import Searcher
from autotune.search.suggest import Strategy, suggest
from autotune.values import Config, Infeasible, Interrupted, Measured, TrialResult

from .gp import nights as gp
from .worlds import LIMIT, SPACE, WIDE, baseline, judge, result

STRATEGY = Strategy(sampler="autotune", seed=5)


def history() -> list[TrialResult]:
    """A baseline and three measured trials."""
    found = [baseline()]
    for _ in range(3):
        config = suggest(found, WIDE, STRATEGY)
        assert config is not None
        found.append(result(len(found), config.params, judge(config)))
    return found


@pytest.mark.parametrize("sampler", ["autotune", "tpe", "random"])
def test_four_slots_get_four_configurations(sampler: str) -> None:
    """Asked again before anything is told, the search proposes something else."""
    strategy, known = Strategy(sampler=sampler, seed=5), history()
    running: dict[int, Config] = {}
    for number in range(4, 8):
        config = suggest(expecting(known, running, WIDE, strategy), WIDE, strategy)
        assert config is not None
        running[number] = config
    assert len({config.key() for config in running.values()}) == 4


def test_a_running_trial_is_believed_to_come_out_as_expected() -> None:
    """Its made-up score lies among those that were measured, not above their best by much."""
    known = history()
    config = suggest(known, WIDE, STRATEGY)
    assert config is not None
    made_up = expecting(known, {4: config}, WIDE, STRATEGY)[-1]
    assert made_up.number == 4
    assert isinstance(made_up.outcome, Measured)
    scores = [r.outcome.score.value for r in known if isinstance(r.outcome, Measured)]
    assert 0.5 * min(scores) < made_up.outcome.score.value < 2 * max(scores)


def test_a_running_trial_that_is_likely_to_die_is_taken_for_lost() -> None:
    """With the defaults alone measured: the hungriest server is, one that needs less than the defaults is not."""
    small, large = (
        Config(params={**gp.DEFAULTS, "cuda_graph_max_bs": graph, "mem_fraction_static": fraction})
        for graph, fraction in ((128, 0.8), (2048, 0.985))
    )
    outcomes = [r.outcome for r in expecting(gp.night(0), {1: small, 2: large}, gp.REGION, gp.STRATEGY)]
    assert isinstance(outcomes[1], Measured)
    assert isinstance(outcomes[2], Infeasible)


@pytest.mark.parametrize("seed", [0, 1])
def test_what_runs_is_not_started_once_more_while_anything_is_new(seed: int) -> None:
    """Over a single axis the first trial, still running, promises the most: its repeat was the fourth place's."""
    strategy, known = Strategy(sampler="autotune", seed=seed), [baseline()]
    region = Region(space=SPACE, bounds=(LIMIT,))
    running: dict[int, Config] = {}
    for number in range(1, 5):
        found = propose_beside(known, running, region, strategy)
        assert found is not None
        assert found.repeat_of not in running
        running[number] = found.config
    assert len({config.key() for config in running.values()}) == 4


def test_the_baseline_that_runs_again_is_not_made_up() -> None:
    """It is no place of the search; neither is anything before a first measurement."""
    known = history()
    assert expecting(known, {4: Config(params={})}, WIDE, STRATEGY) is known
    assert expecting([], {0: known[1].config}, WIDE, STRATEGY) == []


def test_results_may_come_back_in_any_order() -> None:
    """The storage holds each under its number, and a trial that is under way is running there."""
    known = history()
    with Searcher.open("side-by-side", "sqlite://", STRATEGY) as searcher:
        searcher.reconcile(known[:1], WIDE)
        for settled in known[1:]:
            searcher.begin(settled.number, settled.config, WIDE)
        assert searcher.next_number == 4
        searcher.tell(known[3], WIDE)
        states = [trial.state.name for trial in searcher._mirror.trials()]
        assert states == ["COMPLETE", "RUNNING", "RUNNING", "COMPLETE"]
        searcher.tell(known[1], WIDE)
        searcher.tell(known[2], WIDE)
        assert [trial.state.name for trial in searcher._mirror.trials()] == ["COMPLETE"] * 4
        assert [settled.number for settled in searcher.history] == [0, 1, 2, 3]


def test_an_interrupted_configuration_is_taken_up_by_one_slot() -> None:
    """While its second start runs, no other slot gets it too."""
    known = history()

    cut = result(4, {**known[1].config.params, "policy": "fcfs"}, Interrupted(reason="a slot was lost"))
    with Searcher.open("taken-up", "sqlite://", STRATEGY) as searcher:
        searcher.reconcile([*known, cut], WIDE)
        again = searcher.ask(WIDE)
        assert again is not None
        assert again.rerun_of == 4
        searcher.begin(again.number, again.config, WIDE)
        other = searcher.ask(WIDE)
        assert other is not None
        assert other.rerun_of is None
        assert other.config != again.config
