"""One request as a file describes it, from the names that such files use. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from autotune.values import Value

PROMPT_KEYS = ("prompt", "text", "input")
ID_KEYS = ("input_ids", "prompt_token_ids", "token_ids")
INPUT_KEYS = (
    "input_tokens",
    "input_length",
    "input_len",
    "prompt_tokens",
    "prompt_tokens_count",
    "prompt_len",
    "contexttokens",
    "request tokens",
)
OUTPUT_KEYS = (
    "output_tokens",
    "output_length",
    "output_len",
    "max_tokens",
    "output_tokens_count",
    "completion_tokens",
    "generatedtokens",
    "response tokens",
)
MOST_TOKENS = 100_000_000
NOT_SAID = -1


class BadEntry(Exception):
    """What is wrong with one entry of a file, and what to do: ``problem; remedy``."""


class Asked(Value, frozen=True, kw_only=True):
    """One request of a file. ``where`` is its line or number there.

    At most one of ``text``, ``ids``, ``messages`` and ``blocks`` is set; none: a fresh prompt of ``input_tokens``.
    ``blocks`` name the pieces of a prompt of ``input_tokens`` that other prompts share. ``output_tokens`` below 0: not
    said; ``answer`` is a text of the length that the reply should have. ``at`` is as the file has it.
    """

    where: str
    text: str = ""
    ids: list[int] = []
    messages: list[dict[str, Any]] = []
    blocks: list[int] = []
    input_tokens: int = 0
    output_tokens: int = NOT_SAID
    answer: str = ""
    at: int | float | str | None = None


def read_entry(entry: Any, where: str) -> Asked:
    """The request in one JSON object. Raises BadEntry."""
    if not isinstance(entry, Mapping):
        raise BadEntry("is no JSON object; write one object for each request")
    if "conversations" in entry:
        return _conversation(entry, where)
    prompt = _first(entry, PROMPT_KEYS)
    ids = prompt if isinstance(prompt, list) else _first(entry, ID_KEYS)
    asked = Asked(
        where=where,
        text=prompt if isinstance(prompt, str) else "",
        ids=_ids(ids),
        messages=_messages(entry.get("messages")),
        blocks=_ids(entry.get("hash_ids")),
        input_tokens=max(0, _count(entry, INPUT_KEYS)),
        output_tokens=_count(entry, OUTPUT_KEYS),
        at=_time(entry.get("timestamp")),
    )
    if not (asked.text or asked.ids or asked.messages or asked.input_tokens):
        raise BadEntry(
            "has no prompt; give one of prompt (text or token ids), messages, input_ids, or input_tokens for a length"
        )
    return asked


def _conversation(entry: Mapping[str, Any], where: str) -> Asked:
    """The first turn is the prompt, the second is as long as the reply should be."""
    turns = entry["conversations"]
    if not isinstance(turns, list) or not all(isinstance(turn, Mapping) for turn in turns):
        raise BadEntry("its conversations are no list of turns; each is an object with from and value")
    texts = [turn.get("value", turn.get("content")) for turn in turns[:2]]
    if not all(isinstance(text, str) for text in texts):
        raise BadEntry("a turn of its conversation has no text; each is an object with from and value")
    first, second = (*texts, "", "")[:2]
    return Asked(where=where, text=str(first), answer=str(second), output_tokens=_count(entry, OUTPUT_KEYS))


def _first(entry: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((entry[key] for key in keys if entry.get(key) is not None), None)


def _ids(value: Any) -> list[int]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(type(token) is int and 0 <= token < 2**31 for token in value):
        raise BadEntry("its token ids are no list of whole numbers; write such as [17, 4711]")
    return value


def _messages(value: Any) -> list[dict[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in value):
        raise BadEntry(
            "its messages are no list of objects with role and content; write them as the chat route has them"
        )
    return value


def _count(entry: Mapping[str, Any], keys: tuple[str, ...]) -> int:
    found = next(((key, entry[key]) for key in keys if entry.get(key) is not None), None)
    if found is None:
        return NOT_SAID
    key, value = found
    if isinstance(value, str) and value.strip().isdecimal():  # a column of a table
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or not 0 <= value <= MOST_TOKENS:
        raise BadEntry(f"its {key} is {value!r}; write a number of tokens")
    return value


def _time(value: Any) -> int | float | str | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str | None):
        raise BadEntry(f"its timestamp is {value!r}; write a number, or a date and time")
    return value


def texts_of(asked: Asked) -> Iterator[str]:
    """The texts that the server will read as the prompt."""
    yield asked.text
    for message in asked.messages:
        content = message.get("content")
        if isinstance(content, str):
            yield content
        elif isinstance(content, list):
            yield from (str(part.get("text", "")) for part in content if isinstance(part, dict))
