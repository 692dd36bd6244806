"""Which parameters matter, and which settings are as good as the best."""

from __future__ import annotations

import numpy as np

from autotune.verdict.importance import Importance, equal_within_noise, importance
from autotune.verdict.noise import NoiseModel, Tried
from tests.verdict.builders import THROUGHPUT, tried

NOISE = NoiseModel(between=0.03, df=6)


def _study(trials: int, noise: float, seed: int, *, effect: float = 0.5) -> list[Tried]:
    """Throughput grows by ``effect`` over the log of the limit, and nothing else does anything."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(trials):
        limit = int(2 ** rng.integers(6, 12))
        share = np.log2(limit / 64) / 5
        value = 1000 * (1 + effect * share) * float(np.exp(rng.normal(0, noise)))
        found.append(tried(value, limit=limit, steps=int(rng.integers(1, 9)), mode=str(rng.choice(["a", "b"]))))
    return found


def _by_name(found: list[Importance]) -> dict[str, Importance]:
    return {f.parameter: f for f in found}


def test_what_matters_is_found_and_what_does_nothing_is_said_to() -> None:
    """With many quiet trials the running limit matters, and a dead flag has no measurable effect."""
    quiet = NoiseModel(between=0.01, df=6)
    found = importance(_study(60, 0.01, 0), quiet, THROUGHPUT)
    assert found[0].parameter == "limit"
    limit, steps, mode = (_by_name(found)[n] for n in ("limit", "steps", "mode"))
    assert limit.answer == "matters"
    assert limit.low < 0.5 < limit.high
    assert limit.best == 2048
    assert steps.answer == mode.answer == "no measurable effect"
    assert "no measurable effect" in str(steps)


def test_few_trials_cannot_tell() -> None:
    """Five trials with three parameters give no answer, and say so."""
    found = importance(_study(5, 0.03, 1), NOISE, THROUGHPUT)
    assert {f.answer for f in found} == {"cannot tell"}
    assert "too few trials" in str(found[0])


def test_noise_does_not_matter() -> None:
    """Where no parameter does anything, each is said to matter in at most about 5 % of studies (wide bounds)."""
    studies = [importance(_study(20, 0.03, s, effect=0.0), NOISE, THROUGHPUT) for s in range(150)]
    for name in ("limit", "steps", "mode"):
        assert sum(_by_name(f)[name].answer == "matters" for f in studies) < 15


def test_intervals_hold_the_true_effect() -> None:
    """Scheffe's interval holds the true effect of the limit in at least 95 % of studies (wide bounds)."""
    studies = [_by_name(importance(_study(20, 0.03, s), NOISE, THROUGHPUT))["limit"] for s in range(150)]
    assert sum(f.low <= 0.5 <= f.high for f in studies) > 130
    assert sum(f.answer == "matters" for f in studies) > 140


def test_a_parameter_with_one_value_is_not_asked_about() -> None:
    """A frozen parameter has no effect to measure; nothing tried, nothing said."""
    found = importance([tried(100.0 + i, a=i, frozen=3) for i in range(12)], NOISE, THROUGHPUT)
    assert [f.parameter for f in found] == ["a"]
    assert importance([], NOISE, THROUGHPUT) == []


def test_equal_settings_come_safest_first() -> None:
    """What cannot be told from the best is listed, lower memory fraction and running limit first."""
    best = tried(1000.0, 1010.0, max_running_requests=2048, mem_fraction_static=0.9)
    safer = tried(995.0, 990.0, max_running_requests=1024, mem_fraction_static=0.85)
    between = tried(1001.0, 990.0, max_running_requests=2048, mem_fraction_static=0.85)
    worse = tried(600.0, 610.0, max_running_requests=64, mem_fraction_static=0.8)
    assert equal_within_noise([best, worse, between, safer], NOISE, THROUGHPUT) == [safer, between, best]
    assert equal_within_noise([], NOISE, THROUGHPUT) == []


def test_equal_latencies_too() -> None:
    """For a latency the slow setting is the one that is left out."""
    fast, slow = tried(0.1, 0.1, max_running_requests=8), tried(0.2, 0.2, max_running_requests=4)
    assert equal_within_noise([fast, slow], NOISE, "tpot_mean_s") == [fast]
