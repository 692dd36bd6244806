"""Loops as a script is read: once, as a condition; turn by turn where they go through arguments that are known."""

from __future__ import annotations

import msgspec
from tree_sitter import Node

from autotune.intake.call import Call
from autotune.intake.commands import loop_variable
from autotune.intake.loops import asks_getopts, assigned_in, only_word, takes_arguments
from autotune.intake.variables import Variables
from autotune.intake.words import Scope, Word


class Loops(Variables):
    """The part of a reader that knows which loops are around it. ``calls`` are the commands so far."""

    def __init__(self, scope: Scope, name: str) -> None:
        super().__init__(scope, name)
        self.calls: list[Call] = []
        self._loops: list[str] = []
        self._behind = 0
        self._entered = 0
        self._held = self._left = False

    def read(self, node: Node) -> None:
        """A node by its kind."""
        raise NotImplementedError

    def _each(self, node: Node) -> None:
        for child in node.named_children:
            self.read(child)

    def _branches(self, node: Node) -> None:
        """Conditions are commands too; whether the branches are taken is not known."""
        self._unsure += 1
        self._each(node)
        self._unsure -= 1

    def _loop(self, node: Node) -> None:
        before = self._left, self._doubted
        self._turn(node)
        self._left, self._doubted = before

    def _turn(self, node: Node) -> None:
        """What differs from turn to turn cannot be told."""
        name = loop_variable(node)
        body = node if node.type == "while_statement" else node.child_by_field_name("body") or node
        if (word := only_word(node, self._scope)) is not None:
            self._scope.variables[name] = (msgspec.structs.replace(word, line=self._line(node)),)
            self._each(body)
            return
        if "@" in self._scope.variables and (takes_arguments(node) or asks_getopts(node)):
            self._turns(node)
            return
        if name:
            self._set_unclear(node, name)
        behind, self._behind = self._behind, 0
        held, self._held = self._held, False
        began = len(self.calls)
        self._loops.append(name)
        self._branches(body)
        self._loops.pop()
        if self._held:
            # A loop that waits for what it starts, or ends it, has one server at a time.
            self.calls[began:] = [msgspec.structs.replace(call, behind=False) for call in self.calls[began:]]
        self._held |= held
        self._behind = behind

    def _turns(self, node: Node) -> None:
        """A loop through arguments that are known, turn by turn until none is left."""
        body = node.child_by_field_name("body") or node
        self._left = self._doubted = False
        around, self._entered = self._entered, self._unsure
        while (before := self._scope.variables.get("@")) and not self._left:
            if not asks_getopts(node):
                self._each(body)
            fewer = len(self._scope.variables.get("@", ())) < len(before)
            if self._doubted or not (fewer or self._left):
                for name in ("@", *assigned_in(body)):
                    self._set_unclear(node, name)
                break
        self._entered = around

    def _break(self, node: Node, words: list[Word]) -> None:
        sure = self._unsure <= self._entered
        self._left |= sure
        self._doubted |= not sure

    def _set_unclear(self, node: Node, name: str) -> None:
        self._scope.variables[name] = (Word(text=f"${name}", unclear=f"${name}", line=self._line(node)),)
