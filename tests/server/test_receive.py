"""One answer, with a limit."""

from __future__ import annotations

from collections.abc import Iterator

import httpx

from autotune.server.receive import Received, receive


def received(content: bytes | Iterator[bytes], most: int = 10, over: bool = False) -> Received:
    client = httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(503, content=content)))
    return receive(client, client.build_request("GET", "http://127.0.0.1:1/"), most, lambda: over)


def test_an_answer_up_to_the_limit_is_whole() -> None:
    """Status and body, none of it lost."""
    assert received(b"x" * 10) == Received(status=503, body=b"x" * 10, whole=True)


def test_what_came_of_a_longer_one_is_kept() -> None:
    """So much that it can be shown."""
    assert received(iter([b"x" * 7] * 5)) == Received(status=503, body=b"x" * 10, whole=False)


def test_one_that_takes_too_long_is_left() -> None:
    """After the piece that came."""
    assert received(iter([b"a", b"b"]), over=True) == Received(status=503, body=b"a", whole=False)


def test_no_compression_is_asked_for() -> None:
    """A small answer must not become a large one."""
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["accept-encoding"])
        return httpx.Response(200)

    client = httpx.Client(transport=httpx.MockTransport(answer))
    receive(client, client.build_request("GET", "http://127.0.0.1:1/"), 10, lambda: False)
    assert seen == ["identity"]
