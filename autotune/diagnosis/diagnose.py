"""Why a server is not serving, and what a tuner should do about it: class, action, evidence, advice.

The first root cause in time counts, of the rank that failed first. What follows a death (NCCL, TCPStore, SIGQUIT,
broken pipes, "engine core initialization failed") is a consequence and never a cause while there is another.
An exit status of -9 proves nothing: SGLang's parent kills itself after every failure of a child.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from autotune.diagnosis import bench
from autotune.diagnosis.case import Case, Facts
from autotune.diagnosis.lines import read_lines
from autotune.diagnosis.meaning import explain, explain_unknown
from autotune.diagnosis.root import root_cause, unknown_exception
from autotune.diagnosis.rules import compiled
from autotune.diagnosis.scan import scan
from autotune.study.file import Timeouts
from autotune.values import Diagnosis

START_SILENCE_S = Timeouts().start_silence_s
"""A start without a new line for so long hangs,"""
SLOW_SILENCE_S = 2400.0
"""unless it has just said that it compiles: a first DeepGEMM session was seen to take 1,334 s."""
LOAD_SILENCE_S = Timeouts().load_stall_s
"""A server under load writes a line every few seconds."""
_BACKGROUND = (
    "The command ended with success before its server was ready: it puts the server into the background, or starts "
    "none. Let it run in the foreground (no &, no tmux, no daemon; a script ends with exec)."
)
_KERNEL_OOM = re.compile(r"oom-kill|Out of memory: Kill|Memory cgroup out of memory|oom_reaper|invoked oom-killer")


def _failed(case: Case) -> Diagnosis | None:
    root = root_cause(case)
    if root is not None:
        return explain(case, root)
    unknown = unknown_exception(case)
    if unknown is not None and case.facts.phase != "bench":
        return explain_unknown(case, unknown)
    return None


def _kernel_killed(case: Case) -> Diagnosis | None:
    log = case.facts.kernel_log or ""
    lines = [line for line in log.splitlines() if _KERNEL_OOM.search(line)]
    if lines and not (case.facts.alive and case.facts.silent_seconds < LOAD_SILENCE_S):
        return case.verdict("oom_host", lines[:2])
    return None


def _stalled(case: Case) -> Diagnosis | None:
    seen, facts = case.seen, case.facts
    if not facts.alive:
        return None
    stalls = [hit for hit in seen.of("stall") if hit.order > max(seen.progress, seen.ready)]
    if facts.phase != "startup" and (len(stalls) >= 3 or any("defunct" in hit.line.raw for hit in stalls)):
        return case.verdict("hang", [hit.line for hit in stalls[-2:]])
    lines = [seen.stall_line] if seen.stall_line else list(seen.tail)[-2:]
    limit = LOAD_SILENCE_S
    if facts.phase == "startup" and seen.ready < 0:
        limit = SLOW_SILENCE_S if seen.slow >= 0 and seen.messages - seen.slow < 5 else START_SILENCE_S
    elif facts.phase == "ready":
        limit = START_SILENCE_S
    if facts.silent_seconds >= limit or (seen.stalled >= 3 and facts.phase in ("load", "bench")):
        silent = f"no progress for {facts.silent_seconds:.0f} s" if facts.silent_seconds else "no progress"
        return case.verdict("hang", (*[hit.line for hit in seen.of("stall")[:1]], *lines, silent))
    return None


def _dead(case: Case) -> Diagnosis | None:
    seen, facts = case.seen, case.facts
    if facts.alive:
        if seen.of("consequence") and seen.of("consequence")[-1].order > max(seen.progress, seen.ready, seen.shutdown):
            return case.verdict("crash_other", [hit.line for hit in seen.of("consequence")[-2:]])
        return None
    if facts.phase == "stop" or (facts.phase == "bench" and facts.exit_code in (0, None)):
        return None
    status = f"exit status {facts.exit_code}" if facts.exit_code is not None else "the process is gone"
    if facts.exit_code in (126, 127):
        return case.verdict("env_error", (*seen.tail, status), advice="The command was not found or may not be run.")
    if facts.exit_code == 2 and seen.usage:
        return case.verdict("invalid_config", (*list(seen.tail)[-1:], status))
    if facts.phase == "bench":
        return case.verdict("bench_failed", (*list(seen.tail)[-2:], status))
    if facts.exit_code == 0 and facts.phase == "startup" and not seen.of("consequence"):
        return case.verdict("crash_other", (*list(seen.tail)[-2:], status), "stop", _BACKGROUND)
    shown = [hit.line for hit in seen.of("consequence")[:2]] or list(seen.tail)[-2:]
    return case.verdict("crash_other", (*shown, status))


def _measured(case: Case) -> Diagnosis | None:
    """What spoils a measurement although the server lives."""
    seen, facts = case.seen, case.facts
    lost = seen.of("lost")
    if lost:
        rule = lost[0].rule
        return case.verdict(rule.kind, (lost[0].line,), rule.action, rule.advice)
    if facts.phase == "bench":
        wrong = bench.complaint(seen.bench)
        if wrong is not None:
            return case.verdict("bench_failed", wrong.lines, advice=wrong.advice)
    if facts.phase in ("load", "bench") and seen.bad_post and seen.posts_bad > bench.FAILED_SHARE * seen.posts_ok:
        advice = f"{seen.posts_bad} requests were answered with an error, {seen.posts_ok} with 200: see the first."
        return case.verdict("bench_failed", (seen.bad_post,), advice=advice)
    return None


def _noted(case: Case) -> Diagnosis | None:
    for role in ("pressure", "clamp"):
        found = case.seen.of(role)
        if found:
            rule = found[0].rule
            return case.verdict(rule.kind, [hit.line for hit in found[:2]], rule.action, rule.advice)
    return None


def _serving(case: Case) -> Diagnosis:
    seen, facts = case.seen, case.facts
    served = seen.ready >= 0 or seen.progress >= 0
    if facts.phase == "startup" and not served:
        return case.verdict("starting", list(seen.tail)[-1:])
    ready = [line for _, stage, line in seen.markers if stage == "load"]
    return case.verdict("ok", (*ready[-1:], *list(seen.tail)[-1:]))


def diagnose(log: str | bytes | Iterable[str] | Iterable[bytes], facts: Facts) -> Diagnosis:
    """The class of what happened, the action to take, the lines that prove it, and what to change. Never raises on
    any content of the log; reads it once, in constant memory."""
    table = compiled(facts.engine, facts.version)
    case = Case(scan(read_lines(log), table, facts.phase == "bench"), facts, table)
    for judge in (_failed, _kernel_killed, _stalled, _dead, _measured, _noted):
        found = judge(case)
        if found is not None:
            return found
    return _serving(case)
