"""Error levels that hold together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from autotune.verdict.levels import finalist_levels, look_levels


def test_one_finalist_has_the_whole_level() -> None:
    """Nothing is shared when there is nothing to share with."""
    assert finalist_levels(0.05, (1.0,), (5, 5), 8) == (0.05,)


@pytest.mark.parametrize(("k", "df"), [(2, 20), (3, 20), (2, 10), (4, 60)])
def test_equal_shares_are_dunnetts(k: int, df: int) -> None:
    """The chance that any of the t statistics exceeds is 5 % by scipy's multivariate t (correlation one half)."""
    levels = finalist_levels(0.05, (1 / k,) * k, (5,) * (k + 1), df)
    critical = stats.t.isf(levels[0], df)
    shape = np.full((k, k), 0.5) + 0.5 * np.eye(k)
    none = stats.multivariate_t.cdf(np.full(k, critical), shape=shape, df=df, random_state=1)
    assert 1 - float(none) == pytest.approx(0.05, abs=0.001)


def test_shared_level_lies_between_bonferroni_and_none() -> None:
    """Correlation through the baseline is worth something, and the first finalist has the larger share."""
    first, second = finalist_levels(0.05, (0.8, 0.2), (7, 5, 5), 14)
    assert first == pytest.approx(4 * second)
    assert 0.05 < first + second < 0.06


def test_one_look_spends_everything() -> None:
    """Judging once, at the end, is the ordinary test."""
    assert look_levels(0.05, (5,), 5)[0] == pytest.approx(0.05, rel=0.02)


def test_early_looks_spend_little_and_all_hold_together() -> None:
    """On random walks without drift the three boundaries are crossed by 5 % of paths in all."""
    levels = look_levels(0.05, (3, 4, 5), 5)
    assert levels == tuple(sorted(levels))
    assert levels[0] < 0.015
    steps = np.random.default_rng(5).standard_normal((200_000, 5)).cumsum(axis=1)
    z = steps[:, 2:] / np.sqrt([3, 4, 5])
    crossed = (z > stats.norm.isf(np.array(levels))).any(axis=1).mean()
    assert crossed == pytest.approx(0.05, abs=0.003)
