"""What a confirmation claims of finalists with limits, and which configuration is then used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from autotune.choosing import Judge
from autotune.concluding import conclude
from autotune.confirmation import Arm, Confirmation, ConfirmationPlan
from autotune.study.file import Objective
from autotune.values import (
    Config,
    Effective,
    Estimate,
    Finding,
    Infeasible,
    Measured,
    Outcome,
    Refused,
    Timings,
    TrialResult,
)
from autotune.verdict.noise import NoiseModel
from autotune.verdict.schedule import Schedule, Slot

from .nights import OOM, score

P99 = "ttft_p99_s"
LIMITED = Objective(constraints={P99: 0.5})
QUIET = NoiseModel(between=0.02, df=10, observed=0.02, observed_df=10)
CONFIGS = [Config(params={}), *(Config(params={"limit": n}) for n in (64, 128))]
BLOCKS = 4


def served(tokens: float, ttft_s: float, stderr: float = 0.005) -> Measured:
    """An outcome with a throughput and a latency percentile that has batches."""
    plain = score(tokens)
    seen = Estimate(value=ttft_s, stderr=stderr, batches=9)
    figures = msgspec.structs.replace(
        plain.measurement, steady={**plain.measurement.steady, P99: ttft_s}, estimates={P99: seen}
    )
    return msgspec.structs.replace(plain, measurement=figures)


def result(number: int, config: Config, outcome: Outcome) -> TrialResult:
    """A settled start."""
    return TrialResult(number=number, config=config, outcome=outcome, timings=Timings(), started_at="", finished_at="")


def confirmed(outcomes: Sequence[Outcome], objective: Objective = LIMITED) -> Confirmation:
    """Every arm gives its outcome in each of four blocks; the finalists come from trials 1 and 2."""
    arms = tuple(Arm(trial=n, config=CONFIGS[n]) for n in range(len(outcomes)))
    slots = tuple(Slot(arm=a, block=b, seed=0) for b in range(BLOCKS) for a in range(len(outcomes)))
    plan = ConfirmationPlan(
        arms=arms,
        schedule=Schedule(slots=slots, finalists=len(arms) - 1, blocks=BLOCKS),
        metric=objective.metric,
    )
    done = [(slot, result(n, CONFIGS[slot.arm], outcomes[slot.arm])) for n, slot in enumerate(slots)]
    done = [pair for n, pair in enumerate(done) if not _after_failure(pair, done[:n])]
    return conclude(plan, done, objective, QUIET)


def _after_failure(pair: tuple[Slot, TrialResult], before: list[tuple[Slot, TrialResult]]) -> bool:
    return any(s.arm == pair[0].arm and isinstance(r.outcome, Infeasible) for s, r in before)


def chosen(found: Confirmation, scores: Mapping[int, float]) -> int | None:
    """The trial that is used after a search with these scores; trial 3 is in force the same as trial 1."""
    effective = Effective(source="server_info", values={"limit": 64})
    results = []
    for number, value in scores.items():
        outcome = served(value, 0.1)
        if number in (1, 3):
            outcome = msgspec.structs.replace(outcome, effective=effective)
        config = Config(params={"limit": 65}) if number == 3 else CONFIGS[number]
        results.append(result(number, config, outcome))
    best = Judge(objective=LIMITED, region=None).chosen(results, found)
    return best.number if best else None


SEARCHED = {0: 1000.0, 1: 2000.0, 2: 1500.0, 3: 2000.0}


def test_a_gain_that_holds_its_limit_is_claimed_with_both() -> None:
    """The sentence has the gain, and the limit with its bound."""
    found = confirmed([served(1000, 0.2), served(1300, 0.4)])
    assert found.chosen == 1
    assert found.sentence.startswith("reliable gain of 30.0 %")
    assert "limits held: ttft_p99_s 0.4 (0.4" in found.sentence
    assert "keeps 0.5 s" in found.sentence
    assert chosen(found, SEARCHED) == 1


@pytest.mark.parametrize(("ttft_s", "words"), [(0.498, "may be beyond"), (0.6, "is beyond")])
def test_a_finalist_that_does_not_hold_its_limit_is_dropped(ttft_s: float, words: str) -> None:
    """However fast it is; then the defaults are used, and the sentence says why."""
    found = confirmed([served(1000, 0.2), served(2000, ttft_s)])
    assert (found.chosen, found.unfit, found.headline) == (0, (1,), None)
    assert found.sentence.startswith("no finalist can be used; the configuration of trial 1 is dropped: ttft_p99_s")
    assert words in found.dropped["1"]
    assert chosen(found, SEARCHED) == 0


def test_the_second_finalist_wins_where_the_first_breaks_a_limit() -> None:
    """The headline is the verdict on the one that can be used."""
    found = confirmed([served(1000, 0.2), served(2000, 0.9), served(1400, 0.3)])
    assert found.chosen == 2
    assert found.headline is not None
    assert found.judgement is not None
    assert found.headline == found.judgement.headline
    assert found.sentence.startswith("reliable gain of 40.0 %")
    assert "trial 1 is dropped" in found.sentence


def test_out_of_memory_in_the_confirmation_drops_a_finalist() -> None:
    """Nothing can be said of it, and neither it nor what is in force the same is used."""
    found = confirmed([served(1000, 0.2), OOM])
    assert found.dropped == {"1": "oom_runtime in the confirmation"}
    assert "trial 1: oom_runtime in the confirmation" in found.sentence
    assert chosen(found, SEARCHED) == 0


def test_what_is_left_is_the_best_guess_where_nothing_is_certain() -> None:
    """One finalist fell away, the other shows no reliable difference: the best of the rest, not a twin of the first."""
    found = confirmed([served(1000, 0.2), OOM, served(1001, 0.2)])
    assert found.unfit == (1,)
    assert found.sentence.startswith("no reliable difference")
    assert chosen(found, SEARCHED) == 2


def test_a_baseline_beyond_the_limit_is_said() -> None:
    """The gain stands, and the reader learns that the defaults were no choice."""
    found = confirmed([served(1000, 0.9), served(1300, 0.2)])
    assert found.chosen == 1
    assert "the baseline itself: ttft_p99_s is beyond its limit" in found.sentence


def test_limits_are_checked_over_all_starts_with_their_scatter() -> None:
    """One percentile without batches counts with a rough error; the study's noise enters the bound."""
    sure = confirmed([served(1000, 0.2), served(1300, 0.47, stderr=0.001)]).limits["1"][0]
    rough = confirmed([served(1000, 0.2), served(1300, 0.47, stderr=0.1)]).limits["1"][0]
    assert sure.holds
    assert not rough.holds
    assert 0.47 < sure.bound < 0.5 < rough.bound


def test_goodput_counts_its_limits_by_request_and_not_twice() -> None:
    """A percentile beyond the limit that goodput is counted by drops nobody; another limit still does."""
    goodput = Objective(metric="goodput_req_s", constraints={P99: 0.5})
    found = confirmed([served(1000, 0.9), served(1300, 0.9)], goodput)
    assert (found.chosen, found.limits) == (1, {})


def partly(gate: str) -> Confirmation:
    """A finalist that is much faster in three starts, and refused by this gate in the fourth."""
    arms = tuple(Arm(trial=n, config=CONFIGS[n]) for n in range(2))
    slots = tuple(Slot(arm=a, block=b, seed=0) for b in range(BLOCKS) for a in range(2))
    refused = Refused(findings=(Finding(gate=gate, message="half of them", fatal=True),))
    fast, last = served(1300, 0.1), slots[-1]
    done = [
        (s, result(n, CONFIGS[s.arm], refused if s is last else fast if s.arm else served(1000, 0.1)))
        for n, s in enumerate(slots)
    ]
    plan = ConfirmationPlan(
        arms=arms, schedule=Schedule(slots=slots, finalists=1, blocks=BLOCKS), metric=LIMITED.metric
    )
    return conclude(plan, done, LIMITED, QUIET)


@pytest.mark.parametrize("gate", ["failed_requests", "retractions", "token_counters"])
def test_a_finalist_is_not_judged_by_its_good_starts_alone(gate: str) -> None:
    """A start that is refused for what the server did counts against the finalist: nothing is claimed of it."""
    found = partly(gate)
    assert (found.chosen, found.judgement, found.unfit) == (0, None, (1,))
    assert f"{gate} in the confirmation" in found.sentence


def test_a_start_that_the_machine_spoilt_is_only_missing() -> None:
    """Other load on the host says nothing of the finalist."""
    found = partly("host_load")
    assert found.chosen == 1
    assert found.unfit == ()
