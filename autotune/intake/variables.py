"""The variables of a script as it goes on: set, exported, unset, read, and the arguments that it works on."""

from __future__ import annotations

import re

import msgspec
from tree_sitter import Node

from autotune.intake.arguments import exports_all, set_by, shifted
from autotune.intake.commands import value_of
from autotune.intake.grammar import source
from autotune.intake.remark import Remark, short
from autotune.intake.search_path import activated
from autotune.intake.words import Scope, Word, fields
from autotune.study.environment import is_name

_PATH = "/usr/local/bin:/usr/bin:/bin"
_ACTIVATE = re.compile(r"(?P<root>.+)/bin/activate")


class Variables:
    """What is set at one place of a script, and what must be said of it. ``first`` is the number of its first line."""

    def __init__(self, scope: Scope, name: str) -> None:
        self.remarks: list[Remark] = []
        self._scope = scope
        self._name = name
        self._exported: set[str] = set()
        self._unsure = self._around = 0
        self._all_exported = self._doubted = False
        self._locals: list[dict[str, tuple[tuple[Word, ...] | None, bool]]] = []
        self._first = 1

    def _line(self, node: Node) -> int:
        return node.start_point[0] + self._first

    def _remark(self, node: Node, text: str) -> None:
        self.remarks.append(Remark(where=self._name, line=self._line(node), text=text))

    def _assign(self, node: Node, fresh: bool = False) -> None:
        name_node, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        name = source(name_node) if name_node else ""
        if not is_name(name):
            self._remark(node, f"not followed: {short(source(node))}")
            return
        words = value_of(value, self._scope)
        if any(child.type == "+=" for child in node.children):
            words = self._more(name, words, array=value is not None and value.type == "array")
        line = self._line(node)
        words = tuple(msgspec.structs.replace(word, line=(word.unclear and word.line) or line) for word in words)
        if fresh or self._followed(node, name, words):
            self._scope.variables[name] = words
            self._exported |= {name} if self._all_exported else set()

    def _followed(self, node: Node, name: str, words: tuple[Word, ...]) -> bool:
        """Under a condition a value is taken where there was none, and never replaces another."""
        known = self._scope.get(name)
        what = "the arguments are" if name == "@" else f"{name} is"
        own = name == "@" or bool(self._locals and name in self._locals[-1])
        # What belongs to a function is as sure as its call.
        unsure = self._unsure > (self._around if own else 0)
        if unsure and known is not None and [word.text for word in known] != [word.text for word in words]:
            self._remark(node, f"{what} set anew under a condition; that was not followed")
            self._doubted |= name == "@"
            return False
        if unsure:
            self._remark(node, f"{what} set under a condition, which was taken to hold")
        return True

    def _more(self, name: str, words: tuple[Word, ...], array: bool) -> tuple[Word, ...]:
        before = self._scope.get(name) or ()
        if array or not before:
            return (*before, *words)
        return (before[0] + words[0], *before[1:])

    def _declare(self, node: Node) -> None:
        keyword = source(node.children[0])
        options = [source(child) for child in node.children[1:] if child.type == "word"]
        exports = keyword == "export" or any(o.startswith("-") and "x" in o for o in options)
        if keyword == "export" and "-f" in options:
            return
        keeps = keyword != "export" and keyword != "readonly" and bool(self._locals) and "-g" not in options
        for child in node.named_children:
            for name in self._declared(node, child, keeps):
                self._exported |= {name} if exports else set()

    def _declared(self, node: Node, child: Node, keeps: bool) -> list[str]:
        """Assign one word of a declaration; its names. Quoted assignments are words to the grammar."""
        if child.type == "variable_assignment":
            name = source(child.child_by_field_name("name") or child)
            self._assign(child, fresh=keeps and self._kept(name))
            return [name]
        if child.type == "variable_name":
            if keeps and self._kept(source(child)):
                self._scope.variables.pop(source(child), None)
            return [source(child)]
        if child.type == "comment" or source(child).startswith("-"):
            return []
        names = []
        for word in fields(child, self._scope):
            name, equals, text = word.text.partition("=")
            if equals and is_name(name):
                value = (msgspec.structs.replace(word, text=text, again="", line=self._line(child)),)
                if (keeps and self._kept(name)) or self._followed(node, name, value):
                    self._scope.variables[name] = value
                names.append(name)
            elif is_name(word.text) and not word.unclear:
                names.append(name)
            else:
                self._remark(node, f"not followed: {short(source(node))}")
        return names

    def _kept(self, name: str) -> bool:
        """Note what a function's own variable hides; whether it is new."""
        fresh = name not in self._locals[-1]
        if fresh:
            self._locals[-1][name] = (self._scope.variables.get(name), name in self._exported)
        return fresh

    def _unset(self, node: Node) -> None:
        for child in node.named_children:
            self._scope.variables.pop(source(child), None)
            self._scope.unset.add(source(child))
            self._exported.discard(source(child))

    def _arguments(self, node: Node, words: list[Word]) -> None:
        self._all_exported = exports_all(words, self._all_exported)
        arguments = set_by(words)
        if arguments is not None and "@" not in self._scope.variables and any(word.unclear for word in arguments):
            # Made of arguments that are not known: read on as started without any.
            self._remark(node, "arguments of the script are used; it was read as started without any")
        elif arguments is not None and self._followed(node, "@", arguments):
            self._scope.variables["@"] = arguments

    def _shift(self, node: Node, words: list[Word]) -> None:
        known = self._scope.variables.get("@")
        if known is not None and self._followed(node, "@", shifted(known, words)):
            self._scope.variables["@"] = shifted(known, words)

    def _ask(self, node: Node, words: list[Word]) -> None:
        """Only a run reads."""
        for word in words[1:]:
            if is_name(word.text):
                unclear = f"${word.text}"
                self._scope.variables[word.text] = (Word(text=unclear, unclear=unclear, line=self._line(node)),)

    def _exported_value(self, name: str) -> Word:
        found = self._scope.variables.get(name)
        if found is not None:
            return msgspec.structs.replace(found[0], names=(name, *found[0].names)) if found else Word(text="")
        # Exported without a value of the script's own: it comes from outside, by its name.
        return Word(text="", names=(name,), unclear=f"${name}")

    def _source(self, node: Node, words: list[Word]) -> None:
        """``bin/activate`` of a virtual environment sets two variables; of other files nothing is known."""
        match = _ACTIVATE.fullmatch(words[1].text) if len(words) > 1 and not words[1].unclear else None
        if match is None:
            self._remark(node, f"not read: {short(source(node))}; what it sets is not in the study")
            return
        root = match["root"]
        before, active = (self._scope.get(name) for name in ("PATH", "VIRTUAL_ENV"))
        path = activated(before[0].text if before else _PATH, root, active[0].text if active else "")
        self._scope.variables["VIRTUAL_ENV"] = (Word(text=root),)
        self._scope.variables["PATH"] = (Word(text=path),)
        self._exported |= {"VIRTUAL_ENV", "PATH"}
