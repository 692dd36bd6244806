"""The constants of one simulated machine, and the scheduler limits that a start resolves from them."""

from __future__ import annotations

from autotune.values import Value


class SimSettings(Value, frozen=True, kw_only=True):
    """One model on one GPU type. Memory in GiB, times in seconds, per GPU.

    ``gpu_free_gb`` is the memory free before the weights are loaded. ``auto_running_limit`` is a model hook's
    own default of max-running-requests (SGLang has such hooks, for speculation for example); None: the engine's rule.
    A decode step costs ``step_base_s`` + ``expert_weights_s`` times the share of experts touched + per sequence +
    per context token, plus ``eager_s`` and ``eager_per_seq_s`` when the batch is above the largest captured graph.
    ``admission_steps`` n admits at most an n-th of the running limit per decode step, which keeps equal requests from
    marching in step; 0 admits all that fit, as SGLang does.
    ``load_*_gb`` is what must remain free after the KV pool, or the first load runs out of memory.
    """

    name: str
    version: str = "0.5.14"
    architecture: str = "Qwen3MoeForCausalLM"
    vocab_size: int = 151936
    gpu_total_gb: float
    gpu_free_gb: float
    weight_gb: float
    kv_bytes_per_token: int
    context_tokens: int
    page_size: int = 1
    tp_size: int = 1
    auto_running_limit: int | None = None
    pool_overhead_gb: float = 0.15
    graph_base_gb: float
    graph_per_batch_gb: float
    load_reserve_gb: float
    load_per_graph_batch_gb: float = 0.0
    load_per_chunk_token_gb: float = 0.0
    load_per_running_gb: float = 0.0
    experts: int = 0
    experts_per_token: int = 0
    step_base_s: float
    expert_weights_s: float = 0.0
    decode_per_seq_s: float
    decode_per_context_token_s: float = 0.0
    eager_s: float
    eager_per_seq_s: float = 0.0
    admission_steps: int = 0
    prefill_base_s: float
    prefill_per_token_s: float
    start_base_s: float = 40.0
    capture_per_size_s: float = 0.25
    cold_s: float = 3.0
    cold_factor: float = 1.3

    @property
    def context_gb(self) -> float:
        """What the driver's context takes."""
        return self.gpu_total_gb - self.gpu_free_gb


class Limits(Value, frozen=True, kw_only=True):
    """What the scheduler obeys, resolved from flags and memory. ``chunk_tokens`` 0: no chunked prefill.

    ``decode_steps`` is the value that has an effect: always 1 from version 0.3.6 on.
    """

    running: int
    kv_tokens: int
    graph_sizes: tuple[int, ...]
    chunk_tokens: int = 8192
    max_prefill_tokens: int = 16384
    conservativeness: float = 1.0
    decode_steps: int = 1
    radix_cache: bool = True

    @property
    def graph_max(self) -> int:
        return self.graph_sizes[-1] if self.graph_sizes else 0
