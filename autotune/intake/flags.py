"""Flags in a list of words: found, taken out, listed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from autotune.engines.argv import flag_name
from autotune.intake.words import Word


def take(words: Sequence[Word], names: Collection[str]) -> tuple[list[Word], Word | None]:
    """The words without the flags ``names`` and their values, and the last value that was given."""
    kept: list[Word] = []
    value: Word | None = None
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if flag_name(word.text) not in names:
            kept.append(word)
        elif "=" in word.text:
            value = msgspec.structs.replace(word, text=word.text.partition("=")[2])
        elif rest and (rest[0].unclear or not flag_name(rest[0].text)):
            value = rest.pop(0)
        else:
            value = Word(text="")
    return kept, value


def options(words: Sequence[Word]) -> dict[str, str]:
    """Flag names with underscores and no dashes in front, and their values; a switch has an empty one."""
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name = flag_name(word.text).lstrip("-").replace("-", "_")
        if not name:
            continue
        if "=" in word.text:
            found[name] = word.text.partition("=")[2]
        elif rest and not flag_name(rest[0].text):
            found[name] = rest.pop(0).text
        else:
            found[name] = ""
    return found
