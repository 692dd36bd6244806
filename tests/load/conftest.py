"""A tiny scripted HTTP server in a thread of the test process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

# What a script yields for one request: bytes are sent as they are, floats are slept, None cuts the connection.
Step = bytes | float | None
Script = Callable[[bytes, dict[str, Any]], list[Step]]


def chunk(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


def full(status: int, body: bytes, headers: bytes = b"") -> bytes:
    """A whole answer with a length."""
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n%b\r\n%b" % (status, len(body), headers, body)


def native(tokens: int, asked: int, prompt: int = 4, cached: int = 0) -> bytes:
    """SGLang's message with this many tokens so far."""
    finish = {"type": "length", "length": asked} if tokens == asked else None
    meta = {"prompt_tokens": prompt, "completion_tokens": tokens, "cached_tokens": cached, "finish_reason": finish}
    return json.dumps({"text": "x " * tokens, "output_ids": [1] * tokens, "meta_info": meta}).encode()


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def good_reply(_: bytes, body: dict[str, Any], gap_s: float = 0.01) -> list[Step]:
    """Answers as SGLang does: a token every ``gap_s``, streamed or not."""
    asked, prompt = body["sampling_params"]["max_new_tokens"], len(body["input_ids"])
    if not body["stream"]:
        return [gap_s * asked, full(200, native(asked, asked, prompt))]
    steps: list[Step] = [HEAD]
    for tokens in range(1, asked + 1):
        steps += [gap_s, chunk(event(native(tokens, asked, prompt)))]
    return [*steps, chunk(event(b"[DONE]")), LAST]


class Server:
    """Answers every request by ``script``; keeps the heads and bodies that it saw."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.heads: list[bytes] = []
        self.bodies: list[dict[str, Any]] = []
        self.connections = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)
        self._thread.start()
        self._ready.wait(30)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = int(server.sockets[0].getsockname()[1])
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for _ in range(3):
            await asyncio.sleep(0)  # aborted transports close in the next rounds of the loop

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while await self._take(reader, writer):
                    pass
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        finally:
            writer.transport.abort()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False to close the connection."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        body = json.loads(await reader.readexactly(length))
        self.heads.append(head)
        self.bodies.append(body)
        return await self._answer(writer, self.script(head, body))

    async def _answer(self, writer: asyncio.StreamWriter, steps: list[Step]) -> bool:
        for step in steps:
            if step is None:
                return False
            if isinstance(step, float):
                await asyncio.sleep(step)
                continue
            writer.write(step)
            await writer.drain()
        return True


@pytest.fixture
def serve() -> Iterator[Callable[[Script], Server]]:
    """Starts scripted servers and stops them after the test."""
    servers: list[Server] = []

    def start(script: Script) -> Server:
        servers.append(Server(script))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
