"""A minimal HTTP/1.1 client for load: one keep-alive connection carries one request at a time.

There is no pool: whoever wants n requests in flight opens n connections, so nothing waits for a connection and no
wait is charged to the server. A reply's time is taken when its bytes are handed over by the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import time
from collections.abc import Callable
from typing import Protocol, cast
from urllib.parse import urlsplit

import httptools

from autotune.errors import InputError
from autotune.values import Value


class Target(Value, frozen=True, kw_only=True):
    """Where requests go. ``prefix`` is a path before the routes, without a slash at its end."""

    host: str
    port: int
    tls: bool
    prefix: str = ""


class Sink(Protocol):
    """Takes one reply. Exactly one of ``complete`` and ``broken`` is called, last."""

    def head(self, status: int) -> None: ...
    def body(self, data: bytes, now: float) -> None: ...
    def complete(self, now: float) -> None: ...
    def broken(self, reason: str, now: float) -> None: ...


def parse_target(base_url: str) -> Target:
    """Raises InputError when ``base_url`` is no http(s) URL."""
    try:
        parts = urlsplit(base_url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")
    except UnicodeError:  # an empty part, or one of more than 63 characters: it is asked of no name server
        raise InputError(f"server URL {base_url!r}: {host!r} names no host; write it as http://HOST:PORT") from None
    except ValueError as error:  # an address without its bracket, a port that is no number or beyond 65535
        raise InputError(f"server URL {base_url!r}: {error}; write it as http://HOST:PORT") from None
    if parts.scheme not in ("http", "https") or not host or not base_url.isprintable() or " " in base_url:
        raise InputError(f"server URL {base_url!r}: write it as http://HOST:PORT")
    tls = parts.scheme == "https"
    return Target(host=host, port=port or (443 if tls else 80), tls=tls, prefix=parts.path.rstrip("/"))


def request_head(target: Target, path: str, api_key: str) -> bytes:
    """Everything of a POST request before its Content-Length value."""
    lines = [
        f"POST {target.prefix}{path} HTTP/1.1",
        f"Host: {target.host}:{target.port}",
        "Content-Type: application/json",
        "Accept: */*",
        *([f"Authorization: Bearer {api_key}"] if api_key else []),
        "Content-Length: ",
    ]
    return "\r\n".join(lines).encode()


def request_bytes(head: bytes, body: bytes) -> bytes:
    return b"%b%d\r\n\r\n%b" % (head, len(body), body)


class Connection(asyncio.Protocol):
    """One connection. ``send`` when ``ready``; the sink learns of the reply; ``ready`` again once it is complete."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._feed = self._parser.feed_data
        self._sink: Sink | None = None
        self._socket_fd: int | None = None
        self._now = 0.0
        self._framed = False
        self._status = 0

    @property
    def ready(self) -> bool:
        return self._transport is not None and self._sink is None

    def send(self, request: bytes, sink: Sink) -> None:
        if not self.ready or self._transport is None:
            raise RuntimeError("send on a connection that is busy or closed")
        self._sink = sink
        self._framed = False
        self._status = 0
        self._write(self._transport, request)

    def _write(self, transport: asyncio.Transport, request: bytes) -> None:
        """Hand the request to the kernel now: uvloop would hold it until all that is readable has been read.

        The time noted for sending would then be too early by a whole wave of replies. TLS and what the socket does
        not take go the usual way.
        """
        if self._socket_fd is not None and transport.get_write_buffer_size() == 0:
            with contextlib.suppress(OSError):  # full or broken: the transport waits, or says what is wrong
                request = request[os.write(self._socket_fd, request) :]
        if request:
            transport.write(request)

    def close(self) -> None:
        """Drop the connection now; a reply in progress gets no further call."""
        self._sink = None
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    # asyncio.Protocol
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        plain = transport.get_extra_info("ssl_object") is None
        self._socket_fd = transport.get_extra_info("socket").fileno() if plain else None

    def data_received(self, data: bytes) -> None:
        self._now = time.monotonic()
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            self._break(f"not HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._now = time.monotonic()
        if exc is None and self._status and not self._framed:
            self.on_message_complete()  # without a length the end of the connection ends the body (RFC 9112, 6.3)
            return
        self._break(f"connection lost: {exc or 'closed by the server'}")

    # httptools
    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._framed = True

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        if self._sink is not None:
            self._sink.head(self._status)

    def on_body(self, data: bytes) -> None:
        if self._sink is not None:
            self._sink.body(data, self._now)

    def on_message_complete(self) -> None:
        if self._status == 100 or self._sink is None:
            return
        sink, self._sink = self._sink, None
        if self._transport is not None and not self._parser.should_keep_alive():
            self._transport.close()
            self._transport = None
        sink.complete(self._now)

    def _break(self, reason: str) -> None:
        sink = self._sink
        self.close()
        if sink is not None:
            sink.broken(reason, self._now)


async def connect(target: Target, make: Callable[[], Connection] = Connection) -> Connection:
    """Open one connection. Raises OSError."""
    context = ssl.create_default_context() if target.tls else None
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(make, target.host, target.port, ssl=context)
    return connection
