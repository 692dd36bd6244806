"""The command line as values: what the pages and the manual are written from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import typer

from autotune.cli.app import app


class Option(msgspec.Struct, frozen=True):
    """``spellings`` with their value name, ``default`` as one would type it (empty: none), ``text`` what it does."""

    spellings: tuple[str, ...]
    default: str
    text: str


class Command(msgspec.Struct, frozen=True):
    """``about`` is the help text in one line, ``synopsis`` the call without ``autotune``."""

    name: str
    about: str
    synopsis: str
    arguments: tuple[Option, ...]
    options: tuple[Option, ...]


def commands() -> list[Command]:
    """Every command that ``autotune --help`` shows, in its order."""
    group: Any = typer.main.get_command(app)
    return [_command(name, found) for name, found in group.commands.items() if not found.hidden]


def _command(name: str, found: Any) -> Command:
    arguments = [p for p in found.params if p.param_type_name == "argument"]
    options = [p for p in found.params if p.param_type_name == "option" and p.name != "help"]
    places = [str(p.metavar or p.name.upper()) for p in arguments]
    return Command(
        name=name,
        about=one_line(found.help or ""),
        synopsis=" ".join([name, *places, *(["[OPTIONS]"] if options else [])]),
        arguments=tuple(
            Option((place,), "", one_line(p.help or "")) for place, p in zip(places, arguments, strict=True)
        ),
        options=tuple(Option(tuple(_spellings(p)), _default(p), one_line(p.help or "")) for p in options),
    )


def _spellings(option: Any) -> Iterator[str]:
    value = "" if option.is_flag else f" {option.name.upper()}"
    yield from (f"{text}{value}" for text in (*option.opts, *option.secondary_opts))


def _default(option: Any) -> str:
    if option.required:
        return "required"
    if option.is_flag and option.secondary_opts:
        return str(option.opts[0] if option.default else option.secondary_opts[0])
    if option.default is None or option.default == "" or option.is_flag:
        return ""
    many = isinstance(option.default, Iterable) and not isinstance(option.default, str)
    return " ".join(map(str, option.default)) if many else str(option.default)


def one_line(text: str) -> str:
    """Without line breaks."""
    return " ".join(text.split())
