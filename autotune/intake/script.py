"""The commands that a bash script would run, in order, read and not run.

Conditions are not decided: both branches are read, and what stands in one is marked as not sure.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from tree_sitter import Node

from autotune.intake.remark import Remark, short
from autotune.intake.words import Scope, Word, between, fields, one, parse, source
from autotune.study.environment import is_name
from autotune.values import Value

_DEPTH = 20
_QUIET_WORDS = (
    "echo printf set shopt trap wait sleep mkdir true false : exit cat tee date which type ls test [ read return kill"
    " pkill shift nvidia-smi curl wget hostname pwd tail head grep rm touch chmod until break continue dirname"
)
_QUIET = frozenset(_QUIET_WORDS.split())
"""Programs that leave the server as it is: not worth a remark."""
_ACTIVATE = re.compile(r"(?P<root>.+)/bin/activate")
_ARGUMENTS = re.compile(r"\$(?:[1-9@*]|\{[1-9@*])")


class Call(Value, frozen=True, kw_only=True):
    """One command. ``env`` are the variables that the script gives it; ``folder`` is where it runs, None: anywhere.

    ``sure`` is False where it stands under a condition or in a loop.
    """

    words: tuple[Word, ...]
    env: dict[str, Word] = {}
    folder: Word | None = None
    line: int = 0
    sure: bool = True

    @property
    def argv(self) -> tuple[str, ...]:
        return tuple(word.text for word in self.words)


class Script(Value, frozen=True, kw_only=True):
    """All commands, and what was not understood or not followed."""

    calls: tuple[Call, ...]
    remarks: tuple[Remark, ...] = ()


def read_script(text: str, path: Path, environ: Mapping[str, str], arguments: Sequence[str] = ()) -> Script:
    """Read a script's text, as started with ``arguments``.

    ``path`` names it in remarks, ``environ`` gives the variables that it does not set.
    """
    scope = Scope(path=path.absolute(), environ=environ)
    scope.variables |= {str(position): (Word(text=text),) for position, text in enumerate(arguments, start=1)}
    reader = _Reader(scope, path.name)
    reader.read(parse(text).root_node)
    return Script(calls=tuple(reader.calls), remarks=tuple(dict.fromkeys(reader.remarks)))


class _Reader:
    """Walks the syntax tree and keeps what bash would keep: variables, what is exported, functions, the folder."""

    def __init__(self, scope: Scope, name: str) -> None:
        self.calls: list[Call] = []
        self.remarks: list[Remark] = []
        self._scope = scope
        self._name = name
        self._exported: set[str] = set()
        self._functions: dict[str, Node] = {}
        self._folder: Word | None = None
        self._unsure = 0
        self._depth = 0
        self._handlers: dict[str, Callable[[Node], None]] = {
            "command": self._command,
            "variable_assignment": self._assign,
            "declaration_command": self._declare,
            "unset_command": self._unset,
            "function_definition": self._define,
            "case_statement": self._case,
            "if_statement": self._branches,
            "while_statement": self._branches,
            "for_statement": self._loop,
            "c_style_for_statement": self._branches,
            "subshell": self._subshell,
            "ERROR": self._error,
        }
        self._skipped = frozenset({"comment", "test_command", "file_redirect", "heredoc_redirect", "heredoc_body"})

    def read(self, node: Node) -> None:
        """A node by its kind; of one that only groups others, each."""
        handler = self._handlers.get(node.type)
        if handler is not None:
            handler(node)
        elif node.type not in self._skipped:
            for child in node.named_children:
                self.read(child)

    def _remark(self, node: Node, text: str) -> None:
        self.remarks.append(Remark(where=self._name, line=node.start_point[0] + 1, text=text))

    def _error(self, node: Node) -> None:
        self._remark(node, f"not understood: {short(source(node))}")
        for child in node.named_children:
            self.read(child)

    # Variables

    def _assign(self, node: Node) -> None:
        name_node, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        name = source(name_node) if name_node else ""
        if not is_name(name):
            self._remark(node, f"not followed: {short(source(node))}")
            return
        words = self._value(value)
        if any(child.type == "+=" for child in node.children):
            words = self._more(name, words, array=value is not None and value.type == "array")
        known = self._scope.get(name)
        if self._unsure and known is not None and known != words:
            self._remark(node, f"{name} is set anew under a condition; that was not followed")
            return
        if self._unsure:
            self._remark(node, f"{name} is set under a condition, which was taken to hold")
        self._scope.variables[name] = words

    def _value(self, value: Node | None) -> tuple[Word, ...]:
        if value is None:
            return (Word(text=""),)
        if value.type == "array":
            return tuple(word for child in value.named_children for word in fields(child, self._scope))
        return (one(value, self._scope),)

    def _more(self, name: str, words: tuple[Word, ...], array: bool) -> tuple[Word, ...]:
        before = self._scope.get(name) or ()
        if array or not before:
            return (*before, *words)
        return (before[0] + words[0], *before[1:])

    def _declare(self, node: Node) -> None:
        keyword = source(node.children[0])
        options = [source(child) for child in node.children[1:] if child.type == "word"]
        exports = keyword == "export" or any(o.startswith("-") and "x" in o for o in options)
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._assign(child)
                name = child.child_by_field_name("name")
            else:
                name = child if child.type == "variable_name" else None
            if name is not None and exports:
                self._exported.add(source(name))

    def _unset(self, node: Node) -> None:
        for child in node.named_children:
            self._scope.variables.pop(source(child), None)
            self._scope.unset.add(source(child))
            self._exported.discard(source(child))

    # Control

    def _branches(self, node: Node) -> None:
        """Conditions are commands too; whether the branches are taken is not known."""
        self._unsure += 1
        for child in node.named_children:
            self.read(child)
        self._unsure -= 1

    def _loop(self, node: Node) -> None:
        variable = node.child_by_field_name("variable")
        if variable is not None:
            self._scope.variables[source(variable)] = (Word(text="", unclear=f"${source(variable)}"),)
        body = node.child_by_field_name("body")
        if body is not None:
            self._branches(body)

    def _subshell(self, node: Node) -> None:
        before = (dict(self._scope.variables), set(self._exported), self._folder)
        for child in node.named_children:
            self.read(child)
        self._scope.variables, self._exported, self._folder = before

    def _define(self, node: Node) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            self._functions[source(name)] = body

    def _case(self, node: Node) -> None:
        """The item that matches, where the word can be told; else all of them."""
        value = node.child_by_field_name("value")
        word = one(value, self._scope) if value is not None else Word(text="", unclear="?")
        items = [child for child in node.named_children if child.type == "case_item"]
        if word.unclear and not _ARGUMENTS.match(word.unclear):
            for item in items:
                self._branches(item)
            return
        text = "" if word.unclear else word.text
        for item in items:
            patterns = item.children_by_field_name("value")
            if any(fnmatch.fnmatchcase(text, one(pattern, self._scope).text) for pattern in patterns):
                for child in item.named_children:
                    if child not in patterns:
                        self.read(child)
                return

    # Commands

    def _command(self, node: Node) -> None:
        env: dict[str, Word] = {}
        words: list[Word] = []
        before: Node | None = None
        for child in node.named_children:
            if child.type == "variable_assignment" and not words:
                name, value = child.child_by_field_name("name"), child.child_by_field_name("value")
                env[source(name) if name else ""] = self._value(value)[0]
            elif child.type not in ("file_redirect", "heredoc_redirect", "herestring_redirect"):
                joined = between(node, before, child)
                words += [msgspec.structs.replace(w, unclear=joined or w.unclear) for w in fields(child, self._scope)]
            before = child
        if not words:
            return
        if _ARGUMENTS.search(source(node)) and words[0].text not in _QUIET:
            self._remark(node, "arguments of the script are used; it was read as started without any")
        self._run(node, words, env)

    def _run(self, node: Node, words: list[Word], env: dict[str, Word]) -> None:
        program = words[0].text
        if program in self._functions and self._depth < _DEPTH:
            self._depth += 1
            self.read(self._functions[program])
            self._depth -= 1
        elif program in ("cd", "pushd"):
            self._folder = _entered(self._folder, [word for word in words[1:] if not word.text.startswith("-")])
        elif program in (".", "source"):
            self._source(node, words)
        elif program not in _QUIET:
            exported = {name: self._exported_value(name) for name in sorted(self._exported)}
            self.calls.append(
                Call(
                    words=tuple(words),
                    env={**exported, **env},
                    folder=self._folder,
                    line=node.start_point[0] + 1,
                    sure=not self._unsure,
                )
            )

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
        path = (self._scope.get("PATH") or (Word(text="/usr/local/bin:/usr/bin:/bin"),))[0]
        self._scope.variables["VIRTUAL_ENV"] = (Word(text=root),)
        self._scope.variables["PATH"] = (Word(text=f"{root}/bin:") + path,)
        self._exported |= {"VIRTUAL_ENV", "PATH"}


def _entered(before: Word | None, targets: list[Word]) -> Word | None:
    """The folder after ``cd``."""
    if not targets:
        return None
    target = targets[0]
    relative = not target.unclear and not target.text.startswith("/")
    return before + Word(text="/") + target if before is not None and relative else target
