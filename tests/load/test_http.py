"""Tests of the HTTP client against a scripted server."""

import asyncio
import json
from collections.abc import Callable

import pytest
import uvloop

from autotune.errors import InputError
from autotune.load.http import Connection, connect, parse_target, request_bytes, request_head
from tests.load.conftest import HEAD, LAST, Script, Server, Step, chunk, full

Serve = Callable[[Script], Server]


class Collector:
    """A sink that notes everything."""

    def __init__(self) -> None:
        self.status = 0
        self.data = b""
        self.pieces: list[tuple[bytes, float]] = []
        self.reason = ""
        self.calls: list[str] = []
        self.over = asyncio.Event()

    def head(self, status: int) -> None:
        self.calls.append("head")
        self.status = status

    def body(self, data: bytes, now: float) -> None:
        self.pieces.append((data, now))
        self.data += data

    def complete(self, now: float) -> None:
        self.calls.append("complete")
        self.over.set()

    def broken(self, reason: str, now: float) -> None:
        self.calls.append("broken")
        self.reason = reason
        self.over.set()


def ask(server: Server, times: int = 1, key: str = "") -> list[Collector]:
    """Send this many requests, one after the other, on one connection where it stays open."""

    async def go() -> list[Collector]:
        target = parse_target(server.url)
        wire = request_bytes(request_head(target, "/generate", key), b"{}")
        sinks: list[Collector] = []
        connection: Connection | None = None
        for _ in range(times):
            if connection is None or not connection.ready:
                connection = await connect(target)
            sinks.append(Collector())
            connection.send(wire, sinks[-1])
            await asyncio.wait_for(sinks[-1].over.wait(), 30)
        assert connection is not None
        connection.close()
        return sinks

    return uvloop.run(go())


def test_bodies_with_a_length(serve: Serve) -> None:
    """A body with Content-Length arrives whole, however it was cut, and the connection is used again."""
    server = serve(lambda h, b: [full(200, b"hello world")[:-4], 0.02, b"orld"])
    sinks = ask(server, times=3)
    assert [s.data for s in sinks] == [b"hello world"] * 3
    assert server.connections == 1


def test_chunked_bodies(serve: Serve) -> None:
    """Chunks arrive one by one, cut in the middle of a size line or not, and the reply ends with the last."""
    pieces = chunk(b"one") + chunk(b"two")
    server = serve(lambda h, b: [HEAD, pieces[:1], 0.02, pieces[1:9], 0.02, pieces[9:], LAST])
    first, second = ask(server, times=2)
    assert first.data == second.data == b"onetwo"
    assert first.calls == ["head", "complete"]
    assert server.connections == 1


def test_times_are_those_of_arrival(serve: Serve) -> None:
    """Pieces sent apart have times apart, in order."""
    server = serve(lambda h, b: [HEAD, chunk(b"a"), 0.1, chunk(b"b"), LAST])
    (sink,) = ask(server)
    (_, first), (_, second) = sink.pieces
    assert second - first >= 0.09


def test_body_ended_by_the_connection(serve: Serve) -> None:
    """A reply without any length ends when the server closes."""
    server = serve(lambda h, b: [b"HTTP/1.1 200 OK\r\n\r\nhello", None])
    (sink,) = ask(server)
    assert (sink.data, sink.calls) == (b"hello", ["head", "complete"])


@pytest.mark.parametrize(
    "steps",
    [
        [None],
        [HEAD, chunk(b"a"), None],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", None],
        [b"HTTP/1.1 2", None],
    ],
)
def test_a_cut_reply_is_broken(serve: Serve, steps: list[Step]) -> None:
    """A connection that ends inside a reply breaks it, exactly once."""
    (sink,) = ask(serve(lambda h, b: steps))
    assert [c for c in sink.calls if c != "head"] == ["broken"]
    assert "connection lost" in sink.reason


def test_something_else_than_http(serve: Serve) -> None:
    """An answer that is not HTTP breaks the reply with a reason."""
    (sink,) = ask(serve(lambda h, b: [b"SSH-2.0-OpenSSH\r\n\r\n"]))
    assert sink.reason.startswith("not HTTP")


def test_status_is_told(serve: Serve) -> None:
    """A status other than 200 comes with its body."""
    (sink,) = ask(serve(lambda h, b: [full(503, b"full queue")]))
    assert (sink.status, sink.data) == (503, b"full queue")


def test_connection_close_is_kept_to(serve: Serve) -> None:
    """After "Connection: close" the next request opens a new connection."""
    server = serve(lambda h, b: [full(200, b"x", b"Connection: close\r\n"), None])
    assert [s.data for s in ask(server, times=3)] == [b"x"] * 3
    assert server.connections == 3


def test_request_head_and_key(serve: Serve) -> None:
    """The request names host, length and bearer key; without a key there is no such header."""
    server = serve(lambda h, b: [full(200, b"x")])
    ask(server, key="sesame")
    ask(server)
    head = server.heads[0]
    assert head.startswith(b"POST /generate HTTP/1.1\r\n")
    assert f"Host: 127.0.0.1:{server.port}\r\n".encode() in head
    assert b"Authorization: Bearer sesame\r\n" in head
    assert b"Content-Length: 2\r\n" in head
    assert b"Authorization" not in server.heads[1]


def test_a_request_larger_than_the_socket_takes(serve: Serve) -> None:
    """A request of several megabytes arrives whole, though the kernel takes only a part of it at once."""
    server = serve(lambda h, b: [full(200, b"x")])
    ids = list(range(1_000_000))

    async def go() -> None:
        target = parse_target(server.url)
        connection = await connect(target)
        for _ in range(2):
            sink = Collector()
            connection.send(request_bytes(request_head(target, "/", ""), json.dumps(ids).encode()), sink)
            await asyncio.wait_for(sink.over.wait(), 60)
            assert sink.data == b"x"
        connection.close()

    uvloop.run(go())
    assert server.bodies == [ids, ids]  # type: ignore[comparison-overlap]


def test_a_busy_connection_refuses_a_second_request(serve: Serve) -> None:
    """One connection carries one request at a time."""
    server = serve(lambda h, b: [5.0])

    async def go() -> None:
        connection = await connect(parse_target(server.url))
        wire = request_bytes(request_head(parse_target(server.url), "/", ""), b"{}")
        sink = Collector()
        connection.send(wire, sink)
        with pytest.raises(RuntimeError):
            connection.send(wire, Collector())
        connection.close()
        await asyncio.sleep(0.05)
        assert sink.calls == []

    uvloop.run(go())


def test_urls() -> None:
    """Host, port and path prefix are taken from the URL; anything but http(s) is refused with the remedy."""
    target = parse_target("http://gpu:8000/v0/")
    assert (target.host, target.port, target.tls, target.prefix) == ("gpu", 8000, False, "/v0")
    assert parse_target("https://gpu").port == 443
    assert request_head(target, "/generate", "").startswith(b"POST /v0/generate ")
    unnamed = ("http://a..b:1", f"http://{'a' * 300}:1", "http://gpu:1\n", "http://gpu:1/a b", "http://gpu\x00:1")
    for bad in ("gpu:8000", "ftp://gpu", "", "http://[::1", "http://gpu:99999", "http://gpu:x", *unnamed):
        with pytest.raises(InputError, match="http://HOST:PORT"):
            parse_target(bad)
