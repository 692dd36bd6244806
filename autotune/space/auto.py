"""What an engine chooses by itself where the command line is silent, as far as estimates need it. Pure."""

from __future__ import annotations

_SGLANG_CHUNK_TOKENS = ((35.0, 2048), (60.0, 4096), (160.0, 8192))
_SGLANG_GRAPH_MAX = ((20.0, 8, 8), (35.0, 24, 80), (60.0, 32, 160), (160.0, 256, 512))
_VLLM_FRACTION = 0.9


def automatic_mem_fraction(engine: str, gpu_memory_gb: float, tp: int = 1) -> float:
    """Share of the GPU for weights and KV cache when the flag is absent.

    SGLang 0.5.8: 512 MB + 1.5 MB per chunk token + 2 MB per graph batch + 1 GB per 8 GPUs stay free, at least
    10 GB on GPUs above 60 GB. vLLM: 0.9 (0.92 from 0.33 on). Other engines are taken for SGLang.
    """
    if engine == "vllm":
        return _VLLM_FRACTION
    chunk = next((c for limit, c in _SGLANG_CHUNK_TOKENS if gpu_memory_gb < limit), 16384)
    graphs = next(((small, large) for limit, small, large in _SGLANG_GRAPH_MAX if gpu_memory_gb < limit), (512, 512))
    reserved_mb = 512 + 1.5 * max(chunk, 2048) + 2 * graphs[tp >= 4] + tp / 8 * 1024
    if gpu_memory_gb > 60:
        reserved_mb = max(reserved_mb, 10240)
    total_mb = gpu_memory_gb * 1024
    return round(max(0.0, total_mb - reserved_mb) / total_mb, 3)
