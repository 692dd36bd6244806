"""The syntax tree of a script, with one mistake of the grammar put right."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Tree

_LANGUAGE = Language(tree_sitter_bash.language())
_ROUNDS = 5


def parse(text: str) -> Tree:
    """The syntax tree of a script."""
    parser = Parser(_LANGUAGE)
    code = text.encode()
    tree = parser.parse(code)
    for _ in range(_ROUNDS):
        ends = sorted(_lost_line_ends(tree.root_node), reverse=True)
        for end in ends:
            code = code[:end] + b";" + code[end:]
        tree = parser.parse(code) if ends else tree
    return tree


def _lost_line_ends(root: Node) -> Iterator[int]:
    """Where a line of two assignments ends: the grammar takes the next line for the command that they are for."""
    left = [root]
    while left:
        node = left.pop()
        left += node.children
        if node.type != "command":
            continue
        for before, child in pairwise([child for child in node.children if child.type != "comment"]):
            if before.type != "variable_assignment":
                break
            gap = (node.text or b"")[before.end_byte - node.start_byte : child.start_byte - node.start_byte]
            if b"\n" in gap.replace(b"\\\r\n", b"").replace(b"\\\n", b""):
                yield before.end_byte


def source(node: Node) -> str:
    """What is written there."""
    return (node.text or b"").decode(errors="replace")
