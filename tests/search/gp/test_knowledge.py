"""What the sampler knows beforehand: memory, and how throughput grows with the batch."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.trial import FrozenTrial

from autotune.search.gp.chart import Array, Chart, hints_of
from autotune.search.gp.feasibility import Feasibility
from autotune.search.gp.observations import Observations, observe
from autotune.search.gp.physics import CENTRES, Kv, Load, Physics, kv_line, log_throughput
from autotune.search.samplers import Knowledge
from autotune.search.suggest import Strategy, model_study
from autotune.values import Config, Measured, ParamValue, TrialResult
from tests.search.worlds import infeasible, result

from .nights import DEFAULTS, REGION, STRATEGY, night, run, truth

CHART = Chart.of({axis.name: axis.distribution() for axis in REGION.axes()}, hints_of(REGION))


def trials_of(history: list[TrialResult], strategy: Strategy = STRATEGY) -> list[FrozenTrial]:
    """The records as Optuna holds them."""
    return model_study(history, REGION, strategy, Knowledge())[0].get_trials(deepcopy=False)


def seen_in(history: list[TrialResult]) -> Observations:
    """What the model sees of the records."""
    return observe(trials_of(history), CHART, 1.0)


def units_of(**params: ParamValue) -> Array:
    """One point."""
    point = REGION.point({**DEFAULTS, **params})
    axes = {axis.name: axis for axis in REGION.axes()}
    return np.array([CHART.units({name: axes[name].encode(value) for name, value in point.items()})])  # type: ignore[misc]


def left_free(start: TrialResult, *shares: float | None) -> list[TrialResult]:
    """The same start again and again, each time with that share of the GPU left free."""
    assert isinstance(start.outcome, Measured)
    found = []
    for number, share in enumerate(shares):
        measurement = msgspec.structs.replace(start.outcome.measurement, gpu_free_share=share)
        outcome = msgspec.structs.replace(start.outcome, measurement=measurement)
        found.append(msgspec.structs.replace(start, number=number, outcome=outcome))
    return found


HISTORY = night(12)
MEMORY = CHART.names.index("mem_fraction_static")


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4), st.integers(0, 3), st.floats(0, 1))
@settings(deadline=None, max_examples=60)
def test_more_of_anything_that_needs_memory_never_makes_it_safer(units: list[float], axis: int, more: float) -> None:
    """Known directions hold whatever was seen; only too little memory for the weights is another matter."""
    model = Feasibility(CHART, seen_in([*HISTORY, *left_free(HISTORY[0], 0.07)]))
    units[MEMORY] = max(units[MEMORY], 0.2)
    low = np.array([units])
    high = low.copy()
    high[0, axis] = min(1.0, low[0, axis] + more)
    assert model.probability(high)[0] <= model.probability(low)[0] + 1e-4


def test_a_failure_teaches_its_neighbourhood_and_beyond_but_not_below() -> None:
    """What needs more memory than a configuration that died is unlikely to live; what needs less may."""
    base = night(0)
    dead: dict[str, ParamValue] = {"max_running_requests": 2048, "cuda_graph_max_bs": 2048, "mem_fraction_static": 0.92}
    before = Feasibility(CHART, seen_in(base))
    after = Feasibility(CHART, seen_in([*base, result(1, {**dead, "chunked_prefill_size": 8192}, infeasible())]))
    hungrier = units_of(**{**dead, "mem_fraction_static": 0.925})
    assert before.probability(hungrier)[0] > 0.05
    assert after.probability(hungrier)[0] < 0.2 * before.probability(hungrier)[0]
    assert after.probability(units_of())[0] > 0.9


def test_memory_that_a_load_left_free_says_how_much_more_may_be_asked() -> None:
    """A tenth of the GPU free under load: a fraction that takes half of it is safe, one that takes more is not. With
    less free neither is. Without that reading it is a guess.
    """
    [bare] = night(0)
    safe, beyond = (units_of(mem_fraction_static=fraction) for fraction in (0.9, 0.975))
    much, little = (Feasibility(CHART, seen_in(left_free(bare, share))) for share in (0.1, 0.03))
    assert much.probability(safe)[0] > 0.9
    assert much.probability(beyond)[0] < 0.1
    assert little.probability(safe)[0] < 0.1
    assert 0.1 < Feasibility(CHART, seen_in([bare])).probability(safe)[0] < 0.9


def test_starts_that_die_overrule_what_a_driver_showed() -> None:
    """A server that needs more for a moment than any look saw: two deaths, and it is not tried a third time."""
    starts, place = left_free(night(0)[0], 0.1), units_of(mem_fraction_static=0.925)
    assert Feasibility(CHART, seen_in(starts)).probability(place)[0] > 0.8
    dead = [result(n, {**DEFAULTS, "mem_fraction_static": 0.92 + 0.005 * n}, infeasible()) for n in (1, 2)]
    assert Feasibility(CHART, seen_in([*starts, *dead])).probability(place)[0] < 0.25


def test_a_gpu_filled_to_the_brim_says_little() -> None:
    """Allocators keep what is free: next to nothing left forbids no more than one step."""
    [bare] = night(0)
    full = Feasibility(CHART, seen_in(left_free(bare, 0.002)))
    assert full.probability(units_of(mem_fraction_static=0.855))[0] > 0.5


def test_a_baseline_outside_the_range_is_read_where_it_is() -> None:
    """The default fraction 0.72 where 0.8 is the least that is searched: what it left free it left at 0.72."""
    [inside] = left_free(night(0)[0], 0.216)
    assert isinstance(inside.outcome, Measured)
    values = {**DEFAULTS, "mem_fraction_static": 0.72}
    effective = msgspec.structs.replace(inside.outcome.effective, values=values)
    outside = msgspec.structs.replace(inside, outcome=msgspec.structs.replace(inside.outcome, effective=effective))
    model = Feasibility(CHART, seen_in([outside]))
    assert model.probability(units_of(mem_fraction_static=0.9))[0] > 0.9
    assert model.probability(units_of(mem_fraction_static=0.96))[0] < 0.1


def test_more_free_than_the_pools_leave_is_not_read() -> None:
    """The server does not hold what it was told to, or it holds a part of the GPU."""
    [bare] = night(0)
    points = units_of(mem_fraction_static=0.9)
    guess = Feasibility(CHART, seen_in([bare])).probability(points)
    assert Feasibility(CHART, seen_in(left_free(bare, 0.4))).probability(points) == pytest.approx(guess)


def test_a_load_that_was_ended_early_shows_no_peak() -> None:
    """It saw a part of what a load needs."""
    [start] = left_free(night(0)[0], 0.1)
    assert isinstance(start.outcome, Measured)
    early = msgspec.structs.replace(start, outcome=msgspec.structs.replace(start.outcome, stopped_early=True))
    assert math.isnan(seen_in([early]).groups[0].gpu_free_share)


def test_what_was_free_of_another_studys_gpu_is_not_taken_over() -> None:
    """Its starts that lived count as such; how much it had left was of another GPU."""
    [own], there = night(0), seen_in(left_free(night(0)[0], 0.02))
    points = units_of(mem_fraction_static=0.9)
    bare = Feasibility(CHART, seen_in([own]), seen_in([own])).probability(points)
    assert Feasibility(CHART, seen_in([own]), there).probability(points) == pytest.approx(bare)
    assert Feasibility(CHART, there).probability(points)[0] < bare[0] - 0.2


def test_of_several_starts_the_least_that_was_free_counts() -> None:
    """Starts of one configuration differ by what their allocators keep."""
    starts = left_free(night(0)[0], 0.08, 0.05, None)
    [group] = seen_in(starts).groups
    assert group.gpu_free_share == 0.05
    assert math.isnan(seen_in(starts[2:]).groups[0].gpu_free_share)


def test_a_failure_that_is_not_of_memory_spoils_its_neighbourhood_only() -> None:
    """An invalid flag says nothing about memory."""
    bad = result(1, {**DEFAULTS, "cuda_graph_max_bs": 2048}, infeasible("invalid_config"))
    model = Feasibility(CHART, seen_in([*night(0), bad]))
    assert model.probability(units_of(cuda_graph_max_bs=2048))[0] < 0.5
    assert model.probability(units_of(cuda_graph_max_bs=1024, mem_fraction_static=0.82))[0] > 0.7


def test_the_formula_saturates_and_has_its_cliff() -> None:
    """Doubling the batch gains less than double, and a batch above the ceiling loses."""
    far = np.full(3, 1e9)
    load = Load(np.array([256.0, 512.0, 512.0]), np.array([256.0, 512.0, 256.0]), far, far)
    logs = log_throughput(CENTRES, load)
    assert logs[0] < logs[1] < logs[0] + np.log(2)
    assert logs[2] < logs[1] - 0.3


def test_a_few_starts_tell_the_formula_the_whole_table() -> None:
    """Three rows of the H200 table are enough to rank the others as they were measured."""
    rows: list[dict[str, ParamValue]] = [
        {"max_running_requests": 512, "cuda_graph_max_bs": 512},
        {"max_running_requests": 1024, "cuda_graph_max_bs": 1024},
    ]
    history = [*night(0, noise=0.0)]
    for number, row in enumerate(rows, 1):
        config = Config(params={**DEFAULTS, **row})
        history.append(result(number, config.params, run(config, 0.0, "")))
    physics = Physics(CHART, seen_in(history).groups, 192.0)
    for running, graph in ((512, 128), (2048, 2048), (256, 256)):
        units = units_of(max_running_requests=running, cuda_graph_max_bs=graph)
        expected = truth({"max_running_requests": running, "cuda_graph_max_bs": graph})
        assert expected is not None
        found = log_throughput(physics.theta, physics.load_at(units))[0]
        assert found == pytest.approx(np.log(expected), abs=0.2)


def test_one_start_tells_how_many_tokens_another_fraction_would_hold() -> None:
    """The server's account of its memory is a line: 22 GB of pool at 0.8, 8 GB more for each tenth of an 80 GB GPU."""
    groups = seen_in(night(0)).groups
    told = [
        type(groups[0])(
            trials=(0,),
            point=groups[0].point,
            logs=(1.0,),
            stderrs=(0.0,),
            fraction=0.8,
            kv_tokens=22_000.0,
            memory_gb=(("weight", 42.0), ("kvcache", 22.0)),
        )
    ]
    line = kv_line(told)
    assert isinstance(line, Kv)
    assert line.of(0.9) == pytest.approx(30_000.0)
