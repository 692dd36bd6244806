"""Tests of what a report derives from the records."""

import msgspec
import pytest

from autotune.report import facts as known
from autotune.report.facts import Facts
from autotune.report.table import as_csv, trials
from autotune.report.text import seconds, summary
from tests.report.builders import confirmed, facts, measured, out_of_memory, trial, whole_night

BASE = trial(0, {}, measured(1000.0))
BETTER = trial(1, {"limit": 256}, measured(1200.0))


@pytest.mark.parametrize(
    ("night", "title", "tone"),
    [
        (facts(BASE, BETTER), "Not confirmed: +20.0 % as searched", "plain"),
        (facts(BASE, BETTER, confirmed=confirmed(1.4)), "Reliable gain of 40.0 %", "good"),
        (facts(BASE, BETTER, confirmed=confirmed(1.0)), "No reliable difference from the defaults", "plain"),
        (facts(BASE, BETTER, confirmed=confirmed(0.7)), "The finalist is worse by 30.0 %: keep the defaults", "bad"),
        (facts(BASE), "Nothing better than the defaults was found", "plain"),
        (facts(BETTER), "No baseline", "bad"),
        (facts(trial(0, {}, out_of_memory())), "Nothing was measured", "bad"),
        (facts(), "Nothing was measured", "bad"),
    ],
)
def test_the_verdict_comes_first(night: Facts, title: str, tone: str) -> None:
    """What is confirmed is claimed with its interval, what is not is said to be as searched."""
    head = known.headline(night)
    assert (head.title, head.tone) == (title, tone)
    assert summary(night).splitlines()[2] == title
    assert ("95 % interval" in head.detail) == (night.confirmed is not None)


def test_a_confirmation_without_a_verdict_claims_nothing() -> None:
    """Where too few starts were measured the gain stays one of the search, and the reason is told."""
    begun = msgspec.structs.replace(confirmed(1.4), judgement=None, sentence="too few starts")
    head = known.headline(facts(BASE, BETTER, confirmed=begun))
    assert head.title == "Not confirmed: +20.0 % as searched"
    assert "too few starts" in head.detail


def test_what_failed_is_counted() -> None:
    """Without a measurement the kinds of failure are the news."""
    night = facts(trial(0, {}, out_of_memory()), trial(1, {"limit": 64}, out_of_memory()))
    assert "2 x oom_kv" in known.headline(night).detail


def test_where_the_time_went_adds_up() -> None:
    """Every second of every trial is in exactly one part."""
    night = whole_night()
    parts = known.where_time_went(night)
    assert sum(parts.values()) == pytest.approx(33.0 * (len(night.results) + 4))
    assert parts["lost to failures"] == pytest.approx(66.0)
    assert parts["refused or cut off"] == pytest.approx(66.0)
    assert parts["warm-up"] == pytest.approx(8 * 5.0)


def test_clamped_values_are_told() -> None:
    """A value that the server lowered is listed with what runs."""
    (clamp,) = known.clamps(whole_night())
    assert (clamp.parameter, clamp.asked, clamp.runs) == ("limit", 768, 700)


def test_the_front_is_what_nothing_beats() -> None:
    """With latency falling as throughput grows only the fastest trials are on the front."""
    found = known.tradeoff(whole_night())
    assert found is not None
    fastest = max(found.throughput)
    assert {rate for n, rate in zip(found.trials, found.throughput, strict=True) if n in found.front} == {fastest}


def test_baselines_are_in_order_of_time() -> None:
    """Starts of the defaults in search and confirmation make one series for the drift."""
    night = whole_night()
    times = [at for at, _ in known.baselines(night)]
    assert times == sorted(times)
    assert times[0] == 0.0
    assert len(times) == 5
    assert known.drift(night, known.baselines(night)).known


def test_the_best_is_among_the_equals() -> None:
    """The list of settings that cannot be told apart holds the best itself."""
    night = whole_night()
    assert night.chosen in {number for one in known.as_good(night) for number in one.trials}


@pytest.mark.parametrize("count", range(6))
def test_few_trials_are_no_error(count: int) -> None:
    """Every derived figure copes with nothing, and with next to nothing."""
    night = facts(*whole_night().results[:count])
    assert count > 4 or all(one.answer == "cannot tell" for one in known.what_matters(night))
    assert summary(night)
    assert len(trials(night)) == count


def test_the_table_has_a_row_per_trial() -> None:
    """Asked and in force stand side by side, and a trial without a score has its reason."""
    frame = trials(whole_night()).set_index("trial")
    assert len(frame) == 12
    assert frame.loc[5, "asked_limit"] == 768
    assert frame.loc[5, "runs_limit"] == 700
    assert frame.loc[8, "state"] == "oom_kv"
    assert frame.loc[10, "reason"] == "others used the host"
    assert as_csv(whole_night()).count("\n") == 13


def test_spans_are_short() -> None:
    """Seconds, minutes and hours, whichever reads best."""
    assert [seconds(s) for s in (42, 600, 7200)] == ["42 s", "10 min", "2.0 h"]
