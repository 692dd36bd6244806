"""What the grammar does not understand, and files that are no script: one error with its line, no guess. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from autotune.errors import InputError
from autotune.intake.grammar import source
from autotune.intake.remark import short

_CLOSING = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})
"""Words that end or go on with something: none of them is a program."""
_UNIT = re.compile(r"\[(?:Unit|Service|Install)\]\s*")
_YAML = re.compile(r"(?:(?:services|apiVersion|version|name|kind|x-[\w-]+):(?:\s.*)?|---\s*)")
_SERVERS = re.compile(r"sglang|vllm|serve|autotune")
_YAML_NAME = re.compile(r".*\.ya?ml", re.IGNORECASE)


def refuse_broken(root: Node, where: str, first: int = 1) -> None:
    """Raises InputError for the first thing that is not bash. ``first`` is the number of the text's first line."""
    for line, text in _faults(root):
        raise InputError(
            f"{where}:{line + first}: {text}; bash -n SCRIPT says more: correct it, "
            "or leave that line out of a copy where bash takes it"
        )


def fault_of(text: str, root: Node) -> str:
    """What is not bash in text for another shell, as a remark, where nothing in it could be a server; else empty."""
    return "" if _SERVERS.search(text) else next((found for _, found in _faults(root)), "")


def _faults(root: Node) -> Iterator[tuple[int, str]]:
    """What is not ended is named where it begins: the end of the file tells nobody anything."""
    left = [root]
    while left:
        node = left.pop()
        if node.is_missing and node.parent is not None:
            yield node.parent.start_point[0], f"{node.type} is missing behind {short(source(node.parent))}"
        elif node.is_error:
            yield node.start_point[0] + _blank_lines(source(node)), f"not understood: {short(source(node))}"
        elif node.type == "command_name" and source(node) in _CLOSING:
            yield node.start_point[0], f"{source(node)} ends nothing that was begun"
        left += reversed(node.children)


def _blank_lines(text: str) -> int:
    return text[: len(text) - len(text.lstrip())].count("\n")


def refuse_foreign(text: str, where: str) -> None:
    """Raises InputError for a systemd unit and for YAML (compose, Kubernetes), with what to give instead."""
    lines = [] if text.startswith("#!") else text.splitlines()
    # What stands further down may be text that a script writes to a file.
    first = next((line for line in lines if line.strip() and line.lstrip()[0] not in "#;"), "")
    if _UNIT.fullmatch(first):
        raise InputError(
            f"{where}: is a systemd unit, which is not read; give a script with the command of its ExecStart, "
            "an export for each Environment, and a cd to its WorkingDirectory"
        )
    if _YAML_NAME.fullmatch(where) or _YAML.fullmatch(first):
        raise InputError(
            f"{where}: is YAML (compose, Kubernetes), which is not read; "
            "give a script that starts the same container with docker run"
        )
