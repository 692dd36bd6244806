"""A diagnosis for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from autotune.diagnosis.case import Facts
from autotune.diagnosis.diagnose import diagnose
from autotune.errors import InputError
from autotune.study.refusals import refuse_endless, unusable
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


def _lines(file: BinaryIO, chunk: bytes) -> Iterator[bytes]:
    """The lines of ``chunk`` and what follows it, of any size and content: a line without end is cut, not collected."""
    with file:
        rest = b""
        while chunk:
            *whole, rest = (rest + chunk).split(b"\n")
            yield from whole
            if len(rest) > _MAX_LINE:
                yield rest
                rest = b""
            chunk = file.read(_CHUNK)
        if rest:
            yield rest


def _decoded(path: Path) -> Iterator[str] | Iterator[bytes]:
    """PowerShell writes redirected output as UTF-16; everything else is taken as UTF-8. A pipe is opened once."""
    file = path.open("rb")
    first = file.read(_CHUNK)
    if first[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        return _lines(file, first)
    with file:
        text = (first + file.read()).decode("utf-16", errors="replace")
    return iter(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))


def diagnose_file(path: Path | str, facts: Facts) -> Diagnosis:
    """Diagnose the log at ``path``, a file or a pipe. Raises InputError where there is none or it cannot be read."""
    path = Path(path)
    try:
        refuse_endless(path, "the log file itself")
        return diagnose(_decoded(path), facts)
    except FileNotFoundError:
        raise InputError(f"{path}: no such log; check the path") from None
    except OSError as error:
        raise InputError(unusable(path, error)) from None
