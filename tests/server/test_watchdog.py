"""The alarms of a load, from token counts and a clock."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.server.watchdog import Alarm, LoadFacts, LoadLimits, LoadWatch

LIMITS = LoadLimits()


def watch(facts: Callable[[int], LoadFacts], seconds: int, limits: LoadLimits = LIMITS) -> tuple[int, Alarm | None]:
    load = LoadWatch(limits, 0.0)
    for now_s in range(1, seconds + 1):
        if alarm := load.check(facts(now_s), float(now_s)):
            return now_s, alarm
    return seconds, None


def test_a_steady_load_raises_no_alarm() -> None:
    """Tokens every second are well."""
    assert watch(lambda t: LoadFacts(tokens=1000 * t, in_flight=64), 600) == (600, None)


def test_death_is_an_alarm_with_its_code() -> None:
    """The exit code is told, and zero counts too."""
    _, alarm = watch(lambda t: LoadFacts(tokens=t, in_flight=0, exit_code=0), 5)
    assert alarm is not None
    assert (alarm.kind, alarm.exit_code) == ("dead", 0)


def test_no_token_for_the_limit_is_a_stall() -> None:
    """A scheduler that stands still behind a healthy front end is found by its tokens."""
    when, alarm = watch(lambda t: LoadFacts(tokens=1000 * min(t, 100), in_flight=64), 600)
    assert alarm is not None
    assert (when, alarm.kind) == (160, "stall")


def test_nobody_waiting_is_no_stall() -> None:
    """An open loop with long gaps stands still for good reasons."""
    assert watch(lambda t: LoadFacts(tokens=5, in_flight=0), 600)[1] is None


def test_a_lost_process_makes_the_stall_short() -> None:
    """Tokens that stop when a process is gone will not come back."""
    when, alarm = watch(lambda t: LoadFacts(tokens=min(t, 50), in_flight=8, lost_members=int(t > 50)), 600)
    assert alarm is not None
    assert (when, alarm.kind) == (60, "stall")
    assert watch(lambda t: LoadFacts(tokens=t, in_flight=8, lost_members=1), 600)[1] is None


def test_a_closed_port_is_a_dead_front_end() -> None:
    """Workers that live without a front end serve nobody."""
    when, alarm = watch(lambda t: LoadFacts(tokens=t, in_flight=8, listening=t < 20), 600)
    assert alarm is not None
    assert (when, alarm.kind) == (24, "front_end")


def test_a_crawl_is_an_alarm() -> None:
    """A hundredth of the best rate for a minute is no service."""
    when, alarm = watch(lambda t: LoadFacts(tokens=1000 * min(t, 100) + 10 * max(0, t - 100), in_flight=64), 600)
    assert alarm is not None
    assert alarm.kind == "crawl"
    assert 155 <= when <= 170


def test_a_draining_load_may_be_slow() -> None:
    """With few requests left, few tokens come."""

    def facts(t: int) -> LoadFacts:
        return LoadFacts(tokens=1000 * min(t, 100) + 5 * max(0, t - 100), in_flight=64 if t <= 100 else 3)

    assert watch(facts, 600)[1] is None


def test_a_short_dip_is_no_crawl() -> None:
    """A long prefill in between is forgiven."""

    def facts(t: int) -> LoadFacts:
        return LoadFacts(tokens=1000 * t if t < 100 else 100_000 + t if t < 140 else 1000 * t, in_flight=64)

    assert watch(facts, 600)[1] is None


def test_an_absolute_floor_can_be_set() -> None:
    """A server that was never fast is found by the floor."""
    slow = LoadLimits(floor_tok_s=5.0)
    assert watch(lambda t: LoadFacts(tokens=t, in_flight=8), 600, slow)[1] is not None
    assert watch(lambda t: LoadFacts(tokens=t, in_flight=8), 600)[1] is None


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 100), st.floats(0.1, 30)), max_size=60))
def test_a_load_without_a_token_never_waits_beyond_the_stall(steps: list[tuple[int, int, float]]) -> None:
    """However the facts come, requests that wait longer than the limit without a token raise an alarm."""
    load, now_s, waiting_since, best = LoadWatch(LIMITS, 0.0), 0.0, 0.0, 0
    for tokens, in_flight, pause_s in steps:
        now_s += pause_s
        if tokens > best or in_flight == 0:
            waiting_since = now_s
        best = max(best, tokens)
        alarm = load.check(LoadFacts(tokens=tokens, in_flight=in_flight), now_s)
        if alarm:
            return
        assert now_s - waiting_since < LIMITS.stall_s
