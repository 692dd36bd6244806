"""Another study's readings in the belief: they help where they agree, and are dropped where they do not."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from autotune.search.gp.borrowed import BEST, MOST, apart, chosen
from autotune.search.gp.model import Mean
from autotune.search.gp.observations import Group
from autotune.search.outlook import recommended, trust
from autotune.search.suggest import Strategy, propose
from autotune.study.transfer import Transfer
from autotune.values import Config, Infeasible, Measured, TrialResult
from tests.search.worlds import NOW, interrupted, result

from .nights import DEFAULTS, REGION, STRATEGY, night, run, truth

BEST_HERE = truth({"max_running_requests": 2048, "cuda_graph_max_bs": 2048})


def there(results: list[TrialResult]) -> Transfer:
    """What a study with these results leaves."""
    best = recommended(results, REGION, STRATEGY)
    kept = tuple(r for r in results if isinstance(r.outcome, Measured | Infeasible))
    return Transfer(
        source="elder", source_began=NOW, taken_at=NOW, request_tokens=192.0, peak=2048, best=best, results=kept
    )


def scaled(results: list[TrialResult], turn: float = 1.0, times: float = 0.4) -> list[TrialResult]:
    """The same on a machine of another speed; ``turn`` -1 makes the best the worst."""
    base = results[0].outcome
    assert isinstance(base, Measured)
    found = []
    for r in results:
        outcome = r.outcome
        if isinstance(outcome, Measured):
            value = times * base.score.value * (outcome.score.value / base.score.value) ** turn
            score = msgspec.structs.replace(outcome.score, value=value, stderr=0.01 * value)
            outcome = msgspec.structs.replace(outcome, score=score)
        found.append(msgspec.structs.replace(r, outcome=outcome))
    return found


def with_transfer(transfer: Transfer, seed: int = 3) -> Strategy:
    return msgspec.structs.replace(STRATEGY, transfer=transfer, seed=seed)


HELPFUL = there(scaled(night(10, msgspec.structs.replace(STRATEGY, seed=8))))
MISLEADING = there(scaled(night(10, msgspec.structs.replace(STRATEGY, seed=8)), turn=-1.0))


def test_the_best_of_the_other_study_is_started_first() -> None:
    """Right after the baseline, as it was asked for there."""
    history = night(1, with_transfer(HELPFUL))
    best = next(r for r in HELPFUL.results if r.number == HELPFUL.best)
    assert history[1].config == best.config


def test_a_cut_off_first_start_is_made_again() -> None:
    """It is no measurement: the other's best is still first."""
    base = night(0)
    found = propose(base, REGION, with_transfer(HELPFUL))
    assert found is not None
    assert propose([*base, result(1, found.config.params, interrupted())], REGION, with_transfer(HELPFUL)) == found


def test_what_agrees_is_trusted_and_what_does_not_is_dropped() -> None:
    """After some starts: a machine of another speed tells much, one where everything is turned round nothing."""
    for transfer, dropped in ((HELPFUL, False), (MISLEADING, True)):
        strategy = with_transfer(transfer)
        found = trust(night(6, strategy), REGION, strategy)
        assert found is not None
        assert found.dropped is dropped
        assert found.weight == 0.0 if dropped else found.weight > 0.3
    assert trust(night(3), REGION, STRATEGY) is None


def test_a_misleading_study_costs_little() -> None:
    """The night still ends near the optimum."""
    for seed in range(3):
        strategy = with_transfer(MISLEADING, seed)
        history = night(7, strategy)
        number = recommended(history, REGION, strategy)
        assert number is not None
        value = truth(history[number].config.params)
        assert value is not None
        assert BEST_HERE is not None
        assert value > 0.95 * BEST_HERE


def test_the_same_records_give_the_same_proposal_with_a_transfer() -> None:
    """Whether or not the tuner, and with it what was taken over, was read from disk again."""
    strategy = with_transfer(HELPFUL)
    again = msgspec.structs.replace(strategy, transfer=msgspec.json.decode(msgspec.json.encode(HELPFUL), type=Transfer))
    history = night(4, strategy)
    assert propose(history, REGION, strategy) == propose(list(history), REGION, again)


def test_other_samplers_start_with_the_best_and_go_on_alone() -> None:
    """They cannot borrow."""
    strategy = msgspec.structs.replace(with_transfer(HELPFUL), sampler="random")
    first = propose(night(0), REGION, strategy)
    history = [*night(0), result(1, {**DEFAULTS}, run(Config(params=dict(DEFAULTS)), 0.0, ""))]
    best = next(r for r in HELPFUL.results if r.number == HELPFUL.best)
    assert first is not None
    assert first.config == best.config
    assert trust(history, REGION, strategy) is None


def test_nothing_borrowed_is_recommended() -> None:
    """The other study's best is none of this one's trials."""
    strategy = with_transfer(HELPFUL)
    history = night(0)
    assert recommended(history, REGION, strategy) == 0


def test_a_long_study_is_thinned() -> None:
    """The best are all kept, of the rest an even choice, best first."""
    groups = [Group(trials=(i,), point=(i / 200,), logs=(math.sin(i),), stderrs=(0.01,)) for i in range(200)]
    kept = chosen(groups)
    logs = [g.logs[0] for g in kept]
    assert len(kept) == len(set(kept)) == MOST
    assert logs == sorted(logs, reverse=True)
    assert logs[:BEST] == sorted((g.logs[0] for g in groups), reverse=True)[:BEST]


def test_what_lies_apart_is_symmetric_positive_and_knows_no_level() -> None:
    """A covariance; a shift of all readings together costs nothing against the level's own width."""
    points = np.random.default_rng(1).random((6, 2))
    mean = Mean(np.zeros(6), np.stack([np.full(6, 4.0), points[:, 0]], axis=1))
    found = apart(points, mean, (False, False))
    assert np.allclose(found, found.T)
    assert np.linalg.eigvalsh(found).min() > 0
    assert found.min() > 15.0
