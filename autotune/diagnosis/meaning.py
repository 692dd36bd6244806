"""What a root cause means for the trial: its class by stage, its action, its advice."""

from __future__ import annotations

import re

from autotune.diagnosis.case import Case
from autotune.diagnosis.lines import Line
from autotune.diagnosis.scan import Hit, Raised
from autotune.values import Diagnosis

FOREIGN_SHARE = 0.1
"""Of the card: CUDA contexts and NCCL buffers stay below it, another server does not."""
_ARGUMENT_ERRORS = frozenset(
    {"ValueError", "AssertionError", "TypeError", "NotImplementedError", "KeyError", "AttributeError"}
)
_SURROUNDINGS = frozenset({"OSError", "FileNotFoundError", "PermissionError", "ImportError", "ModuleNotFoundError"})
_NAME = re.compile(r"--?([a-z][\w-]{2,60})|\b([a-z]+(?:_[a-z\d]+)+)\b")
_GIB = r"(\d+(?:\.\d+)?) (GiB|MiB)"
_TAKEN = re.compile(rf"total capacity of {_GIB} of which {_GIB} is free")
_OURS = re.compile(rf"{_GIB} is allocated by PyTorch.{{0,200}}?{_GIB} is reserved")


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


def _oom(case: Case, hit: Hit) -> tuple[str, str, str]:
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


def _refusal(case: Case, text: str, knobs: tuple[str, ...], default: str) -> str:
    """prune when the refused value is one that the study varies, else stop: the next trial would fail alike."""
    named = _names(text) | set(knobs)
    searched = {flag.lstrip("-").replace("-", "_") for flag in case.facts.searched_flags}
    if searched:
        return "prune" if named & searched else ("stop" if named else default)
    return default or ("prune" if named & set(case.table.searchable) else "stop")


def _sharper(case: Case, hit: Hit) -> Hit:
    """The exception raised from a plain out-of-memory error often names the stage: "... when warming up sampler"."""
    for other in case.seen.of("cause"):
        close = hit.order < other.order <= hit.order + 100 and other.line.rank == hit.line.rank
        if close and other.rule.kind in ("oom_weights", "oom_kv", "oom_graph", "oom_runtime"):
            return other
    return hit


def explain(case: Case, hit: Hit) -> Diagnosis:
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


def _echo_lines(case: Case, hit: Hit) -> list[Line]:
    """One later line that confirms the class, if it says it in other words."""
    same = [h.line for h in case.seen.of("cause", "kill") if h.order > hit.order and h.rule.kind == hit.rule.kind]
    return same[:1]


def explain_unknown(case: Case, raised: Raised) -> Diagnosis:
    early = raised.stage == "launch" and case.facts.phase == "startup"
    name = raised.name.rsplit(".", 1)[-1]
    if (raised.config or early) and name in _ARGUMENT_ERRORS:
        action = _refusal(case, raised.line.message, (), "")
        return case.verdict("invalid_config", (raised.line,), action)
    if case.facts.phase == "startup" and name in _SURROUNDINGS:
        return case.verdict("env_error", (raised.line,))
    return case.verdict("crash_other", (raised.line,))
