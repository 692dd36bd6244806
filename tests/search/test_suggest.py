"""Suggestions are a function of the records, the seed and the region."""

from __future__ import annotations

import importlib.util

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import InputError
from autotune.search import SAMPLERS, Region, Strategy
from autotune.search.samplers import Knowledge, make_sampler, seed_for
from autotune.search.suggest import fresh_trials, suggest
from autotune.values import Config, TrialResult

from .worlds import (
    CEILING,
    FRACTION,
    LIMIT,
    POLICY,
    SMALL,
    SPACE,
    STEPS,
    WIDE,
    baseline,
    infeasible,
    interrupted,
    judge,
    measured,
    refused,
    result,
)

RUNNABLE = [name for name in SAMPLERS if name != "gp" or importlib.util.find_spec("torch")]


def night(region: Region, strategy: Strategy, trials: int, history: list[TrialResult]) -> list[Config]:
    """The configs of the next ``trials`` trials in the deterministic world."""
    for _ in range(trials):
        config = suggest(history, region, strategy)
        assert config is not None
        history.append(result(len(history), config.params, judge(config)))
    return [settled.config for settled in history]


@pytest.mark.parametrize("sampler", RUNNABLE)
def test_a_night_can_be_repeated(sampler: str) -> None:
    """The same seed gives the same configs, another seed gives others."""
    one, again, other = (night(WIDE, Strategy(sampler=sampler, seed=seed), 8, [baseline()]) for seed in (7, 7, 8))
    assert one == again
    assert one != other


@pytest.mark.parametrize("sampler", RUNNABLE)
def test_trials_that_were_cut_off_change_no_suggestion(sampler: str) -> None:
    """A night with interruptions asks for the same configs as one without."""
    strategy = Strategy(sampler=sampler, seed=3)
    straight = night(WIDE, strategy, 8, [baseline()])
    history = [result(0, {}, interrupted()), result(1, {}, baseline().outcome)]
    for config in straight[1:]:
        assert suggest(history, WIDE, strategy) == config
        history.append(result(len(history), config.params, interrupted()))
        history.append(result(len(history), config.params, judge(config)))


@pytest.mark.parametrize("sampler", RUNNABLE)
def test_a_small_region_is_tried_once_and_then_exhausted(sampler: str) -> None:
    """Eight configs give eight trials, whatever the sampler repeats, and then none."""
    strategy = Strategy(sampler=sampler)
    history = [baseline()]
    configs = night(SMALL, strategy, 8, history)[1:]
    assert len({config.key() for config in configs}) == 8
    assert suggest(history, SMALL, strategy) is None


@pytest.mark.parametrize("outcome", [infeasible(), refused(), measured(1.0)])
def test_no_settled_config_is_suggested_again(outcome: object) -> None:
    """Neither what failed nor what was refused costs a second start."""
    region = Region(space=SPACE, bounds=(POLICY,))
    history = [baseline(), result(1, {"policy": "fcfs"}, outcome)]  # type: ignore[arg-type]
    assert suggest(history, region, Strategy()) == Config(params={"policy": "lpm"})


def test_a_region_of_one_point_gives_one_trial() -> None:
    """A range whose ends are equal is no reason to fail."""
    import msgspec

    region = Region(space=SPACE, bounds=(msgspec.structs.replace(LIMIT, low=64, high=64),))
    first = suggest([baseline()], region, Strategy())
    assert first == Config(params={"limit": 64})
    assert suggest([baseline(), result(1, first.params, measured(1.0))], region, Strategy()) is None


def test_the_sampler_learns_where_memory_ends() -> None:
    """After the random start, fewer suggestions run out of memory than chance would have."""
    region = Region(space=SPACE, bounds=(LIMIT, FRACTION))

    def walls(sampler: str) -> int:
        hits = 0
        for seed in range(6):
            history = [baseline()]
            for _ in range(24):
                config = suggest(history, region, Strategy(sampler=sampler, seed=seed))
                assert config is not None
                wall = float(config.params["limit"]) > 100
                hits += wall
                outcome = infeasible() if wall else measured(float(config.params["limit"]))
                history.append(result(len(history), config.params, outcome))
        return hits

    assert walls("tpe") < walls("random")


def test_the_search_follows_the_score_in_both_directions() -> None:
    """Maximised, the limit climbs; minimised, it falls."""
    region = Region(space=SPACE, bounds=(LIMIT, CEILING, STEPS))

    def mean_limit(direction: str) -> float:
        history = [baseline()]
        strategy = Strategy(seed=1, direction=direction)  # type: ignore[arg-type]
        for _ in range(24):
            config = suggest(history, region, strategy)
            assert config is not None
            history.append(result(len(history), config.params, measured(float(config.params["limit"]))))
        late = history[-10:]
        return sum(float(r.config.params["limit"]) for r in late) / len(late)

    assert mean_limit("maximize") > 1000 > 300 > mean_limit("minimize")


def test_repeats_and_interruptions_do_not_advance_the_ordinal() -> None:
    """Only a new config counts as a fresh trial."""
    history = [
        baseline(),
        result(1, {"limit": 64}, measured(1.0)),
        result(2, {"limit": 64}, measured(1.1), repeat_of=1),
        result(3, {"limit": 72}, interrupted()),
    ]
    assert fresh_trials(history) == 2


@given(st.integers(0, 2**32 - 1), st.integers(0, 10_000))
@settings(deadline=None)
def test_seeds_fit_every_sampler(seed: int, ordinal: int) -> None:
    """A derived seed is a 32-bit number and differs from that of the next ordinal."""
    assert 0 <= seed_for(seed, ordinal) < 2**32
    assert seed_for(seed, ordinal) != seed_for(seed, ordinal + 1)


def test_an_unknown_sampler_is_an_input_error() -> None:
    """The message lists the samplers that exist."""
    with pytest.raises(InputError, match="use one of autotune"):
        make_sampler("annealing", Knowledge())


@pytest.mark.skipif(bool(importlib.util.find_spec("torch")), reason="PyTorch is installed")
def test_a_sampler_that_cannot_run_here_names_what_is_missing() -> None:
    """GP needs PyTorch."""
    with pytest.raises(InputError, match="pip install torch"):
        make_sampler("gp", Knowledge())
