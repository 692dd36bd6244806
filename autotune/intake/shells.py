"""Commands that are text for another shell: ``bash -c``, and what is started or typed in tmux and screen. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import PurePath

from autotune.intake.words import Word
from autotune.values import Value

SHELLS = frozenset({"bash", "sh", "dash", "zsh"})
_TERMINALS = frozenset({"tmux", "screen"})
_OPENING = frozenset({"new-session", "new", "new-window", "neww", "split-window", "splitw"})
_TYPING = frozenset({"send-keys", "send"})
_TMUX_VALUES = frozenset({"-c", "-e", "-F", "-f", "-n", "-s", "-t", "-x", "-y", "-l", "-p", "-N", "-L", "-S"})
_FIRST_PANE = re.compile(r":0?(?:\.0)?$")
_ENTER = frozenset({"Enter", "C-m", "KPEnter", "C-j"})
_CONTROL = re.compile(r"(?:[CMS]-|\^).|Escape|Tab|BSpace|F\d+|Up|Down|Left|Right")
_SCREEN_VALUE = re.compile(r"-\w*[SchpstTe]")
_STUFFED_ENTER = re.compile(r"\\[nr]|\^M|\r|\$\(printf [^)]*\)|\$\(echo [^)]*\)")


class Opened(Value, frozen=True, kw_only=True):
    """What runs in the other shell: ``text`` that it reads, or ``words`` that are run as they are.

    ``session`` names a shell that goes on behind the command. ``env`` and ``folder`` are what it begins with.
    """

    text: str = ""
    words: tuple[Word, ...] = ()
    arguments: tuple[Word, ...] | None = None
    terminal: str = ""
    session: str = ""
    env: dict[str, Word] = {}
    folder: Word | None = None


def opened_by(words: Sequence[Word]) -> tuple[Opened, ...] | None:
    """The shells that a command opens or types into; None for any other command."""
    program = PurePath(words[0].text).name if words else ""
    if program in SHELLS:
        found = _shell(words)
        return (found,) if found else None
    if program == "screen":
        return _screen(list(words[1:]))
    return tuple(_tmux(words[1:])) if program == "tmux" else None


def is_terminal(word: Word) -> bool:
    """Whether it is a program whose windows outlive the script."""
    return PurePath(word.text).name in _TERMINALS


def _shell(words: Sequence[Word]) -> Opened | None:
    for at, word in enumerate(words[1:], start=1):
        if re.fullmatch(r"-\w*c", word.text):
            behind = words[at + 1 : at + 2]
            return Opened(text=behind[0].code, arguments=tuple(words[at + 3 :])) if behind else None
        if not word.text.startswith("-"):
            break
    return None


def _tmux(words: Sequence[Word]) -> list[Opened]:
    """Several commands of tmux may stand in one line, with ``\\;`` between them."""
    found: list[Opened] = []
    session = ""
    for command in _split(words):
        _, rest = _options(command, _TMUX_VALUES)
        verb = rest[0].text if rest else ""
        if verb in _OPENING:
            made = _window(rest[1:])
            session = made.session or session
            found.append(made)
        elif verb in _TYPING:
            options, keys = _options(rest[1:], _TMUX_VALUES - {"-l"})
            found.append(Opened(terminal="tmux", session=_target(options) or session, text=_typed(keys)))
    return found


def _window(words: Sequence[Word]) -> Opened:
    options, command = _options(words, _TMUX_VALUES)
    env: dict[str, Word] = {}
    folder = None
    for name, value in options:
        if name == "-e":
            key, _, text = value.text.partition("=")
            env[key] = Word(text=text, names=value.names, unclear=value.unclear)
        elif name == "-c":
            folder = value
    text = command[0].code + "\n" if len(command) == 1 else ""
    words = tuple(command) if len(command) > 1 else ()
    return Opened(terminal="tmux", session=_target(options), text=text, words=words, env=env, folder=folder)


def _split(words: Sequence[Word]) -> list[list[Word]]:
    parts: list[list[Word]] = [[]]
    for word in words:
        if word.text == ";":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _options(words: Sequence[Word], values: Collection[str]) -> tuple[list[tuple[str, Word]], list[Word]]:
    """The options in front, those without a value with an empty one, and the rest."""
    found: list[tuple[str, Word]] = []
    rest = list(words)
    while rest and rest[0].text.startswith("-"):
        option = rest.pop(0)
        last = f"-{option.text[-1]}"
        found.append((last, rest.pop(0) if last in values and rest else Word(text="")))
    return found, rest


def _target(options: Sequence[tuple[str, Word]]) -> str:
    named = [value.text for name, value in options if name in ("-s", "-t")]
    return _FIRST_PANE.sub("", named[0]) if named else ""


def _typed(keys: Sequence[Word]) -> str:
    """What the keys write; a line counts when it is ended."""
    text = ""
    for key in keys:
        if key.text in _ENTER:
            text += "\n"
        elif key.text == "Space":
            text += " "
        elif not _CONTROL.fullmatch(key.text):
            text += key.code
    return text


def _screen(words: list[Word]) -> tuple[Opened, ...]:
    session = ""
    while words and words[0].text.startswith("-"):
        option = words.pop(0)
        if option.text == "-X":
            return _stuffed(session, words)
        if _SCREEN_VALUE.fullmatch(option.text) and words:
            value = words.pop(0)
            session = value.text if option.text.endswith("S") else session
    return (Opened(terminal="screen", session=session, words=tuple(words)),)


def _stuffed(session: str, words: Sequence[Word]) -> tuple[Opened, ...]:
    if len(words) < 2 or words[0].text != "stuff":
        return ()
    text = _STUFFED_ENTER.sub("\n", "".join(word.code for word in words[1:]))
    return (Opened(terminal="screen", session=session, text=text),)
