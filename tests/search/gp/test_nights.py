"""The sampler on whole nights."""

from __future__ import annotations

import statistics

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.search.outlook import outlook, recommended, why_enough
from autotune.search.region import Region
from autotune.search.suggest import propose, suggest
from autotune.values import Config, Infeasible, TrialResult
from tests.search.worlds import SMALL, WIDE, interrupted, judge, measured, result

from .nights import REGION, STRATEGY, night, truth

BEST = truth({"max_running_requests": 2048, "cuda_graph_max_bs": 2048})


def regret_after(history: list[TrialResult]) -> float:
    """Of the recommended configuration, by its true value."""
    best = recommended(history, REGION, STRATEGY)
    value = truth(history[best or 0].config.params)
    assert BEST is not None
    assert value is not None
    return 1 - value / BEST


def test_the_edge_that_needs_two_moves_is_found_in_a_few_starts() -> None:
    """The median of five noisy nights is within 3 % of the optimum after five starts, where the default is 25 % off."""
    nights = [night(4, msgspec.structs.replace(STRATEGY, seed=seed)) for seed in range(5)]
    assert statistics.median(regret_after(history) for history in nights) < 0.03


def test_few_starts_run_out_of_memory() -> None:
    """Although a quarter of the region does."""
    history = [r for seed in range(3) for r in night(12, msgspec.structs.replace(STRATEGY, seed=seed))]
    lost = sum(isinstance(r.outcome, Infeasible) for r in history)
    assert lost <= 0.15 * len(history)


@given(st.integers(0, 2**31))
@settings(deadline=None, max_examples=8)
def test_suggestions_are_inside_and_valid(seed: int) -> None:
    """Repairing a suggestion changes nothing, whatever the seed."""
    history = night(3, msgspec.structs.replace(STRATEGY, seed=seed))
    for trial in history[1:]:
        if trial.config.params:
            assert REGION.config(trial.config.params) == trial.config


@given(st.integers(0, 2**31), st.sampled_from([WIDE, REGION]))
@settings(deadline=None, max_examples=6)
def test_the_same_records_give_the_same_proposal(seed: int, region: Region) -> None:
    """Also when trials were cut off in between, and whether or not the tuner was restarted."""
    strategy = msgspec.structs.replace(STRATEGY, seed=seed)
    history = [result(0, {}, measured(100.0, {"limit": 256, "ceiling": 128}))]
    if region is WIDE:
        for number in range(1, 4):
            found = propose(history, region, strategy)
            assert found is not None
            history.append(result(number, found.config.params, judge(found.config)))
    else:
        history = night(3, strategy)
    once = propose(history, region, strategy)
    cut = result(len(history), once.config.params if once else {}, interrupted())
    assert propose([*history, cut], region, strategy) == once
    assert propose(msgspec.json.decode(msgspec.json.encode(history), type=list[TrialResult]), region, strategy) == once


def test_a_repeat_is_chosen_where_it_tells_more() -> None:
    """Of two that look alike one is started again, rather than the last one of many that are all far behind."""
    history = [
        result(0, {}, measured(100.0, {"policy": "lpm", "steps": 1})),
        result(1, {"policy": "lpm", "steps": 1}, measured(100.0)),
        result(2, {"policy": "fcfs", "steps": 1}, measured(102.0)),
    ]
    for policy in ("lpm", "fcfs"):
        for steps in (2, 4, 8):
            history.append(result(len(history), {"policy": policy, "steps": steps}, measured(40.0 + steps)))
    history.pop()
    found = propose(history, SMALL, STRATEGY)
    assert found is not None
    assert found.repeat_of in (0, 1, 2)
    assert suggest(history, SMALL, STRATEGY) == Config(params={"policy": "fcfs", "steps": 8})


def test_the_outlook_says_when_it_is_enough() -> None:
    """Early the next start promises much; later less, and less than a restart is worth."""
    early, late = outlook(night(0), REGION, STRATEGY), outlook(night(14), REGION, STRATEGY)
    assert early is not None
    assert late is not None
    assert early.gain > 0.05 > late.gain
    assert why_enough(early, 0.01) is None
    assert "less than the 50.00%" in (why_enough(late, 0.5) or "")
    assert late.value == pytest.approx(BEST, rel=0.06)


def test_limits_of_the_objective_bind_the_recommendation() -> None:
    """The fastest configuration is not recommended where it breaks a limit."""
    strategy = msgspec.structs.replace(STRATEGY, limits={"ttft_p99_s": 1.0})
    history = [
        result(0, {}, measured(100.0, {"policy": "lpm", "steps": 1}, ttft_p99_s=0.5)),
        result(1, {"policy": "lpm", "steps": 8}, measured(200.0, ttft_p99_s=2.0)),
        result(2, {"policy": "fcfs", "steps": 2}, measured(120.0, ttft_p99_s=0.7)),
    ]
    assert recommended(history, SMALL, strategy) == 2
    assert recommended(history, SMALL, STRATEGY) == 1
