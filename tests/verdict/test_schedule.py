"""The order of the confirmation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import InputError
from autotune.verdict.schedule import BASELINE, plan_schedule


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(2, 8), st.integers(0, 2**31), st.booleans())
def test_each_block_has_each_arm_once(finalists: int, blocks: int, seed: int, bracket: bool) -> None:
    """Every block holds the baseline and each finalist once; the bracket is a baseline at both ends."""
    slots = plan_schedule(finalists=finalists, blocks=blocks, seed=seed, bracket=bracket).slots
    for block in range(blocks):
        assert sorted(s.arm for s in slots if s.block == block) == list(range(finalists + 1))
    outside = [i for i, s in enumerate(slots) if s.block is None]
    assert outside == ([0, len(slots) - 1] if bracket else [])
    assert all(slots[i].arm == BASELINE for i in outside)
    assert [s.block for s in slots if s.block is not None] == sorted(
        b for b in range(blocks) for _ in range(finalists + 1)
    )


def test_seed_decides_order_and_prompts() -> None:
    """One seed, one schedule; another seed, another order; each start has its own prompts."""
    one = plan_schedule(finalists=2, seed=3)
    assert one == plan_schedule(finalists=2, seed=3)
    assert [s.arm for s in one.slots] != [s.arm for s in plan_schedule(finalists=2, seed=4).slots]
    assert len({s.seed for s in one.slots}) == len(one.slots)


def test_every_arm_comes_first_at_times() -> None:
    """Over many seeds no arm owns a place in the block."""
    firsts = [plan_schedule(finalists=2, blocks=2, seed=s, bracket=False).slots[0].arm for s in range(300)]
    assert all(60 < firsts.count(arm) < 140 for arm in range(3))


@pytest.mark.parametrize(("finalists", "blocks"), [(0, 5), (1, 1)])
def test_nothing_to_compare_is_an_input_error(finalists: int, blocks: int) -> None:
    """No finalist, or one start a side, cannot be confirmed."""
    with pytest.raises(InputError, match="confirm_starts"):
        plan_schedule(finalists=finalists, blocks=blocks)
