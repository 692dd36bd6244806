"""What the starts of a study promise of a configuration."""

from __future__ import annotations

import pytest

from autotune.confirmation import Arm, Confirmation, ConfirmationPlan
from autotune.promising import promise_of
from autotune.study.file import Objective
from autotune.values import Config, Timings, TrialResult
from autotune.verdict.confirm import judge
from autotune.verdict.fit import Start
from autotune.verdict.schedule import plan_schedule
from tests.nights import score

BEST = Config(params={"max_running_requests": 128})
BASE = Config(params={})


def trial(number: int, config: Config, value: float) -> TrialResult:
    return TrialResult(
        number=number,
        config=config,
        outcome=score(value),
        timings=Timings(total_s=1.0),
        started_at=f"2026-01-01T00:{number:02}:00+00:00",
        finished_at=f"2026-01-01T00:{number:02}:30+00:00",
    )


RESULTS = [trial(0, BASE, 1000.0), trial(1, BEST, 2000.0), trial(2, Config(params={"x": 1}), 1500.0)]


def confirmed(base: list[float], best: list[float]) -> Confirmation:
    """A confirmation with these fresh starts."""
    starts = [Start(arm=0, block=None, value=v) for v in base] + [Start(arm=1, block=None, value=v) for v in best]
    schedule = plan_schedule(finalists=1, blocks=3)
    plan = ConfirmationPlan(
        arms=(Arm(trial=0, config=BASE), Arm(trial=1, config=BEST)), schedule=schedule, metric=Objective().metric
    )
    return Confirmation(plan=plan, starts=tuple(starts), judgement=judge(starts, metric=Objective().metric), chosen=1)


def test_fresh_starts_are_promised_where_there_are_some() -> None:
    """Not the value that the search has picked for being high."""
    found = promise_of(RESULTS[1], RESULTS, Objective(), confirmed([1000, 1010, 990], [1800, 1820, 1810]))
    assert found is not None
    assert found.value == pytest.approx(1810, rel=1e-3)
    assert found.starts == 3
    assert found.low < 1800 < 1820 < found.high


def test_the_baseline_has_a_promise_of_its_own() -> None:
    """From its own fresh starts: a rollback can be verified too."""
    found = promise_of(RESULTS[0], RESULTS, Objective(), confirmed([1000, 1010, 990], [1800, 1820, 1810]))
    assert found is not None
    assert found.value == pytest.approx(1000, rel=1e-3)


def test_without_a_confirmation_a_high_value_is_pulled_back() -> None:
    """The posterior mean of the search, with a wide interval: one start says little."""
    found = promise_of(RESULTS[1], RESULTS, Objective(), None)
    assert found is not None
    assert 1500 < found.value < 2000
    assert found.low < 0.85 * found.value


def test_a_confirmation_that_judged_nothing_promises_nothing() -> None:
    """Then the search's starts speak."""
    empty = Confirmation(plan=confirmed([1, 1], [1, 1]).plan, starts=())
    assert promise_of(RESULTS[1], RESULTS, Objective(), empty) == promise_of(RESULTS[1], RESULTS, Objective(), None)
