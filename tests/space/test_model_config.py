"""Shapes from config.json over the families."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.errors import InputError
from autotune.space.model_config import model_shape, weight_bits
from tests.space import configs

# experts, top-k, shared experts, MoE layers, full, sliding and state layers
ROWS: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
    ("llama-8b", configs.LLAMA_8B, (0, 0, 0, 0, 32, 0, 0)),
    ("qwen3-30b", configs.QWEN3_30B, (128, 8, 0, 48, 48, 0, 0)),
    ("qwen3-coder", configs.QWEN3_CODER, (160, 8, 0, 62, 62, 0, 0)),
    ("qwen1.5-moe", configs.QWEN15_MOE, (60, 4, 1, 24, 24, 0, 0)),
    ("qwen3-next", configs.QWEN3_NEXT, (512, 10, 0, 48, 12, 0, 36)),
    ("mixtral", configs.MIXTRAL, (8, 2, 0, 32, 32, 0, 0)),
    ("gpt-oss", configs.GPT_OSS_120B, (128, 4, 0, 36, 18, 18, 0)),
    ("deepseek-v3", configs.DEEPSEEK_V3, (256, 8, 1, 58, 61, 0, 0)),
    ("kimi-k2.5", configs.KIMI_K25, (384, 8, 1, 60, 61, 0, 0)),
    ("glm-5", configs.GLM_5, (256, 8, 1, 75, 78, 0, 0)),
    ("glm-5.2", configs.GLM_52, (256, 8, 1, 75, 78, 0, 0)),
    ("glm-4.7", configs.GLM_47, (160, 8, 1, 89, 92, 0, 0)),
    ("minimax-01", configs.MINIMAX_01, (32, 2, 0, 80, 10, 0, 70)),
    ("llama4", configs.LLAMA4_MAVERICK, (128, 1, 1, 24, 12, 36, 0)),
    ("nemotron", configs.NEMOTRON_SUPER, (512, 22, 1, 3, 1, 0, 4)),
    ("dbrx", configs.DBRX, (16, 4, 0, 40, 40, 0, 0)),
    ("hunyuan", configs.HUNYUAN, (64, 8, 1, 32, 32, 0, 0)),
    ("ernie-vl", configs.ERNIE_VL, (64, 8, 0, 51, 54, 0, 0)),
    ("granite-h", configs.GRANITE_H, (72, 10, 1, 40, 4, 0, 36)),
    ("kimi-linear", configs.KIMI_LINEAR, (256, 8, 1, 26, 7, 0, 20)),
    ("gemma3", configs.GEMMA3, (0, 0, 0, 0, 10, 52, 0)),
    ("jamba", configs.JAMBA, (16, 2, 0, 16, 4, 0, 28)),
    ("qwen3-omni", configs.QWEN3_OMNI, (128, 8, 0, 48, 48, 0, 0)),
    ("nemotron-puzzle", configs.NEMOTRON_PUZZLE, (128, 4, 0, 2, 3, 0, 0)),
]


@pytest.mark.parametrize(("name", "config", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_families(name: str, config: dict[str, Any], expected: tuple[int, ...]) -> None:
    """Experts and layer kinds are found under every family's key names, nested or listed."""
    s = model_shape(config, name)
    found = (s.experts, s.top_k, s.shared_experts, s.moe_layers, s.full_layers, s.sliding_layers, s.state_layers)
    assert found == expected


@pytest.mark.parametrize("key", ["num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts"])
@pytest.mark.parametrize(
    "top_k",
    [
        "num_experts_per_tok",
        "num_experts_per_token",
        "experts_per_token",
        "top_k_experts",
        "moe_topk",
        "moe_top_k",
        "moe_k",
        "top_k",
    ],
)
def test_expert_aliases(key: str, top_k: str) -> None:
    """Every alias of the expert count goes with every alias of top-k."""
    shape = model_shape({**configs.LLAMA_8B, key: 64, top_k: 6})
    assert (shape.experts, shape.top_k) == (64, 6)


@pytest.mark.parametrize("key", ["n_head_kv", "num_kv_heads", "multi_query_group_num", "num_attention_groups"])
def test_kv_head_aliases(key: str) -> None:
    """Every alias of the KV heads is read, and without one there are as many as heads."""
    config = {k: v for k, v in configs.LLAMA_8B.items() if k != "num_key_value_heads"}
    assert model_shape({**config, key: 2}).kv_heads == 2
    assert model_shape(config).kv_heads == 32


@pytest.mark.parametrize("nest", ["text_config", "llm_config", "language_config"])
def test_nested_places(nest: str) -> None:
    """The language model's own part wins over the root's values of the same name."""
    shape = model_shape({"hidden_size": 1, "num_hidden_layers": 1, nest: configs.QWEN3_30B})
    assert (shape.hidden_size, shape.layers, shape.experts) == (2048, 48, 128)


@pytest.mark.parametrize("count", [0, 1])
def test_one_expert_is_dense(count: int) -> None:
    """Zero or one expert is a dense model, also without a top-k key."""
    shape = model_shape({**configs.LLAMA_8B, "num_experts": count})
    assert not shape.is_moe
    assert shape.dense_layers == 32


def test_head_dim_wins_over_the_quotient() -> None:
    """head_dim of the config is used where it differs from hidden size over heads."""
    assert model_shape(configs.QWEN3_30B).head_dim == 128
    assert model_shape(configs.LLAMA_8B).head_dim == 128


def test_index_layers_of_shared_indexers() -> None:
    """Only layers whose indexer is their own hold index keys."""
    assert model_shape(configs.GLM_5).index_layers == 78
    assert model_shape(configs.GLM_52).index_layers == 18


def test_window_without_pattern_counts_as_full() -> None:
    """A window in every layer, or one that is switched off, is stored as full attention."""
    assert model_shape({**configs.LLAMA_8B, "sliding_window": 4096}).sliding_layers == 0
    off = {**configs.LLAMA_8B, "sliding_window": None, "layer_types": ["sliding_attention"] * 32}
    assert model_shape(off).full_layers == 32


def test_not_a_language_model() -> None:
    """A config without layers is refused with the file's name and the key."""
    with pytest.raises(InputError, match=r"x/config\.json: no num_hidden_layers"):
        model_shape({"hidden_size": 8}, "x/config.json")


def test_experts_without_top_k() -> None:
    """Experts without any top-k key are refused, not guessed."""
    with pytest.raises(InputError, match="num_experts_per_tok"):
        model_shape({**configs.LLAMA_8B, "num_experts": 8})


@pytest.mark.parametrize(
    ("quantization", "bits"),
    [
        (None, 16.0),
        ({"quant_method": "fp8"}, 8.0),
        ({"quant_algo": "NVFP4"}, 4.5),
        ({"quant_method": "mxfp4"}, 4.5),
        ({"quant_method": "awq", "bits": 4}, 4.25),
    ],
)
def test_weight_bits(quantization: dict[str, Any] | None, bits: float) -> None:
    """The config's own quantisation gives the bits per weight."""
    assert model_shape({**configs.LLAMA_8B, "quantization_config": quantization}).weight_bits == bits


@pytest.mark.parametrize(("word", "bits"), [("modelopt_fp4", 4.5), ("fp8", 8.0), ("awq_marlin", 4.25), ("", 16.0)])
def test_weight_bits_of_a_flag(word: str, bits: float) -> None:
    """The engine's quantisation word gives the bits too."""
    assert weight_bits(word) == bits
