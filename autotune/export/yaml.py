"""Block YAML in which every string is double-quoted, so that nothing depends on YAML's guesses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

Tree = str | int | bool | Sequence["Tree"] | Mapping[str, "Tree"]

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def dump(tree: Tree) -> str:
    """The tree as a document, without its ``---``."""
    return "".join(f"{line}\n" for line in _lines(tree))


def _lines(tree: Tree) -> Iterator[str]:
    if isinstance(tree, Mapping) and tree:
        for key, value in tree.items():
            yield from _entry(f"{quote(key) if not key.isidentifier() else key}:", value, indent="  ")
    elif isinstance(tree, Sequence) and not isinstance(tree, str) and tree:
        for value in tree:
            yield from _item(value)
    else:
        yield _scalar(tree)


def _entry(head: str, value: Tree, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping | Sequence) and not isinstance(value, str) and value:
        yield head
        yield from (indent + line for line in _lines(value))
    else:
        yield f"{head} {_scalar(value)}"


def _item(value: Tree) -> Iterator[str]:
    first, *rest = _lines(value)
    yield f"- {first}"
    yield from (f"  {line}" for line in rest)


def _scalar(value: Tree) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    return quote(value) if isinstance(value, str) else "{}" if isinstance(value, Mapping) else "[]"


def quote(text: str) -> str:
    """A double-quoted YAML string: ASCII stays, everything else is escaped by its code point."""
    return '"' + "".join(_ESCAPES.get(char) or _plain(char) for char in text) + '"'


def _plain(char: str) -> str:
    code = ord(char)
    if 32 <= code < 127:
        return char
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
