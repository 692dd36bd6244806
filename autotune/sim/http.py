"""A small HTTP/1.1 server on asyncio and httptools, made for thousands of open event streams.

A handler is a plain function; it answers at once, or keeps the ``Reply`` and writes to it later.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import httptools
import msgspec

REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed"}
REASONS |= {500: "Internal Server Error", 503: "Service Unavailable"}
JSON, TEXT, EVENTS = "application/json", "text/plain; charset=utf-8", "text/event-stream; charset=utf-8"
BACKLOG = 4096


class Request(msgspec.Struct, frozen=True):
    """One parsed request. ``headers`` have lower-case names."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    peer: str


class Reply:
    """The answer to one request: ``send`` once, or ``begin`` a stream, ``chunk`` it and ``end`` it."""

    __slots__ = ("_connection", "gone", "on_gone", "status")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.gone = False
        self.on_gone: Callable[[], None] | None = None
        self.status = 0

    def send(self, status: int, body: bytes, content_type: str = JSON) -> None:
        head = _head(status, content_type, f"content-length: {len(body)}")
        self._write(status, head + body)
        self._finish()

    def json(self, status: int, value: Any) -> None:
        self.send(status, msgspec.json.encode(value))

    def begin(self) -> None:
        self._write(200, _STREAM_HEAD)

    def chunk(self, data: bytes) -> None:
        if not self.gone:
            self._connection.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        self._write(self.status, b"0\r\n\r\n")
        self._finish()

    def drop(self) -> None:
        """Close the connection without a word, as a dying server does."""
        if not self.gone:
            self._connection.transport.abort()

    def _write(self, status: int, data: bytes) -> None:
        self.status = status
        if not self.gone:
            self._connection.transport.write(data)

    def _finish(self) -> None:
        if not self.gone:
            self._connection.finished()


Handler = Callable[[Request, Reply], None]


class Connection(asyncio.Protocol):
    """One keep-alive connection; requests on it are answered in order."""

    transport: asyncio.Transport

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[tuple[Request, bool]] = deque()
        self._reply: Reply | None = None
        self._keep_alive = True
        self._peer = ""
        self._reset()

    def _reset(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods, not the class.
        self.transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername") or ("?", 0)
        self._peer = f"{address[0]}:{address[1]}"

    def connection_lost(self, exc: Exception | None) -> None:
        reply = self._reply
        if reply is not None:
            reply.gone = True
            if reply.on_gone is not None:
                reply.on_gone()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.write(_head(400, TEXT, "content-length: 0"))
            self.transport.close()

    def on_message_begin(self) -> None:
        self._reset()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin1").lower()] = value.decode("latin1")

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        path, _, query = self._url.decode("latin1").partition("?")
        method = self._parser.get_method().decode("latin1")
        request = Request(method, path, query, self._headers, b"".join(self._body), self._peer)
        self._queue.append((request, self._parser.should_keep_alive()))
        self._next()

    def _next(self) -> None:
        if self._reply is None and self._queue:
            request, self._keep_alive = self._queue.popleft()
            self._reply = reply = Reply(self)
            self._handler(request, reply)

    def finished(self) -> None:
        self._reply = None
        if self._keep_alive:
            self._next()
        else:
            self.transport.close()


def _head(status: int, content_type: str, length: str) -> bytes:
    reason = REASONS.get(status, "Status")
    return f"HTTP/1.1 {status} {reason}\r\nserver: uvicorn\r\ncontent-type: {content_type}\r\n{length}\r\n\r\n".encode()


_STREAM_HEAD = _head(200, EVENTS, "transfer-encoding: chunked")


def bind(host: str, port: int) -> socket.socket:
    """A socket bound as uvicorn binds; raises OSError (EADDRINUSE) when the port is taken."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        # Listening already here: with SO_REUSEADDR only this fails when another socket listens on the port.
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


async def serve(sock: socket.socket, handler: Handler) -> asyncio.Server:
    """Accept connections on a bound socket."""
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: Connection(handler), sock=sock, backlog=BACKLOG)
