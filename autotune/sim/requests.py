"""What the batching model works on: requests, and what one advance of it did."""

from __future__ import annotations

from typing import Any


class SimRequest:
    """One request, or ``count`` identical ones. ``tag`` is the caller's. Times are virtual seconds."""

    __slots__ = (
        "arrived_s",
        "blocks",
        "cached_tokens",
        "count",
        "finish_index",
        "first_token_s",
        "output_tokens",
        "prefilled",
        "produced",
        "prompt_tokens",
        "tag",
    )

    def __init__(self, prompt_tokens: int, output_tokens: int, *, count: int = 1, tag: Any = None) -> None:
        self.prompt_tokens = prompt_tokens
        self.output_tokens = max(1, output_tokens)
        self.count = count
        self.tag = tag
        self.produced = 0
        self.prefilled = 0
        self.cached_tokens = 0
        self.finish_index = -1
        self.arrived_s = 0.0
        self.first_token_s = -1.0
        self.blocks: tuple[int, ...] = ()

    def split(self, count: int) -> SimRequest:
        """Take ``count`` of the identical requests out as a request of their own."""
        part = SimRequest(self.prompt_tokens, self.output_tokens, count=count, tag=self.tag)
        for name in ("produced", "prefilled", "cached_tokens", "finish_index", "arrived_s", "first_token_s", "blocks"):
            setattr(part, name, getattr(self, name))
        self.count -= count
        return part


class Step:
    """What one advance did. ``decode_steps`` 0 means a prefill; ``started`` got a token from that prefill."""

    __slots__ = (
        "cached_tokens",
        "decode_steps",
        "duration_s",
        "eager",
        "finished",
        "prefill_tokens",
        "retracted",
        "running",
        "started",
    )

    def __init__(self, duration_s: float, running: int) -> None:
        self.duration_s = duration_s
        self.running = running
        self.decode_steps = 0
        self.eager = False
        self.prefill_tokens = 0
        self.cached_tokens = 0
        self.retracted = 0
        self.started: list[SimRequest] = []
        self.finished: list[SimRequest] = []
