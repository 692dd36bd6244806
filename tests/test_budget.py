"""Budget and stop rules."""

from __future__ import annotations

from autotune.budget import Standing, eta_s, stuck, why_stop
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
