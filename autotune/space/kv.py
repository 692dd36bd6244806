"""KV cache arithmetic: bytes per token, capacity, and the requests that fit it. All pure.

Memory is counted in GiB (2**30 bytes), which is what the engines' logs and nvidia-smi call GB.
"""

from __future__ import annotations

from typing import Literal

from autotune.errors import InputError
from autotune.space.model_config import ModelShape
from autotune.values import Effective, Value

GIB = 2**30

KvDtype = Literal["bf16", "fp8", "fp4"]
KvSource = Literal["estimate", "study", "server"]

# fp4 keeps one fp8 scale per 16 values.
_DTYPE_BYTES: dict[str, float] = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5 + 1 / 16}
# SGLang's --swa-full-tokens-ratio: the window pool holds this share of the tokens of the full pool.
SGLANG_SLIDING_RATIO = 0.8
# CUDA context and communication buffers that are gone before an engine measures free memory.
_CONTEXT_GIB = 0.8


class Room(Value, frozen=True, kw_only=True):
    """Where a KV cache lies: in the share ``fraction`` of a GPU that the setting ``parameter`` gives to it and to the
    weights, which take the share ``weights``.
    """

    parameter: str
    fraction: float
    weights: float


class KvCapacity(Value, frozen=True, kw_only=True):
    """How many tokens the KV cache holds, who says so, how the number came about, and in which room, where known."""

    tokens: int
    source: KvSource
    derivation: str
    room: Room | None = None

    def tokens_at(self, fraction: float) -> int:
        """The tokens that it would hold with another share of the GPU; the same where its room is not known."""
        room = self.room
        if room is None or not 0 <= room.weights < room.fraction:
            return self.tokens
        return int(self.tokens * max(0.0, fraction - room.weights) / (room.fraction - room.weights))


class Lengths(Value, frozen=True, kw_only=True):
    """Tokens of a request: at full length, and what a request in flight holds on average. ``note`` says whose they
    are where that is not plain.
    """

    full_tokens: float
    mean_tokens: float
    note: str = ""


class Memory(Value, frozen=True, kw_only=True):
    """One GPU and what is put on it. ``weight_gb`` is per GPU; ``mem_fraction`` is the share for weights and KV, and
    ``parameter`` the setting of it.
    """

    gpu_memory_gb: float
    weight_gb: float
    mem_fraction: float
    tp: int = 1
    kv_dtype: KvDtype = "bf16"
    parameter: str = ""


def kv_dtype_of(name: str) -> KvDtype:
    """The width behind an engine's ``--kv-cache-dtype`` (auto, fp8_e4m3, fp4_e2m1, mxfp8, bf16 ...)."""
    text = name.lower()
    return "fp8" if "fp8" in text else "fp4" if "fp4" in text else "bf16"


def kv_bytes_per_token(
    shape: ModelShape, *, tp: int = 1, dtype: KvDtype = "bf16", sliding_ratio: float = SGLANG_SLIDING_RATIO
) -> float:
    """Bytes of KV cache per context token on each GPU.

    ``tp`` is the tensor parallelism of the attention (tp/dp under data-parallel attention). Heads are
    replicated once ``tp`` exceeds them; MLA is replicated on every rank. State layers hold none.
    """
    layers = shape.full_layers + sliding_ratio * shape.sliding_layers
    if shape.attention == "mla":
        return _latent_bytes(shape, dtype) * layers + _index_bytes(shape) * shape.index_layers
    heads = max(1, shape.kv_heads // tp)
    return heads * (shape.head_dim + shape.v_head_dim) * layers * _DTYPE_BYTES[dtype]


def _latent_bytes(shape: ModelShape, dtype: KvDtype) -> float:
    values = shape.kv_lora_rank + shape.rope_head_dim
    if shape.index_head_dim and dtype == "fp8":
        # The sparse-attention kernels keep the latent in fp8 with one float per 128 values and the rope part in bf16.
        return shape.kv_lora_rank + shape.kv_lora_rank / 128 * 4 + shape.rope_head_dim * 2
    return values * _DTYPE_BYTES[dtype]


def _index_bytes(shape: ModelShape) -> float:
    """Index keys are fp8 with one float scale per 128 values, whatever the KV dtype."""
    return shape.index_head_dim + shape.index_head_dim / 128 * 4


def request_lengths(input_tokens: int, output_tokens: int, range_ratio: float = 1.0) -> Lengths:
    """Full and mean lengths of requests drawn uniformly from [max(1, len * r), len].

    A request in flight has all its input and, on average over its life, half its output. Long outputs stay
    longer, so the mean output weighs each by its own length: E[o^2] / E[o].
    """
    low_in, low_out = max(1.0, input_tokens * range_ratio), max(1.0, output_tokens * range_ratio)
    mean_out = (low_out + output_tokens) / 2
    square_out = (low_out**2 + low_out * output_tokens + output_tokens**2) / 3
    mean_in = (low_in + input_tokens) / 2
    return Lengths(full_tokens=input_tokens + output_tokens, mean_tokens=mean_in + square_out / mean_out / 2)


def requests_that_fit(kv_tokens: int, tokens_per_request: float) -> int:
    """Whole requests of that length that the cache holds at once."""
    return int(kv_tokens / tokens_per_request)


def estimate_kv_capacity(shape: ModelShape, memory: Memory) -> KvCapacity:
    """The capacity before any server has said its own. Raises InputError where the weights leave no room."""
    free = memory.gpu_memory_gb - _CONTEXT_GIB
    left = free * memory.mem_fraction - memory.weight_gb
    if left <= 0:
        raise InputError(
            f"model: {memory.weight_gb:.1f} GB of weights per GPU do not fit {memory.mem_fraction:g} of "
            f"{memory.gpu_memory_gb:g} GB; raise the memory fraction or tp, or correct model.weight_gb"
        )
    per_token = kv_bytes_per_token(shape, tp=memory.tp, dtype=memory.kv_dtype)
    tokens = int(left * GIB / per_token)
    text = (
        f"estimate: ({free:.1f} GB free x {memory.mem_fraction:g} - {memory.weight_gb:.1f} GB of weights) "
        f"/ {per_token:,.0f} B per token ({memory.kv_dtype}, tp {memory.tp}) = {tokens:,} tokens; the baseline "
        "trial replaces it with the server's own number"
    )
    room = Room(parameter=memory.parameter, fraction=memory.mem_fraction, weights=memory.weight_gb / free)
    return KvCapacity(tokens=tokens, source="estimate", derivation=text, room=room)


def stated_kv_capacity(tokens: int, source: Literal["study", "server"], room: Room | None = None) -> KvCapacity:
    """A capacity that the study file or a running server states."""
    said_by = "as the study file says (model.kv_tokens)" if source == "study" else "as the running server reports"
    return KvCapacity(tokens=tokens, source=source, derivation=f"{tokens:,} tokens, {said_by}", room=room)


def room_of(parameter: str, effective: Effective) -> Room | None:
    """The room by the GB of ``weight`` and ``kvcache`` that a server tells; None where it does not."""
    weight, pool = (effective.gpu_memory_gb.get(part, 0.0) for part in ("weight", "kvcache"))
    fraction = effective.values.get(parameter)
    if weight <= 0 or pool <= 0 or not isinstance(fraction, float) or not 0 < fraction <= 1:
        return None
    return Room(parameter=parameter, fraction=fraction, weights=fraction * weight / (weight + pool))


def weight_gb(shape: ModelShape, tp: int = 1, bits: float | None = None) -> float:
    """Weights per GPU in GiB, from the shape alone (an estimate: norms, biases and odd layers are left out).

    ``bits`` per weight of the layers, else what the config's own quantisation says; embeddings stay at 16.
    """
    moe = shape.moe_layers * 3 * shape.hidden_size * (shape.experts * shape.expert_size + shape.shared_size)
    dense = shape.dense_layers * 3 * shape.hidden_size * shape.dense_size
    embeddings = shape.vocab * shape.hidden_size * (1 if shape.tied_embeddings else 2)
    layers = moe + dense + shape.layers * _attention_weights(shape)
    return (layers * (bits or shape.weight_bits) + embeddings * 16) / 8 / tp / GIB


def _attention_weights(shape: ModelShape) -> float:
    if shape.attention == "gqa":
        return shape.hidden_size * shape.head_dim * 2 * (shape.heads + shape.kv_heads)
    query = shape.heads * shape.head_dim
    down = shape.hidden_size * (shape.kv_lora_rank + shape.rope_head_dim)
    up = shape.kv_lora_rank * shape.heads * (shape.head_dim - shape.rope_head_dim + shape.v_head_dim)
    project = shape.q_lora_rank * (shape.hidden_size + query) if shape.q_lora_rank else shape.hidden_size * query
    return project + down + up + shape.heads * shape.v_head_dim * shape.hidden_size
