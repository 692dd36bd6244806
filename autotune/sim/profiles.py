"""Named machines. The constants of the two real ones are fitted to measured tables; a test holds them to these.

``H200_ROWS``: Qwen3-30B-A3B shape, one H200, SGLang 0.5.14, 128 input + 128 output tokens, closed loop.
``GLM5_ROWS``: GLM-5 NVFP4 on eight GPUs, 128 + 128.
"""

from __future__ import annotations

import msgspec

from autotune.errors import InputError
from autotune.sim.settings import SimSettings

QWEN3_30B_H200 = SimSettings(
    name="qwen3-30b-h200",
    gpu_total_gb=139.8,
    gpu_free_gb=139.11,
    weight_gb=56.89,
    kv_bytes_per_token=98304,
    context_tokens=40960,
    # Graph memory: 0.49 GB for 256, 3.21 GB for 2048, from the server's own log.
    graph_base_gb=0.1,
    graph_per_batch_gb=0.00152,
    # Free after the pool: 7 GB + 1.2 MB per graph batch + 0.2 MB per chunk token, or the first load fails.
    load_reserve_gb=7.0,
    load_per_graph_batch_gb=0.0012,
    load_per_chunk_token_gb=0.0002,
    experts=128,
    experts_per_token=8,
    # 57 GB of weights at 4.8 TB/s are 11.9 ms once every expert is touched.
    step_base_s=0.004,
    expert_weights_s=0.0115,
    decode_per_seq_s=0.0000190,
    decode_per_context_token_s=0.000000020,
    eager_s=0.030,
    prefill_base_s=0.008,
    prefill_per_token_s=0.0000118,
    start_base_s=48.0,
    capture_per_size_s=0.14,
)

GLM5_NVFP4 = SimSettings(
    name="glm5-nvfp4",
    architecture="GlmMoeDsaForCausalLM",
    vocab_size=154880,
    # Eight GPUs of the 96 GB class; the weights are what leaves 495,488 KV tokens of fp8 at the automatic fraction.
    gpu_total_gb=95.59,
    gpu_free_gb=94.0,
    weight_gb=51.348,
    kv_bytes_per_token=61464,
    context_tokens=202752,
    page_size=64,
    tp_size=8,
    pool_overhead_gb=0.3,
    graph_base_gb=0.4,
    graph_per_batch_gb=0.0011,
    load_reserve_gb=5.0,
    load_per_graph_batch_gb=0.0008,
    load_per_chunk_token_gb=0.0002,
    load_per_running_gb=0.0006,
    experts=256,
    experts_per_token=8,
    step_base_s=0.030,
    expert_weights_s=0.100,
    decode_per_seq_s=0.000072,
    decode_per_context_token_s=0.00000010,
    eager_s=0.045,
    prefill_base_s=0.150,
    prefill_per_token_s=0.000060,
    start_base_s=420.0,
    capture_per_size_s=0.8,
    cold_s=10.0,
)

DEMO = SimSettings(
    name="demo",
    gpu_total_gb=24.0,
    gpu_free_gb=23.5,
    weight_gb=8.0,
    kv_bytes_per_token=1 << 20,
    context_tokens=4096,
    # A model hook's default, so that the default start is slow for two reasons that hide each other.
    auto_running_limit=24,
    graph_base_gb=0.1,
    graph_per_batch_gb=0.0152,
    load_reserve_gb=1.0,
    load_per_graph_batch_gb=0.0125,
    load_per_chunk_token_gb=0.0002,
    load_per_running_gb=0.003,
    experts=32,
    experts_per_token=4,
    step_base_s=0.002,
    expert_weights_s=0.0045,
    decode_per_seq_s=0.000135,
    decode_per_context_token_s=0.0000001,
    eager_s=0.014,
    eager_per_seq_s=0.00014,
    # Spread out, so that loads of a few seconds see an even flow.
    admission_steps=24,
    prefill_base_s=0.001,
    prefill_per_token_s=0.00003,
    start_base_s=0.4,
    capture_per_size_s=0.004,
    cold_s=0.4,
)

PROFILES: dict[str, SimSettings] = {profile.name: profile for profile in (DEMO, QWEN3_30B_H200, GLM5_NVFP4)}


def profile(name: str, *, version: str = "", tp_size: int = 0) -> SimSettings:
    """The settings of a named machine, for another engine version or parallelism if these are given.

    Raises InputError for an unknown name.
    """
    if name not in PROFILES:
        raise InputError(f"--sim-profile: no profile {name!r}; choose one of {', '.join(PROFILES)}")
    settings = PROFILES[name]
    return msgspec.structs.replace(
        settings, version=version or settings.version, tp_size=max(tp_size, settings.tp_size)
    )
