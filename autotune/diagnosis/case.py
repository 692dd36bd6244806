"""A case: the log as scanned, the facts beside it, and how a verdict is worded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, cast, get_args

import msgspec

from autotune.diagnosis.lines import Line
from autotune.diagnosis.rules import Compiled
from autotune.diagnosis.scan import Scan
from autotune.values import Diagnosis

Phase = Literal["startup", "load", "ready", "bench", "stop"]
Action = Literal["prune", "retry", "stop", "discard", "score", "score_flag", "wait"]

PHASES: tuple[str, ...] = get_args(Phase)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known beside the log.

    ``exit_code`` as Python gives it (negative: a signal); ``silent_seconds`` since the last sign of progress;
    ``kernel_log`` the text of dmesg for the life of the server, where readable; ``searched_flags`` the names of the
    flags that the study varies (dashes or underscores): a refused one is the trial's fault, another the study's.
    """

    engine: str = ""
    version: str = ""
    phase: Phase = "startup"
    exit_code: int | None = None
    alive: bool = False
    silent_seconds: float = 0.0
    kernel_log: str | None = None
    searched_flags: tuple[str, ...] = ()


class Case(msgspec.Struct, frozen=True):
    """All that a judgement is made from."""

    seen: Scan
    facts: Facts
    table: Compiled

    def verdict(self, kind: str, lines: Iterable[Line | str], action: str = "", advice: str = "") -> Diagnosis:
        """Fill in what the class itself says: its usual action and advice."""
        text = advice or next((a.text for a in self.table.advice if a.kind == kind), "")
        chosen = action or self.table.action[kind]
        return Diagnosis(
            kind=kind, action=cast(Action, chosen), evidence=_evidence(lines), advice=text, stage=_stage_name(self.seen)
        )


def _stage_name(seen: Scan) -> str:
    return "stop" if seen.shutdown >= 0 else ("load" if seen.ready >= 0 else seen.stage)


def _evidence(lines: Iterable[Line | str]) -> tuple[str, ...]:
    found: list[str] = []
    for line in lines:
        text = (line if isinstance(line, str) else line.raw).strip()
        text = text if len(text) <= 300 else text[:297] + "..."
        if text and text not in found:
            found.append(text)
    return tuple(found[:4])
