"""The words of a bash command: quotes removed, variables put in, fields split; nothing is run.

What bash alone could tell (the output of a command, a variable that is set nowhere) stays in the word as it is written,
and the word says that it is unclear.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from tree_sitter import Node

from autotune.intake.grammar import parse, source
from autotune.study.environment import looks_secret
from autotune.values import Value

_EXPANSIONS = frozenset(
    {"simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion"}
)
_PARAMETER = re.compile(r"(?P<name>[A-Za-z_]\w*|[0-9@*])(?P<all>\[[@*]\])?(?:(?P<op>:?[-=+?])(?P<rest>.*))?", re.DOTALL)
_LATE_ARGUMENTS = re.compile(r"\$\{@:([1-9]\d?)\}")
_OWN_FOLDER = re.compile(
    r"""\$\(\s*(?:cd\s+(?:--\s+)?"?\$\(\s*)?dirname\s+(?:--\s+)?"?\$(?:0|BASH_SOURCE|\{(?:0|BASH_SOURCE(?:\[0\])?)\})"?"""
    r"""\s*\)(?:"?\s*(?:>\s*/dev/null\s*(?:2>&1)?)?\s*&&\s*pwd(?:\s+-P)?\s*\))?"""
)
_WORD_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_STRING_ESCAPE = re.compile(r'\\([$`"\\\n])')


class Word(Value, frozen=True, kw_only=True):
    """One argument. ``names`` are the variables it was made of; ``unclear`` is what of it could not be told.

    ``line`` is where the script sets it, 0: nowhere. ``again`` is what a shell must read, where that is not the text.
    """

    text: str
    names: tuple[str, ...] = ()
    unclear: str = ""
    line: int = 0
    again: str = ""

    @property
    def code(self) -> str:
        """The text for a shell that reads it once more: a variable without a value stays one."""
        return self.again or self.text

    def __add__(self, other: Word) -> Word:
        return Word(
            text=self.text + other.text,
            names=(*self.names, *other.names),
            unclear=self.unclear or other.unclear,
            line=other.line if other.unclear and not self.unclear else self.line or other.line,
            again=self.code + other.code if self.again or other.again else "",
        )


def unset(name: str) -> Word:
    """A variable whose value only a run could tell."""
    return Word(text="", names=(name,), unclear=f"${name}", again=f"${{{name}}}")


class Scope(msgspec.Struct, kw_only=True):
    """The variables at one place of a script; ``environ`` is that of the reader, in which secrets stay unread.

    The arguments of the script, or of the function that runs, are the fields of ``@``, where they are known.
    """

    path: Path
    environ: Mapping[str, str]
    variables: dict[str, tuple[Word, ...]] = {}
    unset: set[str] = set()

    def get(self, name: str) -> tuple[Word, ...] | None:
        """The fields of a variable, None where it is not set."""
        if name == "0":
            return (Word(text=str(self.path)),)
        if name.isdecimal():
            return self.variables.get("@", ())[int(name) - 1 : int(name)] or None
        if name in self.variables:
            return self.variables[name]
        if name not in self.environ or name in self.unset:
            return None
        if looks_secret(name, self.environ[name]):
            return (unset(name),)
        return (Word(text=self.environ[name], names=(name,)),)


class Part(Value, frozen=True, kw_only=True):
    """A piece of a word. ``splits``: bash cuts it at blanks, as it does with an expansion outside of quotes."""

    words: tuple[Word, ...]
    splits: bool = False


def fields(node: Node, scope: Scope) -> list[Word]:
    """The arguments that a word of the script becomes: one, or none or several where it expands."""
    done: list[Word] = []
    joining: Word | None = None
    for part in _parts(node, scope, quoted=False):
        for glued, word in _cut(part):
            if joining is not None and not glued:
                done.append(joining)
                joining = None
            if word is not None:
                joining = word if joining is None else joining + word
    return [*done, joining] if joining is not None else done


def between(command: Node, before: Node | None, child: Node) -> str:
    """Both words and what joins them, where that is no blank: the grammar loses a quoted blank behind an expansion."""
    if before is None:
        return ""
    raw, begin = command.text or b"", command.start_byte
    gap = raw[before.end_byte - begin : child.start_byte - begin]
    if not gap.replace(b"\\\r\n", b"").replace(b"\\\n", b"").strip():
        return ""
    return raw[before.start_byte - begin : child.end_byte - begin].decode(errors="replace")


def one(node: Node, scope: Scope) -> Word:
    """The value of an assignment, which bash does not split."""
    words = [word for part in _parts(node, scope, quoted=False) for word in part.words]
    return _joined(words)


def _joined(words: list[Word]) -> Word:
    whole = Word(text="")
    for word in words:
        whole = whole + word
    return whole


def _cut(part: Part) -> Iterator[tuple[bool, Word | None]]:
    """Words of a part, each with whether it continues what stands before; a last None ends the word before it."""
    if not part.splits:
        yield from ((index == 0, word) for index, word in enumerate(part.words))
        return
    for index, word in enumerate(part.words):
        pieces = word.text.split() if not word.unclear else [word.text]
        opens = index == 0 and not word.text[:1].isspace()
        for position, piece in enumerate(pieces):
            yield opens and position == 0, msgspec.structs.replace(word, text=piece)
        if word.text[-1:].isspace():
            yield False, None


def _parts(node: Node, scope: Scope, quoted: bool) -> Iterator[Part]:
    match node.type:
        case "command_name" | "concatenation":
            for child in node.children:
                yield from _parts(child, scope, quoted)
        case "string" | "translated_string":
            yield from _string(node, scope)
        case "raw_string":
            yield Part(words=(Word(text=source(node)[1:-1]),))
        case "ansi_c_string":
            yield Part(words=(Word(text=_ansi(source(node)[2:-1])),))
        case "simple_expansion" | "expansion":
            yield _expansion(node, scope, quoted)
        case "command_substitution" | "process_substitution" | "arithmetic_expansion":
            yield Part(words=(_substitution(source(node).lstrip(), scope),))
        case _:
            yield Part(words=(Word(text=_bare(source(node), scope)),))


def _string(node: Node, scope: Scope) -> Iterator[Part]:
    """A double-quoted string: what stands between its expansions is literal."""
    raw = (node.text or b"").removeprefix(b"$")
    begin = node.end_byte - len(raw)
    position, empty = 1, True
    inner = [child for each in node.children for child in (each.children if each.type == "string" else [each])]
    for child in (child for child in inner if child.type in _EXPANSIONS):
        # The grammar takes blanks before an expansion for a part of it.
        blanks = len(source(child)) - len(source(child).lstrip())
        literal = raw[position : child.start_byte - begin + blanks]
        position = child.end_byte - begin
        empty = False
        if literal:
            yield _literal(literal)
        yield from _parts(child, scope, quoted=True)
    if (rest := raw[position:-1]) or empty:
        yield _literal(rest)


def _literal(raw: bytes) -> Part:
    text = _STRING_ESCAPE.sub(lambda m: "" if m[1] == "\n" else m[1], raw.decode(errors="replace"))
    return Part(words=(Word(text=text),))


def _bare(text: str, scope: Scope) -> str:
    """Text outside of quotes: backslashes go, a leading tilde is the home folder."""
    if (text == "~" or text.startswith("~/")) and "HOME" in scope.environ:
        text = scope.environ["HOME"] + text[1:]
    return _WORD_ESCAPE.sub(lambda m: "" if m[1] == "\n" else m[1], text)


def _ansi(text: str) -> str:
    try:
        return codecs.decode(text.encode("latin-1", "backslashreplace"), "unicode_escape")
    except UnicodeDecodeError:
        return text


def _substitution(text: str, scope: Scope) -> Word:
    """Only the script's own folder can be told without running anything."""
    if _OWN_FOLDER.fullmatch(text):
        return Word(text=str(scope.path.parent))
    return Word(text=text, unclear=text)


def _expansion(node: Node, scope: Scope, quoted: bool) -> Part:
    text = source(node).lstrip()
    if late := _LATE_ARGUMENTS.fullmatch(text):
        return Part(words=(scope.get("@") or ())[int(late[1]) - 1 :], splits=not quoted)
    match = _PARAMETER.fullmatch(text[2:-1] if text.startswith("${") else text[1:])
    if not match:
        return Part(words=(Word(text=text, unclear=text),))
    name = match["name"]
    if name in "@*":
        words = scope.get("@") or ()
        return Part(words=(_joined_by_blanks(words),) if name == "*" and quoted else words, splits=not quoted)
    found = scope.get(name)
    if match["op"]:
        found = _with_default(match, found, scope)
    if found is None:
        # An argument that was not given is empty.
        found = (Word(text="") if name.isdecimal() and "@" in scope.variables else unset(name),)
    kept = found if match["all"] else found[:1]
    return Part(words=kept, splits=not quoted)


def _joined_by_blanks(words: tuple[Word, ...]) -> Word:
    blank = Word(text=" ")
    return _joined([part for word in words for part in (blank, word)][1:])


def _with_default(match: re.Match[str], found: tuple[Word, ...] | None, scope: Scope) -> tuple[Word, ...] | None:
    """``${A:-b}`` and its kin; ``${A:?message}`` needs a value like ``$A``."""
    op = match["op"]
    there = found is not None and not (op.startswith(":") and not any(w.text or w.unclear for w in found))
    if op.endswith("+"):
        return (_default(match["rest"], scope),) if there else (Word(text=""),)
    if there or op.endswith("?"):
        return found if there else None
    value = (_default(match["rest"], scope),)
    if op.endswith("="):
        scope.variables[match["name"]] = value
    return value


def _default(text: str, scope: Scope) -> Word:
    """The text behind ``:-``, read as if it stood in double quotes."""
    quote = text[:1]
    if quote == "'" and text.endswith("'") and len(text) > 1:
        return Word(text=text[1:-1])
    inner = text[1:-1] if quote == '"' and text.endswith('"') and len(text) > 1 else text
    words = [child for child in _leaves(parse(f': "{inner}"').root_node) if child.type == "string"]
    if '"' in inner.replace('\\"', "") or len(words) != 1:
        return Word(text=text, unclear=text)
    return one(words[0], scope)


def _leaves(node: Node) -> Iterator[Node]:
    """The strings below a node, not what is inside of them."""
    for child in node.children:
        if child.type == "string":
            yield child
        else:
            yield from _leaves(child)
