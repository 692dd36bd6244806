"""llama.cpp's server: slots that share one context, its flags, routes and log lines."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from autotune.sim import wire
from autotune.sim.dialects.base import Dialect, Routes
from autotune.sim.engine import Engine
from autotune.sim.http import TEXT

_BUILD = "b0-simulated"
_IGNORED = ("threads", "threads-batch", "ubatch-size", "n-gpu-layers", "flash-attn")
_SLOTS, _CONTEXT, _BATCH = 4, 16384, 2048
_OUT_OF_MEMORY = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating {} on device 0: cudaMalloc failed: out of memory"
)


class LlamaCpp(Dialect):
    """The context is split over the slots, so each request has ``ctx-size / parallel`` tokens."""

    rules = "0.5.9"
    failed_exit = 1

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._args: dict[str, Any] = {}

    def arguments(self, argv: Sequence[str], version: str) -> list[str]:
        """See ``Dialect.arguments``."""
        args = self._args = vars(_parser().parse_args(argv))
        per_slot = args["ctx_size"] // args["parallel"]
        flags = {
            "--model-path": args["model"],
            "--served-model-name": args["alias"] or args["model"],
            "--host": args["host"],
            "--port": args["port"],
            "--max-running-requests": args["parallel"],
            "--max-total-tokens": args["ctx_size"],
            "--context-length": per_slot,
            "--chunked-prefill-size": args["batch_size"],
        }
        return [str(word) for flag in flags.items() for word in flag]

    def line(self, message: str) -> str | None:
        """See ``Dialect.line``."""
        per_slot = self._args["ctx_size"] // self._args["parallel"]
        table = {
            r"^server_args=": "srv  llama_server: initializing ...",
            r"Load weight begin": f"srv    load_model: loading model '{self._args['model']}'",
            r"^max_total_num_tokens=": f"srv    load_model: initializing, n_slots = {self._args['parallel']}, "
            f"n_ctx_slot = {per_slot}, kv_unified = 'false'",
            r"fired up and ready": f"srv  llama_server: listening on http://{self._args['host']}:{self._args['port']}",
            r"^Decode batch": "slot print_timing: id  0 | task 0 |        eval time =      40.00 ms /    40 tokens",
            r"error while attempting to bind": f"srv  llama_server: couldn't bind HTTP server socket, hostname: "
            f"{self._args['host']}, port: {self._args['port']}",
            r"Gracefully exiting.*requests 0\.": "srv  llama_server: cleaning up before exit...",
        }
        for pattern, text in table.items():
            if re.search(pattern, message):
                return self._stamped("E" if "bind" in pattern else "I", text)
        if message.startswith("Scheduler hit an exception: "):
            return "".join(self._stamped("E", row) for row in _failure(message))
        return None

    def _stamped(self, level: str, text: str) -> str:
        micros = round((time.monotonic() - self._began_s) * 1e6)
        clock = f"{micros // 60_000_000}.{micros // 1_000_000 % 60:02}.{micros // 1000 % 1000:03}.{micros % 1000:03}"
        return f"{clock} {level} {text}\n"

    def routes(self, own: Routes, args: dict[str, Any], engine: Engine) -> Routes:
        """See ``Dialect.routes``. The slots are told of even where the limit in force is another."""
        limits, context = engine.resolved.limits, engine.settings.context_tokens
        props = {
            "default_generation_settings": {"n_ctx": context},
            "total_slots": limits.running,
            "model_alias": args["served_model_name"],
            "build_info": _BUILD,
        }
        slots = [{"id": index, "n_ctx": context} for index in range(limits.running)]
        routes = {path: own[path] for path in ("/health", "/v1/completions", "/v1/chat/completions", "/v1/models")}
        routes["/props"] = lambda _, reply: reply.json(200, props)
        routes["/slots"] = lambda _, reply: reply.json(200, slots)
        if self._args["metrics"]:
            routes["/metrics"] = lambda _, reply: reply.send(200, _metrics(engine).encode(), TEXT)
        return routes

    def refusal(self, refused: wire.BadRequest) -> Any:
        """See ``Dialect.refusal``."""
        per_slot = self._args["ctx_size"] // self._args["parallel"]
        if refused.tokens <= 0:
            return {"error": {"code": 400, "message": str(refused), "type": "invalid_request_error"}}
        message = (
            f"request ({refused.tokens} tokens) exceeds the available context size ({per_slot} tokens), "
            "try increasing it"
        )
        error = {"code": 400, "message": message, "type": "exceed_context_size_error"}
        return {"error": {**error, "n_prompt_tokens": refused.tokens, "n_ctx": per_slot}}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line with the first argument that it does not know."""
        unknown = re.search(r"unrecognized arguments: (\S+)", message)
        self.exit(1, f"error: invalid argument: {unknown[1]}\n" if unknown else f"error: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="llama-server", allow_abbrev=False)
    parser.add_argument("-m", "--model", default="sim/demo")
    parser.add_argument("-a", "--alias")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("-np", "--parallel", type=int, default=_SLOTS)
    parser.add_argument("-c", "--ctx-size", type=int, default=_CONTEXT)
    parser.add_argument("-b", "--batch-size", type=int, default=_BATCH)
    parser.add_argument("--metrics", action="store_true")
    for name in _IGNORED:
        parser.add_argument(f"--{name}")
    return parser


def _failure(message: str) -> list[str]:
    """GPU memory in the words of its allocator; of anything else the last line."""
    if tried := re.search(r"Tried to allocate (\S+ \w+)", message):
        return [_OUT_OF_MEMORY.format(tried[1])]
    return [message.strip().splitlines()[-1]]


def _metrics(engine: Engine) -> str:
    counters, batcher = engine.counters, engine.batcher
    rows: dict[str, float] = {
        "prompt_tokens_total": counters.prompt_tokens,
        "prompt_tokens_cached_total": counters.cached_tokens,
        "tokens_predicted_total": counters.generation_tokens,
        "requests_processing": batcher.running_count,
        "requests_deferred": len(batcher.waiting),
    }
    return "".join(f"llamacpp:{name} {value}\n" for name, value in rows.items())
