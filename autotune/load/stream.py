"""Reading and judging replies: server-sent events, token counts from the server's usage, and what makes a failure.

Nothing here does I/O: bytes and a time go in.
"""

from __future__ import annotations

from typing import Any

import msgspec

from autotune.load.sse import EventReader as EventReader

REASON_CHARS = 200
IDS_SHARE, IDS_FEW = 0.02, 1
"""Of the tokens that usage states, so many may be missing among those that came: a stop token may be left out."""

MOST_TOKENS = 1_000_000_000
"""No request has more of any kind; records hold four bytes a count."""
LONGEST = 16 << 20
"""Bytes of one message; what a server sends beyond is not kept."""


class _Finish(msgspec.Struct):
    type: str = ""
    message: str | None = None


class _Meta(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int | None = None
    cached_tokens: int = 0
    finish_reason: _Finish | str | None = None


class _Generate(msgspec.Struct):
    meta_info: _Meta | None = None
    error: Any = None


class _Ids(msgspec.Struct):
    output_ids: list[Any] | None = None


class _Cached(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int | None = None
    prompt_tokens_details: _Cached | None = None


class _Piece(msgspec.Struct):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Any = None

    @property
    def says(self) -> bool:
        return bool(self.content or self.reasoning_content or self.reasoning or self.tool_calls)


class _Choice(msgspec.Struct):
    finish_reason: str | None = None
    text: str | None = None
    delta: _Piece | None = None

    @property
    def carries(self) -> bool:
        """Whether tokens came with it. A chunk without text may hold half a character back; the first of a chat only
        names the role, and the last may only say why it ends.
        """
        if self.text or (self.delta is not None and self.delta.says):
            return True
        return self.finish_reason is None and (self.delta is None or self.delta.role is None)


class _Completion(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None
    object: str = ""
    message: str = ""


_decode_generate = msgspec.json.Decoder(_Generate).decode
_decode_ids = msgspec.json.Decoder(_Ids).decode
_decode_completion = msgspec.json.Decoder(_Completion).decode


class Reply:
    """One reply as it comes in. ``received`` tokens so far; ``times`` and ``totals`` are its token-carrying chunks:
    when, and how many tokens by then.

    ``finish`` gives the reason why it counts as failed, or an empty text.
    """

    __slots__ = (
        "_body",
        "_held",
        "_reader",
        "_stream",
        "asked",
        "cached_tokens",
        "done",
        "error",
        "events",
        "prompt_tokens",
        "received",
        "status",
        "times",
        "tokens",
        "totals",
    )

    def __init__(self, asked: int, stream: bool) -> None:
        self.asked = asked
        self.status = 0
        self.tokens: int | None = None
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.error = ""
        self.done = False
        self.events = 0
        self.received = 0
        self.times: list[float] = []
        self.totals: list[int] = []
        self._stream = stream
        self._body: list[bytes] = []
        self._held = 0
        self._reader = EventReader()

    def feed(self, data: bytes, now: float) -> int:
        """Take a piece of the body; the number of tokens that it brought."""
        if self.status != 200 or not self._stream:
            self._held += len(data)
            if self._held <= LONGEST:
                self._body.append(data)
            return 0
        before = self.received
        reader = self._reader
        # By far the commonest packet is one whole event on one line.
        if not reader.rest and data[:6] == b"data: " and data[-2:] == b"\n\n" and data.find(b"\n", 6) == len(data) - 2:
            events = [data[6:-2]]
        else:
            events = reader.feed(data)
            if len(reader.rest) > LONGEST:
                self.error, reader.rest = self.error or f"a message without end: {_short(reader.rest)}", b""
        self.events += len(events)
        for event in events:
            if event and event != b"[DONE]":
                self._read(event, now)
        return self.received - before

    def finish(self, now: float) -> str:
        """The body is complete. Why the reply counts as failed, or ``""``."""
        if self.status != 200:
            return f"status {self.status}: {_short(b''.join(self._body))}"
        if not self._stream:
            self._read(b"".join(self._body), now)
        self._settle()
        return self.error or self._verdict()

    def _read(self, event: bytes, now: float) -> None:
        try:
            self._take(event, now)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.error = self.error or f"unreadable chunk ({error}): {_short(event)}"

    def _counted(self, name: str, count: int) -> int:
        """A count as the server states it; 0, and an error, where no request can have so many."""
        if 0 <= count <= MOST_TOKENS:
            return count
        self.error = self.error or f"usage states {_number(count)} {name}"
        return 0

    def _gain(self, total: int, now: float) -> None:
        """Note a chunk after which there are ``total`` tokens."""
        self.received = total
        self.times.append(now)
        self.totals.append(total)

    def _verdict(self) -> str:
        if not self.tokens:
            rest = _short(self._reader.rest)
            return ("no usage in the reply" if self.tokens is None and self.times else "no tokens") + (
                f": {rest}" if rest else ""
            )
        if self.tokens != self.asked:
            return f"{self.tokens} output tokens, asked {self.asked}"
        return ""

    def _take(self, event: bytes, now: float) -> None:
        """Read one message. Raises what its decoder raises."""
        raise NotImplementedError

    def _settle(self) -> None:
        """Set the chunks' token totals right where only the whole reply tells them."""


class GenerateReply(Reply):
    """SGLang's /generate: every chunk carries the whole text so far and ``completion_tokens`` so far."""

    __slots__ = ()

    def _take(self, event: bytes, now: float) -> None:
        chunk = _decode_generate(event)
        meta = chunk.meta_info
        if meta is None or chunk.error is not None:
            self.error = self.error or f"error chunk: {_short(event)}"
            return
        tokens = self._counted("output tokens", meta.completion_tokens or 0)
        if meta.finish_reason is not None:
            self.prompt_tokens = self._counted("prompt tokens", meta.prompt_tokens)
            self.cached_tokens = self._counted("cached tokens", meta.cached_tokens)
            self.done = True
            if _kind(meta.finish_reason) == "abort":
                self.error = self.error or f"aborted: {_short(event)}"
            self._check_ids(event, tokens)
        if tokens > self.received:
            self.tokens = tokens
            self._gain(tokens, now)

    def _check_ids(self, event: bytes, stated: int) -> None:
        """The last chunk holds all token ids, or (incremental streaming) those since the chunk before."""
        came = len(_decode_ids(event).output_ids or ())
        slack, fresh = max(IDS_FEW, IDS_SHARE * stated), stated - self.received
        if came and came < stated - slack and abs(came - fresh) > slack:
            self.error = self.error or f"usage says {stated} output tokens, and {came} came"


class CompletionsReply(Reply):
    """OpenAI's routes for completions and chat: token counts come in ``usage``, usually in the last chunk only.

    Until usage is seen a chunk with text counts as one token; the total is then spread evenly over the chunks.
    """

    __slots__ = ("_exact",)

    def __init__(self, asked: int, stream: bool) -> None:
        super().__init__(asked, stream)
        self._exact = False

    def _take(self, event: bytes, now: float) -> None:
        chunk = _decode_completion(event)
        if chunk.error is not None or chunk.object == "error":
            self.error = self.error or f"error chunk: {_short(event)}"
            return
        total = self._take_usage(chunk.usage) if chunk.usage is not None else None
        if chunk.choices:
            self._take_choice(chunk.choices[0], total, now)

    def _take_usage(self, usage: _Usage) -> int | None:
        """The output tokens that it states."""
        stated, details = usage.completion_tokens, usage.prompt_tokens_details
        self.tokens = None if stated is None else self._counted("output tokens", stated)
        self.prompt_tokens = self._counted("prompt tokens", usage.prompt_tokens)
        self.cached_tokens = self._counted("cached tokens", (details.cached_tokens or 0) if details else 0)
        return self.tokens

    def _take_choice(self, choice: _Choice, total: int | None, now: float) -> None:
        if choice.finish_reason == "abort":
            self.error = self.error or "aborted"
        if total is not None and total > self.received:
            self._exact = True
            self._gain(total, now)
        elif total is None and choice.carries:
            self._gain(self.received + 1, now)
        self.done = self.done or choice.finish_reason is not None

    def _settle(self) -> None:
        count = len(self.times)
        if self.tokens and count and not self._exact:
            self.totals = [round(self.tokens * (i + 1) / count) for i in range(count)]
            self.received = self.tokens


def new_reply(route: str, asked: int, stream: bool) -> Reply:
    return GenerateReply(asked, stream) if route == "generate" else CompletionsReply(asked, stream)


def _kind(finish: _Finish | str) -> str:
    return finish if isinstance(finish, str) else finish.type


def _number(count: int) -> str:
    """Also one of a thousand digits, in a few."""
    return str(count) if abs(count) < 2**64 else f"{'-' if count < 0 else ''}2**{abs(count).bit_length() - 1} or more"


def _short(data: bytes) -> str:
    return " ".join(data[:REASON_CHARS].decode(errors="replace").split())
