"""Tokens per expert."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.space.experts import starvation_floor, tokens_per_expert, touched_experts
from autotune.space.model_config import model_shape
from tests.space import configs

GLM = model_shape(configs.GLM_5)


@pytest.mark.parametrize(
    ("config", "running", "expected"),
    [
        (configs.GLM_5, 1024, 32),
        (configs.GLM_5, 2048, 64),
        (configs.QWEN3_30B, 512, 32),
        (configs.QWEN3_NEXT, 256, 5),
        (configs.KIMI_K2, 1024, 21.33),
        (configs.NEMOTRON_SUPER, 64, 2.75),
        (configs.LLAMA_8B, 512, 0),
    ],
)
def test_tokens_per_expert(config: dict[str, object], running: int, expected: float) -> None:
    """Running requests times top-k over experts, and nothing for a dense model."""
    assert tokens_per_expert(model_shape(config), running) == pytest.approx(expected, abs=0.01)


def test_floor_of_the_founding_case() -> None:
    """Eight tokens for each of 256 experts at top-8 need 256 running requests; a dense model needs one."""
    assert starvation_floor(GLM, 8) == 256
    assert starvation_floor(model_shape(configs.LLAMA_8B), 8) == 1


@settings(deadline=None)
@given(st.floats(0.01, 500))
def test_floor_is_the_smallest(floor: float) -> None:
    """At the floor experts have enough, one request below they do not."""
    running = starvation_floor(GLM, floor)
    assert tokens_per_expert(GLM, running) >= floor * (1 - 1e-9)
    assert running == 1 or tokens_per_expert(GLM, running - 1) < floor


def test_touched_experts_saturate() -> None:
    """One token touches top-k experts, and three times E/k tokens nearly all of them."""
    assert touched_experts(GLM, 1) == pytest.approx(8)
    assert 0.94 < touched_experts(GLM, 96) / 256 < 1
    assert touched_experts(model_shape(configs.LLAMA_8B), 96) == 0
