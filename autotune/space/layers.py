"""Which layers of a hybrid model keep a growing KV cache, a window, or a fixed state, and which hold experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotune.values import Value

Lookup = Callable[..., Any]

_FULL = ("full_attention", "attention", "global_attention", "global", "full", "hybrid")
_SLIDING = ("sliding_attention", "chunked_attention", "local_attention", "local", "sliding", "swa")
_EVERY_OTHER_SLIDES = ("gpt_oss", "gemma2")


class LayerKinds(Value, frozen=True, kw_only=True):
    """Numbers of layers by what they keep per request."""

    full: int
    sliding: int = 0
    state: int = 0


def layer_kinds(get: Lookup, layers: int) -> LayerKinds:
    """The kinds by the first description that the config has; without one every layer is full attention."""
    for describe in (_by_names, _by_pattern_text, _by_numbers, _by_kimi_lists, _by_period, _by_window):
        kinds = describe(get, layers)
        if kinds is not None:
            return kinds
    return LayerKinds(full=layers)


def _by_names(get: Lookup, layers: int) -> LayerKinds | None:
    names = get("layer_types", "layers_block_type")
    if not isinstance(names, list) or not names:
        return None
    full = sum(name in _FULL for name in names)
    sliding = sum(name in _SLIDING for name in names)
    if sliding and not get("sliding_window", "attention_chunk_size"):
        full, sliding = full + sliding, 0
    rest = sum(name not in ("moe", "mlp") for name in names) - full - sliding
    return LayerKinds(full=full, sliding=sliding, state=rest)


def _by_pattern_text(get: Lookup, layers: int) -> LayerKinds | None:
    """Nemotron-H: ``M`` mamba, ``*`` attention, ``-`` MLP, ``E`` experts."""
    pattern = get("hybrid_override_pattern")
    if not isinstance(pattern, str):
        return None
    return LayerKinds(full=pattern.count("*"), state=pattern.count("M"))


def _by_numbers(get: Lookup, layers: int) -> LayerKinds | None:
    """MiniMax-01 ``attn_type_list`` (1 full, 0 linear) and MiMo ``hybrid_layer_pattern`` (0 full, 1 window)."""
    minimax, mimo = get("attn_type_list"), get("hybrid_layer_pattern")
    if isinstance(minimax, list) and minimax:
        return LayerKinds(full=sum(minimax), state=len(minimax) - sum(minimax))
    if isinstance(mimo, list) and mimo:
        return LayerKinds(full=len(mimo) - sum(mimo), sliding=sum(mimo))
    return None


def _by_kimi_lists(get: Lookup, layers: int) -> LayerKinds | None:
    linear = get("linear_attn_config")
    full = linear.get("full_attn_layers") if isinstance(linear, dict) else None
    return LayerKinds(full=len(full), state=layers - len(full)) if isinstance(full, list) else None


def _by_period(get: Lookup, layers: int) -> LayerKinds | None:
    """Qwen3-Next: every n-th layer is full attention; Jamba: one of every period, from an offset."""
    interval, period = get("full_attention_interval"), get("attn_layer_period")
    if interval:
        return LayerKinds(full=layers // interval, state=layers - layers // interval)
    if period:
        full = len(range(get("attn_layer_offset") or 0, layers, period))
        return LayerKinds(full=full, state=layers - full)
    return None


def _by_window(get: Lookup, layers: int) -> LayerKinds | None:
    """A window without a list: Gemma 3 names the period of full layers, gpt-oss and Gemma 2 alternate.

    Other models with a window in every layer (Mistral 7B) are stored by the engines as full attention.
    """
    if not get("sliding_window"):
        return None
    period = get("sliding_window_pattern") or (2 if get("model_type") in _EVERY_OTHER_SLIDES else 0)
    return LayerKinds(full=layers // period, sliding=layers - layers // period) if period else None


def moe_layer_count(get: Lookup, layers: int) -> int:
    """Layers with routed experts, of a model that has experts."""
    return next(
        count
        for count in (_moe_by_list(get), _moe_by_pattern(get), _moe_by_period(get, layers), layers)
        if count is not None
    )


def _moe_by_list(get: Lookup) -> int | None:
    names, flags = get("mlp_layer_types"), get("moe_layer_freq")
    if isinstance(names, list) and names:
        return len([name for name in names if name != "dense"])
    return len([flag for flag in flags if flag]) if isinstance(flags, list) and flags else None


def _moe_by_pattern(get: Lookup) -> int | None:
    pattern, blocks = get("hybrid_override_pattern"), get("block_configs")
    if isinstance(pattern, str) and "E" in pattern:
        return pattern.count("E")
    if isinstance(blocks, list) and blocks:
        return sum(bool(block.get("n_routed_experts")) for block in blocks if isinstance(block, dict))
    return None


def _moe_by_period(get: Lookup, layers: int) -> int:
    """Leading dense layers, then every n-th one, without those named as plain MLP."""
    first = get("first_k_dense_replace") or _first(get("moe_layer_start_index")) or get("expert_layer_offset") or 0
    step = get("moe_layer_freq", "interleave_moe_layer_step", "decoder_sparse_step", "expert_layer_period") or 1
    plain = get("mlp_only_layers")
    count = (
        -(-(layers - first) // step)
        if get("first_k_dense_replace", "expert_layer_period")
        else (layers - first) // step
    )
    return max(0, count - (len(plain) if isinstance(plain, list) else 0))


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value
