"""Reading what any server answers: JSON without surprises, generations, data-parallel ranks."""

from __future__ import annotations

from typing import Any

import msgspec

from autotune.engines.base import Fetch
from autotune.values import ParamValue


def json_value(body: bytes) -> Any:
    """What ``body`` says in JSON, or None."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def json_object(body: bytes) -> dict[str, Any]:
    """The JSON object in ``body`` (or the first of a list of them); anything else is an empty one."""
    value = json_value(body)
    if isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, dict) else {}


def get_json(fetch: Fetch, *paths: str) -> dict[str, Any]:
    """The object at the first of ``paths`` that answers 200 with one; empty when none does."""
    for path in paths:
        status, body = fetch(path)
        if status == 200 and (found := json_object(body)):
            return found
    return {}


def get_text(fetch: Fetch, path: str) -> str:
    """The text at ``path``, or an empty string."""
    status, body = fetch(path)
    return body.decode("utf-8", "replace") if status == 200 else ""


def whole(value: object) -> int | None:
    """A JSON number as a count, or None for everything else (booleans too)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if abs(value) < 2**63 else None


def real(value: object) -> float | None:
    """A finite JSON number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e300 else None


def scalar(value: object) -> ParamValue | None:
    """A value that a parameter can have, or None; no record holds a larger number, and none that is not finite."""
    if isinstance(value, int | float) and not abs(value) < 2**63:
        return None
    return value if isinstance(value, bool | int | float | str) else None


def generated(status: int, body: bytes) -> bool:
    """Whether an answer holds at least one generated token.

    Reads ``meta_info`` of SGLang's /generate (a list of one, too) and ``usage`` and ``choices`` of the
    OpenAI routes. A 200 with an error, an abort or without a token is no generation: a dead scheduler
    behind a living front end gives all three.
    """
    if status != 200:
        return False
    answer = json_object(body)
    if not answer or answer.get("error"):
        return False
    if isinstance(meta := answer.get("meta_info"), dict):
        return not _aborted(meta.get("finish_reason")) and (whole(meta.get("completion_tokens")) or 0) > 0
    return _completed(answer)


def _completed(answer: dict[str, Any]) -> bool:
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
    if choice is None or _aborted(choice.get("finish_reason")):
        return False
    usage = answer.get("usage")
    if isinstance(usage, dict) and (tokens := whole(usage.get("completion_tokens"))) is not None:
        return tokens > 0
    message = choice.get("message")
    return bool(choice.get("text") or (isinstance(message, dict) and message.get("content")))


def _aborted(reason: object) -> bool:
    kind = reason.get("type") if isinstance(reason, dict) else reason
    return kind in ("abort", "error")
