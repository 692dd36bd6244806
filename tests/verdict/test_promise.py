"""Promises: the interval of one more start, the line that carries it, and the comparison."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.values import Estimate
from autotune.verdict.promise import Spread, compare, of_starts, promise, read_promise, read_score

THROUGHPUT = "output_throughput_tok_s"


def seen(value: float) -> Estimate:
    return Estimate(value=value, stderr=0.01 * value, batches=9)


@given(
    metric=st.sampled_from([THROUGHPUT, "ttft_p99_s", "goodput_req_s"]),
    value=st.floats(1e-6, 1e9),
    noise=st.floats(0.001, 0.5),
    starts=st.integers(1, 99),
)
def test_what_is_written_is_what_is_read(metric: str, value: float, noise: float, starts: int) -> None:
    """The line in a script's head gives the promise back, to its printed digits."""
    made = promise(metric, value, starts, Spread(noise=noise, df=5))
    read = read_promise(str(made))
    assert read is not None
    assert (read.metric, read.starts) == (metric, starts)
    assert read.value == pytest.approx(made.value, rel=1e-3)
    assert read.low == pytest.approx(made.low, rel=1e-3)
    assert read.high == pytest.approx(made.high, rel=1e-3)
    assert read.noise == pytest.approx(made.noise, abs=1e-4)


def test_more_starts_and_less_noise_promise_more_narrowly() -> None:
    """The interval is that of one more start: the noise of a start stays, the error of the mean shrinks."""
    few, many = of_starts(THROUGHPUT, [100.0] * 2, 0.05, 6), of_starts(THROUGHPUT, [100.0] * 20, 0.05, 6)
    assert many.high / many.low < few.high / few.low
    assert many.low < 100 * (1 - 0.05), "a single start scatters however well the mean is known"
    assert of_starts(THROUGHPUT, [100.0] * 2, 0.01, 6).low > few.low


@pytest.mark.parametrize(("value", "holds"), [(2000.0, True), (1000.0, True), (950.0, True), (700.0, False)])
def test_a_throughput_holds_unless_it_is_below_the_interval(value: float, holds: bool) -> None:
    """Better than promised is no breach."""
    found = compare(of_starts(THROUGHPUT, [1000.0, 1000.0, 1000.0], 0.05, 10), seen(value))
    assert found.holds is holds
    assert str(found).startswith("holds" if holds else "does not hold")


@pytest.mark.parametrize(("value", "holds"), [(0.5, True), (1.0, True), (2.0, False)])
def test_a_latency_holds_unless_it_is_above_the_interval(value: float, holds: bool) -> None:
    """Less is better there."""
    assert compare(of_starts("ttft_p99_s", [1.0, 1.0, 1.0], 0.05, 10), seen(value)).holds is holds


def test_the_sentence_has_the_gap_and_the_interval() -> None:
    """How much is missing, of what, and what was to be expected."""
    text = str(compare(of_starts(THROUGHPUT, [1000.0] * 3, 0.05, 10), seen(700.0)))
    assert "does not hold: 700.0 tok/s, 30.0 % below the promised 1,000.0" in text
    assert "(95 % of starts: 879" in text


def test_a_script_of_an_earlier_version_promises_its_score() -> None:
    """With the noise that is assumed before anything was repeated."""
    found = read_score(f"{THROUGHPUT} 21,720.1 +- 1,086.0 within one start")
    assert found is not None
    assert found.value == 21720.1
    assert found.noise > 0.05


@pytest.mark.parametrize("text", ["", "x 1; another start 2 to 3 (95 %; starts: 1, noise of one: 5 %)", "nothing"])
def test_other_text_is_no_promise(text: str) -> None:
    """Nothing is made up, for an unknown metric neither."""
    assert read_promise(text) is None
    assert read_score(text) is None
