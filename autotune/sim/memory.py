"""Memory arithmetic of one start: what fits, what is clamped, and at which stage it runs out of memory.

The rules are SGLang's own, by version: automatic memory fraction and graph ceiling by GPU size, KV tokens from
what is left after the weights, the running limit as ``effective_running`` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from autotune.sim.settings import Limits, SimSettings
from autotune.values import ParamValue, Value

OomStage = Literal["weights", "kv_pool", "graph_capture", "load"]
GIB = 1 << 30


class Resolved(Value, frozen=True, kw_only=True):
    """A start's memory, step by step in GiB, and the limits in force. ``oom`` is the first stage that does not fit.

    ``reduced_from`` is the requested running limit where the engine says that it lowered it.
    """

    limits: Limits
    mem_fraction: float
    kv_gb: float
    after_weights_gb: float
    after_pool_gb: float
    graph_gb: float
    oom: OomStage | None = None
    oom_short_gb: float = 0.0
    reduced_from: int | None = None
    hook_running: int | None = None

    @property
    def after_graphs_gb(self) -> float:
        return self.after_pool_gb - self.graph_gb

    def left_gb(self, settings: SimSettings) -> float:
        """What a full load leaves free, negative where it does not fit."""
        return self.after_pool_gb - max(self.graph_gb, load_gb(settings, self.limits))


def parse_version(text: str) -> tuple[int, ...]:
    """``0.5.14`` or ``0.5.10.post2`` as comparable numbers."""
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit())


def normalised(flags: Mapping[str, ParamValue]) -> dict[str, ParamValue]:
    """Flag names with underscores, both spellings of the graph ceiling as ``cuda_graph_max_bs``."""
    plain = {name.removeprefix("--").replace("-", "_"): value for name, value in flags.items()}
    if "cuda_graph_max_bs_decode" in plain:
        plain["cuda_graph_max_bs"] = plain.pop("cuda_graph_max_bs_decode")
    return plain


def default_chunk(gpu_gb: float) -> int:
    """chunked-prefill-size by GPU memory (SGLang 0.5.8)."""
    return next((chunk for limit, chunk in ((35, 2048), (60, 4096), (160, 8192)) if gpu_gb < limit), 16384)


def default_graph_max(gpu_gb: float, tp_size: int) -> int:
    """Largest decode batch captured, by GPU memory and tensor parallelism (SGLang 0.5.8)."""
    for limit, narrow, wide in ((20, 8, 8), (35, 24, 80), (60, 32, 160), (160, 256, 512)):
        if gpu_gb < limit:
            return narrow if tp_size < 4 else wide
    return 512


def graph_sizes(ceiling: int) -> tuple[int, ...]:
    """The captured batch sizes up to a ceiling, which is always captured itself."""
    ladder = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 513, 16), *range(544, max(ceiling, 512) + 1, 32)]
    return (*(size for size in ladder if size < ceiling), ceiling) if ceiling > 0 else ()


def default_fraction(settings: SimSettings, chunk: int, graph_max: int) -> float:
    """mem-fraction-static where it is not given (SGLang 0.5.8; reserved memory in MB)."""
    gpu_mb = settings.gpu_total_gb * 1024
    reserved = 512 + 1.5 * max(chunk, 2048) + 2 * graph_max + settings.tp_size / 8 * 1024
    if settings.gpu_total_gb > 60:
        reserved = max(reserved, 10240)
    return round((gpu_mb - reserved) / gpu_mb, 3)


def effective_running(settings: SimSettings, requested: int | None, kv_tokens: int) -> tuple[int, bool]:
    """The running limit in force, and whether the engine says in its log that it lowered the request."""
    pool = min(max(int(kv_tokens / settings.context_tokens * 512), 2048), 4096)
    if requested is None:
        return min(settings.auto_running_limit or pool, max(1, kv_tokens // 2)), False
    version = parse_version(settings.version)
    if version < (0, 5, 10):
        return requested, False
    if version < (0, 5, 15):
        return min(requested, pool), False
    allowed = max(1, kv_tokens // 2)
    return min(requested, allowed), requested > allowed


def resolve(settings: SimSettings, flags: Mapping[str, ParamValue]) -> Resolved:
    """Everything a start decides before it serves. ``flags`` holds only what was given."""
    asked = normalised(flags)
    chunk = _chunk(settings, asked)
    ceiling = int(asked.get("cuda_graph_max_bs", default_graph_max(settings.gpu_total_gb, settings.tp_size)))
    fraction = float(asked.get("mem_fraction_static", default_fraction(settings, chunk, ceiling)))
    after_weights = settings.gpu_free_gb - settings.weight_gb
    kv_gb = after_weights - settings.gpu_free_gb * (1 - fraction)
    kv_tokens = _kv_tokens(settings, kv_gb, asked.get("max_total_tokens"))
    requested = int(asked["max_running_requests"]) if "max_running_requests" in asked else None
    running, said = effective_running(settings, requested, max(kv_tokens, 0))
    sizes = () if asked.get("disable_cuda_graph") else graph_sizes(_graph_ceiling(settings, asked, ceiling, running))
    kv_gb = kv_tokens * settings.kv_bytes_per_token / GIB
    request_table_gb = running * (settings.context_tokens + 4) * 4 / GIB
    resolved = Resolved(
        limits=_limits(settings, asked, running, kv_tokens, sizes),
        mem_fraction=fraction,
        kv_gb=kv_gb,
        after_weights_gb=after_weights,
        after_pool_gb=after_weights - kv_gb - request_table_gb - settings.pool_overhead_gb,
        graph_gb=settings.graph_base_gb + settings.graph_per_batch_gb * (sizes[-1] if sizes else 0),
        reduced_from=requested if said else None,
        hook_running=settings.auto_running_limit if requested is None else None,
    )
    return _with_oom(settings, resolved)


def _kv_tokens(settings: SimSettings, kv_gb: float, cap: ParamValue | None) -> int:
    tokens = int(kv_gb * GIB // settings.kv_bytes_per_token)
    if cap is not None:
        tokens = min(tokens, int(cap))
    return tokens // settings.page_size * settings.page_size


def _graph_ceiling(settings: SimSettings, asked: Mapping[str, ParamValue], ceiling: int, running: int) -> int:
    """From 0.5.20 a default ceiling above the running limit is lowered to it; it is never raised."""
    lowered = "cuda_graph_max_bs" not in asked and parse_version(settings.version) >= (0, 5, 20)
    return min(ceiling, running) if lowered else ceiling


def _chunk(settings: SimSettings, asked: Mapping[str, ParamValue]) -> int:
    return max(0, int(asked.get("chunked_prefill_size", default_chunk(settings.gpu_total_gb))))


def _limits(
    settings: SimSettings, asked: Mapping[str, ParamValue], running: int, kv_tokens: int, sizes: tuple[int, ...]
) -> Limits:
    reads_decode_steps = parse_version(settings.version) < (0, 3, 6)
    return Limits(
        running=running,
        kv_tokens=kv_tokens,
        graph_sizes=sizes,
        chunk_tokens=_chunk(settings, asked),
        max_prefill_tokens=int(asked.get("max_prefill_tokens", 16384)),
        conservativeness=float(asked.get("schedule_conservativeness", 1.0)),
        decode_steps=int(asked.get("num_continuous_decode_steps", 1)) if reads_decode_steps else 1,
        radix_cache=not asked.get("disable_radix_cache", False),
    )


def load_gb(settings: SimSettings, limits: Limits) -> float:
    """What a full load needs beside weights and pools, graphs included."""
    return (
        settings.load_reserve_gb
        + settings.load_per_graph_batch_gb * limits.graph_max
        + settings.load_per_chunk_token_gb * (limits.chunk_tokens or limits.max_prefill_tokens)
        + settings.load_per_running_gb * limits.running
    )


def _with_oom(settings: SimSettings, resolved: Resolved) -> Resolved:
    limits = resolved.limits
    shortages: tuple[tuple[OomStage, float], ...] = (
        ("weights", settings.weight_gb - settings.gpu_free_gb),
        ("kv_pool", 0.0 if limits.kv_tokens > 0 and resolved.after_pool_gb > 0 else max(0.01, -resolved.after_pool_gb)),
        ("graph_capture", resolved.graph_gb - resolved.after_pool_gb),
        ("load", load_gb(settings, limits) - resolved.after_pool_gb),
    )
    for stage, short_gb in shortages:
        if short_gb > 0:
            return msgspec.structs.replace(resolved, oom=stage, oom_short_gb=short_gb)
    return resolved
