"""One look inside, where the formula has the last word."""

from __future__ import annotations

import math

import msgspec

from autotune.search.gp.belief import Belief
from autotune.search.gp.doubt import GAP, unseen_middle
from autotune.search.outlook import belief_of, recommended
from autotune.search.suggest import propose
from autotune.values import Config, Effective, Measured, ParamValue, TrialResult
from tests.search.worlds import infeasible, measured, result

from .nights import DEFAULTS, REGION, STRATEGY, live, truth


def peaked(params: dict[str, ParamValue]) -> float:
    """Tokens per second of a server that is best at 700 running requests: each doubling beyond costs 35 %."""
    value, running = truth(params), float({**DEFAULTS, **params}["max_running_requests"])
    assert value is not None
    return value * math.exp(-0.35 * max(0.0, math.log2(running / 700)))


def started(number: int, params: dict[str, ParamValue]) -> TrialResult:
    """A start of that server."""
    values = {**DEFAULTS, **params}
    effective = Effective(source="server_info", kv_tokens=669_932, values=values)
    return result(number, params, msgspec.structs.replace(measured(peaked(params), values), effective=effective))


def both(running: int) -> dict[str, ParamValue]:
    """Graphs up to the running limit."""
    return {**DEFAULTS, "max_running_requests": running, "cuda_graph_max_bs": running}


def believed(history: list[TrialResult]) -> Belief:
    """What the search believes."""
    belief, _ = belief_of(history, REGION, STRATEGY)
    assert belief is not None
    return belief


def middle_of(history: list[TrialResult]) -> Config | None:
    """The look that is missing."""
    belief = believed(history)
    point = unseen_middle(belief)
    if point is None:
        return None
    params = belief.chart.params(tuple(point))
    return REGION.config({axis.name: axis.value(params[axis.name]) for axis in REGION.axes()})


def test_the_middle_of_the_gap_below_the_best_is_looked_at() -> None:
    """Between 128 and 2,048, graphs up to it and all else as the best one has it."""
    found = middle_of([started(0, {}), started(1, both(2048)), started(2, both(128))])
    assert found is not None
    assert found.params == both(512)


def test_a_gap_that_is_small_or_looked_into_is_none() -> None:
    """Starts tell, and so do loads of a start at lower limits, above whose graphs nothing was seen."""
    near = [started(0, {}), started(1, both(1000)), started(2, both(int(1000 / GAP) + 8))]
    assert middle_of(near) is None
    assert middle_of(near[:2]) is not None
    top = started(1, both(2048))
    assert isinstance(top.outcome, Measured)
    config = Config(params=both(2048))
    lowered = msgspec.structs.replace(top.outcome, live=(live(config, 1024), live(config, 512), live(config, 256)))
    assert middle_of([started(0, {}), msgspec.structs.replace(top, outcome=lowered)]) is None
    eager = started(2, {**both(1024), "cuda_graph_max_bs": 256})
    assert middle_of([started(0, {}), top, eager, started(3, both(128))]) is not None


def test_a_place_that_would_hardly_be_served_is_not_looked_at() -> None:
    """Starts around it that failed have told."""
    history = [started(0, {}), started(1, both(2048)), started(2, both(128))]
    dead = [result(n, both(400 + 40 * n), infeasible("invalid_config")) for n in range(3, 6)]
    assert middle_of(history) is not None
    assert middle_of([*history, *dead]) is None


def test_a_server_that_is_best_inside_is_found_by_starts_alone() -> None:
    """The formula says that more is never worse, and a search that believed it would stay at the top, 35 % off."""
    history = [started(0, {})]
    for number in range(1, 9):
        found = propose(history, REGION, STRATEGY)
        assert found is not None
        history.append(started(number, dict(found.config.params)))
    best = recommended(history, REGION, STRATEGY)
    assert best is not None
    top = max(peaked(both(running)) for running in range(256, 2049, 8))
    assert peaked(dict(history[best].config.params)) > 0.95 * top
    assert peaked(both(2048)) < 0.85 * top
