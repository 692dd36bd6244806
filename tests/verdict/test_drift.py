"""Did the machine change during the night?"""

from __future__ import annotations

import numpy as np
import pytest

from autotune.verdict.drift import correct, detect_drift
from autotune.verdict.noise import NoiseModel

NOISE = NoiseModel(between=0.03, df=20)
HOURS = [3600.0 * h for h in range(6)]


def _seen(change: float, rng: np.random.Generator) -> list[float]:
    return [1000 * (1 + change * t / HOURS[-1]) * float(np.exp(rng.normal(0, 0.03))) for t in HOURS]


def test_steady_baselines_rarely_drift() -> None:
    """Without drift it is seen in about 5 % of nights (wide bounds)."""
    rng = np.random.default_rng(1)
    found = [detect_drift(HOURS, _seen(0.0, rng), NOISE) for _ in range(400)]
    assert sum(d.drifting for d in found) < 40
    assert all(d.known for d in found)


def test_a_fifth_faster_is_seen_and_measured() -> None:
    """A steady 20 % over the night is found nearly always, and the interval holds it."""
    rng = np.random.default_rng(2)
    found = [detect_drift(HOURS, _seen(0.2, rng), NOISE) for _ in range(100)]
    assert sum(d.drifting for d in found) > 90
    assert sum(d.change_low < 0.2 < d.change_high for d in found) > 85
    assert str(found[0]).startswith("drift: the baseline changed by +")


def test_a_bump_is_seen_by_its_scatter() -> None:
    """A change that comes and goes leaves no trend but more scatter than the noise allows."""
    drift = detect_drift(HOURS, [1000, 1000, 1250, 1250, 1000, 1000], NOISE)
    assert drift.drifting
    assert drift.p_trend > 0.5
    assert drift.p_scatter < 0.01


def test_two_baselines_say_nothing() -> None:
    """With fewer than three baselines the answer is that one cannot tell."""
    drift = detect_drift([0.0, 3600.0], [1000.0, 2000.0], NOISE)
    assert (drift.known, drift.drifting) == (False, False)
    assert "cannot tell" in str(drift)


def test_correction_takes_the_ratio_to_the_baseline_of_the_time() -> None:
    """A server that doubles its speed leaves ratios unchanged; the baseline's noise is added to the error."""
    baselines = [(0.0, 1000.0), (100.0, 2000.0)]
    points = [(0.0, 1100.0), (50.0, 1100.0 * 2**0.5), (100.0, 2200.0), (150.0, 2200.0)]
    found = correct(points, baselines, NOISE)
    assert [c.ratio for c in found] == pytest.approx([1.1] * 4)
    assert found[0].relative_stderr == pytest.approx(0.03 * 2**0.5)
    assert found[1].relative_stderr == pytest.approx(0.03 * 1.5**0.5)
