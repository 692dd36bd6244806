"""Bytes per token, capacity and fits."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import InputError
from autotune.space.auto import automatic_mem_fraction
from autotune.space.kv import (
    KvDtype,
    Memory,
    estimate_kv_capacity,
    kv_bytes_per_token,
    kv_dtype_of,
    request_lengths,
    requests_that_fit,
    room_of,
    stated_kv_capacity,
    weight_gb,
)
from autotune.space.model_config import model_shape
from autotune.values import Effective
from tests.space import configs

ROWS: list[tuple[dict[str, Any], KvDtype, int, int]] = [
    (configs.LLAMA_8B, "bf16", 1, 131072),
    (configs.LLAMA_70B, "bf16", 8, 40960),
    (configs.QWEN3_32B, "bf16", 1, 262144),
    (configs.QWEN3_32B, "bf16", 4, 65536),
    (configs.QWEN3_30B, "bf16", 1, 98304),
    (configs.QWEN3_30B, "fp8", 1, 49152),
    (configs.QWEN3_235B, "bf16", 4, 48128),
    (configs.QWEN3_235B, "bf16", 8, 48128),
    (configs.MIXTRAL, "bf16", 1, 131072),
    (configs.GPT_OSS_120B, "bf16", 1, 66355),
    (configs.DEEPSEEK_V3, "bf16", 8, 70272),
    (configs.DEEPSEEK_V3, "fp8", 8, 35136),
    (configs.KIMI_K2, "bf16", 8, 70272),
    (configs.KIMI_K25, "fp8", 8, 35136),
    (configs.DEEPSEEK_V32, "bf16", 8, 78324),
    (configs.DEEPSEEK_V32, "fp8", 8, 48068),
    (configs.GLM_5, "bf16", 8, 100152),
    (configs.GLM_5, "fp8", 8, 61464),
    (configs.GLM_47, "bf16", 8, 47104),
    (configs.MINIMAX_M25, "bf16", 8, 31744),
]


@pytest.mark.parametrize(("config", "dtype", "tp", "expected"), ROWS)
def test_bytes_per_token(config: dict[str, Any], dtype: KvDtype, tp: int, expected: int) -> None:
    """Each published check value of bytes per token and GPU comes out."""
    assert int(kv_bytes_per_token(model_shape(config), tp=tp, dtype=dtype)) == expected


def test_all_layers_of_a_window_hybrid() -> None:
    """With a ratio of one the window layers count in full."""
    assert kv_bytes_per_token(model_shape(configs.GPT_OSS_120B), sliding_ratio=1.0) == 73728


def test_fp4_carries_its_scales() -> None:
    """Four bits and one scale per sixteen values are 9/32 of bf16."""
    shape = model_shape(configs.LLAMA_8B)
    assert kv_bytes_per_token(shape, dtype="fp4") == kv_bytes_per_token(shape) * 9 / 32


def test_founding_case_fits() -> None:
    """495,488 tokens hold 1,935 requests of 128 + 128 at full length and 2,580 in flight."""
    lengths = request_lengths(128, 128)
    assert requests_that_fit(495_488, lengths.full_tokens) == 1935
    assert requests_that_fit(495_488, lengths.mean_tokens) == 2580


@settings(deadline=None)
@given(st.integers(1, 4000), st.integers(1, 4000), st.floats(0, 1))
def test_mean_is_below_full(inputs: int, outputs: int, ratio: float) -> None:
    """A request in flight never holds more than a full one, and shorter ranges hold less."""
    lengths = request_lengths(inputs, outputs, ratio)
    assert 1 <= lengths.mean_tokens <= lengths.full_tokens
    assert lengths.mean_tokens <= request_lengths(inputs, outputs).mean_tokens + 1e-9


def test_uniform_outputs_weigh_long_ones() -> None:
    """Outputs from 0 to 128 hold on average a third of the longest, not a quarter."""
    assert request_lengths(1, 1200, 0.0).mean_tokens == pytest.approx(1 + 400, rel=0.01)


def test_estimate_matches_the_measured_h200() -> None:
    """The estimate for Qwen3-30B-A3B on an H200 is within 2 % of the 669,932 tokens that the server reported."""
    shape = model_shape({**configs.QWEN3_30B, "moe_intermediate_size": 768, "vocab_size": 151936})
    memory = Memory(gpu_memory_gb=139.8, weight_gb=weight_gb(shape), mem_fraction=0.85)
    capacity = estimate_kv_capacity(shape, memory)
    assert capacity.tokens == pytest.approx(669_932, rel=0.02)
    assert capacity.source == "estimate"
    assert "estimate" in capacity.derivation


def test_weights_that_do_not_fit() -> None:
    """Weights above the memory fraction are an input error that names the knobs."""
    with pytest.raises(InputError, match="memory fraction or tp"):
        estimate_kv_capacity(model_shape(configs.LLAMA_8B), Memory(gpu_memory_gb=24, weight_gb=30, mem_fraction=0.9))


@pytest.mark.parametrize(
    ("config", "bits", "expected_b"),
    [
        ({**configs.LLAMA_8B, "intermediate_size": 14336, "vocab_size": 128256}, 16, 8.03),
        ({**configs.DEEPSEEK_V3, "num_attention_heads": 128, "moe_intermediate_size": 2048, "intermediate_size": 18432,
          "vocab_size": 129280}, 16, 671),
        ({**configs.MIXTRAL, "intermediate_size": 14336, "vocab_size": 32000}, 16, 46.7),
    ],
)  # fmt: skip
def test_weights_from_the_shape(config: dict[str, Any], bits: float, expected_b: float) -> None:
    """Published parameter counts (billions) come out within 2 %."""
    params_b = weight_gb(model_shape(config), bits=bits) * 2**30 / 2 / 1e9
    assert params_b == pytest.approx(expected_b, rel=0.02)


def test_stated_capacity_names_its_source() -> None:
    """A capacity says whether the study or the server stated it."""
    assert "study file" in stated_kv_capacity(10, "study").derivation
    assert "server" in stated_kv_capacity(10, "server").derivation


H200 = Effective(
    source="server_info",
    kv_tokens=669_932,
    values={"mem_fraction_static": 0.85},
    gpu_memory_gb={"weight": 56.89, "kvcache": 61.33},
)


@pytest.mark.parametrize(("fraction", "tokens"), [(0.80, 593_914), (0.93, 791_561), (0.955, 829_570), (0.965, 844_774)])
def test_capacity_at_another_fraction(fraction: float, tokens: int) -> None:
    """From the account of one start at 0.85, the tokens that starts on an H200 reported at other fractions."""
    room = room_of("mem_fraction_static", H200)
    assert room is not None
    assert stated_kv_capacity(669_932, "server", room).tokens_at(fraction) == pytest.approx(tokens, rel=5e-4)


def test_estimate_at_another_fraction() -> None:
    """An estimate for one fraction says what an estimate for another one would."""
    shape = model_shape({**configs.QWEN3_30B, "moe_intermediate_size": 768, "vocab_size": 151936})
    low, high = (
        estimate_kv_capacity(shape, Memory(gpu_memory_gb=139.8, weight_gb=56.0, mem_fraction=fraction))
        for fraction in (0.7, 0.9)
    )
    assert low.tokens_at(0.9) == pytest.approx(high.tokens, abs=2)
    assert low.tokens_at(0.1) == 0


@pytest.mark.parametrize(
    "effective",
    [
        msgspec.structs.replace(H200, gpu_memory_gb={"weight": 56.89}),
        msgspec.structs.replace(H200, gpu_memory_gb={}),
        msgspec.structs.replace(H200, values={}),
        msgspec.structs.replace(H200, values={"mem_fraction_static": "0.85"}),
    ],
)
def test_a_room_that_is_not_told(effective: Effective) -> None:
    """Without both parts and the fraction there is no room, and the capacity is taken to stay as it is."""
    room = room_of("mem_fraction_static", effective)
    assert room is None
    assert stated_kv_capacity(669_932, "server", room).tokens_at(0.95) == 669_932


@pytest.mark.parametrize(
    ("name", "dtype"), [("auto", "bf16"), ("fp8_e4m3", "fp8"), ("mxfp8", "fp8"), ("fp4_e2m1", "fp4"), ("", "bf16")]
)
def test_dtype_names(name: str, dtype: str) -> None:
    """The engines' dtype names map to a width."""
    assert kv_dtype_of(name) == dtype


@pytest.mark.parametrize(
    ("engine", "gpu_gb", "tp", "expected"),
    [("sglang", 24, 1, 0.847), ("sglang", 139.8, 1, 0.906), ("sglang", 139.8, 8, 0.896), ("vllm", 80, 1, 0.9)],
)
def test_automatic_fraction(engine: str, gpu_gb: float, tp: int, expected: float) -> None:
    """The engine's own fraction follows the GPU's memory and the number of GPUs."""
    assert automatic_mem_fraction(engine, gpu_gb, tp) == pytest.approx(expected, abs=0.002)
