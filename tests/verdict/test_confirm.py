"""The verdict, and that its claims hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import InputError
from autotune.verdict.confirm import Judgement, Rules, judge, judge_pair
from autotune.verdict.fit import Start
from autotune.verdict.noise import NoiseModel
from autotune.verdict.schedule import BASELINE
from tests.verdict.builders import THROUGHPUT, confirmation


def _judge(gains: tuple[float, ...], noise: float, seed: int, rules: Rules | None = None) -> Judgement:
    starts = confirmation(gains, noise, np.random.default_rng(seed))
    return judge(starts, metric=THROUGHPUT, rules=rules)


def test_a_clear_gain_is_said_with_its_interval() -> None:
    """The words carry the gain and its interval, and the finalist wins."""
    verdict = judge_pair([1000, 1010, 990, 1005], [1200, 1190, 1210, 1195], metric=THROUGHPUT)
    assert verdict.kind == "gain"
    assert 0.15 < verdict.low < verdict.gain < verdict.high < 0.25
    assert (
        str(verdict)
        == f"reliable gain of {100 * verdict.gain:.1f} % ({100 * verdict.low:.1f}–{100 * verdict.high:.1f})"
    )


def test_a_latency_gains_by_falling() -> None:
    """For a latency the lower figure is the gain."""
    verdict = judge_pair([1.2, 1.19, 1.21, 1.2], [1.0, 1.01, 0.99, 1.0], metric="ttft_p99_s")
    assert verdict.kind == "gain"
    assert verdict.gain == pytest.approx(0.2, abs=0.01)


def test_no_difference_and_worse_have_their_words() -> None:
    """Equal sides are no reliable difference; a clear loss is worse, and the baseline stays."""
    same = judge_pair([1000, 1050, 950], [1010, 960, 1040], metric=THROUGHPUT)
    assert str(same).startswith("no reliable difference (")
    assert same.low < 0 < same.high
    lost = judge_pair([1000, 1010, 990, 1005], [800, 790, 810, 795], metric=THROUGHPUT)
    assert lost.kind == "worse"
    assert str(lost).startswith("worse by 20")
    assert lost.high < 0


def test_one_start_a_side_is_no_confirmation() -> None:
    """A side with a single start is refused rather than judged."""
    with pytest.raises(InputError, match="two starts"):
        judge_pair([1000, 1010], [1200], metric=THROUGHPUT)
    with pytest.raises(InputError, match="two starts"):
        judge_pair([1000, 1010], [], metric=THROUGHPUT)


def test_two_starts_a_side_lean_on_the_prior_and_say_so() -> None:
    """Two pairs that agree by luck claim nothing that the prior noise could explain."""
    starts = [Start(arm=a, block=b, value=v) for a, b, v in [(0, 0, 1000), (1, 0, 1060), (0, 1, 1000), (1, 1, 1060)]]
    judged = judge(starts, metric=THROUGHPUT)
    assert judged.noise_source == "prior"
    assert judged.winner == BASELINE
    assert judged.headline.kind == "no difference"


def test_the_studys_noise_adds_degrees_of_freedom() -> None:
    """Noise seen in the search is pooled where it agrees with the confirmation and left out where it does not."""
    starts = confirmation((0.1,), 0.05, np.random.default_rng(11))
    alone = judge(starts, metric=THROUGHPUT)
    agreeing = judge(starts, metric=THROUGHPUT, noise=NoiseModel(observed=0.05, observed_df=10))
    tiny = judge(starts, metric=THROUGHPUT, noise=NoiseModel(observed=0.001, observed_df=10))
    assert (alone.noise_source, agreeing.noise_source, tiny.noise_source) == ("confirmation", "study", "confirmation")
    assert agreeing.df == alone.df + 10
    assert tiny == alone


def test_noise_is_never_below_the_error_within_a_start() -> None:
    """Starts that agree better than their own errors allow are not taken at their word."""
    exact = [Start(arm=i % 2, block=i // 2, value=1000.0 + 20 * (i % 2), stderr=50.0) for i in range(10)]
    judged = judge(exact, metric=THROUGHPUT)
    assert judged.noise == pytest.approx(0.05, rel=0.03)
    assert judged.headline.kind == "no difference"


def test_identical_figures_do_not_divide_by_zero() -> None:
    """A simulator without noise still gets a verdict."""
    assert judge_pair([1000] * 5, [1100] * 5, metric=THROUGHPUT).kind == "gain"
    assert judge_pair([1000] * 5, [1000] * 5, metric=THROUGHPUT).kind == "no difference"


def test_drift_between_blocks_is_taken_out() -> None:
    """A server that becomes twice as fast in the course of the night hides no gain and makes none."""
    rng = np.random.default_rng(2)
    starts = [
        Start(arm=arm, block=b, value=1000 * (1 + b / 4) * (1.1 if arm else 1.0) * math.exp(rng.normal(0, 0.01)))
        for b in range(5)
        for arm in (0, 1)
    ]
    judged = judge(starts, metric=THROUGHPUT)
    assert judged.by_block
    assert judged.headline.kind == "gain"
    assert judged.headline.low < 0.1 < judged.headline.high


def test_a_cold_first_start_makes_no_gain() -> None:
    """A first start that is a fifth slower may hit any arm; gains are claimed no more often for it (wide bounds)."""
    claimed = 0
    for seed in range(400):
        starts = confirmation((0.0,), 0.05, np.random.default_rng(seed))
        cold = Start(arm=starts[0].arm, block=starts[0].block, value=starts[0].value * 0.8)
        claimed += judge([cold, *starts[1:]], metric=THROUGHPUT).winner != BASELINE
    assert claimed < 36


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000), st.floats(0.01, 100.0))
def test_the_unit_does_not_matter(seed: int, scale: float) -> None:
    """Figures in another unit give the same verdicts."""
    starts = confirmation((0.1, 0.0), 0.05, np.random.default_rng(seed))
    scaled = [Start(arm=s.arm, block=s.block, value=s.value * scale) for s in starts]
    one, other = judge(starts, metric=THROUGHPUT), judge(scaled, metric=THROUGHPUT)
    assert [v.kind for v in one.verdicts] == [v.kind for v in other.verdicts]
    assert [v.gain for v in one.verdicts] == pytest.approx([v.gain for v in other.verdicts], abs=1e-9)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10_000), st.floats(-0.2, 0.2), st.integers(1, 3))
def test_words_and_interval_agree(seed: int, gain: float, finalists: int) -> None:
    """A gain has nothing below zero in its interval, a loss nothing above, anything else holds zero."""
    for v in _judge((gain,) * finalists, 0.05, seed).verdicts:
        assert v.low <= v.gain <= v.high
        assert (v.kind == "gain") == (v.low > 0)
        assert (v.kind == "worse") == (v.high < 0)


def test_the_winner_is_the_best_of_the_reliable() -> None:
    """Of two reliable gains the larger is used, whichever the search preferred."""
    judged = _judge((0.2, 0.5), 0.02, 5)
    assert [v.kind for v in judged.verdicts] == ["gain", "gain"]
    assert judged.winner == judged.headline.arm == 2


def test_lost_starts_are_missing_and_nothing_else() -> None:
    """A finalist whose server died in two blocks is judged on the three that are left."""
    starts = confirmation((0.3,), 0.02, np.random.default_rng(3))
    left = [s for s in starts if not (s.arm == 1 and s.block in (1, 2))]
    verdict = judge(left, metric=THROUGHPUT).headline
    assert (verdict.kind, verdict.starts) == ("gain", 3)


def test_early_looks_are_stricter_and_only_as_planned() -> None:
    """What is reliable at the end may not be at a first look; before the first look nobody may judge."""
    starts = confirmation((0.1,), 0.05, np.random.default_rng(1))
    early = [s for s in starts if s.block in (0, 1, 2)]
    rules = Rules(looks=(3, 5), planned=5)
    once, looking = judge(early, metric=THROUGHPUT), judge(early, metric=THROUGHPUT, rules=rules)
    assert looking.headline.low < once.headline.low
    assert looking.headline.high > once.headline.high
    with pytest.raises(InputError, match=r"only after \[3, 5\]"):
        judge([s for s in early if s.block != 2], metric=THROUGHPUT, rules=rules)


def _shares(gains: tuple[float, ...], noise: float, studies: int) -> tuple[float, float]:
    judged = [_judge(gains, noise, 10_000 + i) for i in range(studies)]
    claimed = sum(j.winner != BASELINE for j in judged) / studies
    covered = 0
    for j in judged:
        truth = gains[j.headline.arm - 1]
        covered += j.headline.low <= truth <= j.headline.high
    return claimed, covered / studies


@pytest.mark.parametrize("noise", [0.02, 0.05, 0.10])
@pytest.mark.parametrize("finalists", [1, 2])
def test_nothing_is_claimed_of_nothing(noise: float, finalists: int) -> None:
    """With no true difference a gain is claimed in about 5 % of studies and the interval covers (wide bounds)."""
    claimed, covered = _shares((0.0,) * finalists, noise, 400)
    assert claimed < 0.09
    assert covered > 0.91


def test_ten_per_cent_is_found() -> None:
    """A true gain of 10 % at 5 % noise is found in about 91 % of studies with five starts (wide bounds)."""
    claimed, covered = _shares((0.10,), 0.05, 400)
    assert claimed > 0.85
    assert 0.91 < covered < 0.985


@pytest.mark.parametrize("figure", [17.123456, 0.1, 1 / 3, 999.1])
@pytest.mark.parametrize("starts", [2, 5, 12])
def test_equal_figures_never_differ(figure: float, starts: int) -> None:
    """Where all starts agree to the last digit (an open loop below capacity) rounding is no gain and no loss."""
    verdict = judge_pair([figure] * starts, [figure * (1 + 1e-7)] * max(2, starts - 1), metric=THROUGHPUT)
    assert verdict.kind == "no difference"


@pytest.mark.parametrize("figure", [0.0, -1.0, math.nan, math.inf])
def test_a_figure_without_a_ratio_is_an_error(figure: float) -> None:
    """A figure that is no positive number makes no claim of any kind."""
    with pytest.raises(InputError, match="positive"):
        judge_pair([figure, 1000.0, 1000.0], [1100.0, 1100.0], metric=THROUGHPUT)


def test_the_prior_never_helps_a_claim() -> None:
    """Few starts that scatter more than the prior set the noise themselves; it joins those that agree by luck."""
    wild = [Start(arm=a, block=b, value=v) for b in (0, 1) for a, v in ((0, 800 + 400 * b), (0, 1000), (1, 1300))]
    calm = [Start(arm=a, block=b, value=v) for b in (0, 1) for a, v in ((0, 1000 + b), (0, 1001), (1, 1100))]
    assert judge(wild, metric=THROUGHPUT).noise_source == "confirmation"
    assert judge(calm, metric=THROUGHPUT).noise_source == "prior"


def test_quiet_repeats_of_the_search_do_not_vouch_for_noisy_starts() -> None:
    """A search whose repeats scattered by 3 % lends nothing to a confirmation with three times that noise."""
    quiet = NoiseModel(observed=0.03, observed_df=8, df=10)
    claims = 0
    for seed in range(300):
        starts = confirmation((0.0,), 0.09, np.random.default_rng(seed), blocks=3)
        claims += judge(starts, metric=THROUGHPUT, noise=quiet).winner != BASELINE
    assert claims <= 0.07 * 300
