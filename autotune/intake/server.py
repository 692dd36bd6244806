"""Which call of a script starts a server, and what of it is the server's own command line. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

from autotune.intake.script import Call, read_script
from autotune.intake.words import Word
from autotune.intake.wrapped import Wrapped, wrapped_of
from autotune.study.environment import is_name
from autotune.values import Value

MODULES = {
    "sglang.launch_server": "sglang",
    "autotune.sim": "sglang",
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.cli.main": "vllm",
}
"""Python modules that are servers, and the engine that each is."""
_FILES = {"launch_server.py": "sglang", "api_server.py": "vllm"}
_STARTS = frozenset({"sglang", "vllm", "numactl", "taskset", "env", "bash"})
"""Words with which the command line of a server begins."""
_IMAGES = {"vllm-openai": (("python3", "-m", "vllm.entrypoints.openai.api_server"), ("vllm", "serve"))}
"""Images whose entry point is the server: how it takes its model behind a flag, and by place."""
_PREFIXES = frozenset({"exec", "nohup", "command", "builtin", "time", "setsid"})
_SHELLS = frozenset({"bash", "sh", "dash", "zsh"})


def kind_of(argv: Sequence[str]) -> str:
    """The engine that a command line starts, empty for another program."""
    for word, following in zip(argv, [*argv[1:], ""], strict=False):
        name = PurePath(word).name
        if word == "-m" and following in MODULES:
            return MODULES[following]
        if name in ("sglang", "vllm") and following == "serve":
            return name
        if name == "autotune" and following == "sim":
            return "sglang"
        if name in _FILES:
            return _FILES[name]
    return ""


class Server(Value, frozen=True, kw_only=True):
    """A call that starts a server, taken apart: engine, wrapper, the server's own words, the settings it gets."""

    kind: str
    wrapped: Wrapped | None
    words: tuple[Word, ...]
    env: dict[str, Word]


def server_of(call: Call, where: str, kind: str = "") -> Server | None:
    """The server that a call starts, None for any other call. ``kind``: it is one, of that engine, if none is seen."""
    words, env = _stripped(call)
    wrapped = wrapped_of(words, _STARTS)
    body = list(wrapped.rest) if wrapped else words
    if wrapped:
        env = _reaching(env, wrapped)
        body = _with_entry(body, wrapped)
    body, more = _from_shell(body, where, env)
    kind = kind_of([word.text for word in body]) or kind
    return Server(kind=kind, wrapped=wrapped, words=tuple(body), env={**env, **more}) if kind else None


def _reaching(env: dict[str, Word], wrapped: Wrapped) -> dict[str, Word]:
    """The settings that reach the server: a container gets what ``--env`` says, by value or by name."""
    if not wrapped.isolated:
        return env
    return {name: env.get(name, word) if word.unclear == f"${name}" else word for name, word in wrapped.env.items()}


def _with_entry(body: list[Word], wrapped: Wrapped) -> list[Word]:
    """The command line with the image's entry point, where that is the server."""
    if wrapped.entry:
        return [Word(text=wrapped.entry), *body]
    known = next((known for mark, known in _IMAGES.items() if mark in wrapped.wrapper.image), None)
    if known is None or kind_of([word.text for word in body]):
        return body
    by_flag, by_place = known
    program = by_flag if not body or body[0].text.startswith("-") else by_place
    return [*(Word(text=text) for text in program), *body]


def _stripped(call: Call) -> tuple[list[Word], dict[str, Word]]:
    """The words without ``exec``, ``nohup`` and the like; assignments of env(1) join the settings."""
    words, env = list(call.words), dict(call.env)
    while words:
        program = PurePath(words[0].text).name
        if program in _PREFIXES:
            words = _without_options(words[1:])
        elif program == "env" and len(words) > 1 and "=" in words[1].text and not words[1].text.startswith("-"):
            while len(words) > 1 and is_name(words[1].text.partition("=")[0]) and "=" in words[1].text:
                name, _, value = words.pop(1).text.partition("=")
                env[name] = Word(text=value)
            words = words[1:]
        else:
            break
    return words, env


def _without_options(words: list[Word]) -> list[Word]:
    while words and words[0].text.startswith("-"):
        words = words[2:] if words[0].text == "-a" else words[1:]
    return words


def _from_shell(words: list[Word], where: str, env: Mapping[str, Word]) -> tuple[list[Word], dict[str, Word]]:
    """``bash -c 'SERVER ...'`` is the server itself: flags could not be added behind the quoted text."""
    if len(words) < 3 or PurePath(words[0].text).name not in _SHELLS or not re.fullmatch(r"-\w*c", words[1].text):
        return words, {}
    settings = {name: word.text for name, word in env.items() if not word.unclear}
    calls = [call for call in read_script(words[2].text, Path(where), settings).calls if kind_of(call.argv)]
    if len(calls) != 1:
        return words, {}
    inner, more = _stripped(calls[0])
    if folder := calls[0].folder:
        inner = [Word(text="env"), Word(text="--chdir=") + folder, *inner]
    return inner, more
