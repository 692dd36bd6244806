"""What a model's config.json says about its KV cache and its experts, over the key names of all families.

The names were read from published configs and from the alias tables of the engines. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from autotune.errors import InputError
from autotune.space.layers import LayerKinds, layer_kinds, moe_layer_count
from autotune.values import Value

Config = Mapping[str, Any]
Attention = Literal["gqa", "mla"]

_NESTED = (("text_config",), ("llm_config",), ("language_config",), ("thinker_config", "text_config"))
_INNER = ("ffn_config", "attn_config")

_LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers")
_HIDDEN = ("hidden_size", "d_model", "n_embd")
_HEADS = ("num_attention_heads", "n_heads", "n_head")
_KV_HEADS = (
    "num_key_value_heads",
    "n_head_kv",
    "num_kv_heads",
    "kv_n_heads",
    "multi_query_group_num",
    "num_attention_groups",
)
_HEAD_DIM = ("head_dim", "kv_channels", "attention_head_dim")
_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
_TOP_K = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "top_k_experts",
    "moe_topk",
    "moe_top_k",
    "moe_k",
    "top_k",
)
_SHARED = ("n_shared_experts", "moe_num_shared_experts", "num_shared_experts", "num_shared_expert")
_SHARED_SIZE = ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size")
_MOE_SIZE = ("moe_intermediate_size", "expert_ffn_hidden_size", "ffn_hidden_size")
_DENSE_SIZE = ("intermediate_size", "intermediate_size_mlp", "d_ff", "ffn_hidden_size")
_CONTEXT = ("max_position_embeddings", "max_seq_len", "max_sequence_length", "seq_length", "n_positions")
_IMPLICIT_SHARED = ("llama4", "llama4_text")


class ModelShape(Value, frozen=True, kw_only=True):
    """The sizes that the arithmetic needs. Counts of zero mean that the model has no such thing.

    ``layers`` all layers; ``full_layers`` those whose KV grows with the context, ``sliding_layers`` those that
    keep a window, ``state_layers`` linear or mamba ones with a fixed state per request. ``kv_lora_rank`` and
    ``rope_head_dim`` belong to MLA; ``index_head_dim`` and ``index_layers`` to a sparse-attention indexer.
    ``experts`` routed experts per MoE layer, ``top_k`` of them per token, ``shared_experts`` seen by every token.
    """

    model_type: str = ""
    attention: Attention = "gqa"
    layers: int
    full_layers: int
    sliding_layers: int = 0
    state_layers: int = 0
    sliding_window: int = 0
    hidden_size: int
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    kv_lora_rank: int = 0
    q_lora_rank: int = 0
    rope_head_dim: int = 0
    index_head_dim: int = 0
    index_layers: int = 0
    experts: int = 0
    top_k: int = 0
    shared_experts: int = 0
    moe_layers: int = 0
    dense_size: int = 0
    expert_size: int = 0
    shared_size: int = 0
    vocab: int = 0
    tied_embeddings: bool = False
    context_tokens: int = 0
    weight_bits: float = 16.0

    @property
    def is_moe(self) -> bool:
        return self.experts > 1

    @property
    def dense_layers(self) -> int:
        return self.layers - self.moe_layers


class _Reader:
    """Looks a value up by its aliases: in the language model's own part first, then in the root."""

    def __init__(self, config: Config, source: str) -> None:
        self.source = source
        self.places = tuple(_places(config))

    def raw(self, *names: str) -> Any:
        return next((p[n] for p in self.places for n in names if p.get(n) is not None), None)

    def number(self, *names: str) -> int:
        """The first alias as an int; of a per-layer list the largest entry; 0 where absent."""
        return _largest(self.raw(*names))

    def need(self, *names: str) -> int:
        value = self.number(*names)
        if value <= 0:
            raise InputError(f"{self.source}: no {' / '.join(names)}: is this a language model's config.json?")
        return value


def model_shape(config: Config, source: str = "config.json") -> ModelShape:
    """The shape of the model described by a parsed config.json. Raises InputError naming ``source`` and the key."""
    read = _Reader(config, source)
    layers = read.need(*_LAYERS)
    hidden, heads = read.need(*_HIDDEN), read.need(*_HEADS)
    kinds = layer_kinds(read.raw, layers)
    mla = read.number("kv_lora_rank")
    head_dim = read.number(*_HEAD_DIM) or hidden // heads
    index_dim = read.number("index_head_dim") if mla else 0
    return ModelShape(
        model_type=str(read.raw("model_type") or ""),
        attention="mla" if mla else "gqa",
        layers=layers,
        full_layers=kinds.full,
        sliding_layers=kinds.sliding,
        state_layers=kinds.state,
        sliding_window=read.number("sliding_window", "attention_chunk_size") if kinds.sliding else 0,
        hidden_size=hidden,
        heads=heads,
        kv_heads=read.number(*_KV_HEADS) or heads,
        head_dim=read.number("qk_nope_head_dim") + read.number("qk_rope_head_dim") if mla else head_dim,
        v_head_dim=read.number("v_head_dim") or head_dim,
        kv_lora_rank=mla,
        q_lora_rank=read.number("q_lora_rank"),
        rope_head_dim=read.number("qk_rope_head_dim") if mla else 0,
        index_head_dim=index_dim,
        index_layers=_index_layers(read, kinds) if index_dim else 0,
        vocab=read.number("vocab_size"),
        tied_embeddings=bool(read.raw("tie_word_embeddings")),
        context_tokens=read.number(*_CONTEXT),
        weight_bits=weight_bits(read.raw("quantization_config")),
        dense_size=read.number(*_DENSE_SIZE),
        **_experts(read, layers),
    )


def _experts(read: _Reader, layers: int) -> dict[str, Any]:
    experts = max(read.number(*_EXPERTS), _largest_block(read.raw("block_configs")))
    if experts <= 1:
        return {}
    shared_size = read.number(*_SHARED_SIZE)
    expert_size = read.number(*_MOE_SIZE) or read.number(*_DENSE_SIZE)
    shared = read.number(*_SHARED) or int(shared_size > 0 or str(read.raw("model_type")) in _IMPLICIT_SHARED)
    return {
        "experts": experts,
        "top_k": read.need(*_TOP_K),
        "shared_experts": shared,
        "moe_layers": moe_layer_count(read.raw, layers),
        "expert_size": expert_size,
        "shared_size": shared_size or shared * expert_size,
    }


def _index_layers(read: _Reader, kinds: LayerKinds) -> int:
    """Layers that hold index keys: with ``indexer_types`` only the "full" ones (GLM-5.2), else all."""
    types = read.raw("indexer_types")
    return sum(t == "full" for t in types) if isinstance(types, list) else kinds.full


def weight_bits(quantization: Any) -> float:
    """Bits per weight of the bulk of the weights, scales included.

    ``quantization`` is a config's ``quantization_config`` or an engine's ``--quantization`` word; 16 for neither.
    """
    text = str(quantization or "").lower()
    if any(name in text for name in ("nvfp4", "mxfp4", "modelopt_fp4", "'fp4'")):
        return 4.5
    if any(name in text for name in ("awq", "gptq", "int4", "'bits': 4", "'num_bits': 4")):
        return 4.25
    return 8.0 if "fp8" in text or "int8" in text or "'num_bits': 8" in text else 16.0


def _places(config: Config) -> Iterator[Config]:
    for path in (*_NESTED, ()):
        place: Any = config
        for key in path:
            place = place.get(key) if isinstance(place, Mapping) else None
        if isinstance(place, Mapping):
            yield place
            yield from (place[key] for key in _INNER if isinstance(place.get(key), Mapping))


def _largest(value: Any) -> int:
    if isinstance(value, list):
        return max((_largest(item) for item in value), default=0)
    # A size beyond 2**53, or one that is no number at all, is damage.
    return int(value) if isinstance(value, int | float) and abs(value) < 2**53 else 0


def _largest_block(blocks: Any) -> int:
    """``block_configs`` of heterogeneous models: the largest number of routed experts of a block."""
    rows = blocks if isinstance(blocks, list) else []
    return max((_largest(row.get("n_routed_experts")) for row in rows if isinstance(row, Mapping)), default=0)
