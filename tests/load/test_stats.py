"""Tests of standard errors for correlated series."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import lfilter

from autotune.load.stats import (
    LEAST_RELATIVE_STDERR,
    batch_length,
    batched,
    from_batches,
    half_width,
    lag1,
    mean_estimate,
)


def correlated(rng: np.random.Generator, n: int, phi: float) -> NDArray[np.float64]:
    """An AR(1) series around 10."""
    return np.asarray(10 + lfilter([1.0], [1.0, -phi], rng.normal(size=n + 300))[300:])


@pytest.mark.parametrize(("n", "phi"), [(60, 0.0), (100, 0.5), (300, 0.9), (600, 0.9)])
def test_intervals_cover_the_truth(n: int, phi: float) -> None:
    """Intervals of 95 % contain the true mean in about 95 of 100 series, correlated or not."""
    rng, hits, runs = np.random.default_rng(1), 0, 400
    for _ in range(runs):
        estimate = mean_estimate(correlated(rng, n, phi))
        assert estimate is not None
        hits += abs(estimate.value - 10) <= half_width(estimate)
    assert 0.91 <= hits / runs <= 0.99


def test_naive_errors_would_be_too_small() -> None:
    """On a correlated series the standard error is several times that of independent values."""
    series = correlated(np.random.default_rng(2), 600, 0.9)
    estimate = mean_estimate(series)
    assert estimate is not None
    assert estimate.stderr > 2.5 * series.std(ddof=1) / np.sqrt(len(series))
    assert estimate.batches < 100


def test_intervals_stay_useful() -> None:
    """On independent values the interval is about as narrow as theory allows."""
    widths = []
    for seed in range(50):
        estimate = mean_estimate(correlated(np.random.default_rng(seed), 400, 0.0))
        assert estimate is not None
        widths.append(half_width(estimate))
    assert np.median(widths) == pytest.approx(1.96 / 20, rel=0.15)


def test_batches_span_whole_waves() -> None:
    """With a known period every batch is a whole number of waves, and a pure wave has the least error left."""
    wave = 10 + 9 * np.sin(2 * np.pi * np.arange(400) / 40)
    assert batch_length(wave, 40) % 40 == 0
    estimate = mean_estimate(wave, 40)
    assert estimate is not None
    assert estimate.value == pytest.approx(10)
    assert estimate.stderr == pytest.approx(10 * LEAST_RELATIVE_STDERR)


def test_lag1_of_small_samples_is_not_biased() -> None:
    """Averaged over many short independent series the corrected autocorrelation is near zero."""
    rng = np.random.default_rng(3)
    assert abs(np.mean([lag1(rng.normal(size=12)) for _ in range(2000)])) < 0.03


def test_batches_end_with_the_series() -> None:
    """What does not fill a batch is left out at the front, where warm-up remains would be."""
    assert batched(np.arange(7.0), 3).tolist() == [2.0, 5.0]


def test_too_little_gives_no_estimate() -> None:
    """One value, or one batch, has no standard error."""
    assert mean_estimate(np.ones(1)) is None
    assert from_batches(np.ones(1)) is None


def test_constant_series_is_certain() -> None:
    """A series without noise has the least error that is claimed, whatever its length: time stamps are not exact."""
    estimate = mean_estimate(np.full(50, 3.0))
    assert estimate is not None
    assert (estimate.value, estimate.stderr) == (3.0, 3.0 * LEAST_RELATIVE_STDERR)
