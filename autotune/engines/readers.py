"""Which code of an installed engine does something with an argument.

A read is an attribute access, a look-up by name (``getattr``, ``["field"]``, ``.get("field")``), or, away
from argument handling, a variable of that name.
What only talks about the value does not count: assertions, raised errors, log lines, a dictionary that
repeats it under its own name. In the files that handle arguments, filling in a field itself and handing
it on under the same name do not count either: somebody must then read it there. When in doubt it is a
read: a live parameter must not be frozen by mistake.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_NOT_SERVING = re.compile(
    r"(^|/)(tests?|docs?|examples?|benchmarks?|third_party|multimodal_gen|__pycache__)/"
    r"|(^|/)(test_|bench_|auto_benchmark)[^/]*$|_test\.py$"
)
_HANDLING = re.compile(r"(^|/)(arg_groups/.*|server_args(_config_parser)?|arg_utils|cli_args)\.py$|(^|/)arg_groups/")
_TALK = frozenset(
    {"debug", "info", "warning", "warn", "error", "exception", "critical", "log", "print", "warning_once"}
)
_LOOK_UP = frozenset({"getattr", "get", "attrgetter"})
_PARSER_FUNCTIONS = frozenset({"add_cli_args", "make_arg_parser"})
_COMPILED_LIMIT_BYTES = 64 * 2**20


def readers(location: Path, fields: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """``path:line`` of each read of each field, paths relative to ``location``. Compiled modules that
    hold a field's name count as readers of it where no Python file reads it.
    """
    found: dict[str, list[str]] = {field: [] for field in fields}
    if not found:
        return {}
    pattern = re.compile(rb"\b(?:" + b"|".join(re.escape(field.encode()) for field in found) + rb")\b")
    for path, name in _files(location, "*.py"):
        source = path.read_bytes()
        for field in sorted({match.decode() for match in pattern.findall(source)}):
            found[field] += [f"{name}:{line}" for line in lines_reading(source, field, bool(_HANDLING.search(name)))]
    unread = [field for field, lines in found.items() if not lines]
    for path, name in _files(location, "*.so") if unread else ():
        content = path.read_bytes() if path.stat().st_size <= _COMPILED_LIMIT_BYTES else b""
        for field in unread:
            found[field] += [name] if field.encode() in content else []
    return {field: tuple(sorted(lines, key=_telling)) for field, lines in found.items()}


def _telling(place: str) -> tuple[bool, str]:
    """Places in the scheduler and the model runner say most to a reader: they come first."""
    return (not re.search(r"scheduler|model_runner|v1/core|worker", place), place)


def _files(location: Path, pattern: str) -> Iterator[tuple[Path, str]]:
    for path in sorted(location.rglob(pattern)):
        name = path.relative_to(location).as_posix()
        if not _NOT_SERVING.search(name):
            yield path, name


def lines_reading(source: str | bytes, field: str, handling: bool) -> tuple[int, ...]:
    """The lines of one file that read ``field``; ``handling``: the file handles arguments.

    A file that cannot be parsed counts as a reader of all that it names.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return (1,)
    visitor = _Reads(field, handling)
    visitor.visit(tree)
    return tuple(dict.fromkeys(visitor.lines))


class _Reads(ast.NodeVisitor):
    """Collects the lines that read one field."""

    def __init__(self, field: str, handling: bool) -> None:
        self.field, self.handling, self.lines = field, handling, list[int]()

    def visit_Assert(self, node: ast.Assert) -> None:
        """Checking a value is not using it."""

    def visit_Raise(self, node: ast.Raise) -> None:
        """Nor is complaining about it."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Functions that define arguments name every one of them."""
        if not (self.handling and node.name in _PARSER_FUNCTIONS):
            self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """The class body of an argument record only declares: its methods are what can read."""
        declared = (ast.AnnAssign, ast.Assign)
        for statement in node.body:
            if not (self.handling and isinstance(statement, declared)):
                self.visit(statement)

    def visit_Assign(self, node: ast.Assign) -> None:
        """In argument handling a field that is computed from itself is still only being filled in."""
        if not (self.handling and all(self._is_field(target) for target in node.targets)):
            self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Like an assignment."""
        if not (self.handling and self._is_field(node.target)):
            self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        """In argument handling a condition counts only where its branches do more than fill in, check or complain."""
        if self.handling and all(self._idle(statement) for statement in [*node.body, *node.orelse]):
            return
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Log calls talk; look-ups by name read; the same keyword hands on."""
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in _TALK:
            return
        if name in _LOOK_UP and any(_is_text(argument, self.field) for argument in node.args):
            self.lines.append(node.lineno)
        self.visit(node.func)
        for argument in node.args:
            self.visit(argument)
        for keyword in node.keywords:
            if not (self.handling and keyword.arg == self.field):
                self.visit(keyword.value)

    def visit_Dict(self, node: ast.Dict) -> None:
        """A value repeated under its own name is an echo."""
        for key, value in zip(node.keys, node.values, strict=True):
            if not (_is_text(key, self.field) and self._is_field(value)):
                self.visit(value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """``args["field"]`` reads."""
        if isinstance(node.ctx, ast.Load) and _is_text(node.slice, self.field):
            self.lines.append(node.lineno)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """``x.field`` reads; ``ServerArgs.field`` names the declared default."""
        declared = isinstance(node.value, ast.Name) and node.value.id.endswith("Args")
        if node.attr == self.field and isinstance(node.ctx, ast.Load) and not (self.handling and declared):
            self.lines.append(node.lineno)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """Elsewhere a variable of that name most likely came in as a parameter."""
        if node.id == self.field and isinstance(node.ctx, ast.Load) and not self.handling:
            self.lines.append(node.lineno)

    def _is_field(self, node: ast.expr | None) -> bool:
        return isinstance(node, ast.Attribute) and node.attr == self.field

    def _idle(self, statement: ast.stmt) -> bool:
        """Whether a statement does nothing with a value but fill in the field, check, log or complain."""
        if isinstance(statement, ast.Raise | ast.Assert | ast.Pass):
            return True
        if isinstance(statement, ast.Assign):
            return all(self._is_field(target) for target in statement.targets)
        if isinstance(statement, ast.If):
            return all(self._idle(each) for each in [*statement.body, *statement.orelse])
        call = statement.value if isinstance(statement, ast.Expr) else None
        function = call.func if isinstance(call, ast.Call) else None
        return isinstance(function, ast.Attribute) and function.attr in _TALK


def _is_text(node: ast.expr | None, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text
