"""The arguments of a script or of a function: given, set anew by ``set --``, shifted. Pure but for the scope."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from autotune.intake.words import Scope, Word


def set_by(words: Sequence[Word]) -> tuple[Word, ...] | None:
    """The arguments that ``set`` gives; None where it sets options alone."""
    rest = list(words[1:])
    while rest:
        option = rest[0].text
        if option in ("--", "-"):
            return tuple(rest[1:]) if option == "--" or rest[1:] else None
        if option[:1] not in ("-", "+") or rest[0].unclear:
            return tuple(rest)
        rest = rest[2:] if option[1:].endswith("o") else rest[1:]
    return None


def exports_all(words: Sequence[Word], before: bool) -> bool:
    """Whether all that is assigned after ``set`` is exported too: ``-a``, until ``+a``."""
    texts = [word.text for word in words[1:]]
    for at, (text, following) in enumerate(zip(texts, [*texts[1:], ""], strict=True)):
        if text in ("--", "-") or text[:1] not in ("-", "+"):
            if at == 0 or not texts[at - 1].endswith("o"):
                break
        elif "a" in text[1:] or (text[1:].endswith("o") and following == "allexport"):
            before = text.startswith("-")
    return before


def shifted(known: tuple[Word, ...], words: Sequence[Word]) -> tuple[Word, ...]:
    """The arguments after ``shift``."""
    count = words[1].text if len(words) > 1 else "1"
    by = int(count) if count.isascii() and count.isdecimal() else 1
    return known[by:] if by <= len(known) else known


@contextmanager
def given(scope: Scope, arguments: tuple[Word, ...] | None) -> Iterator[None]:
    """A function's arguments while it runs; None: those around it."""
    before = scope.variables.get("@")
    if arguments is not None:
        scope.variables["@"] = arguments
    try:
        yield
    finally:
        scope.variables.pop("@", None)
        if before is not None:
            scope.variables["@"] = before
