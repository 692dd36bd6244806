"""An engine's own argument definitions, read from its source files without running them.

Three forms are known: ``add_argument`` calls (all versions), annotated dataclass fields (SGLang from
0.5.12 on) and annotated msgspec fields in ``arg_groups/fields`` (SGLang from 0.5.20 on), the last two
with aliases declared in ``Arg(...)``.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from autotune.values import Value

SOURCES: Mapping[str, tuple[str, ...]] = {
    "sglang": ("srt/server_args.py", "srt/arg_groups/fields/*.py"),
    "vllm": ("engine/arg_utils.py", "entrypoints/openai/cli_args.py", "entrypoints/cli/serve.py"),
}
"""Per package: where the arguments are defined."""


class Definition(Value, frozen=True, kw_only=True):
    """One flag and the field of the argument record that it sets."""

    flag: str
    field: str


class Known(Value, frozen=True, kw_only=True):
    """What an argument parser makes of a flag. ``field`` is empty when it does not take it."""

    field: str = ""
    reason: str


def definitions(package: str, location: Path) -> dict[str, str]:
    """Flag to field, for every flag that the package at ``location`` defines; empty if nothing was found."""
    found: dict[str, str] = {}
    for pattern in SOURCES.get(package, ()):
        for path in sorted(location.glob(pattern)):
            found.update((each.flag, each.field) for each in of_source(path.read_text(encoding="utf-8")))
    return found


def of_source(source: str) -> Iterator[Definition]:
    """The definitions in one file; none from a file that cannot be parsed."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) == "add_argument":
            yield from _of_call(node)
        elif isinstance(node, ast.ClassDef):
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign):
                    yield from _of_field(statement)


def look_up(package: str, flag: str, known: Mapping[str, str]) -> Known:
    """What argparse does with ``flag``: exact names win, then unique prefixes; an ambiguous prefix is an error.

    vLLM's parser also takes underscores for dashes, and ``--no-x`` for each switch ``--x``.
    """
    if package == "vllm":
        flag = flag.replace("_", "-")
        flag = flag if flag in known else re.sub("^--no-", "--", flag)
    if flag in known:
        return Known(field=known[flag], reason="defined")
    longer = sorted(name for name in known if name.startswith(flag))
    fields = {known[name] for name in longer}
    if len(fields) == 1:
        return Known(field=fields.pop(), reason=f"taken as an abbreviation of {longer[0]}")
    if longer:
        return Known(reason=f"refused as ambiguous: {', '.join(longer[:3])}")
    near = difflib.get_close_matches(flag, known, n=1)
    return Known(reason="not defined" + (f"; the nearest is {near[0]}" if near else ""))


def _called(node: ast.Call) -> str:
    """The last name of what is called: ``parser.add_argument`` is add_argument."""
    function = node.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _of_call(node: ast.Call) -> Iterator[Definition]:
    names = [name for name in map(_text, node.args) if name.startswith("-")]
    if not names:
        return
    long_names = [name for name in names if name.startswith("--")] or names
    field = _text(_keyword(node, "dest")) or long_names[0].lstrip("-").replace("-", "_")
    yield from (Definition(flag=name, field=field) for name in names)


def _of_field(statement: ast.AnnAssign) -> Iterator[Definition]:
    annotation = statement.annotation
    if not isinstance(statement.target, ast.Name) or not isinstance(annotation, ast.Subscript):
        return
    if not isinstance(annotation.value, ast.Name) or annotation.value.id not in ("A", "Annotated"):
        return
    field = statement.target.id
    argument = next((n for n in ast.walk(annotation) if isinstance(n, ast.Call) and _called(n) == "Arg"), None)
    hidden = _keyword(argument, "no_cli") if argument else None
    if isinstance(hidden, ast.Constant) and hidden.value:
        return
    name = _text(_keyword(argument, "cli_name")) if argument else ""
    yield Definition(flag=name or "--" + field.replace("_", "-"), field=field)
    aliases = _keyword(argument, "aliases") if argument else None
    for alias in aliases.elts if isinstance(aliases, ast.List | ast.Tuple) else ():
        yield Definition(flag=_text(alias), field=field)


def _keyword(node: ast.Call | None, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in node.keywords if keyword.arg == name), None) if node else None


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
