"""Putting flags into a command line: pure functions on argument lists."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from autotune.errors import InputError
from autotune.values import ParamValue

PLACEHOLDER = re.compile(r"\{([a-z_][a-z0-9_]*)(?:=([^{}]*))?\}")
"""``{name}`` or ``{name=default}``; JSON in an argument has quotes and does not match."""

Rename = Callable[[str], str]


def flag_name(argument: str) -> str:
    """``--max_num_seqs=4`` is the flag ``--max-num-seqs``; what is no flag is the empty string."""
    head = argument.split("=", 1)[0]
    return head.replace("_", "-") if re.match(r"--?[A-Za-z]", head) else ""


def render(value: ParamValue) -> str:
    """A value as an engine's argument parser reads it. Floats never lose a digit."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value)


def without(command: Sequence[str], names: Collection[str], switches: Collection[str] = ()) -> list[str]:
    """The command without the flags ``names``, each with its value; ``switches`` among them carry none.

    The first argument is the program and always stays.
    """
    kept: list[str] = list(command[:1])
    rest = list(command[1:])
    while rest:
        argument = rest.pop(0)
        name = flag_name(argument)
        if name not in names:
            kept.append(argument)
        elif name not in switches and "=" not in argument and rest and not flag_name(rest[0]):
            rest.pop(0)
    return kept


def with_flags(
    command: Sequence[str],
    flags: Iterable[tuple[str, ParamValue]],
    aliases: Sequence[frozenset[str]] = (),
    negate: Rename | None = None,
) -> list[str]:
    """The command with each flag set to its value and appended; the same flag already there is replaced.

    ``aliases`` are groups of flags that mean the same. A boolean is a switch: true appends it, false
    leaves it out, or appends ``negate(flag)`` where the engine has such a form.
    """
    argv = list(command)
    for flag, value in flags:
        names = same_flags(flag, aliases)
        if not isinstance(value, bool):
            argv = [*without(argv, names), flag, render(value)]
            continue
        opposite = {negate(name) for name in names} if negate else set()
        argv = without(argv, names | opposite, switches=names | opposite)
        if value or negate:
            argv.append(flag if value or negate is None else negate(flag))
    return argv


def same_flags(flag: str, aliases: Sequence[frozenset[str]]) -> frozenset[str]:
    """The flag and every other name of it."""
    name = flag_name(flag)
    return frozenset({name}).union(*(group for group in aliases if name in group))


def value_of(command: Sequence[str], *names: str) -> str | None:
    """The last value that the command gives to one of the flags ``names``, or None."""
    found = None
    for argument, following in zip(command, [*command[1:], ""], strict=True):
        if flag_name(argument) in names:
            found = argument.split("=", 1)[1] if "=" in argument else following
    return found


def substitute(command: Sequence[str], words: Mapping[str, str]) -> list[str]:
    """The command with ``{python}`` and other placeholders of ``words`` filled in; other braces stay."""
    words = {"python": sys.executable, **words}

    def fill(match: re.Match[str]) -> str:
        return words.get(match[1], match[0])

    return [PLACEHOLDER.sub(fill, argument) for argument in command]


def require_command(command: Sequence[str]) -> None:
    """Raise InputError for a command that names no program."""
    if not command or not command[0].strip():
        raise InputError("study file: engine.command is empty; write the server's command line as a list of arguments")
    for argument in command:
        if "\0" in argument:
            raise InputError(f"study file: engine.command has a NUL character in {argument!r}; remove it")
