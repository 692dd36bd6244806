"""Why a server is not serving, and what a tuner should do about it: class, action, evidence, advice.

The first root cause in time counts, of the rank that failed first. What follows a death (NCCL, TCPStore, SIGQUIT,
broken pipes, "engine core initialization failed") is a consequence and never a cause while there is another.
An exit status of -9 proves nothing: SGLang's parent kills itself after every failure of a child.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, cast, get_args

import msgspec

from autotune.diagnosis import bench
from autotune.diagnosis.lines import Line, read_lines
from autotune.diagnosis.rules import Compiled, compiled
from autotune.diagnosis.scan import Hit, Raised, Scan, scan
from autotune.values import Diagnosis

Phase = Literal["startup", "load", "ready", "bench", "stop"]
Action = Literal["prune", "retry", "stop", "discard", "score", "score_flag", "wait"]

START_SILENCE_S = 600.0
"""As ``Timeouts.start_silence_s``: a start without a new line for so long hangs,"""
SLOW_SILENCE_S = 2400.0
"""unless it has just said that it compiles: a first DeepGEMM session was seen to take 1,334 s."""
LOAD_SILENCE_S = 60.0
"""As ``Timeouts.load_stall_s``: a server under load writes a line every few seconds."""
ECHO_S = 60.0
"""A failure of communication that came more than this before the first other cause was not its echo."""
FOREIGN_SHARE = 0.1

_KERNEL_OOM = re.compile(r"oom-kill|Out of memory: Kill|Memory cgroup out of memory|oom_reaper|invoked oom-killer")
_ECHO_ONLY = re.compile(r"clos(?:ed|ing)|reset|got 0 bytes|remote|shut ?down|[Bb]roken pipe")
_CONSEQUENT = re.compile(
    r"^(?:\w+\.)*(?:EOFError|ConnectionResetError|BrokenPipeError|ConnectionRefusedError|CancelledError|KeyboardInterrupt"
    r"|SystemExit|GeneratorExit|EngineDeadError|AsyncEngineDeadError|MQEngineDeadError|RemoteProtocolError|ZMQError"
    r"|ProcessRaisedException|ProcessExitedException|Exit|ChildFailedError)$"
)
_ARGUMENT_ERRORS = frozenset(
    {"ValueError", "AssertionError", "TypeError", "NotImplementedError", "KeyError", "AttributeError"}
)
_SURROUNDINGS = frozenset({"OSError", "FileNotFoundError", "PermissionError", "ImportError", "ModuleNotFoundError"})
_NAME = re.compile(r"--?([a-z][\w-]{2,60})|\b([a-z]+(?:_[a-z\d]+)+)\b")
_GIB = r"([\d.]+) (GiB|MiB)"
_TAKEN = re.compile(rf"total capacity of {_GIB} of which {_GIB} is free")
_OURS = re.compile(rf"{_GIB} is allocated by PyTorch.{{0,200}}?{_GIB} is reserved")


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


class _Case(msgspec.Struct, frozen=True):
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


# -- which hit is the root cause ------------------------------------------------------------------------------------


def _past_life(case: _Case, order: int, line: Line) -> bool:
    """Whether the server was started again after this line: a log may hold several lives."""
    for launch, launched in case.seen.launches:
        later = launched.time_s is None or line.time_s is None or launched.time_s >= line.time_s
        if launch > order and later:
            return True
    return False


def _survived(case: _Case, hit: Hit) -> bool:
    """Whether the server got over it: probing autotuners and retried requests print real out-of-memory errors."""
    seen = case.seen
    if hit.order < seen.ready:
        return True
    return case.facts.alive and not hit.fatal and max(seen.progress, seen.ready) > hit.order


def _standing(case: _Case, hits: list[Hit]) -> list[Hit]:
    seen, facts = case.seen, case.facts
    if facts.phase == "stop":
        hits = [hit for hit in hits if not 0 <= seen.shutdown < hit.order]
    fresh = [hit for hit in hits if not _past_life(case, hit.order, hit.line)]
    hits = fresh if fresh or facts.alive else hits
    lasting = [hit for hit in hits if not _survived(case, hit)]
    return lasting if lasting or facts.alive else hits


def _in_time(hits: list[Hit]) -> list[Hit]:
    if all(hit.line.time_s is not None for hit in hits):
        return sorted(hits, key=lambda hit: (hit.line.time_s or 0.0, hit.order))
    return hits


def _kill(case: _Case, before: list[Hit]) -> Hit | None:
    """A SIGKILL from outside: proof only when nothing of the server's own failed earlier."""
    seen, facts = case.seen, case.facts
    if facts.phase == "stop":
        return None
    for hit in _standing(case, seen.of("kill")):
        if hit.rule.name == "killed-by-shell" and (facts.alive or facts.exit_code not in (None, -9, 137)):
            continue
        earlier = [
            h for h in before if h.order < hit.order and not (h.rule.kind == "nccl" and _ECHO_ONLY.search(h.line.raw))
        ]
        struck = [h for h in seen.of("consequence") if h.order < hit.order and "sigquit" in h.line.raw.lower()]
        own = [r for r in seen.raised if r.order < hit.order and not r.harmless and not _CONSEQUENT.match(r.name)]
        if hit.rule.name == "kernel-oom-killer":
            own = [r for r in own if r.stage != "load"]
        if not earlier and not struck and not own:
            return hit
    return None


def _root(case: _Case) -> Hit | None:
    strong = _in_time(_standing(case, case.seen.of("cause")))
    weak = _in_time(_standing(case, case.seen.of("echoable")))
    kill = _kill(case, strong + weak)
    if kill is not None and (not strong or kill.order < strong[0].order):
        return kill
    if strong and weak and weak[0].rule.kind == "nccl":
        first, other = strong[0].line.time_s, weak[0].line.time_s
        if first is not None and other is not None and first - other > ECHO_S:
            return weak[0]
    if strong:
        return strong[0]
    unknown = _unknown(case)
    if weak and (unknown is None or weak[0].order <= unknown.order + 1):
        return weak[0]
    return None


def _unknown(case: _Case) -> Raised | None:
    """The first exception that no rule knows and that may have been fatal."""
    hits = {hit.order for role in case.seen.hits.values() for hit in role}
    for raised in case.seen.raised:
        if raised.harmless or raised.order in hits or _CONSEQUENT.match(raised.name):
            continue
        if _past_life(case, raised.order, raised.line) or raised.order < case.seen.ready:
            continue
        if case.facts.alive and case.seen.progress > raised.order:
            continue
        return raised
    return None


# -- what it means --------------------------------------------------------------------------------------------------


def _gib(number: str, unit: str) -> float:
    return float(number) / (1024 if unit == "MiB" else 1)


def _foreign(text: str) -> bool:
    """Whether the memory that PyTorch reports as used is to a good part another process's."""
    taken, ours = _TAKEN.search(text), _OURS.search(text)
    if not taken or not ours:
        return False
    capacity, free = _gib(*taken.group(1, 2)), _gib(*taken.group(3, 4))
    own = _gib(*ours.group(1, 2)) + _gib(*ours.group(3, 4))
    return capacity - free - own > max(4.0, FOREIGN_SHARE * capacity)


def _oom(case: _Case, hit: Hit) -> tuple[str, str, str]:
    """(class, action, advice) of GPU memory that ran out, by the stage in which it did."""
    stage = hit.frame or ("load" if case.facts.phase in ("load", "ready", "bench") else hit.stage)
    if stage in ("load", "warmup", "stop"):
        return "oom_runtime", "", ""
    if stage in ("kv_pool", "graph_capture"):
        return ("oom_kv" if stage == "kv_pool" else "oom_graph"), "", ""
    if (hit.stage == "launch" and not hit.frame) or _foreign(hit.line.message):
        return "oom_weights", "retry", "Another process holds GPU memory: wait until it is gone, then try again."
    return "oom_weights", "prune" if hit.pool_seen else "", ""


def _names(text: str) -> set[str]:
    return {(dashed or snake).replace("-", "_") for dashed, snake in _NAME.findall(text)}


def _refusal(case: _Case, text: str, knobs: tuple[str, ...], default: str) -> str:
    """prune when the refused value is one that the study varies, else stop: the next trial would fail alike."""
    named = _names(text) | set(knobs)
    searched = {flag.lstrip("-").replace("-", "_") for flag in case.facts.searched_flags}
    if searched:
        return "prune" if named & searched else ("stop" if named else default)
    return default or ("prune" if named & set(case.table.searchable) else "stop")


def _sharper(case: _Case, hit: Hit) -> Hit:
    """The exception raised from a plain out-of-memory error often names the stage: "... when warming up sampler"."""
    for other in case.seen.of("cause"):
        close = hit.order < other.order <= hit.order + 100 and other.line.rank == hit.line.rank
        if close and other.rule.kind in ("oom_weights", "oom_kv", "oom_graph", "oom_runtime"):
            return other
    return hit


def _explain(case: _Case, hit: Hit) -> Diagnosis:
    hit = _sharper(case, hit) if hit.rule.kind == "oom" and not hit.frame else hit
    rule, kind, action, advice = hit.rule, hit.rule.kind, hit.rule.action, hit.rule.advice
    if kind == "oom":
        kind, action, advice = _oom(case, hit)
    elif kind == "invalid_config":
        action = _refusal(case, hit.line.message, rule.knobs, action)
    elif rule.name == "shared-memory-of-a-kernel" and case.facts.phase != "startup":
        action = "prune"
    marks = [line for order, _, line in case.seen.markers if order < hit.order and kind.startswith("oom")]
    return case.verdict(kind, (*marks[-1:], hit.line, *_echo_lines(case, hit)), action, advice)


def _echo_lines(case: _Case, hit: Hit) -> list[Line]:
    """One later line that confirms the class, if it says it in other words."""
    same = [h.line for h in case.seen.of("cause", "kill") if h.order > hit.order and h.rule.kind == hit.rule.kind]
    return same[:1]


def _explain_unknown(case: _Case, raised: Raised) -> Diagnosis:
    early = raised.stage == "launch" and case.facts.phase == "startup"
    name = raised.name.rsplit(".", 1)[-1]
    if (raised.config or early) and name in _ARGUMENT_ERRORS:
        action = _refusal(case, raised.line.message, (), "")
        return case.verdict("invalid_config", (raised.line,), action)
    if case.facts.phase == "startup" and name in _SURROUNDINGS:
        return case.verdict("env_error", (raised.line,))
    return case.verdict("crash_other", (raised.line,))


# -- the judgements, in turn ----------------------------------------------------------------------------------------


def _failed(case: _Case) -> Diagnosis | None:
    root = _root(case)
    if root is not None:
        return _explain(case, root)
    unknown = _unknown(case)
    if unknown is not None and case.facts.phase != "bench":
        return _explain_unknown(case, unknown)
    return None


def _kernel_killed(case: _Case) -> Diagnosis | None:
    log = case.facts.kernel_log or ""
    lines = [line for line in log.splitlines() if _KERNEL_OOM.search(line)]
    if lines and not (case.facts.alive and case.facts.silent_seconds < LOAD_SILENCE_S):
        return case.verdict("oom_host", lines[:2])
    return None


def _stalled(case: _Case) -> Diagnosis | None:
    seen, facts = case.seen, case.facts
    if not facts.alive:
        return None
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


def _dead(case: _Case) -> Diagnosis | None:
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
    shown = [hit.line for hit in seen.of("consequence")[:2]] or list(seen.tail)[-2:]
    return case.verdict("crash_other", (*shown, status))


def _measured(case: _Case) -> Diagnosis | None:
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


def _noted(case: _Case) -> Diagnosis | None:
    for role in ("pressure", "clamp"):
        found = case.seen.of(role)
        if found:
            rule = found[0].rule
            return case.verdict(rule.kind, [hit.line for hit in found[:2]], rule.action, rule.advice)
    return None


def _serving(case: _Case) -> Diagnosis:
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
    case = _Case(scan(read_lines(log), table, facts.phase == "bench"), facts, table)
    for judge in (_failed, _kernel_killed, _stalled, _dead, _measured, _noted):
        found = judge(case)
        if found is not None:
            return found
    return _serving(case)


PHASES: tuple[str, ...] = get_args(Phase)
