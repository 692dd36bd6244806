"""Budget and stop rules."""

from __future__ import annotations

import msgspec

from autotune.budget import Standing, baseline_due, eta_s, repeats_ahead, stuck, why_stop
from autotune.values import (
    Config,
    Diagnosis,
    Effective,
    Estimate,
    Infeasible,
    Measured,
    Measurement,
    Outcome,
    Timings,
    TrialResult,
)


def measured() -> Measured:
    """Any measured outcome."""
    figures = Measurement(
        whole={},
        steady={},
        estimates={},
        requests_completed=1,
        requests_failed=0,
        warmup_s=0.0,
        window_s=1.0,
        duration_s=1.0,
    )
    score = Estimate(value=1.0, stderr=0.1, batches=8)
    return Measured(score=score, measurement=figures, effective=Effective(source="none"))


def search(count: int) -> list[TrialResult]:
    """A baseline and ``count`` trials after it."""
    found = [result(n, measured(), 100.0) for n in range(count + 1)]
    return [r if not r.number else msgspec.structs.replace(r, config=Config(params={"limit": r.number})) for r in found]


def again(number: int, outcome: Outcome | None = None) -> TrialResult:
    """A further start of the baseline."""
    return msgspec.structs.replace(result(number, outcome or measured(), 100.0), repeat_of=0)


def result(number: int, outcome: Outcome, total_s: float) -> TrialResult:
    """A settled trial that took ``total_s``."""
    timings = Timings(total_s=total_s)
    return TrialResult(
        number=number, config=Config(params={}), outcome=outcome, timings=timings, started_at="", finished_at=""
    )


def infeasible(kind: str) -> Infeasible:
    """An infeasible outcome of one kind."""
    return Infeasible(diagnosis=Diagnosis(kind=kind, action="prune"))


def test_expected_time_leaves_out_the_first_cold_start() -> None:
    """The first trial of a night is not representative and does not enter the expectation."""
    standing = Standing.of([result(0, measured(), 500.0), result(1, measured(), 80.0), result(2, measured(), 100.0)])
    assert standing.trial_s == 90.0
    assert standing.spent_s == 680.0
    assert eta_s(standing, trials=5, starts_after=2) == 360.0


def test_no_expectation_before_anything_was_measured() -> None:
    """Out-of-memory trials alone say nothing of how long a measured one takes."""
    standing = Standing.of([result(0, infeasible("oom_kv"), 30.0)])
    assert standing.trial_s is None
    assert eta_s(standing, trials=9) is None
    assert why_stop(standing, trials=9, budget_s=60.0) is None


def test_a_trial_that_would_not_fit_is_not_begun() -> None:
    """What is left of the budget, less the reserve for confirmation, must hold one more trial."""
    standing = Standing.of([result(n, measured(), 100.0) for n in range(4)])
    assert why_stop(standing, trials=9, budget_s=1000.0) is None
    assert "a trial takes about 100 s" in str(why_stop(standing, trials=9, budget_s=505.0))
    assert "used up" in str(why_stop(standing, trials=9, budget_s=1000.0, reserve_s=600.0))
    assert "4 trials are settled" in str(why_stop(standing, trials=4, budget_s=1e9))


def test_a_row_of_one_kind_of_failure_stops_the_night() -> None:
    """Only an unbroken row of the same kind counts."""
    row = [result(n, infeasible("oom_graph"), 1.0) for n in range(3)]
    assert "oom_graph" in str(stuck(row, limit=3))
    assert stuck(row, limit=4) is None
    assert stuck([*row, result(3, measured(), 1.0)], limit=3) is None
    assert stuck([*row[:2], result(2, infeasible("oom_kv"), 1.0)], limit=3) is None
    assert stuck(row, limit=0) is None


def test_the_baseline_is_due_after_so_many_trials() -> None:
    """Counted from its last start, whatever became of that one; never where nobody asks for it."""
    assert [baseline_due(search(n), every=2) for n in range(4)] == [False, False, True, True]
    assert not baseline_due([*search(2), again(3)], every=2)
    assert not baseline_due([*search(2), again(3, infeasible("oom_kv"))], every=2)
    assert baseline_due([*search(2), again(3), *search(2)[1:]], every=2)
    assert not baseline_due(search(9), every=0)
    assert not baseline_due([], every=1)


def test_repeats_of_the_baseline_take_time_and_are_no_trials() -> None:
    """The search's own repeats are trials; a night that only starts the baseline ends all the same."""
    standing = Standing.of([*search(2), again(3)])
    assert (standing.settled, standing.starts, standing.spent_s) == (3, 4, 400.0)
    own = msgspec.structs.replace(search(1)[1], repeat_of=1)
    assert Standing.of([*search(1), own]).settled == 3
    assert "for 1 of 2 trials" in str(why_stop(Standing.of([again(n) for n in range(5)] + search(0)), 2, 1e9))


def test_repeats_that_are_to_come_enter_the_expected_end() -> None:
    """One for every so many trials that are left, none after the last."""
    standing = Standing.of(search(0))
    assert [repeats_ahead(standing, trials, every=3) for trials in (1, 4, 5, 8)] == [0, 0, 1, 2]
    assert repeats_ahead(standing, trials=9, every=0) == 0
