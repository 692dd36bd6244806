"""The loop around ``StartWatch``: looks at the process, probes by HTTP in a thread, listens to the cancel flag."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import httpx
import msgspec

from autotune.server.cancel import Waiting
from autotune.server.readiness import (
    Answer,
    Blocked,
    Cancelled,
    Probe,
    StartFacts,
    StartLimits,
    StartOutcome,
    StartWatch,
)
from autotune.server.receive import receive

_LONGEST_BODY = 1 << 20
_VITALS_S = 1.0
_RETRY_S = 0.1


class Vitals(msgspec.Struct, frozen=True, kw_only=True):
    """Signs of life, sampled about once a second."""

    log_bytes: int = 0
    cpu_s: float = 0.0
    gpu_bytes: int = 0


class Subject(Protocol):
    """The starting server as the loop sees it."""

    def poll(self) -> int | None: ...

    def vitals(self) -> Vitals: ...

    def answer(self) -> Answer: ...

    def intruder(self) -> Blocked | None: ...


OnVitals = Callable[[float, Vitals], None]


def wait_ready(
    subject: Subject, limits: StartLimits, waiting: Waiting, on_vitals: OnVitals | None = None
) -> StartOutcome:
    """Loop until a verdict; a stranger on the port is one, since ours can never bind there.

    ``on_vitals`` hears seconds since the start, and the vitals, about once a second.
    """
    begin_s = waiting.clock.now()
    watch = StartWatch(limits, begin_s)
    vitals, sampled_s = Vitals(), float("-inf")
    while True:
        now_s = waiting.clock.now()
        if now_s - sampled_s >= _VITALS_S:
            vitals, sampled_s = subject.vitals(), now_s
            if on_vitals:
                on_vitals(now_s - begin_s, vitals)
            # SGLang 0.5.23 lives on, silent, when it cannot bind: without this look its silence would be waited out.
            if blocked := subject.intruder():
                return blocked
        # The answer first, the exit code after it: a server that answered and died is dead.
        answer = subject.answer()
        facts = StartFacts(exit_code=subject.poll(), answer=answer, **msgspec.structs.asdict(vitals))
        if verdict := watch.step(facts, now_s):
            return verdict
        if reason := waiting.cancel.reason():
            return Cancelled(reason=reason, seconds=now_s - begin_s)
        waiting.pause(_RETRY_S)


class HttpProber(threading.Thread):
    """Asks for a generation again and again, in its own thread: a deaf server must not hold up the loop."""

    def __init__(self, base_url: str, probe: Probe, headers: Mapping[str, str], timeout_s: float) -> None:
        super().__init__(name="readiness-probe", daemon=True)
        self._base_url = base_url
        self._probe = probe
        self._headers = {"content-type": "application/json", **headers}
        self._timeout_s = timeout_s
        self._over = threading.Event()
        self._latest = Answer()

    def answer(self) -> Answer:
        return self._latest

    def run(self) -> None:
        # No proxy, no .netrc, no certificates (they take a tenth of a second to read): the address is this machine's.
        timeout = httpx.Timeout(self._timeout_s, connect=5.0)
        with httpx.Client(base_url=self._base_url, trust_env=False, verify=False, timeout=timeout) as client:
            answered = 0
            while not self._over.is_set() and not self._latest.ready:
                self._latest = self._once(client)
                answered += bool(self._latest.status)
                self._over.wait(min(_RETRY_S * 2 ** min(answered, 6), 5.0))

    def end(self, wait_s: float = 0.0) -> None:
        """Ask no more; a question under way ends with the server, or with its own timeout."""
        self._over.set()
        if self.ident is not None:
            self.join(wait_s)

    def _once(self, client: httpx.Client) -> Answer:
        path, body = self._probe.request()
        end_s = time.monotonic() + self._timeout_s
        try:
            request = client.build_request("POST", path, content=body, headers=self._headers)
            got = receive(client, request, _LONGEST_BODY, lambda: time.monotonic() > end_s or self._over.is_set())
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return Answer(detail=f"{type(error).__name__}: {error}")
        return self._judge(got.status, got.body)

    def _judge(self, status: int, body: bytes) -> Answer:
        try:
            ready = self._probe.is_ready(status, body)
        except Exception as error:  # An engine's parser must not end the probing: a strange answer is "not ready".
            return Answer(status=status, detail=f"unreadable answer: {error!r}")
        return Answer(status=status, ready=ready, detail="" if ready else body[:200].decode(errors="replace"))
