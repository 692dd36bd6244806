"""The HTTP routes of the simulated server."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec

from autotune.sim import info, log, wire
from autotune.sim.dialects.base import Dialect, Sglang
from autotune.sim.engine import Engine
from autotune.sim.faults import FaultPlan
from autotune.sim.http import REASONS, TEXT, Reply, Request
from autotune.sim.jobs import ClientJob, ProbeJob
from autotune.sim.memory import parse_version
from autotune.sim.prefix import prompt_blocks

FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)
NOT_FLUSHED = (
    "Flush cache failed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)
Route = Callable[[Request, Reply], None]


class App:
    """Dispatches requests. ``ready`` turns true after the server's own warm-up, ``serving`` when it is loaded."""

    def __init__(self, args: dict[str, Any], engine: Engine, faults: FaultPlan, dialect: Dialect | None = None) -> None:
        self.args = args
        self.dialect = dialect or Sglang()
        self.engine = engine
        self.faults = faults
        self.ready = False
        self.serving = False
        self.quiet = args["log_level"] in ("warning", "error") or args["log_level_http"] in ("warning", "error")
        self._ids = itertools.count(1)
        self._skip = bool(args["skip_tokenizer_init"])
        self._model = info.model_name(args)
        self._routes = self._table(parse_version(engine.settings.version))

    def _table(self, version: tuple[int, ...]) -> dict[str, Route]:
        routes: dict[str, Route] = {
            "/health": self._health,
            "/health_generate": self._health_generate,
            "/get_server_info": self._json(lambda: info.server_info(self.args, self.engine)),
            "/get_model_info": self._json(lambda: info.model_info(self.args, self.engine)),
            "/v1/models": self._json(lambda: info.models(self.args, self.engine)),
            "/generate": lambda request, reply: self._generate("generate", request, reply),
            "/v1/completions": lambda request, reply: self._generate("completions", request, reply),
            "/v1/chat/completions": lambda request, reply: self._generate("chat", request, reply),
            "/flush_cache": self._flush,
            "/set_internal_state": self._set_internal_state,
        }
        if version >= (0, 5, 6):
            routes["/server_info"] = routes["/get_server_info"]
            routes["/model_info"] = routes["/get_model_info"]
            routes["/v1/loads"] = self._json(lambda: info.loads(self.engine))
        if (0, 5, 0) <= version < (0, 5, 21):
            routes["/get_load"] = self._json(lambda: info.loads(self.engine)["loads"])
        if self.args["enable_metrics"]:
            routes["/metrics"] = self._metrics
        return self.dialect.routes(routes, self.args, self.engine)

    def route(self, path: str, route: Route) -> None:
        """Answer a path in another way."""
        self._routes[path] = route

    def handle(self, request: Request, reply: Reply) -> None:
        hang_s = self.faults.number("hang_front")
        if hang_s is not None and 0 <= hang_s <= self.engine.load_s():
            return
        route = self._routes.get(request.path)
        if route is None:
            reply.json(404, {"detail": "Not Found"})
        elif not self._allowed(request):
            reply.json(401, {"error": "Unauthorized"})
        elif not self.serving and request.path != "/health":
            reply.json(503, {"error": "starting"})
        else:
            route(request, reply)
        if reply.status and not self.quiet:
            log.access(request.peer, request.method, request.path, reply.status, REASONS.get(reply.status, ""))

    def _allowed(self, request: Request) -> bool:
        key, admin = self.args["api_key"], self.args["admin_api_key"]
        given = request.headers.get("authorization", "")
        if request.path.startswith(("/health", "/metrics")):
            return True
        if admin is not None and request.path in ("/flush_cache", "/set_internal_state"):
            return given == f"Bearer {admin}"
        return key is None or given in (f"Bearer {key}", f"Bearer {admin}" if admin else "-")

    @staticmethod
    def _json(document: Callable[[], Any]) -> Route:
        return lambda _, reply: reply.json(200, document())

    def _health(self, request: Request, reply: Reply) -> None:
        reply.send(200 if self.ready or "lying_health" in self.faults else 503, b"", TEXT)

    def _health_generate(self, request: Request, reply: Reply) -> None:
        if not self.ready:
            reply.send(503, b"", TEXT)
            return
        job = ProbeJob(lambda: reply.send(200, b"", TEXT))
        reply.on_gone = lambda: self.engine.abort(job.request)
        self.engine.submit(job.request)

    def _generate(self, route: str, request: Request, reply: Reply) -> None:
        try:
            ask = wire.parse_ask(route, request.body, f"{next(self._ids):032x}", self._skip)
            self._check_length(ask)
        except wire.BadRequest as error:
            reply.json(400, self.dialect.refusal(error))
            return
        job = ClientJob(ask, reply, self.faults, model=self._model, skip_text=self._skip)
        if self.engine.batcher.prefix is not None:
            job.request.blocks = prompt_blocks(ask.ids)
        reply.on_gone = lambda: self.engine.abort(job.request)
        self.engine.submit(job.request)

    def _check_length(self, ask: wire.Ask) -> None:
        context = min(self.engine.settings.context_tokens, self.engine.batcher.limits.kv_tokens)
        if ask.prompt_tokens >= context:
            raise wire.BadRequest(
                f"The input ({ask.prompt_tokens} tokens) is longer than the model's context length ({context} tokens).",
                ask.prompt_tokens,
            )
        if ask.prompt_tokens + ask.output_tokens > context:
            raise wire.BadRequest(
                f"Requested token count exceeds the model's maximum context length of {context} tokens. You requested "
                f"a total of {ask.prompt_tokens + ask.output_tokens} tokens: {ask.prompt_tokens} tokens from the input "
                f"messages and {ask.output_tokens} tokens for the completion.",
                ask.prompt_tokens + ask.output_tokens,
            )
        if ask.output_tokens < 1:
            raise wire.BadRequest(f"max_new_tokens must be at least 1, got {ask.output_tokens}.")

    def _flush(self, request: Request, reply: Reply) -> None:
        if not self.engine.idle:
            reply.send(400, NOT_FLUSHED.encode(), TEXT)
            return
        if self.engine.batcher.prefix is not None:
            self.engine.batcher.prefix.clear()
        log.line("Cache flushed successfully!")
        reply.send(200, FLUSHED.encode(), TEXT)

    def _metrics(self, request: Request, reply: Reply) -> None:
        reply.send(200, info.metrics(self._model, self.engine).encode(), "text/plain; version=0.0.4; charset=utf-8")

    def _set_internal_state(self, request: Request, reply: Reply) -> None:
        try:
            asked = msgspec.json.decode(request.body)["server_args"]
            value = int(asked["pp_max_micro_batch_size"])
        except (msgspec.DecodeError, KeyError, TypeError, ValueError):
            reply.json(400, wire.error_body("server_args.pp_max_micro_batch_size must be an integer", 400))
            return
        largest = self.engine.batcher.limits.running
        updated = 1 <= value <= largest and "live_refused" not in self.faults
        if updated:
            self.engine.tell_limit(value)
        else:
            log.line(f"Updating pp_max_micro_batch_size to {value} is rejected because it is out of [1, {largest}]")
        reply.json(200, [{"updated": updated, "server_args": info.server_args(self.args, self.engine)}])
