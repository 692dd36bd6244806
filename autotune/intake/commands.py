"""The words of one command in the syntax tree, wherever among its redirections they stand. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from tree_sitter import Node

from autotune.intake.grammar import source
from autotune.intake.words import Scope, Word, between, fields, one

_REDIRECTS = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})
_TESTS = frozenset({"[", "test", "command", "which", "type", "grep", "pgrep", "curl", "nvidia-smi"})
_AROUND = frozenset({"redirected_statement", "list", "pipeline", "negated_command"})


def words_of(node: Node, scope: Scope) -> tuple[list[Word], dict[str, Word]]:
    """Program and arguments, and what is assigned before them."""
    env: dict[str, Word] = {}
    words: list[Word] = []
    before: Node | None = None
    for child in (child for child in node.named_children if child.type != "comment"):
        if child.type == "variable_assignment" and not words:
            name, value = child.child_by_field_name("name"), child.child_by_field_name("value")
            env[source(name) if name else ""] = value_of(value, scope)[0]
        elif child.type not in _REDIRECTS:
            joined = between(node, before, child)
            words += [msgspec.structs.replace(w, unclear=joined or w.unclear) for w in fields(child, scope)]
        else:
            words += [word for late in _late(child) for word in fields(late, scope)]
        before = child
    words += [word for late in _behind(node) for word in fields(late, scope)]
    return words, env


def value_of(value: Node | None, scope: Scope) -> tuple[Word, ...]:
    """What an assignment assigns: one word, or the fields of an array."""
    if value is None:
        return (Word(text=""),)
    if value.type == "array":
        return tuple(word for child in value.named_children if child.type != "comment" for word in fields(child, scope))
    return (one(value, scope),)


def is_test(node: Node) -> bool:
    """Whether a command only asks something, and so decides about what follows it."""
    if node.type == "list":
        return is_test(node.named_children[-1])
    if node.type in ("redirected_statement", "negated_command"):
        return bool(node.named_children) and is_test(node.named_children[0])
    name = node.child_by_field_name("name")
    if node.type == "test_command" or (node.children and node.children[0].type == "(("):
        return True
    return name is not None and source(name) in _TESTS


def loop_variable(node: Node) -> str:
    """The variable that counts or goes through a list, empty for a ``while``."""
    variable = node.child_by_field_name("variable")
    if variable is None and (begin := node.child_by_field_name("initializer")) is not None:
        variable = begin.child_by_field_name("name") or (begin.named_children or [begin])[0]
    return source(variable) if variable is not None else ""


def _behind(node: Node) -> Iterator[Node]:
    """Words behind a redirection: the grammar takes them for more of its targets, and bash for arguments."""
    around = node.parent
    while around is not None and around.type in _AROUND:
        if around.type == "redirected_statement":
            for redirect in around.children_by_field_name("redirect"):
                yield from _late(redirect)
        elif around.named_children[-1].end_byte != node.end_byte:
            return
        node, around = around, around.parent


def _late(redirect: Node) -> list[Node]:
    if redirect.type != "file_redirect":
        return []
    targets = redirect.children_by_field_name("destination")
    closes = any(child.type in (">&-", "<&-") for child in redirect.children)
    return targets if closes else targets[1:]
