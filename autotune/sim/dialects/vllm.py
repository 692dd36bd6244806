"""vLLM's flags, routes and log lines, as of 0.32."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from autotune.sim.dialects.base import Dialect, Routes
from autotune.sim.engine import Engine
from autotune.sim.http import TEXT
from autotune.values import ParamValue

# vLLM's name to SGLang's: the values mean the same.
_NUMBERS = {
    "max_num_seqs": "max-running-requests",
    "max_num_batched_tokens": "chunked-prefill-size",
    "max_cudagraph_capture_size": "cuda-graph-max-bs",
    "gpu_memory_utilization": "mem-fraction-static",
    "max_model_len": "context-length",
    "stream_interval": "stream-interval",
    "tensor_parallel_size": "tp",
}
_ACCEPTED = ("dtype", "kv_cache_dtype", "distributed_executor_backend", "long_prefill_token_threshold", "seed")
_SWITCHES = ("enforce_eager", "enable_prefix_caching", "enable_chunked_prefill", "disable_uvicorn_access_log")
_BATCHED = 2048
"""max_num_batched_tokens where it is not given."""
_KEPT = ("Started server process", "Waiting for application startup")
_LINES = (
    (r"Init torch distributed begin", "INFO", "core.py:133", "Initializing a V1 LLM engine (v{version}) with config: "
     "model='{model}', enforce_eager={eager}, max_seq_len={context}"),
    (r"Load weight begin", "INFO", "gpu_model_runner.py:68", "Starting to load model {model}..."),
    (r"Load weight end\. elapsed=(\S+) s", "INFO", "default_loader.py:501", "Loading weights took {0} seconds"),
    (r"KV Cache is allocated\..*#tokens: (\d+)", "INFO", "kv_cache_utils.py:2327", "GPU KV cache size: {0:,} tokens, "
     "Maximum concurrency for {context:,} tokens per request: {concurrency:.2f}x"),
    (r"Capture cuda graph begin", "INFO", "gpu_model_runner.py:4105", "Capturing CUDA graphs (decode, FULL)"),
    (r"Capture cuda graph end\. Time elapsed: (\S+) s\. mem usage=(\S+) GB", "INFO", "gpu_model_runner.py:4197",
     "Graph capturing finished in {0} secs, took {1} GiB"),
    (r"Decode batch, #running-req: (\d+).*token usage: ([\d.]+).*gen throughput \(token/s\): ([\d.]+), "
     r"#queue-req: (\d+)",
     "INFO", "loggers.py:335", "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {2} "
     "tokens/s, Running: {0} reqs, Waiting: {3} reqs, GPU KV cache usage: {1:%}, Prefix cache hit rate: 0.0%"),
    (r"Received sigquit", "ERROR", "", "RuntimeError: Engine core initialization failed. See root cause above. Failed "
     "core proc(s): {{}}"),
    (r"SIGQUIT received", "ERROR", "async_llm.py:704", "vllm.v1.engine.exceptions.EngineDeadError: EngineCore "
     "encountered an issue. See stack trace (above) for the root cause."),
    (r"Gracefully exiting.*requests 0\.", "INFO", "launcher.py:254", "[shutdown] API server: shutdown triggered"),
    (r"Updating .* is rejected|simulated faults", "INFO", "sim.py:1", "{message}"),
)  # fmt: skip


class Vllm(Dialect):
    """vLLM refuses what it cannot run, and never lowers a running limit by itself."""

    rules = "0.5.9"
    failed_exit = 1

    def __init__(self) -> None:
        self._given: dict[str, ParamValue] = {}
        self._words: dict[str, Any] = {"version": "", "model": "", "eager": False, "context": 0}

    def arguments(self, argv: Sequence[str], version: str) -> list[str]:
        """See ``Dialect.arguments``. Underscores are dashes, and each switch has a ``--no-`` form."""
        parser = _parser()
        dashed = [re.sub(r"^--[\w-]+", lambda m: m[0].replace("_", "-"), word) for word in argv]
        args = vars(parser.parse_args(dashed))
        self._given = {name: args[name] for name in args if args[name] != parser.get_default(name)}
        self._words |= {"version": version, "model": args["model"], "eager": bool(args["enforce_eager"])}
        self._check(args)
        flags = [("--model-path", args["model"]), ("--host", args["host"]), ("--port", args["port"])]
        flags += [("--" + theirs, args[ours]) for ours, theirs in _NUMBERS.items() if args[ours] is not None]
        if args["served_model_name"]:
            flags.append(("--served-model-name", args["served_model_name"]))
        switches = ["--disable-cuda-graph"] if args["enforce_eager"] else []
        switches += ["--disable-radix-cache"] if args["enable_prefix_caching"] is False else []
        return [*(str(word) for flag in flags for word in flag), *switches]

    def _check(self, args: dict[str, Any]) -> None:
        seqs, batched = args["max_num_seqs"], args["max_num_batched_tokens"] or _BATCHED
        if seqs and batched < seqs:
            print(
                "pydantic_core._pydantic_core.ValidationError: 1 validation error for SchedulerConfig", file=sys.stderr
            )
            print(
                f"  Value error, max_num_batched_tokens ({batched}) must be greater than or equal to max_num_seqs "
                f"({seqs}).",
                file=sys.stderr,
            )
            sys.exit(1)

    def line(self, message: str) -> str | None:
        """See ``Dialect.line``."""
        if message.startswith("server_args="):
            return _stamped("APIServer", "INFO", "api_utils.py:286", f"non-default args: {self._given}")
        if message.startswith("Scheduler hit an exception: "):
            rows = ["EngineCore failed to start.", *message.splitlines()]
            return "".join(_stamped("EngineCore", "ERROR", "core.py:1510", row) for row in rows)
        if message.startswith("INFO: ") and (any(kept in message for kept in _KEPT) or "HTTP/1.1" in message):
            return f"{message}\n"
        if "fired up and ready" in message:
            return "INFO:     Application startup complete.\n"
        if message.startswith("ERROR:") or "OOM killer" in message:
            return f"{message}\n"
        for pattern, level, place, text in _LINES:
            if match := re.search(pattern, message):
                groups = [_number(group) for group in match.groups()]
                words = {**self._words, "message": message, "concurrency": self._concurrency(groups)}
                said = text.format(*groups, **words)
                return _stamped("EngineCore", level, place, said) if place else f"{said}\n"
        return None

    def _concurrency(self, groups: list[Any]) -> float:
        tokens = groups[0] if groups and isinstance(groups[0], int) else 0
        return tokens / max(1, int(self._words["context"]))

    def routes(self, own: Routes, args: dict[str, Any], engine: Engine) -> Routes:
        """See ``Dialect.routes``. /server_info answers in development mode alone."""
        self._words["context"] = engine.settings.context_tokens
        routes = {path: own[path] for path in ("/v1/completions", "/v1/chat/completions", "/v1/models")}
        routes["/health"] = own["/health"]
        routes["/version"] = lambda _, reply: reply.json(200, {"version": self._words["version"]})
        routes["/load"] = lambda _, reply: reply.json(200, {"server_load": engine.batcher.running_count})
        routes["/metrics"] = lambda _, reply: reply.send(200, _metrics(engine).encode(), TEXT)
        if os.environ.get("VLLM_SERVER_DEV_MODE") == "1":
            routes["/server_info"] = lambda _, reply: reply.json(200, {"vllm_config": _config(engine)})
        return routes


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """The last line alone: the usage before it says nothing more."""
        self.exit(2, f"api_server.py: error: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="api_server.py")
    parser.add_argument("--model", default="sim/demo")
    parser.add_argument("--served-model-name")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    for name in _NUMBERS:
        kind = float if name == "gpu_memory_utilization" else int
        parser.add_argument("--" + name.replace("_", "-"), type=kind)
    for name in _ACCEPTED:
        parser.add_argument("--" + name.replace("_", "-"))
    for name in _SWITCHES:
        parser.add_argument("--" + name.replace("_", "-"), action=argparse.BooleanOptionalAction)
    return parser


def _stamped(process: str, level: str, place: str, text: str) -> str:
    return f"({process} pid={os.getpid()}) {level} {time.strftime('%m-%d %H:%M:%S')} [{place}] {text}\n"


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _config(engine: Engine) -> dict[str, Any]:
    limits = engine.resolved.limits
    return {
        "model_config": {"enforce_eager": not limits.graph_sizes},
        "cache_config": {
            "kv_cache_size_tokens": limits.kv_tokens,
            "gpu_memory_utilization": engine.resolved.mem_fraction,
        },
        "parallel_config": {"data_parallel_size": 1},
        "scheduler_config": {"max_num_seqs": limits.running, "max_num_batched_tokens": limits.chunk_tokens},
        "compilation_config": {"max_cudagraph_capture_size": limits.graph_max},
    }


def _metrics(engine: Engine) -> str:
    """The samples of /metrics that a tuner reads."""
    counters, batcher = engine.counters, engine.batcher
    size = engine.settings.page_size
    rows: dict[str, float] = {
        "prompt_tokens_total": counters.prompt_tokens,
        "generation_tokens_total": counters.generation_tokens,
        "prefix_cache_hits_total": counters.cached_tokens,
        "num_preemptions_total": batcher.retracted_total,
        "num_requests_running": batcher.running_count,
        "num_requests_waiting": len(batcher.waiting),
    }
    kv_tokens = batcher.limits.kv_tokens
    labels = f'block_size="{size}",engine="0",kv_cache_size_tokens="{kv_tokens}",num_gpu_blocks="{kv_tokens // size}"'
    lines = [f"vllm:cache_config_info{{{labels}}} 1.0"]
    return "\n".join([*lines, *(f'vllm:{name}{{engine="0"}} {float(value)}' for name, value in rows.items())]) + "\n"
