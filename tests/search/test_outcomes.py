"""What Optuna is told."""

from __future__ import annotations

import pytest
from optuna.trial import TrialState

from autotune.search.outcomes import Place, frozen_trial
from autotune.values import Diagnosis, Infeasible, Measured, Outcome

from .worlds import infeasible, interrupted, measured, refused, result


def stopped_early(score: float) -> Measured:
    """A trial that was certainly slower than the incumbent."""
    whole = measured(score)
    return Measured(score=whole.score, measurement=whole.measurement, effective=whole.effective, stopped_early=True)


@pytest.mark.parametrize(
    ("outcome", "state", "value"),
    [
        (measured(12.5), TrialState.COMPLETE, 12.5),
        (stopped_early(3.0), TrialState.PRUNED, 3.0),
        (infeasible(), TrialState.PRUNED, None),
        (refused(), TrialState.FAIL, None),
        (interrupted(), TrialState.FAIL, None),
    ],
)
def test_each_outcome_has_its_state(outcome: Outcome, state: TrialState, value: float | None) -> None:
    """The table of the design: complete, pruned with a value, pruned, fail, fail."""
    trial = frozen_trial(result(3, {"limit": 5}, outcome), Place(), {})
    assert trial.state is state
    assert trial.user_attrs["config"] == {"limit": 5}
    assert trial.values == ([value] if state is TrialState.COMPLETE else None)
    assert trial.intermediate_values == ({0: value} if state is TrialState.PRUNED and value else {})


def test_an_infeasible_trial_violates_a_constraint_and_brings_its_evidence() -> None:
    """That is what keeps samplers away; a measured trial satisfies it."""
    trial = frozen_trial(result(1, {}, infeasible("oom_kv")), Place(), {"ttft_p99_s": 1.0})
    assert trial.constraints == {"feasible": 1.0, "ttft_p99_s": 1.0}
    assert trial.user_attrs["kind"] == "oom_kv"
    assert trial.user_attrs["evidence"] == ["CUDA out of memory"]


def test_evidence_is_cut_to_what_a_database_takes() -> None:
    """A log line of a megabyte does not end up in the storage."""
    flood = Infeasible(diagnosis=Diagnosis(kind="oom_kv", action="prune", evidence=("x" * 1_000_000,) * 100))
    trial = frozen_trial(result(1, {}, flood), Place(), {})
    assert len(str(trial.user_attrs["evidence"])) < 5000


def test_latency_limits_are_constraints_by_their_relative_excess() -> None:
    """A p99 of 1.5 s against a limit of 1 s is violated by a half."""
    trial = frozen_trial(result(1, {}, measured(1.0, ttft_p99_s=1.5, tpot_mean_s=0.02)), Place(), {"ttft_p99_s": 1.0})
    assert trial.constraints == {"feasible": -1.0, "ttft_p99_s": 0.5}


def test_the_limit_of_a_throughput_is_the_least_that_is_wanted() -> None:
    """Half of it is violated by a half; more than it is none."""
    for seen, excess in ((5.0, 0.5), (12.0, -0.2)):
        outcome = measured(1.0, request_throughput_req_s=seen)
        trial = frozen_trial(result(1, {}, outcome), Place(), {"request_throughput_req_s": 10.0})
        assert trial.constraints["request_throughput_req_s"] == pytest.approx(excess)


def test_a_time_that_cannot_be_read_is_the_time_of_telling() -> None:
    """Nothing about a clock may cost a trial."""
    import msgspec

    odd = msgspec.structs.replace(result(1, {}, refused()), started_at="yesterday", finished_at="")
    trial = frozen_trial(odd, Place(), {})
    assert trial.datetime_start is not None
    assert trial.datetime_complete is not None
