"""One HTTP answer of a server that may drip or flood: never more of it than asked for, never longer than wanted."""

from __future__ import annotations

from collections.abc import Callable

import httpx

from autotune.values import Value

PLAIN = {"accept-encoding": "identity"}
"""A compressed answer could be a thousand times larger than what was counted."""


class Received(Value, frozen=True, kw_only=True):
    """Status and body, as far as it came; ``whole`` says that it ended by itself."""

    status: int
    body: bytes
    whole: bool


def receive(client: httpx.Client, request: httpx.Request, most_bytes: int, over: Callable[[], bool]) -> Received:
    """Send the request and read the answer until its end, its limit, or until ``over`` says so.

    httpx's own timeout is for one read, not for all of them. Raises what httpx raises.
    """
    request.headers.update(PLAIN)
    response = client.send(request, stream=True)
    body = bytearray()
    try:
        for piece in response.iter_bytes():
            body += piece
            if len(body) > most_bytes or over():
                return Received(status=response.status_code, body=bytes(body[:most_bytes]), whole=False)
    finally:
        response.close()
    return Received(status=response.status_code, body=bytes(body), whole=True)
