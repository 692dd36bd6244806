"""Loops: which of them go through a script's or a function's arguments, or through a list of one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from autotune.intake.grammar import source
from autotune.intake.words import Scope, Word, fields

_SHIFTS = re.compile(r"(?:^|[;&\s])shift(?:$|[;&\s])")
_SEVERAL = re.compile(r"[*?\[{]")


def takes_arguments(node: Node) -> bool:
    """Whether a ``while`` goes on until the arguments are used up."""
    body = node.child_by_field_name("body")
    return node.type == "while_statement" and body is not None and bool(_SHIFTS.search(source(body)))


def asks_getopts(node: Node) -> bool:
    """``while getopts ...``: its arguments are cut up by bash itself."""
    return any(source(child).startswith("getopts ") for child in node.children_by_field_name("condition"))


def only_word(node: Node, scope: Scope) -> Word | None:
    """The one word of a ``for`` list; None where there are several, or where it cannot be told."""
    if node.type != "for_statement":
        return None
    values = node.children_by_field_name("value")
    words = [word for value in values for word in fields(value, scope)]
    if len(words) != 1 or words[0].unclear or any(_SEVERAL.search(source(value)) for value in values if _bare(value)):
        return None
    return words[0]


def _bare(value: Node) -> bool:
    """Whether bash would make several words of a pattern or of braces in it."""
    return value.type in ("word", "concatenation", "brace_expression")


def assigned_in(node: Node) -> Iterator[str]:
    """The variables that are set below a node."""
    left = [node]
    while left:
        each = left.pop()
        if each.type == "variable_assignment" and (name := each.child_by_field_name("name")) is not None:
            yield source(name)
        left += each.children
