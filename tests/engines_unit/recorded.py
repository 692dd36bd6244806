"""Small recorded answers and log lines of each engine: what the conformance suite feeds them."""

# ruff: noqa: E501 (log lines are as long as the engines write them)

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autotune.engines import Fetch
from autotune.values import ParamValue, Value

ABSENT = (404, b'{"detail":"Not Found"}')


def answering(pages: Mapping[str, object]) -> Fetch:
    """A fetch that knows ``pages`` (objects as JSON, text as it is) and answers 404 to everything else."""
    bodies = {
        path: page.encode() if isinstance(page, str) else json.dumps(page).encode() for path, page in pages.items()
    }
    return lambda path: (200, bodies[path]) if path in bodies else ABSENT


def rank(running: int, tokens: int, **more: Any) -> dict[str, Any]:
    """The state of one data-parallel rank of SGLang."""
    usage = {"weight": 56.9, "kvcache": 61.3, "token_capacity": tokens, "graph": {"decode": 3.0, "prefill": 0.2}}
    return {"effective_max_running_requests_per_dp": running, "memory_usage": usage, "pp_size": 1, **more}


SGLANG_INFO: dict[str, Any] = {
    "version": "0.5.23",
    "max_running_requests": 4096,
    "max_total_num_tokens": 4096,
    "chunked_prefill_size": 8192,
    "mem_fraction_static": 0.85,
    "cuda_graph_config": {"decode": {"backend": "full", "max_bs": 512, "bs": [1, 2, 256, 512]}},
    "internal_states": [rank(2048, 4096, chunked_prefill_size=8192, pp_max_micro_batch_size=2048)],
}

SGLANG_METRICS = """\
# HELP sglang:prompt_tokens_total Number of prefill tokens processed.
sglang:prompt_tokens_total{is_streaming="true",model_name="m"} 2000.0
sglang:prompt_tokens_total{is_streaming="false",model_name="m"} 20.0
sglang:generation_tokens_total{model_name="m"} 1500.0
sglang:cached_tokens_total{cache_source="device",model_name="m"} 7.0
sglang:num_retracted_requests_total{model_name="m",tp_rank="0"} 3.0
sglang:num_retracted_requests_total{model_name="m",tp_rank="1"} 3.0
sglang:num_running_reqs{model_name="m",tp_rank="0"} 5.0
sglang:num_queue_reqs{model_name="m",tp_rank="0"} 2.0
sglang:fwd_occupancy{model_name="m",tp_rank="0"} NaN
"""

SGLANG_LOG = """\
[2026-01-01 00:00:00] server_args=ServerArgs(model_path='m', max_running_requests=4096, mem_fraction_static=0.9, dp_size=1, schedule_policy='fcfs', page_size=None)
[2026-01-01 00:00:09] KV Cache is allocated. #tokens: 669932, K size: 30.67 GB, V size: 30.67 GB
[2026-01-01 00:00:10] Capture target prefill CUDA graph begin. backend=tc_piecewise, num_tokens=[4, 8, 8192], avail mem=4.80 GB
[2026-01-01 00:00:11] Capture target decode CUDA graph begin. backend=full, num_tokens_per_bs=1, bs=[1, 2, 4, 256], avail mem=4.80 GB
[2026-01-01 00:00:12] max_total_num_tokens=669932, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2048, context_len=40960, available_gpu_mem=18.39 GB
[2026-01-01 00:00:20] Prefill batch, #new-seq: 2, #new-token: 128, #cached-token: 64, token usage: 0.01, #running-req: 0, #queue-req: 0
[2026-01-01 00:00:21] KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_tokens_gained: 130, #new_token_ratio: 0.5 -> 0.7
"""

VLLM_CONFIG: dict[str, Any] = {
    "vllm_config": {
        "model_config": {"enforce_eager": False},
        "cache_config": {"kv_cache_size_tokens": 4096, "gpu_memory_utilization": 0.92},
        "parallel_config": {"data_parallel_size": 2},
        "scheduler_config": {"max_num_seqs": 64, "max_num_batched_tokens": 2048},
        "compilation_config": {"max_cudagraph_capture_size": 128},
    }
}

VLLM_METRICS = """\
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="256"} 1.0
vllm:cache_config_info{block_size="16",engine="1",kv_cache_size_tokens="4096",num_gpu_blocks="256"} 1.0
vllm:prompt_tokens_total{engine="0"} 100.0
vllm:generation_tokens_total{engine="0"} 90.0
vllm:generation_tokens_total{engine="1"} 10.0
vllm:prefix_cache_hits_total{engine="0"} 4.0
vllm:num_preemptions_total{engine="0"} 6.0
vllm:num_requests_running{engine="0"} 1.0
vllm:num_requests_waiting{engine="0"} 0.0
"""

VLLM_LOG = """\
(APIServer pid=1) INFO 01-01 00:00:00 [api_utils.py:286] non-default args: {'host': '127.0.0.1', 'max_num_seqs': 64, 'enable_prefix_caching': False, 'gpu_memory_utilization': 0.8, 'model': 'm'}
(EngineCore_DP0 pid=2) INFO 01-01 00:00:01 [core.py:133] Initializing a V1 LLM engine (v0.15.1) with config: model='m', compilation_config={'max_cudagraph_capture_size': 128}
(EngineCore_DP0 pid=2) INFO 01-01 00:00:02 [kv_cache_utils.py:1] GPU KV cache size: 524,288 tokens
"""

LLAMA_PROPS = {"total_slots": 4, "default_generation_settings": {"n_ctx": 1024}, "build_info": "b7000"}

LLAMA_METRICS = (
    "llamacpp:prompt_tokens_total 576\nllamacpp:tokens_predicted_total 570\nllamacpp:requests_processing 1\n"
)

COMPLETION = {"choices": [{"text": "ab", "finish_reason": "length"}], "usage": {"completion_tokens": 4}}
GENERATION = {"text": "", "meta_info": {"finish_reason": {"type": "length"}, "completion_tokens": 4}}


class Case(Value, frozen=True, kw_only=True):
    """One engine with all that it needs to be put through the suite."""

    kind: str
    command: list[str]
    searched: str
    name: str
    pages: dict[str, Any]
    log: str
    ready: Any
    running_limit: int
    kv_tokens: int
    asked: ParamValue = 4096


CASES = (
    Case(
        kind="sglang",
        command=["{python}", "-m", "sglang.launch_server", "--model-path", "m", "--max-running-requests=7"],
        searched="--max-running-requests",
        name="max_running_requests",
        pages={"/get_server_info": SGLANG_INFO, "/metrics": SGLANG_METRICS},
        log=SGLANG_LOG,
        ready=GENERATION,
        running_limit=2048,
        kv_tokens=4096,
    ),
    Case(
        kind="vllm",
        command=["vllm", "serve", "m", "--max_num_seqs", "7"],
        searched="--max-num-seqs",
        name="max_num_seqs",
        pages={"/server_info?config_format=json": VLLM_CONFIG, "/metrics": VLLM_METRICS},
        log=VLLM_LOG,
        ready=COMPLETION,
        running_limit=128,
        kv_tokens=8192,
    ),
    Case(
        kind="command",
        command=["llama-server", "--model", "m", "--parallel", "{parallel=1}", "--host", "{host}", "--port", "{port}"],
        searched="--parallel",
        name="parallel",
        pages={"/props": LLAMA_PROPS, "/metrics": LLAMA_METRICS},
        log="0.00.046.745 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 1024, kv_unified = 'false'\n",
        ready=COMPLETION,
        running_limit=4,
        kv_tokens=4096,
    ),
)
