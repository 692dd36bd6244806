"""Walks a script's syntax tree and keeps what bash would keep: variables, exports, functions, arguments, the folder.

Conditions are not decided: both branches are read, and what stands in one is marked as not sure.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from tree_sitter import Node

from autotune.intake.arguments import given
from autotune.intake.call import Call
from autotune.intake.commands import is_test, words_of
from autotune.intake.folders import Folders, shown
from autotune.intake.grammar import parse, source
from autotune.intake.prefixes import Bare, bare
from autotune.intake.remark import Remark, short
from autotune.intake.shells import Opened, opened_by
from autotune.intake.syntax import fault_of, refuse_broken
from autotune.intake.turns import Loops
from autotune.intake.words import Scope, Word, one

_DEPTH = 20
_QUIET_WORDS = (
    "echo printf shopt trap wait sleep mkdir true false : exit cat tee date which type ls test [ return kill pkill"
    " nvidia-smi curl wget hostname pwd tail head grep rm touch chmod until break continue dirname disown jobs ts"
)
_HOLDS = frozenset({"wait", "kill", "pkill", "killall"})
QUIET = frozenset(_QUIET_WORDS.split())
"""Programs that leave the server as it is: not worth a remark."""
_ARGUMENTS = re.compile(r"\$(?:[1-9@*]|\{[1-9@*])")


class Reader(Loops):
    """What is known so far. ``calls`` and ``remarks`` are for whoever reads on."""

    def __init__(self, scope: Scope, name: str) -> None:
        super().__init__(scope, name)
        self._functions: dict[str, Node] = {}
        self._folders = Folders()
        self._depth = 0
        self._sessions: dict[str, Reader] = {}
        self._typed = ""
        self._handlers: dict[str, Callable[[Node], None]] = {
            "command": self._command,
            "variable_assignment": self._assign,
            "declaration_command": self._declare,
            "unset_command": self._unset,
            "function_definition": self._define,
            "case_statement": self._case,
            "if_statement": self._branches,
            "while_statement": self._loop,
            "for_statement": self._loop,
            "c_style_for_statement": self._loop,
            "subshell": self._subshell,
            "list": self._list,
        }
        self._builtins: dict[str, Callable[[Node, list[Word]], None]] = {
            "cd": self._enter,
            "pushd": self._enter,
            "popd": self._enter,
            "break": self._break,
            ".": self._source,
            "source": self._source,
            "eval": self._evaluate,
            "set": self._arguments,
            "shift": self._shift,
            "read": self._ask,
        }
        self._skipped = frozenset({"comment", "test_command", "file_redirect", "heredoc_redirect", "heredoc_body"})

    def take(self, text: str, first: int) -> None:
        """Read text whose first line has that number in the script. Raises InputError for what is no bash."""
        root = parse(text).root_node
        refuse_broken(root, self._name, first)
        self._first = first
        self.read(root)

    def _take_inner(self, text: str, node: Node, first: int) -> None:
        """Text for another shell, whose language may be another: what starts no server there may be anything."""
        if fault := fault_of(text, parse(text).root_node):
            self.remarks.append(Remark(where=self._name, line=first, text=f"{fault}; in {short(source(node))}"))
            return
        self.take(text, first)

    def read(self, node: Node) -> None:
        """A node by its kind; of one that only groups others, each."""
        behind = node.next_sibling is not None and node.next_sibling.type == "&"
        self._behind += behind
        handler = self._handlers.get(node.type)
        if handler is not None:
            handler(node)
        elif node.type not in self._skipped:
            self._each(node)
        self._behind -= behind

    # Control

    def _list(self, node: Node) -> None:
        """What stands behind ``[ ... ] &&`` is under a condition as well."""
        left, *right = node.named_children
        self.read(left)
        asked = is_test(left)
        self._unsure += asked
        for child in right:
            self.read(child)
        self._unsure -= asked

    def _subshell(self, node: Node) -> None:
        before = (dict(self._scope.variables), set(self._exported), self._folders)
        self._each(node)
        self._scope.variables, self._exported, self._folders = before

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
        words, env = words_of(node, self._scope)
        if not words:
            return
        outside = "@" not in self._scope.variables and bool(_ARGUMENTS.search(source(node)))
        if outside and words[0].text not in QUIET and words[0].text not in self._builtins:
            self._remark(node, "arguments of the script are used; it was read as started without any")
        if words[0].text in self._functions:
            # Handed on as they are: not known inside either.
            with self._given(env):
                self._call(words, known=not outside or len(words) > 1)
        elif words[0].text in self._builtins:
            self._builtins[words[0].text](node, words)
        else:
            self._run(node, words, env)

    @contextmanager
    def _given(self, env: dict[str, Word]) -> Iterator[None]:
        """What is assigned before a function is exported while it runs."""
        before, exported = dict(self._scope.variables), set(self._exported)
        self._scope.variables |= {name: (word,) for name, word in env.items()}
        self._exported |= set(env)
        yield
        for name in env:
            self._scope.variables.pop(name, None)
            self._scope.variables |= {name: before[name]} if name in before else {}
        self._exported -= set(env) - exported

    def _call(self, words: list[Word], known: bool) -> None:
        if self._depth < _DEPTH:
            self._depth += 1
            self._locals.append({})
            around, self._around = self._around, self._unsure
            with given(self._scope, tuple(words[1:]) if known else None):
                self.read(self._functions[words[0].text])
            self._around = around
            for name, (value, exported) in self._locals.pop().items():
                self._scope.variables.pop(name, None)
                self._scope.variables |= {} if value is None else {name: value}
                self._exported -= set() if exported else {name}
            self._depth -= 1

    def _run(self, node: Node, words: list[Word], env: dict[str, Word]) -> None:
        program = bare(words, env)
        self._held |= words[0].text in _HOLDS
        opened = opened_by(program.words)
        if opened is not None:
            for shell in opened:
                self._open(node, shell, program)
        elif words[0].text not in QUIET:
            exported = {name: self._exported_value(name) for name in sorted(self._exported)}
            self.calls.append(
                Call(
                    words=tuple(words),
                    env={**exported, **env},
                    folder=self._folders.here,
                    line=self._line(node),
                    sure=not self._unsure,
                    loops=tuple(self._loops),
                    behind=self._behind > 0,
                )
            )

    def _open(self, node: Node, shell: Opened, program: Bare) -> None:
        """Another shell: it knows what is exported, and a session of a terminal what was typed before."""
        reader = self._sessions.get(shell.session) if shell.session else None
        if reader is None:
            reader = self._inner({**program.env, **shell.env})
            reader._go(msgspec.structs.replace(self._folders, here=shell.folder or self._folders.here))
            if shell.session:
                self._sessions[shell.session] = reader
        if shell.arguments is not None:
            reader._scope.variables["@"] = shell.arguments
        reader._unsure, reader._loops, reader._behind = self._unsure, list(self._loops), self._behind
        reader._behind += bool(shell.terminal)
        if shell.words:
            reader._first = self._first
            reader._run(node, list(shell.words), {})
        reader._typed += shell.text
        if reader._typed and (not shell.terminal or reader._typed.endswith("\n")):
            typed, reader._typed = reader._typed, ""
            reader._take_inner(typed, node, self._line(node))
        left = (f"{shell.terminal} was left out: autotune starts the server itself",) if shell.terminal else ()
        changes = (*left, *program.changes)
        self.calls += [msgspec.structs.replace(call, changes=(*changes, *call.changes)) for call in reader.calls]
        self.remarks += reader.remarks
        reader.calls, reader.remarks = [], []

    def _inner(self, env: dict[str, Word]) -> Reader:
        known = {**{name: self._exported_value(name) for name in self._exported}, **env}
        scope = Scope(
            path=self._scope.path,
            environ=self._scope.environ,
            variables={name: (word,) for name, word in known.items()},
            unset=set(self._scope.unset),
        )
        reader = Reader(scope, self._name)
        reader._exported = set(known)
        reader._depth = self._depth + 1
        return reader

    # Builtins

    def _evaluate(self, node: Node, words: list[Word]) -> None:
        """Text for this shell."""
        if self._depth >= _DEPTH:
            return
        first = self._first
        self._depth += 1
        self._take_inner(" ".join(word.code for word in words[1:]), node, self._line(node))
        self._depth -= 1
        self._first = first

    def _enter(self, node: Node, words: list[Word]) -> None:
        home = self._scope.get("HOME") if words[0].text == "cd" and len(words) == 1 else None
        self._go(self._folders.entered([*words, *(home or ())]))

    def _go(self, folders: Folders) -> None:
        self._folders = folders
        self._scope.variables.pop("PWD", None)
        if pwd := shown(folders.here, self._scope.environ.get("PWD", "")):
            self._scope.variables["PWD"] = (pwd,)
