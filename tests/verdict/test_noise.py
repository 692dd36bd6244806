"""Variance components from repeated starts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.values import Config, Diagnosis, Effective, Estimate, Infeasible, Measured, Outcome, Timings, TrialResult
from autotune.verdict.noise import (
    PRIOR_BETWEEN,
    PRIOR_DF,
    NoiseModel,
    estimate_noise,
    group_trials,
    log_mean,
    predict_stderr,
)
from tests.verdict.builders import measurement, tried


def test_without_repeats_the_prior_speaks() -> None:
    """Configurations measured once say nothing of the noise between starts."""
    model = estimate_noise([tried(100.0, a=1), tried(140.0, a=2)])
    assert (model.between, model.df, model.observed_df) == (PRIOR_BETWEEN, PRIOR_DF, 0)


@pytest.mark.parametrize("true", [0.02, 0.05, 0.10])
def test_many_repeats_find_both_parts(true: float) -> None:
    """With 400 repeats the noise between starts is found within a tenth, apart from that within them."""
    rng = np.random.default_rng(7)
    groups = []
    for i in range(200):
        logs = math.log(1000 + 10 * i) + rng.normal(0, true, 3) + rng.normal(0, 0.01, 3)
        groups.append(tried(*(float(x) for x in np.exp(logs)), error=0.01, a=i))
    model = estimate_noise(groups)
    assert model.between == pytest.approx(true, rel=0.1)
    assert model.within == pytest.approx(0.01)
    assert model.observed_df == 400
    assert model.total == pytest.approx(math.hypot(model.between, 0.01))


def test_few_repeats_are_shrunk_to_the_prior() -> None:
    """One pair that agrees exactly does not make the noise zero, nor does one that differs by 40 % make it 28 %."""
    assert 0.03 < estimate_noise([tried(100.0, 100.0)]).between < PRIOR_BETWEEN
    wild = estimate_noise([tried(100.0, 140.0)])
    assert PRIOR_BETWEEN < wild.between < wild.observed


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(1.0, 1e6), min_size=1, max_size=4), max_size=6), st.floats(1e-3, 1e3))
def test_noise_does_not_depend_on_the_unit(values: list[list[float]], scale: float) -> None:
    """The same figures in another unit give the same relative noise."""
    one = estimate_noise([tried(*v) for v in values])
    other = estimate_noise([tried(*(x * scale for x in v)) for v in values])
    assert other.between == pytest.approx(one.between, rel=1e-6, abs=1e-7)
    assert other.observed == pytest.approx(one.observed, rel=1e-6, abs=1e-7)


def test_predicted_error_has_both_parts() -> None:
    """More starts shrink the part between starts; the error within comes on top."""
    noise = NoiseModel(between=0.05)
    assert predict_stderr(noise, Estimate(value=1000.0, stderr=0.0, batches=9)) == pytest.approx(50.0)
    assert predict_stderr(noise, Estimate(value=1000.0, stderr=0.0, batches=9), starts=4) == pytest.approx(25.0)
    assert predict_stderr(noise, Estimate(value=1000.0, stderr=120.0, batches=9)) == pytest.approx(130.0)
    mean, error = log_mean(tried(100.0, 121.0), noise)
    assert (math.exp(mean), error) == pytest.approx((110.0, 0.05 / math.sqrt(2)))


def _result(number: int, params: dict[str, int], outcome: Outcome) -> TrialResult:
    config = Config(params=dict(params))
    return TrialResult(number=number, config=config, outcome=outcome, timings=Timings(), started_at="", finished_at="")


def _measured(value: float, effective: dict[str, int], *, stopped: bool = False) -> Measured:
    return Measured(
        score=Estimate(value=value, stderr=1.0, batches=9),
        measurement=measurement({}),
        effective=Effective(source="server_info", values=dict(effective)),
        stopped_early=stopped,
    )


def test_trials_equal_in_force_are_repeats() -> None:
    """A clamped request shares its measurement with the value in force; failures and early stops are left out."""
    results = [
        _result(0, {}, _measured(100.0, {"limit": 2048})),
        _result(1, {"limit": 4096}, _measured(104.0, {"limit": 2048})),
        _result(2, {"limit": 64}, _measured(50.0, {"limit": 64})),
        _result(3, {"limit": 32}, _measured(20.0, {"limit": 32}, stopped=True)),
        _result(4, {"limit": 9999}, Infeasible(diagnosis=Diagnosis(kind="oom_kv", action="prune"))),
        _result(5, {"x": 1}, _measured(70.0, {})),
        _result(6, {"x": 2}, _measured(71.0, {})),
    ]
    groups = group_trials(results)
    assert [g.trials for g in groups] == [(0, 1), (2,), (5,), (6,)]
    assert groups[0].params == {}
    assert groups[0].values == (100.0, 104.0)


def test_a_figure_of_zero_is_no_member_of_any_group() -> None:
    """A goodput of zero has no ratio to any other, and does not end the night."""
    results = [_result(0, {}, _measured(100.0, {})), _result(1, {"x": 1}, _measured(0.0, {}))]
    groups = group_trials(results)
    assert [g.trials for g in groups] == [(0,)]
    assert estimate_noise(groups).observed_df == 0
