"""How many starts a question costs."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.verdict.confirm import Rules, judge_pair
from autotune.verdict.power import power, starts_needed
from tests.verdict.builders import THROUGHPUT


def test_no_gain_is_found_at_the_level() -> None:
    """The power for no difference is the level of the test."""
    assert power(0.0) == pytest.approx(Rules().gain_error, abs=1e-3)


def test_power_agrees_with_judging() -> None:
    """The formula gives the share that simulated verdicts have (wide bounds)."""
    rng = np.random.default_rng(8)
    hits = 0
    for _ in range(600):
        base, candidate = (m * np.exp(0.05 * rng.standard_normal(4)) for m in (1000, 1080))
        hits += judge_pair([float(x) for x in base], [float(x) for x in candidate], metric=THROUGHPUT).kind == "gain"
    assert hits / 600 == pytest.approx(power(0.08, noise=0.05, starts=4), abs=0.07)


def test_starts_needed_is_the_smallest_number() -> None:
    """One start fewer would not reach the wanted power; smaller gains and more noise cost more starts."""
    needed = starts_needed(0.05, noise=0.05)
    assert needed is not None
    assert power(0.05, noise=0.05, starts=needed) >= 0.9 > power(0.05, noise=0.05, starts=needed - 1)
    assert starts_needed(0.10, noise=0.05) == 6
    assert starts_needed(0.10, noise=0.05, extra=(2, 0)) == 5
    more = starts_needed(0.05, noise=0.10)
    assert more is not None
    assert more > needed


def test_some_questions_cannot_be_answered() -> None:
    """No number of starts finds a difference of nothing, nor a thousandth in 10 % noise."""
    assert starts_needed(0.0) is None
    assert starts_needed(0.001, noise=0.10) is None
