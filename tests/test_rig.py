"""What the status pages of a server may do to the night: nothing, however they answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import httpx
import pytest

from autotune import rig
from autotune.engines.base import Request
from autotune.rig import FETCH_S, fetcher, sender
from autotune.server.cancel import CancelFlag, Waiting
from autotune.server.clock import FakeClock

BASE = "http://127.0.0.1:1"


def answering(content: bytes | Iterator[bytes]) -> httpx.Client:
    """A client whose server gives this answer."""
    return httpx.Client(
        base_url=BASE, transport=httpx.MockTransport(lambda request: httpx.Response(200, content=content))
    )


def dripping(clock: FakeClock) -> Iterator[bytes]:
    """A byte every five seconds, without end."""
    while True:
        clock.sleep(5.0)
        yield b"x"


def test_an_answer_that_ends_is_whole() -> None:
    """Status and body, as they came in pieces."""
    assert fetcher(answering(iter([b"a", b"", b"b"])))("/metrics") == (200, b"ab")
    request = Request(method="POST", path="/set", body="{}")
    assert sender(answering(b"done"))(request, {}) == (200, b"done")


@pytest.mark.parametrize("ask", ["fetch", "send"])
def test_an_answer_that_drips_is_given_up(ask: str) -> None:
    """The time is for the whole answer: a byte every five seconds does not hold up the night."""
    clock = FakeClock()
    client, waiting = answering(dripping(clock)), Waiting(clock=clock)
    if ask == "fetch":
        status, _ = fetcher(client, waiting)("/metrics")
    else:
        status, _ = sender(client, waiting)(Request(method="POST", path="/set", body="{}"), {})
    assert status == 0
    assert clock.now() >= FETCH_S


def test_an_answer_without_a_beginning_is_given_up() -> None:
    """Also where the thread that asks hangs for ever, whoever waits for it goes on."""
    clock, never = FakeClock(), threading.Event()

    def hang(request: httpx.Request) -> httpx.Response:
        clock.sleep(2 * FETCH_S)
        never.wait(60)
        return httpx.Response(200)

    client = httpx.Client(base_url=BASE, transport=httpx.MockTransport(hang))
    assert fetcher(client, Waiting(clock=clock))("/metrics") == (0, b"given up")
    never.set()


def test_an_answer_that_floods_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more is read than the limit, and what came of it is not taken for an answer."""
    monkeypatch.setattr(rig, "LONGEST_ANSWER", 1000)
    sent: list[bytes] = []

    def flood() -> Iterator[bytes]:
        while True:
            sent.append(b"x" * 100)
            yield sent[-1]

    assert fetcher(answering(flood()))("/metrics")[0] == 0
    assert len(sent) == 11


def test_a_wish_to_end_is_heard() -> None:
    """Nobody waits for an answer any more."""
    flag = CancelFlag()
    flag.cancel("SIGINT")
    clock = FakeClock()
    assert fetcher(answering(dripping(clock)), Waiting(clock=clock, cancel=flag))("/metrics") == (0, b"given up")
