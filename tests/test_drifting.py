"""The machine's own change during a search: found, and taken out of the ranking."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.drifting import baseline_starts, noise_of_neighbours, record_of, steadied
from autotune.standing import best_of
from autotune.study.file import Objective
from autotune.values import Config, Measured, ParamValue, Timings, TrialResult
from autotune.verdict.noise import NoiseModel

from .nights import score

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def trial(number: int, value: float, hours: float, **params: ParamValue) -> TrialResult:
    """A measured trial that began so many hours into the night; without parameters it is the baseline."""
    at = (BEGIN + timedelta(hours=hours)).isoformat()
    outcome = msgspec.structs.replace(score(value), score=msgspec.structs.replace(score(value).score, stderr=0.0))
    return TrialResult(
        number=number,
        config=Config(params=params),
        outcome=outcome,
        timings=Timings(),
        started_at=at,
        finished_at=at,
        repeat_of=0 if number and not params else None,
    )


def value_of(result: TrialResult) -> float:
    """The score of a measured trial."""
    assert isinstance(result.outcome, Measured)
    return result.outcome.score.value


def slowing(hours: float) -> float:
    """A machine that loses 40 % in ten hours."""
    return 1 - 0.04 * hours


# The early trial is 5 % better than the baseline, the late one 20 %, but by then the machine is slower.
BASELINES = [trial(n, 1000 * slowing(h), h) for n, h in ((0, 0.0), (2, 2.0), (3, 4.0), (4, 6.0), (5, 8.0), (7, 10.0))]
NIGHT = [*BASELINES, trial(1, 1050 * slowing(1), 1.0, limit=64), trial(6, 1200 * slowing(9), 9.0, limit=128)]


def test_the_better_of_two_is_found_on_a_machine_that_slows_down() -> None:
    """Its raw score is the lowest of all; compared with the baseline of its time it is the highest."""
    best = best_of(NIGHT, Objective())
    assert best is not None
    assert best.number == 6
    assert value_of(best) == pytest.approx(768.0)


def test_corrected_scores_are_ratios_times_the_first_baseline_and_less_certain() -> None:
    """The error grows by the noise of the baselines that a score was divided by; the record says so."""
    seen = steadied(NIGHT)
    late = next(r for r in seen.results if r.number == 6)
    assert value_of(late) == pytest.approx(1200.0, rel=0.01)
    assert isinstance(late.outcome, Measured)
    assert late.outcome.score.stderr > 0.5 * seen.noise.total * value_of(late)
    record = record_of(seen)
    assert record.corrected
    assert record.sentence.startswith("drift: the baseline changed by -39.9 %")
    assert [s.trial for s in record.starts] == [0, 2, 3, 4, 5, 7]


def test_without_drift_nothing_is_touched() -> None:
    """Scores stay as measured, and the baseline's starts are repeats for the noise model."""
    steady = [trial(n, 1000 + 20 * (-1) ** n, float(n)) for n in range(6)]
    seen = steadied(steady)
    assert seen.results == tuple(steady)
    assert seen.noise.observed_df == 5
    assert not record_of(seen).corrected


@pytest.mark.parametrize("started_at", ["", "yesterday"])
def test_results_without_a_time_say_nothing_of_drift(started_at: str) -> None:
    """Old or damaged times do not break a ranking."""
    timeless = [msgspec.structs.replace(r, started_at=started_at) for r in NIGHT]
    assert baseline_starts(timeless) == ()
    assert not steadied(timeless).drift.known
    assert best_of(timeless, Objective()) is not None


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(3, 12))
def test_a_slow_drift_hardly_enters_the_noise(seed: int, count: int) -> None:
    """Between neighbours a trend is small: with it the noise is at most a little larger than without."""
    noise = 0.05 * np.random.default_rng(seed).standard_normal(count)
    trend = np.linspace(0, 0.3, count)
    still = noise_of_neighbours(list(np.exp(noise)), NoiseModel()).total
    moving = noise_of_neighbours(list(np.exp(noise + trend)), NoiseModel()).total
    assert moving <= still + 0.3 / (count - 1)


def test_a_steady_machine_is_rarely_called_drifting() -> None:
    """At most 5 % of nights with 5 % noise and nothing else (wide bounds)."""
    rng = np.random.default_rng(3)
    nights = [[trial(n, 1000 * float(np.exp(0.05 * rng.standard_normal())), n) for n in range(6)] for _ in range(200)]
    assert sum(steadied(night).drift.drifting for night in nights) <= 10
