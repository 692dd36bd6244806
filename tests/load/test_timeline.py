"""Tests of throughput over time and of the rules that end warm-up and load."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.load.timeline import (
    BIN_S,
    edges_between,
    generation_end,
    interpolated,
    should_end,
    span_counts,
    step_counts,
    trending,
    window_start,
)
from autotune.study.file import Workload
from autotune.values import Estimate


def test_step_counts_fall_into_their_bins() -> None:
    """A gain belongs to the bin whose start it is at or after."""
    counts = step_counts(np.array([0.1, 0.5, 1.0, 2.5]), np.array([1.0, 2, 4, 8]), np.array([0.0, 1, 2]))
    assert counts.tolist() == [3.0, 4.0]


@settings(deadline=None)
@given(spans=st.lists(st.tuples(st.floats(0, 10), st.floats(0.01, 5), st.integers(1, 500)), min_size=1, max_size=20))
def test_spans_lose_no_token(spans: list[tuple[float, float, int]]) -> None:
    """However tokens are spread over their requests' lives, the bins sum to all of them."""
    starts, lives, gains = np.array(spans).T
    counts = span_counts(starts, starts + lives, gains, np.linspace(-1, 20, 100))
    assert counts.sum() == pytest.approx(gains.sum(), rel=1e-6)
    assert (counts > -1e-6).all()


def test_span_is_spread_evenly() -> None:
    """A request of ten tokens over two seconds gives five to each second."""
    assert span_counts(np.array([0.0]), np.array([2.0]), np.array([10.0]), np.array([0.0, 1, 2, 3])).tolist() == [
        5,
        5,
        0,
    ]


def test_workers_counters_are_added_up() -> None:
    """Sampled counters of workers with ticks of their own give one series."""
    first = (np.array([0.0, 2.0]), np.array([0.0, 20.0]))
    second = (np.array([0.0, 1.0, 2.0]), np.array([0.0, 0.0, 6.0]))
    assert interpolated([first, second, (np.empty(0), np.empty(0))], np.array([0.0, 1, 2])).tolist() == [10, 16]


def test_edges_are_aligned_to_the_end() -> None:
    """The last edge is the end, the first not before the start."""
    assert edges_between(0.05, 0.35).tolist() == pytest.approx([0.05, 0.15, 0.25, 0.35])
    assert edges_between(1.0, 1.0).tolist() == [1.0]


def test_generation_ends_when_every_place_was_used() -> None:
    """Three places: the third reply ends the generation; with fewer replies there is none yet."""
    assert generation_end(np.array([5.0, 1.0, 3.0, 2.0]), 3) == 3.0
    assert generation_end(np.array([5.0]), 3) == math.inf


def noise(seed: int, n: int, level: float = 100.0) -> np.ndarray:
    return level * (1 + 0.05 * np.random.default_rng(seed).standard_normal(n))


def test_steady_noise_is_no_trend() -> None:
    """Noise without a trend is called a trend in few of many series."""
    assert sum(trending(noise(seed, 200)) for seed in range(200)) <= 10


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_rise_or_fall_is_a_trend(factor: float) -> None:
    """Throughput that rises or falls by a tenth is seen, whichever way."""
    assert all(trending(noise(seed, 200) * np.linspace(1, factor, 200)) for seed in range(50))


def test_waves_are_no_trend() -> None:
    """A closed loop in step comes in waves; that is its steady state."""
    wave = 100 + 90 * np.sign(np.sin(2 * np.pi * (np.arange(240) + 0.5) / 40))
    assert not trending(wave, 40)


def test_warm_up_is_left_out() -> None:
    """The window begins after the slow start, not at the first full generation."""
    rates = np.concatenate([noise(1, 60, 20.0), noise(2, 240)])
    start = window_start(rates, 5.0, 60.0)
    assert 5.0 + 5.0 <= start <= 5.0 + 8.0


def test_a_steady_load_needs_no_further_warm_up() -> None:
    """With throughput steady from the first generation on, the window begins there."""
    assert window_start(noise(3, 200), 5.0, 60.0) == 5.0


def test_warm_up_has_an_end() -> None:
    """A load that never stops trending is measured from the longest warm-up on."""
    assert window_start(np.linspace(1, 100, 400), 0.0, 12.0) == 12.0
    assert window_start(np.linspace(1, 100, 400), 15.0, 12.0) == 15.0


def test_load_ends_when_precise_enough() -> None:
    """Not before min_s, then as soon as the interval is narrow, at the latest after max_s."""
    workload = Workload(min_s=10, max_s=60, precision=0.02)
    sure = Estimate(value=100.0, stderr=0.1, batches=20)
    assert should_end(9.0, sure, 0.01, workload) == ""
    assert should_end(10.0, sure, 0.01, workload) == "precise"
    assert should_end(59.0, sure, 0.03, workload) == ""
    assert should_end(59.0, None, math.inf, workload) == ""
    assert should_end(60.0, None, math.inf, workload) == "max_s"
    assert workload.min_s > BIN_S
