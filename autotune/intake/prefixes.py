"""Words before a command that only say how it is started: ``exec``, ``sudo``, assignments of env(1) and more. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from autotune.intake.words import Word
from autotune.study.environment import is_name
from autotune.values import Value

_PREFIXES = frozenset({"exec", "nohup", "command", "builtin", "time", "setsid"})
_SUDO_VALUE = re.compile(r"-[A-Za-z]*[ughpCrtTURD]|--(?:user|group|host|prompt|chdir)")


class Bare(Value, frozen=True, kw_only=True):
    """A command without its prefixes, what they set for it, and what must be said of those that left."""

    words: tuple[Word, ...]
    env: dict[str, Word]
    changes: tuple[str, ...] = ()


def bare(words: Sequence[Word], env: Mapping[str, Word]) -> Bare:
    """Take the prefixes off."""
    rest, settings, changes = list(words), dict(env), []
    while rest:
        program = PurePath(rest[0].text).name
        if program in _PREFIXES:
            rest = _without_options(rest[1:])
        elif program == "sudo":
            rest, change = _without_sudo(rest[1:], settings)
            changes.append(change)
        elif program == "env" and len(rest) > 1 and _is_assignment(rest[1]):
            rest = _without_assignments(rest[1:], settings)
        else:
            break
    return Bare(words=tuple(rest), env=settings, changes=tuple(changes))


def _without_options(words: list[Word]) -> list[Word]:
    while words and words[0].text.startswith("-"):
        words = words[2:] if words[0].text == "-a" else words[1:]
    return words


def _is_assignment(word: Word) -> bool:
    name, equals, _ = word.text.partition("=")
    return bool(equals) and is_name(name)


def _without_assignments(words: list[Word], env: dict[str, Word]) -> list[Word]:
    while words and _is_assignment(words[0]):
        name, _, value = words[0].text.partition("=")
        unclear = words[0].unclear
        # What a secret's variable holds is not in the text; it is taken by its name.
        env[name] = Word(text=value, names=words[0].names, unclear=unclear, line=words[0].line)
        words = words[1:]
    return words


def _without_sudo(words: list[Word], env: dict[str, Word]) -> tuple[list[Word], str]:
    """A night ends its server by signals, which another user's process does not take from it."""
    given, kept = bool(env), False
    while words and words[0].text.startswith("-"):
        option = words[0].text
        kept = kept or bool(re.fullmatch(r"-[A-Za-z]*E[A-Za-z]*", option)) or option.startswith("--preserve-env")
        words = words[2:] if _SUDO_VALUE.fullmatch(option) else words[1:]
        if option == "--":
            break
    words = _without_assignments(words, env)
    change = (
        "sudo was left out: the user of a night, who must be allowed to run this, could not end another user's server"
    )
    if given and not kept:
        change += "; sudo without -E hands on little of what the script sets, the study all of it: see engine.env"
    return words, change
