"""What becomes of a trial whose server did not serve: the diagnosis decides, within bounds."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Literal

import msgspec

from autotune.diagnosis.case import Facts
from autotune.diagnosis.diagnose import diagnose
from autotune.errors import NightStopped, advised
from autotune.rig import Rig
from autotune.values import Diagnosis, Finding, Infeasible, Measured, Outcome, Refused, Value
from autotune.wrappers import wrapping

LOG_BYTES = 64 << 20
ENVIRONMENT = frozenset({"port_in_use", "env_error", "oom_host", "nccl"})
"""Kinds that say nothing about the parameters: when they stay, the night stops."""


class Trouble(Value, frozen=True, kw_only=True):
    """What was seen of a server that died, hung, or failed its requests. ``silent_s``: without a sign of work.

    ``failing``: it lives and answers, but its answers are no good. ``kernel_log``: what the kernel says of its
    processes, None where that cannot be read.
    """

    phase: Literal["startup", "load"]
    reason: str
    exit_code: int | None = None
    alive: bool = False
    silent_s: float = 0.0
    timed_out: str = ""
    failing: bool = False
    kernel_log: str | None = None


class Retry(Value, frozen=True, kw_only=True):
    """Try the same trial again; when ``attempts`` are used up, ``give_up`` says what it was.

    ``diagnosis`` or ``refused`` is what it was if the configuration is to blame; without both, the machine is.
    """

    reason: str
    kind: str
    diagnosis: Diagnosis | None = None
    refused: Refused | None = None

    @property
    def blames_machine(self) -> bool:
        """Whether other parameters would meet the same fault."""
        return self.refused is None and (self.diagnosis is None or self.kind in ENVIRONMENT)

    @property
    def attempts(self) -> int:
        """How often the trial is tried in all; a configuration that fails twice is left alone."""
        return 3 if self.blames_machine else 2

    @property
    def pause_s(self) -> float:
        """Seconds before the second attempt: a machine needs some to recover."""
        return 5.0 if self.blames_machine else 1.0

    def give_up(self) -> Outcome:
        """The outcome after the last attempt. Raises NightStopped where the cause is not the configuration."""
        if self.refused is not None:
            return self.refused
        if self.blames_machine or self.diagnosis is None:
            advice = self.diagnosis.advice if self.diagnosis else ""
            reason = self.reason.removeprefix(f"{self.kind}: ")
            raise NightStopped(advised(f"{self.kind} after {self.attempts} attempts: {reason}", advice))
        return Infeasible(diagnosis=self.diagnosis)


def judge_trouble(rig: Rig, trouble: Trouble, log_path: Path, log: str) -> Outcome | Retry:
    """Infeasible, refused, or try again. Raises NightStopped where no other parameters would help.

    ``log`` is what the server had written when the trouble was seen: afterwards it writes of its own end.
    """
    found = diagnose_trouble(rig, trouble, log)
    if found.action == "stop":
        shown = "; ".join(found.evidence[:2]) or trouble.reason
        reason = f"{advised(f'{found.kind}: {shown}', found.advice)} (log: {log_path})"
        if any(isinstance(result.outcome, Measured) for result in rig.records.results()):
            # It went well before in this study, so it may again: somebody else held the memory, a mount was away.
            blamed = found if found.kind == "crash_other" else None  # a server that ends well: who knows why
            return Retry(reason=reason, kind=found.kind, diagnosis=blamed)
        raise NightStopped(reason)
    if found.action == "prune":
        return Infeasible(diagnosis=found)
    if found.action == "discard":
        refused = Refused(findings=(Finding(gate="failed_requests", message=trouble.reason, fatal=True),))
        return Retry(reason=trouble.reason, kind=found.kind, refused=refused)
    shown = found.evidence[0] if found.kind == "env_error" and found.evidence else trouble.reason
    return Retry(reason=f"{found.kind}: {shown}", kind=found.kind, diagnosis=found)


def diagnose_trouble(rig: Rig, trouble: Trouble, log: str) -> Diagnosis:
    """The diagnosis of the log; a server that certainly failed is never called fine because its log is silent."""
    if trouble.timed_out == "refused":
        advice = "check engine.api_key_env and the route of the engine"
        return Diagnosis(kind="env_error", action="stop", evidence=(trouble.reason,), advice=advice, stage="warmup")
    there = wrapping(rig.study.engine.wrapper)
    if there and not trouble.alive and (reason := there.own_failure(trouble.exit_code, log)):
        advice = f"see that {rig.study.engine.wrapper.kind} works by itself, and engine.wrapper in the study"
        return Diagnosis(kind="env_error", action="retry", evidence=(reason,), advice=advice, stage="launch")
    version = rig.known_version
    facts = Facts(
        engine=rig.study.engine.kind,
        version=version,
        phase=trouble.phase,
        exit_code=trouble.exit_code,
        alive=trouble.alive,
        silent_seconds=trouble.silent_s,
        kernel_log=trouble.kernel_log,
        searched_flags=tuple(rig.space.get(name).flag_for(version) for name in rig.searched),
    )
    found = diagnose(log, facts)
    if found.action in ("prune", "retry", "stop") and not (trouble.failing and found.kind == "hang"):
        return _capped(found, trouble)
    kind, action, advice = _unexplained(trouble)
    return Diagnosis(kind=kind, action=action, evidence=(trouble.reason,), advice=advice, stage=found.stage)


def _unexplained(trouble: Trouble) -> tuple[str, Literal["prune", "retry", "discard"], str]:
    if trouble.failing:
        return "bench_failed", "discard", "see the reasons in the raw records of the load"
    if trouble.timed_out == "cap":
        return "hang", "prune", "raise timeouts.start_s if such a start is normal here"
    if trouble.alive:
        return "hang", "retry", "look at the end of the server's log"
    return "crash_other", "retry", "the log names no cause: look at the kernel log for the OOM killer"


def _capped(found: Diagnosis, trouble: Trouble) -> Diagnosis:
    """Not ready within the hard cap: another hour for the same parameters would not pay."""
    if trouble.timed_out == "cap" and found.action == "retry":
        return msgspec.structs.replace(found, action="prune")
    return found


def read_log(path: Path, begin: int = 0) -> str:
    """The text of a server's log from byte ``begin`` on, the last part where it is very long; empty without one."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(begin, size - LOG_BYTES))
        return file.read().decode(errors="replace")
    return ""
