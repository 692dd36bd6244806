"""The verdicts on a start, from facts and a clock."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.server.cancel import CancelFlag, Waiting
from autotune.server.clock import FakeClock
from autotune.server.readiness import (
    Answer,
    Blocked,
    Cancelled,
    Died,
    Ready,
    StartFacts,
    StartLimits,
    StartWatch,
    TimedOut,
)
from autotune.server.starting import Vitals, wait_ready

LIMITS = StartLimits(start_s=3600.0, silence_s=600.0)
READY = Answer(status=200, ready=True)


def verdict(facts: Iterable[StartFacts], step_s: float = 1.0, limits: StartLimits = LIMITS) -> object:
    watch = StartWatch(limits, 0.0)
    for i, fact in enumerate(facts):
        if found := watch.step(fact, i * step_s):
            return found
    return None


def test_dead_is_asked_before_ready() -> None:
    """A server that answered and died is dead."""
    assert verdict([StartFacts(exit_code=1, answer=READY)]) == Died(exit_code=1, seconds=0.0)


def test_ready_says_how_long_it_took() -> None:
    """A generation with tokens is readiness."""
    assert verdict([StartFacts(), StartFacts(), StartFacts(answer=READY)]) == Ready(seconds=2.0)


def test_silence_is_a_hang() -> None:
    """No log, no GPU memory, no processor time for the limit ends the start."""
    found = verdict(StartFacts(log_bytes=5) for _ in range(10_000))
    assert isinstance(found, TimedOut)
    assert (found.kind, found.seconds) == ("silence", 600.0)


def test_log_growth_keeps_a_slow_start_alive() -> None:
    """A model that loads for an hour with a moving progress bar runs into the cap, not into silence."""
    found = verdict(StartFacts(log_bytes=i // 500) for i in range(10_000))
    assert isinstance(found, TimedOut)
    assert (found.kind, found.seconds) == ("cap", 3600.0)


def test_gpu_memory_is_a_sign_of_life() -> None:
    """Weights that arrive on the GPU without a word are progress; jitter below a MiB is not."""
    growing = verdict(StartFacts(gpu_bytes=i << 21) for i in range(1000))
    jitter = verdict(StartFacts(gpu_bytes=i % 2) for i in range(1000))
    assert growing is None
    assert isinstance(jitter, TimedOut)


def test_processor_time_alone_stretches_the_silence_but_not_for_ever() -> None:
    """A silent compiler gets three times the limit; a dead collective that spins gets no more."""
    found = verdict(StartFacts(cpu_s=float(i)) for i in range(10_000))
    assert isinstance(found, TimedOut)
    assert found.kind == "silence"
    assert 1800.0 <= found.seconds <= 1801.0


def test_a_trickle_of_processor_time_is_no_life() -> None:
    """Housekeeping threads use some time in a hung server too."""
    found = verdict(StartFacts(cpu_s=i * 0.01) for i in range(10_000))
    assert isinstance(found, TimedOut)
    assert found.seconds == 600.0


def test_an_answering_server_that_never_generates_is_ended_although_its_log_grows() -> None:
    """Our own probes write its access log."""
    answer = Answer(status=503, detail="Starting")
    found = verdict(StartFacts(log_bytes=i, answer=answer) for i in range(10_000))
    assert isinstance(found, TimedOut)
    assert (found.kind, found.seconds) == ("no_tokens", 600.0)
    assert "503 Starting" in found.reason


def test_a_refusal_that_lasts_ends_the_start_early() -> None:
    """A wrong key does not become right; one 404 between other answers is no refusal."""
    refused, starting = Answer(status=401), Answer(status=503)
    found = verdict(StartFacts(answer=refused) for _ in range(100))
    assert isinstance(found, TimedOut)
    assert (found.kind, found.seconds) == ("refused", 15.0)
    assert verdict(StartFacts(answer=refused if i % 10 else starting) for i in range(100)) is None


_facts = st.builds(
    StartFacts,
    exit_code=st.none() | st.none() | st.integers(-15, 137),
    log_bytes=st.integers(0, 10**9),
    cpu_s=st.floats(0, 1e6),
    gpu_bytes=st.integers(0, 10**12),
    answer=st.builds(Answer, status=st.sampled_from([0, 200, 401, 503]), ready=st.booleans()),
)


@settings(deadline=None)
@given(st.lists(st.tuples(_facts, st.floats(0, 400)), min_size=1, max_size=40))
def test_every_start_ends_within_the_cap(steps: list[tuple[StartFacts, float]]) -> None:
    """Whatever the facts, a death is a death, tokens are readiness, and nothing waits beyond the cap."""
    watch, now_s = StartWatch(LIMITS, 0.0), 0.0
    for facts, pause_s in steps:
        now_s += pause_s
        found = watch.step(facts, now_s)
        assert isinstance(found, Died) == (facts.exit_code is not None)
        assert isinstance(found, Ready) == (facts.exit_code is None and facts.answer.ready)
        assert found is not None or now_s < LIMITS.start_s


class FakeSubject:
    """Becomes ready, or dies, at a given time."""

    def __init__(self, clock: FakeClock, ready_s: float = 1e9, dies_s: float = 1e9, taken_s: float = 1e9) -> None:
        self.clock, self.ready_s, self.dies_s, self.taken_s = clock, ready_s, dies_s, taken_s

    def poll(self) -> int | None:
        return 9 if self.clock.now() >= self.dies_s else None

    def vitals(self) -> Vitals:
        return Vitals(log_bytes=int(self.clock.now()))

    def answer(self) -> Answer:
        return READY if self.clock.now() >= self.ready_s else Answer()

    def intruder(self) -> Blocked | None:
        taken = Blocked(kind="port_in_use", reason="a stranger listens")
        return taken if self.clock.now() >= self.taken_s else None


def test_the_loop_notices_within_a_fifth_of_a_second() -> None:
    """Ready and dead are seen at the next look, at most 0.2 s later."""
    clock = FakeClock()
    found = wait_ready(FakeSubject(clock, ready_s=90.05), LIMITS, Waiting(clock=clock))
    assert isinstance(found, Ready)
    assert 90.05 <= found.seconds <= 90.26
    clock = FakeClock()
    assert isinstance(wait_ready(FakeSubject(clock, 50.0, 49.9), LIMITS, Waiting(clock=clock)), Died)


def test_a_stranger_on_the_port_ends_the_wait() -> None:
    """Ours can never bind there: it is told within about a second, not after the silence."""
    clock = FakeClock()
    found = wait_ready(FakeSubject(clock, taken_s=20.0), LIMITS, Waiting(clock=clock))
    assert isinstance(found, Blocked)
    assert 20.0 <= clock.now() <= 21.2


def test_the_loop_hears_a_cancel_and_tells_its_vitals() -> None:
    """The reason of the cancel is in the outcome; listeners hear about once a second."""
    clock, flag, heard = FakeClock(), CancelFlag(), list[float]()

    def listen(seconds: float, _: Vitals) -> None:
        heard.append(seconds)
        if seconds > 10:
            flag.cancel("SIGTERM")

    found = wait_ready(FakeSubject(clock), LIMITS, Waiting(clock=clock, cancel=flag), listen)
    assert isinstance(found, Cancelled)
    assert found.reason == "SIGTERM"
    assert 9 <= len(heard) <= 12
