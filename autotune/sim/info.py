"""What the server says about itself: /server_info, /v1/loads, /metrics, /model_info."""

from __future__ import annotations

import time
from typing import Any

from autotune.sim.engine import Engine
from autotune.sim.memory import parse_version


def server_args(args: dict[str, Any], engine: Engine) -> dict[str, Any]:
    """The arguments as the engine resolved them; ``max_running_requests`` stays the requested value."""
    resolved, limits = engine.resolved, engine.resolved.limits
    graphs = {"backend": "full", "max_bs": limits.graph_max, "bs": list(limits.graph_sizes), "tc_compiler": "eager"}
    values = dict(args)
    values.update(
        mem_fraction_static=resolved.mem_fraction,
        chunked_prefill_size=limits.chunk_tokens or -1,
        tokenizer_path=args["tokenizer_path"] or args["model_path"],
        served_model_name=args["served_model_name"] or args["model_path"],
        page_size=args["page_size"] or engine.settings.page_size,
        pp_max_micro_batch_size=None,
        api_key=None if args["api_key"] is None else "******",
        admin_api_key=None if args["admin_api_key"] is None else "******",
    )
    if parse_version(engine.settings.version) < (0, 5, 13):
        values["cuda_graph_max_bs"] = limits.graph_max
        values["cuda_graph_bs"] = list(limits.graph_sizes)
    else:
        values["cuda_graph_max_bs_decode"] = limits.graph_max
        values["cuda_graph_config"] = {"decode": graphs}
    return values


def server_info(args: dict[str, Any], engine: Engine) -> dict[str, Any]:
    """The document of /server_info, with the effective values where this version has them."""
    settings, resolved = engine.settings, engine.resolved
    values = server_args(args, engine)
    state = {
        **values,
        "pp_max_micro_batch_size": engine.told_limit,
        "last_gen_throughput": round(engine.counters.gen_throughput, 2),
    }
    if parse_version(settings.version) >= (0, 5, 8):
        state["memory_usage"] = memory_usage(engine)
        state["effective_max_running_requests_per_dp"] = resolved.limits.running
    return {
        **values,
        "status": "ready",
        "max_total_num_tokens": resolved.limits.kv_tokens,
        "max_req_input_len": settings.context_tokens - 6,
        "internal_states": [state],
        "version": settings.version,
        "kv_events": None,
    }


def memory_usage(engine: Engine) -> dict[str, float]:
    return {
        "weight": round(engine.settings.weight_gb, 2),
        "kvcache": round(engine.resolved.kv_gb, 2),
        "token_capacity": engine.resolved.limits.kv_tokens,
        "graph": round(engine.resolved.graph_gb, 2),
    }


def loads(engine: Engine) -> dict[str, Any]:
    """The document of /v1/loads."""
    batcher, counters = engine.batcher, engine.counters
    return {
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        "version": engine.settings.version,
        "accelerator": None,
        "num_accelerators": engine.settings.tp_size,
        "loads": [
            {
                "timestamp": time.time(),
                "dp_rank": 0,
                "num_running_reqs": batcher.running_count,
                "num_waiting_reqs": len(batcher.waiting),
                "num_used_tokens": batcher.used_tokens,
                "num_total_tokens": batcher.used_tokens,
                "max_total_num_tokens": batcher.limits.kv_tokens,
                "max_running_requests": batcher.limits.running,
                "token_usage": round(engine.token_usage(), 4),
                "gen_throughput": round(counters.gen_throughput, 2),
                "cache_hit_rate": round(cache_hit_rate(engine), 4),
                "utilization": 0.0,
                "memory": memory_usage(engine),
                "queues": {"waiting": len(batcher.waiting), "grammar": 0, "paused": 0, "retracted": 0},
            }
        ],
    }


def cache_hit_rate(engine: Engine) -> float:
    return engine.counters.cached_tokens / max(1, engine.counters.prompt_tokens)


def metrics(model: str, engine: Engine) -> str:
    """The text of /metrics, in Prometheus' form."""
    batcher, counters, usage = engine.batcher, engine.counters, memory_usage(engine)
    label = f'{{engine_type="unified",model_name="{model}",tp_rank="0",pp_rank="0",moe_ep_rank="0"}}'
    totals = {
        "prompt_tokens_total": counters.prompt_tokens,
        "generation_tokens_total": counters.generation_tokens,
        "cached_tokens_total": counters.cached_tokens,
        "num_requests_total": counters.requests,
        "num_retracted_requests_total": batcher.retracted_total,
    }
    gauges = {
        "num_running_reqs": batcher.running_count,
        "num_queue_reqs": len(batcher.waiting),
        "num_retracted_reqs": batcher.retracted_total,
        "num_used_tokens": batcher.used_tokens,
        "token_usage": engine.token_usage(),
        "gen_throughput": counters.gen_throughput,
        "cache_hit_rate": cache_hit_rate(engine),
        "is_cuda_graph": float(not counters.eager),
        "utilization": 0.0,
        "max_total_num_tokens": batcher.limits.kv_tokens,
        "weight_memory_usage_gb": usage["weight"],
        "kv_cache_memory_usage_gb": usage["kvcache"],
        "context_len": engine.settings.context_tokens,
    }
    lines: list[str] = []
    for kind, group in (("counter", totals), ("gauge", gauges)):
        for name, value in group.items():
            lines += [f"# TYPE sglang:{name} {kind}", f"sglang:{name}{label} {float(value)}"]
    return "\n".join(lines) + "\n"


def model_info(args: dict[str, Any], engine: Engine) -> dict[str, Any]:
    """The document of /model_info."""
    return {
        "model_path": args["model_path"],
        "served_model_name": model_name(args),
        "tokenizer_path": args["tokenizer_path"] or args["model_path"],
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "load_format": args["load_format"],
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": "simulated",
        "architectures": [engine.settings.architecture],
    }


def models(args: dict[str, Any], engine: Engine) -> dict[str, Any]:
    """The document of /v1/models."""
    name = model_name(args)
    entry = {
        "id": name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "sglang",
        "root": name,
        "parent": None,
        "max_model_len": engine.settings.context_tokens,
    }
    return {"object": "list", "data": [entry]}


def model_name(args: dict[str, Any]) -> str:
    return str(args["served_model_name"] or args["model_path"])
