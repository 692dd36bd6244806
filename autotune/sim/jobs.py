"""Requests in flight: each turns the engine's tokens into its client's bytes, faults included."""

from __future__ import annotations

import time
from collections.abc import Callable

from autotune.sim import wire
from autotune.sim.faults import FaultPlan
from autotune.sim.http import Reply
from autotune.sim.requests import SimRequest
from autotune.sim.wire import Ask, Usage


class ClientJob:
    """One request of ``/generate`` or of the OpenAI routes."""

    def __init__(self, ask: Ask, reply: Reply, faults: FaultPlan, *, model: str, skip_text: bool) -> None:
        self.stream = ask.stream
        self.request = SimRequest(ask.prompt_tokens, served_tokens(ask, faults), tag=self)
        self._ask = ask
        self._reply = reply
        self._faults = faults
        self._model = model
        self._skip_text = skip_text
        self._began_s = time.monotonic()
        self._sent = 0
        self._broken = False
        if self.stream:
            reply.begin()

    def token(self, count: int) -> None:
        if self._broken or "empty" in self._faults:
            return
        self._begin_chat()
        self._reply.chunk(self._chunk(count, None))
        self._sent = count
        if "error_stream" in self._faults:
            self._broken = True
            self._reply.chunk(wire.event(b'{"error":{"message":"Scheduler error","type":"InternalError","code":500}}'))
            self._reply.chunk(wire.DONE)

    def done(self, request: SimRequest) -> None:
        finish = "stop" if "short_output" in self._faults else "length"
        count = 0 if "empty" in self._faults else request.output_tokens
        usage = self._usage(count)
        usage.finish = {"type": "length", "length": count} if finish == "length" else {"type": "stop", "matched": 2}
        if self.stream:
            self._end_stream(count, usage, finish)
            return
        if self._ask.route == "generate":
            body = wire.native(self._ask, count, usage, self._skip_text)
        else:
            body = wire.completion(self._ask, self._model, wire.WORDS.text(count).decode(), finish, usage)
        if "error_stream" in self._faults:
            body = b'{"error":{"message":"Scheduler error","type":"InternalError","code":500}}'
        self._reply.send(200, body)

    def _end_stream(self, count: int, usage: Usage, finish: str) -> None:
        if not self._broken:
            if count:
                self._begin_chat()
                self._reply.chunk(self._chunk(count, (usage, finish)))
            if self._ask.include_usage:
                self._reply.chunk(wire.event(wire.usage_chunk(self._ask, self._model, usage)))
            self._reply.chunk(wire.DONE)
        self._reply.end()

    def _begin_chat(self) -> None:
        if self._ask.route == "chat" and not self._sent:
            self._reply.chunk(wire.event(wire.role_chunk(self._ask, self._model)))

    def _chunk(self, count: int, last: tuple[Usage, str] | None) -> bytes:
        if self._ask.route == "generate":
            usage = last[0] if last else self._usage(count)
            return wire.event(wire.native(self._ask, count, usage, self._skip_text))
        text = wire.WORDS.text(count - self._sent).decode()
        return wire.event(wire.completion(self._ask, self._model, text, last[1] if last else None, None))

    def _usage(self, count: int) -> Usage:
        reported = int(count * (self._faults.number("wrong_usage") or 1.0))
        latency_s = time.monotonic() - self._began_s
        return Usage(self._ask.prompt_tokens, reported, self.request.cached_tokens, latency_s)


class ProbeJob:
    """A one-token request of the server's own (warm-up, /health_generate)."""

    stream = False

    def __init__(self, answered: Callable[[], None], prompt_tokens: int = 1) -> None:
        self.request = SimRequest(prompt_tokens, 1, tag=self)
        self._answered = answered

    def token(self, count: int) -> None:
        raise AssertionError("a probe does not stream")

    def done(self, request: SimRequest) -> None:
        self._answered()


def served_tokens(ask: Ask, faults: FaultPlan) -> int:
    """Output tokens that will really come."""
    share = faults.number("short_output") or 1.0
    return max(1, int(ask.output_tokens * share))
