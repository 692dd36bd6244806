"""How many tokens each routed expert sees in a decode step. Pure.

Shared experts and dense layers see every token and do not count. Data-parallel ranks feed the same experts,
so the running count is the one over all of them.
"""

from __future__ import annotations

import math

from autotune.space.model_config import ModelShape


def tokens_per_expert(shape: ModelShape, running: float) -> float:
    """Mean tokens per routed expert and decode step: running x top-k / experts. 0.0 for a dense model."""
    return running * shape.top_k / shape.experts if shape.is_moe else 0.0


def starvation_floor(shape: ModelShape, min_tokens_per_expert: float) -> int:
    """The smallest running count that gives each expert that many tokens; 1 for a dense model."""
    if not shape.is_moe:
        return 1
    return max(1, math.ceil(min_tokens_per_expert * shape.experts / shape.top_k))


def touched_experts(shape: ModelShape, running: float) -> float:
    """Expected number of experts that a decode step reads under uniform routing: E (1 - (1 - k/E)^B)."""
    if not shape.is_moe:
        return 0.0
    untouched: float = (1.0 - shape.top_k / shape.experts) ** running
    return shape.experts * (1.0 - untouched)
