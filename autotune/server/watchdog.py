"""Is a server under load still serving? Pure: token counts and facts go in, an alarm comes out.

/health is not asked: it says yes while generation is stuck (sgl-project/sglang#6624), and no during a long
prefill (#22511). Progress is tokens.
"""

from __future__ import annotations

from typing import Literal

from autotune.values import Value


class LoadLimits(Value, frozen=True, kw_only=True):
    """``stall_s`` without a new token while requests wait is a stall.

    A crawl is ``crawl_s`` seconds in which every interval of ``interval_s`` brought less than ``crawl_fraction``
    of the best interval seen, or less than ``floor_tok_s``. ``lost_member_s`` replaces ``stall_s`` when a process
    that was there when the server got ready is gone; ``front_end_s`` is how long the port may be closed.
    """

    stall_s: float = 60.0
    interval_s: float = 5.0
    crawl_s: float = 60.0
    crawl_fraction: float = 0.02
    floor_tok_s: float = 0.0
    lost_member_s: float = 10.0
    front_end_s: float = 5.0


class LoadFacts(Value, frozen=True, kw_only=True):
    """One look. ``tokens`` is the running total received by the client, ``in_flight`` the requests it waits for.

    Where tokens come only at a request's end (no streaming), ``stall_s`` must exceed the longest request.
    """

    tokens: int
    in_flight: int
    exit_code: int | None = None
    lost_members: int = 0
    listening: bool = True


class Alarm(Value, frozen=True, kw_only=True):
    """The server does not serve. ``exit_code`` only for ``dead``."""

    kind: Literal["dead", "front_end", "stall", "crawl"]
    reason: str
    exit_code: int | None = None


class LoadWatch:
    """The state of one load. ``check`` at any pace, a second or faster; the first alarm is final."""

    def __init__(self, limits: LoadLimits, now_s: float) -> None:
        self._limits = limits
        self._progress_s = now_s
        self._listened_s = now_s
        self._tokens = 0
        self._peak_in_flight = 0
        self._interval = (now_s, 0)
        self._best_tok_s = 0.0
        self._slow_since: float | None = None

    def check(self, facts: LoadFacts, now_s: float) -> Alarm | None:
        """The alarm, or None: all is well."""
        if facts.exit_code is not None:
            reason = f"the server exited with code {facts.exit_code} under load"
            return Alarm(kind="dead", reason=reason, exit_code=facts.exit_code)
        self._note(facts, now_s)
        return self._front_end(now_s) or self._stall(facts, now_s) or self._crawl(facts, now_s)

    def _note(self, facts: LoadFacts, now_s: float) -> None:
        # Nobody waits, so nothing can stall.
        if facts.tokens > self._tokens or facts.in_flight == 0:
            self._progress_s = now_s
        if facts.listening:
            self._listened_s = now_s
        self._tokens = max(self._tokens, facts.tokens)
        self._peak_in_flight = max(self._peak_in_flight, facts.in_flight)

    def _front_end(self, now_s: float) -> Alarm | None:
        closed_s = now_s - self._listened_s
        if closed_s < self._limits.front_end_s:
            return None
        return Alarm(kind="front_end", reason=f"nobody has listened on the server's port for {closed_s:.0f} s")

    def _stall(self, facts: LoadFacts, now_s: float) -> Alarm | None:
        silent_s = now_s - self._progress_s
        limit_s = self._limits.stall_s
        why = ""
        if facts.lost_members:
            limit_s = min(limit_s, self._limits.lost_member_s)
            why = f", and {facts.lost_members} of its processes are gone"
        if silent_s < limit_s:
            return None
        return Alarm(kind="stall", reason=f"no token for {silent_s:.0f} s, {facts.in_flight} requests wait{why}")

    def _crawl(self, facts: LoadFacts, now_s: float) -> Alarm | None:
        begin_s, begin_tokens = self._interval
        if now_s - begin_s < self._limits.interval_s:
            return None
        rate_tok_s = (self._tokens - begin_tokens) / (now_s - begin_s)
        self._interval = (now_s, self._tokens)
        self._best_tok_s = max(self._best_tok_s, rate_tok_s)
        floor_tok_s = max(self._limits.floor_tok_s, self._limits.crawl_fraction * self._best_tok_s)
        # A draining load is slow because few requests are left.
        if rate_tok_s >= floor_tok_s or 2 * facts.in_flight < self._peak_in_flight or not facts.in_flight:
            self._slow_since = None
            return None
        if self._slow_since is None:
            self._slow_since = begin_s
        slow_s = now_s - self._slow_since
        if slow_s < self._limits.crawl_s:
            return None
        reason = f"{rate_tok_s:.1f} tok/s for {slow_s:.0f} s, best was {self._best_tok_s:.1f} tok/s"
        return Alarm(kind="crawl", reason=reason)
