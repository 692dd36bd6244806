"""Which line of a log is the root cause: the first in time that nothing explains and nothing survived."""

from __future__ import annotations

import re

from autotune.diagnosis.case import Case
from autotune.diagnosis.lines import Line
from autotune.diagnosis.scan import Hit, Raised

ECHO_S = 60.0
"""A failure of communication that came more than this before the first other cause was not its echo."""
_ECHO_ONLY = re.compile(r"clos(?:ed|ing)|reset|got 0 bytes|remote|shut ?down|[Bb]roken pipe")
_CONSEQUENT = re.compile(
    r"^(?:\w+\.)*(?:EOFError|ConnectionResetError|BrokenPipeError|ConnectionRefusedError|CancelledError|KeyboardInterrupt"
    r"|SystemExit|GeneratorExit|EngineDeadError|AsyncEngineDeadError|MQEngineDeadError|RemoteProtocolError|ZMQError"
    r"|ProcessRaisedException|ProcessExitedException|Exit|ChildFailedError)$"
)


def _past_life(case: Case, order: int, line: Line) -> bool:
    """Whether the server was started again after this line: a log may hold several lives."""
    for launch, launched in case.seen.launches:
        later = launched.time_s is None or line.time_s is None or launched.time_s >= line.time_s
        if launch > order and later:
            return True
    return False


def _survived(case: Case, hit: Hit) -> bool:
    """Whether the server got over it: probing autotuners and retried requests print real out-of-memory errors."""
    seen = case.seen
    if hit.order < seen.ready:
        return True
    return case.facts.alive and not hit.fatal and max(seen.progress, seen.ready) > hit.order


def _standing(case: Case, hits: list[Hit]) -> list[Hit]:
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


def _kill(case: Case, before: list[Hit]) -> Hit | None:
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


def root_cause(case: Case) -> Hit | None:
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
    unknown = unknown_exception(case)
    if weak and (unknown is None or weak[0].order <= unknown.order + 1):
        return weak[0]
    return None


def unknown_exception(case: Case) -> Raised | None:
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
