"""When is a starting server ready, dead, or hung? Pure: facts and the time go in, a verdict comes out.

"Dead?" is asked before "ready?". Ready means that a real generation returned tokens; an open port, a 200
from /health or a line in the log prove nothing.
"""

from __future__ import annotations

from typing import Literal, Protocol

from autotune.values import Value

MIB = 1 << 20
_BUSY_CORES = 0.1
_REFUSALS = frozenset({401, 403, 404, 405})


class Probe(Protocol):
    """What one engine calls a real generation; pure, the caller does the I/O."""

    def request(self) -> tuple[str, str]:
        """Path and JSON text of a POST that generates a few tokens from fresh random token ids."""
        ...

    def is_ready(self, status: int, body: bytes) -> bool:
        """Whether the answer holds at least one generated token."""
        ...


class StartLimits(Value, frozen=True, kw_only=True):
    """Seconds. ``silence_s`` without a sign of life is a hang, ``start_s`` the hard cap.

    Processor time alone is a weak sign (a dead collective spins): it stretches the silence to
    ``busy_factor`` times its length at most. ``refused_s`` is for answers that cannot become better
    (401, 403, 404, 405), ``probe_s`` for one generation.
    """

    start_s: float = 3600.0
    silence_s: float = 600.0
    busy_factor: float = 3.0
    refused_s: float = 15.0
    probe_s: float = 60.0


class Answer(Value, frozen=True, kw_only=True):
    """What the latest probe met. Status 0: no HTTP answer (connection refused is normal while a model loads)."""

    status: int = 0
    ready: bool = False
    detail: str = ""


class StartFacts(Value, frozen=True, kw_only=True):
    """One look at a starting server. The counters only need to change when something happens."""

    exit_code: int | None = None
    log_bytes: int = 0
    cpu_s: float = 0.0
    gpu_bytes: int = 0
    answer: Answer = Answer()


class Ready(Value, frozen=True, kw_only=True, tag="ready"):
    """The server generated tokens ``seconds`` after its start."""

    seconds: float


class Died(Value, frozen=True, kw_only=True, tag="died"):
    """The leader exited by itself; negative codes are signals, and none of them says why (read the log)."""

    exit_code: int
    seconds: float


class TimedOut(Value, frozen=True, kw_only=True, tag="timed_out"):
    """The server lives but does not get ready.

    ``silence``: no sign of life; ``cap``: too long altogether; ``no_tokens``: answers, but never generates;
    ``refused``: answers that it will not (key, path).
    """

    kind: Literal["silence", "cap", "no_tokens", "refused"]
    reason: str
    seconds: float


class Cancelled(Value, frozen=True, kw_only=True, tag="cancelled"):
    """Somebody wants to end; says nothing about the server."""

    reason: str
    seconds: float


class Blocked(Value, frozen=True, kw_only=True, tag="blocked"):
    """Nothing was started, or what answered is not ours. ``port_in_use``: try another port;
    ``gpu_busy``: memory is held by somebody, named in ``reason``.
    """

    kind: Literal["port_in_use", "gpu_busy"]
    reason: str


StartOutcome = Ready | Died | TimedOut | Cancelled | Blocked


class StartWatch:
    """The state of one start. Feed it ``step`` at any pace; the first verdict is final."""

    def __init__(self, limits: StartLimits, now_s: float) -> None:
        self._limits = limits
        self._begin_s = now_s
        self._last = StartFacts()
        self._strong_s = now_s
        self._weak_s = now_s
        self._cpu_mark = (now_s, 0.0)
        self._answering_since: float | None = None
        self._refused_since: float | None = None

    def step(self, facts: StartFacts, now_s: float) -> Ready | Died | TimedOut | None:
        """The verdict, or None: go on waiting."""
        seconds = now_s - self._begin_s
        if facts.exit_code is not None:
            return Died(exit_code=facts.exit_code, seconds=seconds)
        if facts.answer.ready:
            return Ready(seconds=seconds)
        self._note_signs(facts, now_s)
        self._note_answer(facts.answer, now_s)
        return self._timeout(facts, now_s)

    def _note_signs(self, facts: StartFacts, now_s: float) -> None:
        last, self._last = self._last, facts
        if facts.log_bytes != last.log_bytes or abs(facts.gpu_bytes - last.gpu_bytes) >= MIB:
            self._strong_s = now_s
        mark_s, mark_cpu_s = self._cpu_mark
        if now_s - mark_s >= 1.0:
            if facts.cpu_s - mark_cpu_s >= _BUSY_CORES * (now_s - mark_s):
                self._weak_s = now_s
            self._cpu_mark = (now_s, facts.cpu_s)

    def _note_answer(self, answer: Answer, now_s: float) -> None:
        if answer.status and self._answering_since is None:
            self._answering_since = now_s
        if answer.status not in _REFUSALS:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now_s

    def _timeout(self, facts: StartFacts, now_s: float) -> TimedOut | None:
        limits, seconds = self._limits, now_s - self._begin_s
        seen = f"HTTP {facts.answer.status} {facts.answer.detail}".strip()
        if self._refused_since is not None and now_s - self._refused_since >= limits.refused_s:
            return TimedOut(kind="refused", reason=f"the server refuses to generate: {seen}", seconds=seconds)
        # Our own probes write access-log lines, so once it answers, log growth is no sign of life any more.
        if self._answering_since is not None and now_s - self._answering_since >= limits.silence_s:
            reason = f"the server answers but generated nothing for {limits.silence_s:.0f} s: {seen}"
            return TimedOut(kind="no_tokens", reason=reason, seconds=seconds)
        silent_s = now_s - self._last_sign_s()
        if silent_s >= limits.silence_s:
            reason = f"no sign of life for {now_s - self._strong_s:.0f} s (log, GPU memory; processor time counts less)"
            return TimedOut(kind="silence", reason=reason, seconds=seconds)
        if seconds >= limits.start_s:
            return TimedOut(kind="cap", reason=f"not ready after {limits.start_s:.0f} s", seconds=seconds)
        return None

    def _last_sign_s(self) -> float:
        stretch_s = (self._limits.busy_factor - 1.0) * self._limits.silence_s
        return max(self._strong_s, min(self._weak_s, self._strong_s + stretch_s))
