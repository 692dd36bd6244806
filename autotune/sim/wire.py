"""What a request asks and what an answer looks like on the wire: ``/generate``, completions and chat."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from autotune.values import Value

DONE = b"data: [DONE]\n\n"
_WORD = b" tok"
_ID_WIDTH = 6
DEFAULT_OUTPUT = {"generate": 128, "completions": 16, "chat": 16}
TEMPLATE = ("<begin>", "<user>")
"""Stands for what a chat template puts before a message."""


class BadRequest(Exception):
    """The request cannot be served; the message goes to the client with status 400.

    ``tokens`` is the length that was too much; 0: something else is wrong.
    """

    def __init__(self, message: str, tokens: int = 0) -> None:
        super().__init__(message)
        self.tokens = tokens


class Ask(Value, frozen=True, kw_only=True):
    """A request as far as it matters: ``ids`` is empty for text, whose tokens are counted as words."""

    route: str
    rid: str
    stream: bool
    prompt_tokens: int
    output_tokens: int
    ids: tuple[int, ...] = ()
    include_usage: bool = False


class Words:
    """Ready-made output: the text and the ids of the first n tokens are slices of one constant."""

    def __init__(self) -> None:
        self._grow(4096)

    def _grow(self, tokens: int) -> None:
        self._text = _WORD * tokens
        self._ids = b",".join(b"%d" % (10000 + k * 7919 % 80000) for k in range(tokens))
        self._tokens = tokens

    def text(self, count: int) -> bytes:
        if count > self._tokens:
            self._grow(2 * count)
        return self._text[: len(_WORD) * count]

    def ids(self, count: int) -> bytes:
        if count > self._tokens:
            self._grow(2 * count)
        return self._ids[: max(0, _ID_WIDTH * count - 1)]


WORDS = Words()


def parse_ask(route: str, body: bytes, rid: str, skip_tokenizer: bool) -> Ask:
    """Read a request body. Raises BadRequest in the cases that SGLang refuses."""
    try:
        data = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise BadRequest(f"not JSON: {error}") from None
    if not isinstance(data, dict):
        raise BadRequest("the body must be a JSON object")
    if route == "chat":
        if skip_tokenizer:
            raise BadRequest("the chat route needs a tokenizer; it was skipped")
        prompt: Any = _chat_text(data.get("messages"))
        wanted = data.get("max_completion_tokens", data.get("max_tokens"))
    elif route == "generate":
        params = data.get("sampling_params") or {}
        prompt, wanted = data.get("input_ids", data.get("text")), params.get("max_new_tokens")
    else:
        if skip_tokenizer:
            raise BadRequest("the completions route needs a tokenizer; it was skipped")
        prompt, wanted = data.get("prompt"), data.get("max_tokens")
    ids, tokens = _prompt(prompt, skip_tokenizer)
    options = data.get("stream_options") or {}
    return Ask(
        route=route,
        rid=str(data.get("rid") or rid),
        stream=bool(data.get("stream")),
        prompt_tokens=tokens,
        output_tokens=int(DEFAULT_OUTPUT[route] if wanted is None else wanted),
        ids=ids,
        include_usage=bool(options.get("include_usage")),
    )


def _prompt(prompt: Any, skip_tokenizer: bool) -> tuple[tuple[int, ...], int]:
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], list | str):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        if skip_tokenizer:
            raise BadRequest("The engine initialized with skip_tokenizer_init=True cannot accept text prompts.")
        words = prompt.split()
        return tuple(hash(word) & 0xFFFFF for word in words), max(1, len(words))
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        return tuple(prompt), len(prompt)
    raise BadRequest("Either text, input_ids or prompt should be provided, one prompt per request.")


def _chat_text(messages: Any) -> str:
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) and "role" in m for m in messages):
        raise BadRequest("messages must be a list of objects with role and content")
    return " ".join([*TEMPLATE, *(_content_text(message.get("content")) for message in messages)])


def _content_text(content: Any) -> str:
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if not isinstance(content, str):
        raise BadRequest("content must be a text or a list of parts")
    return content


class Usage(msgspec.Struct):
    """What is reported of one request; ``finish`` is None while it runs."""

    prompt: int
    completion: int
    cached: int
    latency_s: float
    finish: dict[str, Any] | None = None


def native(ask: Ask, count: int, usage: Usage, skip_text: bool) -> bytes:
    """The JSON object of ``/generate``, with all output so far, as SGLang sends it by default."""
    finish = msgspec.json.encode(usage.finish)
    text = b"" if skip_text else b'"text":"%b",' % WORDS.text(count)
    return (
        b'{%b"output_ids":[%b],"meta_info":{"id":"%b","finish_reason":%b,"prompt_tokens":%d,"weight_version":"default",'
        b'"total_retractions":0,"completion_tokens":%d,"cached_tokens":%d,"e2e_latency":%.6f}}'
        % (
            text,
            WORDS.ids(count),
            ask.rid.encode(),
            finish,
            usage.prompt,
            usage.completion,
            usage.cached,
            usage.latency_s,
        )
    )


def completion(ask: Ask, model: str, text: str, finish: str | None, usage: Usage | None) -> bytes:
    """One object of the OpenAI routes: a chunk's new text, or the whole."""
    choice = {"index": 0, **_said(ask, text), "logprobs": None, "finish_reason": finish, "matched_stop": None}
    return _object(ask, model, [choice], usage)


def role_chunk(ask: Ask, model: str) -> bytes:
    """The first chunk of a chat: who speaks, and no token yet."""
    choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    return _object(ask, model, [choice], None)


def usage_chunk(ask: Ask, model: str, usage: Usage) -> bytes:
    """The last chunk when stream_options.include_usage is set: no choices."""
    return _object(ask, model, [], usage)


def _said(ask: Ask, text: str) -> dict[str, Any]:
    if ask.route != "chat":
        return {"text": text}
    if ask.stream:
        return {"delta": {"content": text}}
    return {"message": {"role": "assistant", "content": text}}


def _object(ask: Ask, model: str, choices: list[dict[str, Any]], usage: Usage | None) -> bytes:
    kind = "text_completion" if ask.route != "chat" else "chat.completion" + (".chunk" if ask.stream else "")
    head = {"id": ask.rid, "object": kind, "created": int(time.time()), "model": model}
    return msgspec.json.encode({**head, "choices": choices, "usage": usage and openai_usage(usage)})


def openai_usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt,
        "total_tokens": usage.prompt + usage.completion,
        "completion_tokens": usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached} if usage.cached else None,
        "reasoning_tokens": 0,
    }


def event(data: bytes) -> bytes:
    return b"data: %b\n\n" % data


def error_body(message: str, code: int, kind: str = "BadRequest") -> dict[str, Any]:
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code}
