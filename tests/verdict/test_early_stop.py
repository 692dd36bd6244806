"""Ending a load that is certain to lose."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.values import Estimate
from autotune.verdict.early_stop import LEAST_BATCHES, StopRule, should_stop_early
from autotune.verdict.noise import NoiseModel
from tests.verdict.builders import THROUGHPUT

RULE = StopRule(metric=THROUGHPUT, noise=NoiseModel(between=0.05, df=10))
BEST = Estimate(value=1000.0, stderr=5.0, batches=20)


def _at(value: float, *, stderr: float = 5.0, batches: int = 10) -> Estimate:
    return Estimate(value=value, stderr=stderr, batches=batches)


@pytest.mark.parametrize(("value", "stop"), [(600.0, True), (950.0, False), (1000.0, False), (1300.0, False)])
def test_only_clear_losers_are_stopped(value: float, stop: bool) -> None:
    """Forty per cent below the best is certain; five per cent below may be a bad start."""
    assert should_stop_early(_at(value), BEST, RULE).stop is stop


def test_a_wide_error_or_few_batches_go_on() -> None:
    """What is not yet known well, or rests on too few batches, is not stopped."""
    assert not should_stop_early(_at(700.0, stderr=300.0), BEST, RULE).stop
    assert not should_stop_early(_at(100.0, batches=LEAST_BATCHES - 1), BEST, RULE).stop


def test_a_latency_loses_by_being_high() -> None:
    """For a latency the higher figure is stopped, and the words say by how much."""
    rule = StopRule(metric="ttft_p99_s", noise=RULE.noise)
    slow, best = Estimate(value=2.0, stderr=0.01, batches=10), Estimate(value=1.0, stderr=0.01, batches=10)
    decision = should_stop_early(slow, best, rule)
    assert decision.stop
    assert str(decision).startswith("stopped early: -50.0 %")
    assert not should_stop_early(best, slow, rule).stop


def test_more_looks_and_more_confidence_stop_later() -> None:
    """The probability of losing needed rises with both."""
    many = StopRule(metric=THROUGHPUT, noise=RULE.noise, looks=50)
    strict = StopRule(metric=THROUGHPUT, noise=RULE.noise, confidence=0.999)
    close = _at(840.0, stderr=40.0)
    assert should_stop_early(close, BEST, many).losing < should_stop_early(close, BEST, RULE).losing
    assert should_stop_early(_at(800.0), BEST, RULE).stop
    assert not should_stop_early(_at(800.0), BEST, strict).stop


def test_the_equal_are_rarely_stopped() -> None:
    """A configuration as good as the incumbent is stopped in about 5 % of loads, ten looks included (wide bounds)."""
    rng = np.random.default_rng(6)
    rule, stopped = StopRule(metric=THROUGHPUT, noise=RULE.noise, looks=10), 0
    for _ in range(300):
        start, incumbent = 1000 * np.exp(rng.normal(0, 0.05, 2))
        batches = start * (1 + 0.05 * rng.standard_normal(40))
        best = Estimate(value=float(incumbent), stderr=5.0, batches=20)
        for n in range(4, 41, 4):
            seen = batches[:n]
            progress = Estimate(value=float(seen.mean()), stderr=float(seen.std(ddof=1) / n**0.5), batches=n)
            if should_stop_early(progress, best, rule).stop:
                stopped += 1
                break
    assert stopped < 30
