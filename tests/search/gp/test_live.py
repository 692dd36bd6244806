"""Loads of one start at lower running limits: what they teach, what they do not, and which one is asked for."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.search.gp.feasibility import Feasibility
from autotune.search.gp.observations import LIVE_LOADS
from autotune.search.live import next_limit
from autotune.search.outlook import belief_of, recommended
from autotune.search.searcher import Searcher
from autotune.search.suggest import propose
from autotune.values import Config, LiveFigures, Measured, ParamValue, TrialResult
from tests.search.worlds import SMALL, result

from .nights import DEFAULTS, REGION, STRATEGY, live, loaded, night, run
from .test_knowledge import CHART, seen_in, units_of

WIDE: dict[str, ParamValue] = {**DEFAULTS, "cuda_graph_max_bs": 2048, "mem_fraction_static": 0.85}


def started(number: int, params: dict[str, ParamValue], limits: tuple[int, ...], factor: float = 1.0) -> TrialResult:
    """A start without noise, with loads at these limits, all off by ``factor``."""
    config = Config(params=params)
    outcome = run(config, 0.0, "")
    assert isinstance(outcome, Measured)
    loads = tuple(live(config, limit, factor) for limit in limits)
    return result(number, params, msgspec.structs.replace(outcome, live=loads))


def value_at(history: list[TrialResult], **params: ParamValue) -> tuple[float, float]:
    """What a fresh start there is believed to give, and the relative error of that."""
    belief, _ = belief_of(history, REGION, STRATEGY)
    assert belief is not None
    mean, deviation = belief.forecast(units_of(**params))
    return math.exp(mean[0]), float(deviation[0])


def test_one_start_shows_the_whole_curve() -> None:
    """With three loads at lower limits a start at one of them is foreseen far better than without."""
    without = value_at([started(0, WIDE, ())], **{**WIDE, "max_running_requests": 512})
    with_loads = value_at([started(0, WIDE, (1024, 512, 256))], **{**WIDE, "max_running_requests": 512})
    assert with_loads[1] < 0.6 * without[1]
    assert with_loads[0] == pytest.approx(512 / (0.016 + 0.0000352 * 512), rel=0.05)


def test_what_live_loads_are_off_is_learned_from_a_fresh_start() -> None:
    """All of them 4 % too high: a fresh start at one of these limits corrects what is believed of the others."""
    limits = (1536, 1024, 512)
    first = started(0, WIDE, limits, 1.04)
    fresh = [started(n, {**WIDE, "max_running_requests": limits[n - 1]}, ()) for n in (1, 3)]
    expected = 1024 / (0.016 + 0.0000352 * 1024)
    before, _ = value_at([first], **{**WIDE, "max_running_requests": 1024})
    after, _ = value_at([first, *fresh], **{**WIDE, "max_running_requests": 1024})
    assert abs(after / expected - 1) < 0.7 * abs(before / expected - 1)


def test_loads_of_one_start_share_its_deviation() -> None:
    """A start that is 10 % slow as a whole says little against the level, whatever the number of its loads."""
    slow = started(1, WIDE, (1024, 512, 256), 0.9)
    assert isinstance(slow.outcome, Measured)
    own = msgspec.structs.replace(slow.outcome.score, value=0.9 * slow.outcome.score.value)
    slow = msgspec.structs.replace(slow, outcome=msgspec.structs.replace(slow.outcome, score=own))
    groups = seen_in([started(0, WIDE, ()), slow]).shared()
    assert groups.shape == (4, 4)
    assert groups[0, 0] == pytest.approx(0.5)
    assert groups[0, 1:] == pytest.approx([0.5, 0.5, 0.5])
    assert groups[1, 1:] == pytest.approx([1.0, 1.0, 1.0])


def test_a_load_at_a_lower_limit_is_never_recommended_but_started() -> None:
    """The best that was seen is a load: the trial is recommended for what it is, and the next start goes there."""
    slow: dict[str, ParamValue] = {**DEFAULTS, "cuda_graph_max_bs": 1024}
    history = [started(0, DEFAULTS, ()), started(1, slow, (1024, 768, 512))]
    assert isinstance(history[1].outcome, Measured)
    assert max(load.score.value for load in history[1].outcome.live) > 1.05 * history[1].outcome.score.value
    assert recommended(history, REGION, STRATEGY) in (0, 1)
    found = propose(history, REGION, STRATEGY)
    assert found is not None
    assert float(found.config.params["max_running_requests"]) <= float(found.config.params["cuda_graph_max_bs"])


def test_no_gain_is_believed_of_a_start_above_its_graphs() -> None:
    """A curve that falls beyond some running limit is no reason to try small graphs: tied ones serve the same batch."""
    falling = [
        msgspec.structs.replace(live(Config(params=DEFAULTS), 1024, 1.3)),
        live(Config(params=DEFAULTS), 512, 1.2),
    ]
    first = started(0, DEFAULTS, ())
    assert isinstance(first.outcome, Measured)
    first = msgspec.structs.replace(first, outcome=msgspec.structs.replace(first.outcome, live=tuple(falling)))
    belief, _ = belief_of([first], REGION, STRATEGY)
    assert belief is not None
    tied = units_of(
        **{**DEFAULTS, "max_running_requests": 1024, "cuda_graph_max_bs": 1024, "mem_fraction_static": 0.82}
    )
    above = units_of(
        **{**DEFAULTS, "max_running_requests": 1024, "cuda_graph_max_bs": 512, "mem_fraction_static": 0.82}
    )
    assert belief.worth(above)[0] < 0.05 * belief.worth(tied)[0]


def test_a_server_that_captures_no_graphs_is_searched_like_any_other() -> None:
    """Its ceiling in force is 0: no larger one would serve a batch faster, and a larger batch is worth starting."""

    def bare(number: int, params: dict[str, ParamValue], limits: tuple[int, ...]) -> TrialResult:
        trial = started(number, params, limits)
        assert isinstance(trial.outcome, Measured)
        assert trial.outcome.effective is not None
        none = msgspec.structs.replace(trial.outcome.effective, graph_max_batch=0)
        return result(number, params, msgspec.structs.replace(trial.outcome, effective=none))

    low: dict[str, ParamValue] = {**DEFAULTS, "max_running_requests": 256, "cuda_graph_max_bs": 256}
    belief, _ = belief_of([bare(0, low, (128, 64))], REGION, STRATEGY)
    assert belief is not None
    tied = belief.worth(units_of(**{**low, "max_running_requests": 1024, "cuda_graph_max_bs": 1024}))[0]
    above = belief.worth(units_of(**{**low, "max_running_requests": 1024, "cuda_graph_max_bs": 512}))[0]
    assert above > 0.1
    assert above == pytest.approx(tied, rel=0.5)


def test_all_that_was_read_decides_whether_a_limit_holds() -> None:
    """One start a little beyond a limit may be recommended where its loads and others say that it holds; one that is
    further beyond than starts differ may not.
    """
    strategy = msgspec.structs.replace(STRATEGY, limits={"tpot_mean_s": 0.040})

    def paced(number: int, running: int, tpot_s: float, loads: dict[int, float]) -> TrialResult:
        params: dict[str, ParamValue] = {**WIDE, "max_running_requests": running, "cuda_graph_max_bs": running}
        trial = started(number, params, tuple(loads))
        assert isinstance(trial.outcome, Measured)
        own = msgspec.structs.replace(trial.outcome.measurement, steady={"tpot_mean_s": tpot_s})
        shown = tuple(
            msgspec.structs.replace(load, steady={"tpot_mean_s": loads[load.limit]}) for load in trial.outcome.live
        )
        return result(number, params, msgspec.structs.replace(trial.outcome, measurement=own, live=shown))

    near = [paced(0, 2048, 0.090, {512: 0.034, 640: 0.0375}), paced(1, 640, 0.0405, {512: 0.0345})]
    assert recommended(near, REGION, strategy) == 1
    far = [near[0], paced(1, 640, 0.046, {512: 0.0345})]
    assert recommended(far, REGION, strategy) is None


def test_memory_of_a_fresh_start_is_not_inferred_from_live_loads() -> None:
    """Whether a start at a smaller limit would live is believed as if its loads had not been."""
    with_loads, without = [started(0, WIDE, (1024, 512, 256))], [started(0, WIDE, ())]
    points = np.random.default_rng(1).random((50, CHART.dims))
    one, other = (Feasibility(CHART, seen_in(history)) for history in (with_loads, without))
    assert np.allclose(one.probability(points), other.probability(points))


def test_a_refused_load_is_no_datum() -> None:
    """What a gate refused says nothing of that limit, and is not asked for again at once."""
    first = started(0, WIDE, ())
    assert isinstance(first.outcome, Measured)
    refused = msgspec.structs.replace(live(first.config, 512, 0.1), refused=("saturated",))
    outcome = msgspec.structs.replace(first.outcome, live=(refused,))
    history = [msgspec.structs.replace(first, outcome=outcome)]
    assert seen_in(history).groups == seen_in([first]).groups
    limit = next_limit([], (first.config, outcome), REGION, STRATEGY)
    assert limit is None or abs(math.log(limit / 512)) > 0.1


@given(st.integers(0, 2**31), st.floats(-0.03, 0.03))
@settings(deadline=None, max_examples=5)
def test_nights_with_live_values_are_inside_valid_and_repeatable(seed: int, offset: float) -> None:
    """Proposals need no repair, limits lie below the one in force and in the range, and resuming changes nothing."""
    strategy = msgspec.structs.replace(STRATEGY, seed=seed)
    history = night(3, strategy, offset=offset)
    for trial in history:
        assert not trial.config.params or REGION.config(trial.config.params) == trial.config
        if isinstance(trial.outcome, Measured):
            limits = [load.limit for load in trial.outcome.live]
            assert len(set(limits)) == len(limits)
            top = float({**DEFAULTS, **trial.config.params}["max_running_requests"])
            assert all(128 <= limit < top for limit in limits)
    stored = msgspec.json.decode(msgspec.json.encode(history), type=list[TrialResult])
    assert propose(stored, REGION, strategy) == propose(history, REGION, strategy)
    last = stored[-1]
    begun = run(last.config, 0.05, f"{seed}|3")
    assert loaded(last.config, begun, stored[:-1], strategy, offset) == history[-1].outcome


@given(st.floats(0, 1), st.floats(0, 1), st.integers(128, 2048))
@settings(deadline=None)
def test_a_lowered_limit_keeps_the_graph_ceiling(limit: float, share: float, lower: int) -> None:
    """As far as the range of shares goes; nothing else moves, and the point is allowed."""
    running, ceiling = (CHART.names.index(name) for name in ("max_running_requests", "cuda_graph_max_bs_share"))
    units = np.full((1, CHART.dims), 0.5)
    units[0, [running, ceiling]] = limit, share
    units = CHART.snap(units)
    after = CHART.lowered(units, np.array([float(lower)]), np.array([np.nan]))
    others = [i for i in range(CHART.dims) if i not in (running, ceiling)]
    assert np.allclose(CHART.snap(after), after)
    assert np.allclose(after[:, others], units[:, others])
    kept = CHART.quantity(units, ceiling)[0] / CHART.quantity(after, running)[0]
    assert CHART.quantity(after, ceiling)[0] / CHART.quantity(after, running)[0] == pytest.approx(
        min(1.0, max(0.25, kept)), abs=0.13
    )


def test_searches_that_cannot_use_live_loads_ask_for_none() -> None:
    """Another sampler, a space without a running limit, bounds that are not known yet."""
    first = started(0, WIDE, ())
    assert isinstance(first.outcome, Measured)
    start = (first.config, first.outcome)
    assert next_limit([], start, REGION, STRATEGY) is not None
    assert next_limit([], start, REGION, msgspec.structs.replace(STRATEGY, sampler="tpe")) is None
    assert next_limit([], start, SMALL, STRATEGY) is None
    with Searcher.open("s", "sqlite://", STRATEGY) as searcher:
        assert searcher.ask_live(first.config, first.outcome.effective, first.outcome, None) is None
        assert searcher.ask_live(first.config, first.outcome.effective, first.outcome, REGION) is not None


def test_of_a_long_night_the_loads_of_the_best_starts_are_kept() -> None:
    """So that a suggestion stays quick."""
    loads = tuple(range(1000, 100, -30))
    history = [started(n, {**WIDE, "max_running_requests": 1024 + 64 * n}, loads) for n in range(4)]
    kept = [g for g in seen_in(history).groups if g.live]
    assert len(kept) == LIVE_LOADS
    assert {g.trials for g in kept} == {(3,), (2,)}


def test_the_storage_shows_live_loads() -> None:
    """By limit and score, for whoever reads the database."""
    trial = started(0, WIDE, (512,))
    from .test_knowledge import trials_of

    (shown,) = trials_of([trial])
    assert isinstance(trial.outcome, Measured)
    figures: LiveFigures = trial.outcome.live[0]
    assert shown.user_attrs["live"] == [
        {"limit": 512, "score": figures.score.value, "score_stderr": figures.score.stderr}
    ]
