"""Tests of what a report derives from the records."""

import pytest

from autotune.report import facts as known
from autotune.report.table import as_csv, trials
from autotune.report.text import seconds, summary
from autotune.standing import best_of
from tests.report.builders import drifting_night, facts, whole_night


def test_clamped_values_are_told() -> None:
    """A value that the server lowered is listed with what runs."""
    (clamp,) = known.clamps(whole_night())
    assert (clamp.parameter, clamp.asked, clamp.runs) == ("limit", 768, 700)


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


def test_a_report_ranks_as_the_choice_does() -> None:
    """Where the machine drifted every score is the one that the best was chosen by, and the measured one is kept."""
    night = drifting_night()
    best = best_of(night.results, night.objective)
    assert best is not None
    scores = {r.number: night.score(r.number) or 0.0 for r in night.measured}
    assert best.number == max(scores, key=lambda n: scores[n]) == 13
    raw = known.as_measured(night)
    assert max(raw, key=lambda n: raw[n]) == 1
    frame = trials(night).set_index("trial")
    assert frame.loc[13, "score"] == pytest.approx(scores[13])
    assert frame.loc[13, "measured_score"] == pytest.approx(raw[13])


def test_without_drift_scores_are_as_measured() -> None:
    """A correction costs noise: nothing is corrected on a steady machine."""
    night = whole_night()
    assert known.as_measured(night) == {}
    assert not night.drift.corrected
