"""The order of the confirmation's server starts: interleaved blocks, each in random order."""

from __future__ import annotations

import random

from autotune.errors import InputError
from autotune.values import Value

BASELINE = 0
"""The arm that is the baseline; the finalists are arms 1, 2, ... in the order of the search's preference."""


class Slot(Value, frozen=True, kw_only=True):
    """One server start. ``seed`` is for its prompts: fresh ones each time."""

    arm: int
    block: int
    seed: int


class Schedule(Value, frozen=True, kw_only=True):
    """Every start of the confirmation, in order."""

    slots: tuple[Slot, ...]
    finalists: int
    blocks: int


def plan_schedule(*, finalists: int, blocks: int = 5, seed: int = 0, more_baseline: bool = True) -> Schedule:
    """``blocks`` times baseline and all finalists, each block in its own random order.

    ``more_baseline`` starts the baseline twice in two of the blocks. All comparisons share the baseline, so
    it deserves more starts than a finalist (sqrt(k) times as many for k finalists: Dunnett 1955). The two
    blocks are random but mirror each other, so that a steady drift cancels; at fixed places, such as the two
    ends, a cold first start would count against the baseline alone.
    """
    if finalists < 1 or blocks < 2:
        raise InputError("confirmation: needs at least one finalist and two starts a side (budget.confirm_starts)")
    rng = random.Random(seed)
    first = rng.randrange(blocks // 2)
    doubled = {first, blocks - 1 - first} if more_baseline else set()
    order: list[tuple[int, int]] = []
    for block in range(blocks):
        arms = [*range(finalists + 1), *([BASELINE] if block in doubled else [])]
        rng.shuffle(arms)
        order += [(arm, block) for arm in arms]
    slots = tuple(Slot(arm=arm, block=block, seed=rng.getrandbits(31)) for arm, block in order)
    return Schedule(slots=slots, finalists=finalists, blocks=blocks)
