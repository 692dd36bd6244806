"""A diagnosis for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from autotune.diagnosis.case import Facts
from autotune.diagnosis.diagnose import diagnose
from autotune.errors import InputError, refuse_endless, unreadable
from autotune.values import Diagnosis

_CHUNK = 1 << 20
_MAX_LINE = 1 << 20


def as_json(found: Diagnosis) -> str:
    """One JSON object with the keys class, action, evidence, advice (and stage)."""
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode()


_ACTIONS = {
    "prune": "prune: these parameters cannot be served",
    "retry": "retry: clean up and run the same again",
    "stop": "stop: no parameter will change this",
    "discard": "discard: the measurement is not valid",
    "score": "score: nothing stands against the measurement",
    "score_flag": "score_flag: the measurement counts, with a note",
    "wait": "wait: the server is still starting",
}


def as_text(found: Diagnosis) -> str:
    """A few lines for a terminal: class, stage, action, evidence, advice."""
    where = f" (stage: {found.stage})" if found.stage else ""
    lines = [f"class:    {found.kind}{where}", f"action:   {_ACTIONS.get(found.action, found.action)}"]
    lines += [f"{'evidence:' if n == 0 else '':<10}{text}" for n, text in enumerate(found.evidence)]
    lines.append(f"advice:   {found.advice}")
    return "\n".join(lines)


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file of any size and any content: a line without end is cut, not collected."""
    with path.open("rb") as file:
        rest = b""
        while chunk := file.read(_CHUNK):
            *whole, rest = (rest + chunk).split(b"\n")
            yield from whole
            if len(rest) > _MAX_LINE:
                yield rest
                rest = b""
        if rest:
            yield rest


def _decoded(path: Path) -> Iterator[str] | Iterator[bytes]:
    """PowerShell writes redirected output as UTF-16; everything else is taken as UTF-8."""
    with path.open("rb") as file:
        if file.read(2) in (b"\xff\xfe", b"\xfe\xff"):
            return iter(path.read_text(encoding="utf-16", errors="replace").split("\n"))
    return _lines(path)


def diagnose_file(path: Path | str, facts: Facts) -> Diagnosis:
    """Diagnose the log at ``path``, a file or a pipe. Raises InputError where there is none or it cannot be read."""
    path = Path(path)
    try:
        refuse_endless(path, "the log file itself")
        return diagnose(_decoded(path), facts)
    except FileNotFoundError:
        raise InputError(f"{path}: no such log; check the path") from None
    except OSError as error:
        raise InputError(unreadable(path, error)) from None
