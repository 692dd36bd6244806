"""Chart, kernel, process and acquisition, each against what can be worked out otherwise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from scipy.stats import norm

from autotune.search.gp.acquisition import gain_of_new, gain_of_repeat
from autotune.search.gp.chart import Chart, hints_of
from autotune.search.gp.kernel import matern, matern_by_log_length, squares
from autotune.search.gp.model import Data, Mean, Prior, _Loss, fit
from autotune.values import ParamValue
from tests.search.worlds import WIDE

AXES: dict[str, BaseDistribution] = {axis.name: axis.distribution() for axis in WIDE.axes()}
CHART = Chart.of(AXES, hints_of(WIDE))
ODD: dict[str, BaseDistribution] = {
    "a": FloatDistribution(0.1, 3.0, log=True),
    "b": IntDistribution(3, 9, step=2),
    "c": CategoricalDistribution(("x", "y", "z")),
    "d": FloatDistribution(-1.0, 1.0),
}


@given(st.lists(st.floats(-0.5, 1.5), min_size=CHART.dims, max_size=CHART.dims))
@settings(deadline=None)
def test_snapped_points_are_valid_and_stay_where_they_are(units: list[float]) -> None:
    """Snapping twice changes nothing, and the values lie in their distributions."""
    once = CHART.snap(np.array([units]))
    assert np.allclose(CHART.snap(once), once)
    for name, value in CHART.params(once[0].tolist()).items():
        distribution = AXES[name]
        assert distribution._contains(distribution.to_internal_repr(value))


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=30)
def test_units_and_values_are_inverse(seed: int) -> None:
    """Values of a snapped point lead back to it."""
    chart = Chart.of(ODD, {})
    tops = np.array([1.0, 1.0, 2.0, 1.0])
    point = chart.snap(np.random.default_rng(seed).random((1, 4)) * tops)[0]
    assert np.allclose(chart.units(chart.params(point.tolist())), point, atol=1e-6)


def test_a_share_is_multiplied_out() -> None:
    """The graph ceiling at share 0.5 of a limit of 1,024 is 512."""
    params: dict[str, ParamValue] = {
        "limit": 1024,
        "ceiling_share": 0.5,
        "fraction": 0.8,
        "policy": "lpm",
        "steps": 1,
        "overlap": 0,
    }
    units = np.array([CHART.units(params)])
    place = next(i for i, hint in enumerate(CHART.hints) if hint.parameter == "ceiling")
    assert CHART.quantity(units, place) == pytest.approx([512], rel=0.01)
    assert CHART.tops[place] == pytest.approx(4096)


def test_derivatives_of_the_kernel() -> None:
    """By the logarithm of each length, as finite differences have them."""
    points = np.random.default_rng(1).random((5, 3))
    distances, lengths = squares(points, points, (False, False, True)), np.array([0.3, 0.7, 1.1])
    _, slopes = matern_by_log_length(distances, lengths)
    for i in range(3):
        up, down = lengths.copy(), lengths.copy()
        up[i] *= math.exp(1e-5)
        down[i] *= math.exp(-1e-5)
        assert np.allclose((matern(distances, up) - matern(distances, down)) / 2e-5, slopes[i], atol=1e-6)


def data(values: list[float], starts: list[float]) -> Data:
    """Points on a line."""
    n = len(values)
    shares = 1.0 / np.array(starts)
    return Data(np.linspace(0, 1, n)[:, None], np.array(values), np.diag(shares), 1e-4 * shares)


def flat(n: int) -> Mean:
    """No knowledge of the level."""
    return Mean(np.zeros(n), np.ones((n, 1)))


def test_the_gradient_of_the_posterior() -> None:
    """As finite differences have it, at several hyperparameters."""
    seen = data([0.1, 0.3, 0.2, 0.5, 0.4], [1, 2, 1, 1, 3])
    loss = _Loss(seen, flat(5), (False,), np.log([0.1, 0.05, 0.7]), np.array([0.6, 0.5, 0.6]))
    for seed in range(5):
        theta = np.log([0.1, 0.05, 0.7]) + 0.5 * np.random.default_rng(seed).standard_normal(3)
        slope = loss(theta)[1]
        for i, step in enumerate(np.eye(3) * 1e-5):
            seen_slope = (loss(theta + step)[0] - loss(theta - step)[0]) / 2e-5
            assert seen_slope == pytest.approx(slope[i], rel=1e-3, abs=1e-3)


def test_the_gradient_where_loads_share_a_start() -> None:
    """By the noise between starts, also with readings that have it in common."""
    shared = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.5]])
    seen = Data(np.linspace(0, 1, 3)[:, None], np.array([0.1, 0.3, 0.2]), shared, np.full(3, 1e-4))
    theta = np.log([0.1, 0.05, 0.7])
    loss = _Loss(seen, flat(3), (False,), theta, np.ones(3))
    step = np.array([0.0, 1e-5, 0.0])
    assert (loss(theta + step)[0] - loss(theta - step)[0]) / 2e-5 == pytest.approx(loss(theta)[1][1], rel=1e-3)


def test_more_starts_of_one_configuration_make_it_surer() -> None:
    """Pooled starts weigh as many: the posterior deviation falls."""
    once = fit(data([0.0, 0.2], [1, 1]), flat(2), (False,), Prior())
    often = fit(data([0.0, 0.2], [1, 9]), flat(2), (False,), Prior())
    at = np.array([[1.0]])
    assert often.predict(at, flat(1))[1][0] < 0.6 * once.predict(at, flat(1))[1][0]


def test_one_observation_is_enough() -> None:
    """The prior of the hyperparameters carries the process: no failure, and uncertainty grows with distance."""
    process = fit(Data(np.array([[0.2]]), np.array([1.0]), np.ones((1, 1)), np.zeros(1)), flat(1), (False,), Prior())
    mean, deviation, _ = process.predict(np.array([[0.2], [0.9]]), flat(2))
    assert mean[0] == pytest.approx(1.0, abs=0.05)
    assert deviation[0] < deviation[1]


@given(st.floats(-0.3, 0.3), st.floats(0.01, 0.3))
@settings(deadline=None)
def test_without_noise_the_gain_is_expected_improvement(mean: float, deviation: float) -> None:
    """Of one new point over a known incumbent at 0, up to the error of the quadrature."""
    gain = gain_of_new(np.array([mean]), np.array([deviation]), np.array([0.0]), np.zeros((1, 1)))[0]
    z = mean / deviation
    assert gain == pytest.approx(mean * norm.cdf(z) + deviation * norm.pdf(z), abs=0.03 * deviation)


def test_a_repeat_is_worth_something_where_it_can_change_the_choice() -> None:
    """Of two that are close, yes; of one that is far behind, next to nothing."""
    moves = np.diag([0.03, 0.03, 0.03])
    gains = gain_of_repeat(np.array([1.0, 0.99, 0.5]), moves)
    assert gains[0] > 0.005
    assert gains[1] > 0.005
    assert gains[2] < 1e-6
