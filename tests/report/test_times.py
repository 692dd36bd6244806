"""Tests of where a night went."""

import msgspec
import pytest

from autotune.report.times import baselines, where_time_went
from autotune.values import LiveFigures
from tests.report.builders import drifting_night, facts, measured, trial, whole_night


def test_where_the_time_went_adds_up() -> None:
    """Every second of every trial is in exactly one part."""
    night = whole_night()
    parts = where_time_went(night)
    assert sum(parts.values()) == pytest.approx(33.0 * (len(night.results) + 4))
    assert parts["out of memory"] == pytest.approx(66.0)
    assert parts["refused or cut off"] == pytest.approx(66.0)
    assert parts["warm-up"] == pytest.approx(8 * 5.0)


def test_baselines_are_in_order_of_time() -> None:
    """Starts of the defaults in search and confirmation make one series, each known for what it is."""
    found = baselines(whole_night())
    times = [one.at_s for one in found]
    assert times == sorted(times)
    assert times[0] == 0.0
    assert [one.confirming for one in found] == [False] + 4 * [True]


def test_baselines_are_as_measured() -> None:
    """Where drift is taken out of the ranking, this is where it can still be seen."""
    night = drifting_night()
    assert night.drift.corrected
    assert baselines(night)[-1].score < 0.8 * baselines(night)[0].score


def test_live_limits_have_their_own_part() -> None:
    """Loads at other limits of the same start are told apart from the trial's own."""
    outcome = measured(1000.0)
    live = LiveFigures(limit=64, score=outcome.score, steady={}, load_s=6.0)
    seen = trial(0, {}, msgspec.structs.replace(outcome, live=(live,)))
    times = msgspec.structs.replace(seen.timings, load_s=14.0, live_s=6.0)
    parts = where_time_went(facts(msgspec.structs.replace(seen, timings=times)))
    assert (parts["warm-up"], parts["live limits"], parts["measure"]) == (5.0, 6.0, 9.0)
