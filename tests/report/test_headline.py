"""Tests of the verdict on top of a report."""

import msgspec
import pytest

from autotune.report.facts import Facts
from autotune.report.headline import headline
from autotune.report.text import summary
from tests.report.builders import confirmed, drifting_night, facts, measured, out_of_memory, trial

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
    head = headline(night)
    assert (head.title, head.tone) == (title, tone)
    assert summary(night).splitlines()[2] == title
    assert ("95 % interval" in head.detail) == (night.confirmed is not None)


def test_a_confirmation_without_a_verdict_claims_nothing() -> None:
    """Where too few starts were measured the gain stays one of the search, and the reason is told."""
    begun = msgspec.structs.replace(confirmed(1.4), judgement=None, sentence="too few starts")
    head = headline(facts(BASE, BETTER, confirmed=begun))
    assert head.title == "Not confirmed: +20.0 % as searched"
    assert "too few starts" in head.detail


def test_what_failed_is_counted() -> None:
    """Without a measurement the kinds of failure are the news."""
    night = facts(trial(0, {}, out_of_memory()), trial(1, {"limit": 64}, out_of_memory()))
    assert "2 x oom_kv" in headline(night).detail


def test_drift_is_no_gain() -> None:
    """On a machine that slows down the gain is the one over the baseline of the same time."""
    assert headline(drifting_night(chosen=13)).title.startswith("Not confirmed: +40")
