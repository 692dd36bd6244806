"""A server double with a known schedule: the first token after a fixed time, then one exactly every interval.

It is the reference for load generators: what they measure is compared with what was due and what was sent.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from pathlib import Path

from autotune.sim import wire
from autotune.sim.http import Reply, Request
from autotune.sim.wire import Ask, Usage


class _Stream:
    __slots__ = ("ask", "begin_s", "count", "reply", "sent_s")

    def __init__(self, ask: Ask, reply: Reply, begin_s: float) -> None:
        self.ask = ask
        self.reply = reply
        self.begin_s = begin_s
        self.count = 0
        self.sent_s: list[float] = []


class Schedule:
    """Times are those of ``time.monotonic()``, which every process of a machine shares.

    With a log file each finished request is one line: rid, arrival, then the time of each write, comma-separated.
    """

    def __init__(self, first_s: float, interval_s: float, *, log_path: str = "", model: str = "sim") -> None:
        self._first_s = first_s
        self._interval_s = interval_s
        self._log = Path(log_path).open("w") if log_path else None  # noqa: SIM115 - open as long as the server
        self._model = model
        self._due: list[tuple[float, int, _Stream]] = []
        self._order = itertools.count()
        self._wake = asyncio.Event()

    def generate(self, route: str, request: Request, reply: Reply) -> None:
        try:
            ask = wire.parse_ask(route, request.body, f"{next(self._order):032x}", skip_tokenizer=False)
        except wire.BadRequest as error:
            reply.json(400, wire.error_body(str(error), 400))
            return
        now_s = time.monotonic()
        stream = _Stream(ask, reply, now_s)
        if ask.stream:
            reply.begin()
        first_s = self._first_s if ask.stream else self._first_s + self._interval_s * (ask.output_tokens - 1)
        heapq.heappush(self._due, (now_s + first_s, next(self._order), stream))
        self._wake.set()

    async def run(self) -> None:
        while True:
            if not self._due:
                self._wake.clear()
                await self._wake.wait()
            wait_s = self._due[0][0] - time.monotonic()
            # Timers of the loop have a resolution of 1 ms; a shorter wait is not worth a sleep.
            await asyncio.sleep(wait_s if wait_s > 0 else 0)
            self._send_due(time.monotonic())

    def _send_due(self, now_s: float) -> None:
        due = self._due
        while due and due[0][0] <= now_s:
            # Taken out first: an answer can let the next request of its connection in.
            due_s, order, stream = heapq.heappop(due)
            if not stream.reply.gone and self._send(stream):
                heapq.heappush(due, (due_s + self._interval_s, order, stream))

    def _send(self, stream: _Stream) -> bool:
        """Write the next token; False when it was the last."""
        ask = stream.ask
        stream.count = stream.count + 1 if ask.stream else ask.output_tokens
        last = stream.count >= ask.output_tokens
        data = self._data(stream, last)
        if self._log is not None:
            stream.sent_s.append(time.monotonic())
        if not ask.stream:
            stream.reply.send(200, data)
        elif last:
            stream.reply.chunk(data + self._tail(stream))
            stream.reply.end()
        else:
            stream.reply.chunk(data)
        if last:
            self._record(stream)
        return not last

    def _data(self, stream: _Stream, last: bool) -> bytes:
        ask, count = stream.ask, stream.count
        usage = Usage(ask.prompt_tokens, count, 0, 0.0, {"type": "length", "length": count} if last else None)
        if ask.route == "generate":
            data = wire.native(ask, count, usage, skip_text=False)
        else:
            text = wire.WORDS.text(1 if ask.stream else count).decode()
            data = wire.completion(ask, self._model, text, "length" if last else None, None if ask.stream else usage)
        if ask.stream and ask.route == "chat" and count == 1:
            return wire.event(wire.role_chunk(ask, self._model)) + wire.event(data)
        return wire.event(data) if ask.stream else data

    def _tail(self, stream: _Stream) -> bytes:
        ask = stream.ask
        if ask.include_usage and ask.route != "generate":
            usage = Usage(ask.prompt_tokens, stream.count, 0, 0.0)
            return wire.event(wire.usage_chunk(ask, self._model, usage)) + wire.DONE
        return wire.DONE

    def _record(self, stream: _Stream) -> None:
        if self._log is not None:
            times = ",".join(f"{sent_s:.6f}" for sent_s in stream.sent_s)
            self._log.write(f"{stream.ask.rid},{stream.begin_s:.6f},{times}\n")
            self._log.flush()
