"""The HTTP layer alone: connections that stay, requests in pieces, clients that go away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from autotune.sim import http
from autotune.sim.http import Reply, Request

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def talk(handler: http.Handler, client: Talk) -> None:
    """Serve one client's conversation in this process."""

    async def main() -> None:
        sock = http.bind("127.0.0.1", 0)
        server = await http.serve(sock, handler)
        reader, writer = await asyncio.open_connection(*sock.getsockname())
        await asyncio.wait_for(client(reader, writer), 30)
        writer.close()
        server.close()
        await server.wait_closed()

    asyncio.run(main())


async def answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
    return head, await reader.readexactly(length)


def echo(request: Request, reply: Reply) -> None:
    reply.send(200, b"%b|%b" % (request.path.encode(), request.body))


def test_keep_alive_pieces_and_pipelining() -> None:
    """Requests in pieces, in chunks and several at once are answered in order on one connection."""

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in (b"POST /a?x=1 HTTP/1.1\r\nhost: h\r\ncontent-le", b"ngth: 4\r\n\r\nab", b"cd"):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        assert (await answer(reader))[1] == b"/a|abcd"
        writer.write(b"POST /b HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n3\r\nxyz\r\n0\r\n\r\n")
        writer.write(b"GET /c HTTP/1.1\r\nhost: h\r\n\r\nGET /d HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
        assert [(await answer(reader))[1] for _ in range(3)] == [b"/b|xyz", b"/c|", b"/d|"]
        assert await reader.read() == b""

    talk(echo, client)


def test_nonsense_is_refused() -> None:
    """Bytes that are no HTTP get status 400 and the end of the connection."""

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\x01 nonsense\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400")

    talk(echo, client)


def test_the_next_request_waits_for_a_deferred_answer() -> None:
    """A reply that is kept holds back the connection's next request until it is given."""
    kept: list[Reply] = []

    def handler(request: Request, reply: Reply) -> None:
        if request.path == "/later":
            kept.append(reply)
        else:
            echo(request, reply)

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /later HTTP/1.1\r\nhost: h\r\n\r\nGET /now HTTP/1.1\r\nhost: h\r\n\r\n")
        while not kept:
            await asyncio.sleep(0.01)
        kept[0].json(503, {"late": True})
        assert (await answer(reader))[1] == b'{"late":true}'
        assert (await answer(reader))[1] == b"/now|"

    talk(handler, client)


def test_streams_are_chunked_and_a_gone_client_is_noticed() -> None:
    """Chunks carry their size, and when the client leaves the reply says so and further writes do nothing."""
    gone: list[str] = []
    replies: list[Reply] = []

    def handler(request: Request, reply: Reply) -> None:
        reply.on_gone = lambda: gone.append(request.path)
        replies.append(reply)
        reply.begin()
        reply.chunk(b"data: one\n\n")

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /stream HTTP/1.1\r\nhost: h\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readuntil(b"\n\n\r\n") == b"b\r\ndata: one\n\n\r\n"
        writer.close()
        while not gone:
            await asyncio.sleep(0.01)
        replies[0].chunk(b"data: two\n\n")
        replies[0].end()
        assert replies[0].gone

    talk(handler, client)
