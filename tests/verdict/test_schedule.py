"""The order of the confirmation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import InputError
from autotune.verdict.schedule import BASELINE, plan_schedule


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(2, 8), st.integers(0, 2**31), st.booleans())
def test_each_block_has_each_arm(finalists: int, blocks: int, seed: int, more: bool) -> None:
    """Every block holds each finalist once and the baseline once, or twice in two blocks that mirror each other."""
    slots = plan_schedule(finalists=finalists, blocks=blocks, seed=seed, more_baseline=more).slots
    arms = [sorted(s.arm for s in slots if s.block == b) for b in range(blocks)]
    doubled = [b for b in range(blocks) if arms[b].count(BASELINE) == 2]
    for block in range(blocks):
        assert arms[block] == [BASELINE] * (block in doubled) + list(range(finalists + 1))
    assert len(doubled) == (2 if more else 0)
    assert sum(doubled) == (blocks - 1 if more else 0)
    assert [s.block for s in slots] == sorted(s.block for s in slots)


def test_seed_decides_order_and_prompts() -> None:
    """One seed, one schedule; another seed, another order; each start has its own prompts."""
    one = plan_schedule(finalists=2, seed=3)
    assert one == plan_schedule(finalists=2, seed=3)
    assert [s.arm for s in one.slots] != [s.arm for s in plan_schedule(finalists=2, seed=4).slots]
    assert len({s.seed for s in one.slots}) == len(one.slots)


def test_every_arm_comes_first_at_times() -> None:
    """Over many seeds no arm owns a place in the block."""
    firsts = [plan_schedule(finalists=2, blocks=2, seed=s, more_baseline=False).slots[0].arm for s in range(300)]
    assert all(60 < firsts.count(arm) < 140 for arm in range(3))


@pytest.mark.parametrize(("finalists", "blocks"), [(0, 5), (1, 1)])
def test_nothing_to_compare_is_an_input_error(finalists: int, blocks: int) -> None:
    """No finalist, or one start a side, cannot be confirmed."""
    with pytest.raises(InputError, match="confirm_starts"):
        plan_schedule(finalists=finalists, blocks=blocks)
