"""The order of the confirmation's server starts: interleaved blocks, each in random order."""

from __future__ import annotations

import random

from autotune.errors import InputError
from autotune.values import Value

BASELINE = 0
"""The arm that is the baseline; the finalists are arms 1, 2, ... in the order of the search's preference."""


class Slot(Value, frozen=True, kw_only=True):
    """One server start. ``block`` is None for the baselines that open and close the confirmation.

    ``seed`` is for the prompts of this start: fresh ones each time.
    """

    arm: int
    block: int | None
    seed: int


class Schedule(Value, frozen=True, kw_only=True):
    """Every start of the confirmation, in order."""

    slots: tuple[Slot, ...]
    finalists: int
    blocks: int


def plan_schedule(*, finalists: int, blocks: int = 5, seed: int = 0, bracket: bool = True) -> Schedule:
    """``blocks`` times baseline and all finalists, each block in its own random order.

    ``bracket`` adds a baseline before the first block and one after the last. All comparisons share the
    baseline, so it deserves more starts than a finalist (sqrt(k) times as many for k finalists: Dunnett
    1955), and at the two ends a steady drift cancels while its size shows.
    """
    if finalists < 1 or blocks < 2:
        raise InputError("confirmation: needs at least one finalist and two starts a side (budget.confirm_starts)")
    rng = random.Random(seed)
    order: list[tuple[int, int | None]] = []
    for block in range(blocks):
        arms = list(range(finalists + 1))
        rng.shuffle(arms)
        order += [(arm, block) for arm in arms]
    if bracket:
        order = [(BASELINE, None), *order, (BASELINE, None)]
    slots = tuple(Slot(arm=arm, block=block, seed=rng.getrandbits(31)) for arm, block in order)
    return Schedule(slots=slots, finalists=finalists, blocks=blocks)
