"""Writes docs/commands.md from the command line itself: ``python -m tools.commands``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

from autotune.cli.app import app

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"
HEAD = """# Commands

Written by `python -m tools.commands` from the command line itself; a test compares the two. `STUDY` is the path of a
study file, or the name of a shipped one. Exit codes are in the [README](../README.md#exit-codes).
"""
TAIL = """## autotune sim

A simulated inference server, with SGLang's routes, flags and log lines. It is no night's command: a study names it in
`engine.command`, as `studies/demo.toml` does. Beside SGLang's own flags it takes `--sim-...` ones for the machine, its
speed and noise, and faults; `autotune sim --sim-help` lists them.
"""


def page() -> str:
    """The text of the page: a section a command, in the order of ``autotune --help``."""
    group: Any = typer.main.get_command(app)
    sections = [_section(name, command) for name, command in group.commands.items() if not command.hidden]
    return "\n".join([HEAD, *sections, TAIL])


def _section(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    usage = " ".join(["autotune", name, *(str(p.metavar) for p in arguments), *(["[OPTIONS]"] if options else [])])
    lines = [f"## autotune {name}", "", " ".join(command.help.split()), "", f"    {usage}", ""]
    if options:
        lines += ["| option | default | |", "| --- | --- | --- |", *(_row(option) for option in options), ""]
    return "\n".join(lines)


def _row(option: Any) -> str:
    value = "" if option.is_flag else f" {option.name.upper()}"
    spelling = " / ".join(f"`{text}{value}`" for text in _spellings(option))
    return f"| {spelling} | {_default(option)} | {_one_line(option.help or '')} |"


def _spellings(option: Any) -> Iterator[str]:
    yield from option.opts
    yield from option.secondary_opts


def _default(option: Any) -> str:
    if option.required:
        return "required"
    if option.is_flag and option.secondary_opts:
        return f"`{option.opts[0] if option.default else option.secondary_opts[0]}`"
    if option.default is None or option.default == "" or option.is_flag:
        return ""
    return f"`{_joined(option.default)}`"


def _joined(value: Any) -> str:
    many = isinstance(value, Iterable) and not isinstance(value, str)
    return " ".join(str(part) for part in value) if many else str(value)


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
