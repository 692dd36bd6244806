"""Tests of where a night went."""

import pytest

from autotune.report.times import baselines, where_time_went
from tests.report.builders import drifting_night, whole_night


def test_where_the_time_went_adds_up() -> None:
    """Every second of every trial is in exactly one part."""
    night = whole_night()
    parts = where_time_went(night)
    assert sum(parts.values()) == pytest.approx(33.0 * (len(night.results) + 4))
    assert parts["lost to failures"] == pytest.approx(66.0)
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
