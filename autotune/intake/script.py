"""The commands that a bash script would run, in order, read and not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from autotune.intake.call import Call
from autotune.intake.reader import Reader
from autotune.intake.remark import Remark
from autotune.intake.words import Scope, Word
from autotune.values import Value


class Script(Value, frozen=True, kw_only=True):
    """All commands, and what was not understood or not followed."""

    calls: tuple[Call, ...]
    remarks: tuple[Remark, ...] = ()


def read_script(
    text: str, path: Path, environ: Mapping[str, str], arguments: Sequence[str] = (), first: int = 1
) -> Script:
    """Read a script's text, as started with ``arguments``. Raises InputError for what is no bash.

    ``path`` names it in remarks, ``environ`` gives the variables that it does not set, ``first`` is its first line.
    """
    scope = Scope(path=path.absolute(), environ=environ)
    if arguments:
        scope.variables["@"] = tuple(Word(text=text) for text in arguments)
    reader = Reader(scope, path.name)
    reader.take(text, first)
    return Script(calls=tuple(reader.calls), remarks=tuple(dict.fromkeys(reader.remarks)))
