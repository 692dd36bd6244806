"""What neighbours cost, by the baseline alone and beside them."""

import math

import numpy as np
import pytest

from autotune.fleet.interference import compare
from autotune.verdict.noise import NoiseModel

KNOWN = NoiseModel(between=0.03, within=0.01, df=20.0)


def test_a_loss_beyond_the_noise_is_noticed() -> None:
    """A quarter less beside neighbours at 3 % noise is no luck."""
    found = compare([1000.0], [750.0, 760.0], metric="output_throughput_tok_s", noise=KNOWN, slots=2)
    assert found.noticeable
    assert found.change == pytest.approx(math.sqrt(750 * 760) / 1000 - 1)
    assert "beside its neighbours" in found.sentence


def test_a_difference_within_the_noise_is_not() -> None:
    """Two per cent at 3 % noise."""
    found = compare([1000.0], [990.0, 970.0], metric="output_throughput_tok_s", noise=KNOWN, slots=2)
    assert not found.noticeable
    assert found.low < 0 < found.high


def test_latencies_count_the_other_way_round() -> None:
    """A latency that grows is a loss."""
    found = compare([1.0], [1.4, 1.5], metric="ttft_p99_s", noise=KNOWN, slots=2)
    assert found.noticeable
    assert found.change < -0.25


def test_without_interference_a_warning_comes_in_about_one_of_twenty() -> None:
    """The upper end of a 90 % interval is below zero in 5 % where nothing differs."""
    rng = np.random.default_rng(1)
    noise = NoiseModel(between=0.05, within=0.0, df=6.0)
    warned = 0
    for _ in range(2000):
        # The noise model itself is an estimate with six degrees of freedom.
        seen = noise.between * math.sqrt(rng.chisquare(6) / 6)
        values = 1000 * np.exp(rng.normal(0, 0.05, 6))
        found = compare(
            values[:2].tolist(),
            values[2:].tolist(),
            metric="output_throughput_tok_s",
            noise=NoiseModel(between=seen, df=6.0),
            slots=4,
        )
        warned += found.noticeable
    assert 0.035 < warned / 2000 < 0.065
