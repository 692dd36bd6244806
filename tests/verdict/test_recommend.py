"""Which configuration to believe in."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.verdict.noise import NoiseModel
from autotune.verdict.recommend import finalists, promising, rank
from tests.verdict.builders import THROUGHPUT, tried

NOISE = NoiseModel(between=0.05)


def test_repeated_good_beats_lucky_once() -> None:
    """A value seen once is not preferred to a slightly lower one that was seen four times."""
    plain = [tried(v, a=i) for i, v in enumerate((1000.0, 980.0, 1020.0, 990.0, 1010.0))]
    lucky, steady = tried(1160.0, a=10), tried(1150.0, 1140.0, 1155.0, 1145.0, a=11)
    best = rank([*plain, lucky, steady], NOISE, THROUGHPUT)
    assert best[0].tried == steady
    assert best[1].tried == lucky
    assert best[1].value < 1160.0


def test_the_lucky_best_is_pulled_down() -> None:
    """When all scatter is noise the best seen is not promised: its posterior is the common mean."""
    rng = np.random.default_rng(0)
    values = 1000 * np.exp(0.03 * rng.standard_normal(20))
    ranked = rank([tried(float(v), a=i) for i, v in enumerate(values)], NOISE, THROUGHPUT)
    assert ranked[0].value == pytest.approx(1000, rel=0.02)


def test_posterior_beats_best_seen_on_average() -> None:
    """Over simulated studies with unequal repeats the posterior's choice is truly better than best-seen's."""
    rng = np.random.default_rng(4)
    seen, believed = 0.0, 0.0
    for _ in range(200):
        true = 1000 * np.exp(0.03 * rng.standard_normal(12))
        found = [
            tried(*(float(v) for v in t * np.exp(0.05 * rng.standard_normal(int(rng.integers(1, 6))))), a=i)
            for i, t in enumerate(true)
        ]
        seen += true[max(range(12), key=lambda i: max(found[i].values))]
        believed += true[rank(found, NOISE, THROUGHPUT)[0].index]
    assert believed > seen


def test_latencies_rank_upwards() -> None:
    """The lowest latency is the best."""
    assert rank([tried(1.0, a=1), tried(2.0, a=2)], NOISE, "ttft_p99_s")[0].tried.params == {"a": 1}


def test_finalists_exclude_the_baseline_and_the_unmeasured() -> None:
    """The baseline is the other side of the confirmation and never a finalist."""
    all_tried = [tried(2000.0), tried(1000.0, a=1), tried(1100.0, a=2), tried(a=3), tried(1050.0, a=4)]
    chosen = finalists(all_tried, 2, NOISE, THROUGHPUT)
    assert [r.tried.params["a"] for r in chosen] == [2, 4]
    assert [r.index for r in chosen] == [2, 4]
    assert finalists([tried(1000.0)], 2, NOISE, THROUGHPUT) == []
    assert rank([], NOISE, THROUGHPUT) == []


def test_nothing_above_the_baseline_is_not_promising() -> None:
    """A confirmation is only worth its starts when some configuration is believed better than the baseline."""
    assert promising([tried(1000.0), tried(1500.0, a=1)], NOISE, THROUGHPUT)
    assert not promising([tried(1000.0), tried(700.0, a=1)], NOISE, THROUGHPUT)
    assert promising([tried(700.0, a=1)], NOISE, THROUGHPUT)
