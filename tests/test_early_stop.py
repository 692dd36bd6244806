"""A load that is losing ends early, on the simulated server; one that is not is loaded to its end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from optuna.trial import TrialState

from autotune.guidance import Guide
from autotune.load import records as raw_records
from autotune.rig import Rig
from autotune.search.outcomes import Place, frozen_trial
from autotune.trial import Ticket, run_trial
from autotune.values import Config, Estimate, Measured, TrialResult
from autotune.verdict.early_stop import StopRule, should_stop_early
from autotune.verdict.noise import NoiseModel
from tests.nights import Night, rig
from tests.test_loading import write

pytestmark = pytest.mark.timeout(300)

WINDOW_S = 12.0
RULE = StopRule(metric="output_throughput_tok_s", noise=NoiseModel(between=0.05, df=10), looks=12)


@pytest.fixture
def shared(tmp_path: Path) -> Rig:
    """Loads of twelve seconds, for which no interval is narrow enough to end them before."""
    path = write(tmp_path, Night(stream=True))
    text = path.read_text()
    for key, value in {"min_s": WINDOW_S, "max_s": WINDOW_S, "precision": 1e-6}.items():
        text = re.sub(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
    path.write_text(text)
    return rig(path)


def run(shared: Rig, number: int, limit: int, guide: Guide) -> TrialResult:
    """One start of a running limit."""
    shared.records.trial(number).root.mkdir()
    config = Config(params={"max_running_requests": limit, "cuda_graph_max_bs": limit})
    return run_trial(shared, Ticket(number=number, config=config), guide)


def against(incumbent: Estimate) -> Guide:
    """Ends what loses against this figure."""

    def loses(seen: Estimate) -> str | None:
        decision = should_stop_early(seen, incumbent, RULE)
        return str(decision) if decision.stop else None

    return Guide(loses=loses)


def test_a_loser_ends_early_and_a_winner_does_not(shared: Rig) -> None:
    """The loser keeps its figure so far with its course, and Optuna hears of a pruned trial; the winner is complete."""
    incumbent = Estimate(value=600.0, stderr=6.0, batches=20)
    winner = run(shared, 0, 48, against(incumbent))
    assert isinstance(winner.outcome, Measured), winner.outcome
    assert not winner.outcome.stopped_early
    assert winner.outcome.measurement.window_s >= WINDOW_S - 1.0
    loser = run(shared, 1, 2, against(winner.outcome.score))
    assert isinstance(loser.outcome, Measured), loser.outcome
    assert loser.outcome.stopped_early
    assert loser.outcome.measurement.window_s < WINDOW_S - 1.0
    assert 0 < loser.outcome.score.value < winner.outcome.score.value / 2
    raw = raw_records.load(shared.records.trial(1).load / "raw-0.npz")
    assert raw.meta.ended.startswith("stopped early: -")
    told = frozen_trial(loser, Place(), {})
    assert told.state is TrialState.PRUNED
    assert len(told.intermediate_values) == len(loser.outcome.course) + 1
    assert told.intermediate_values[max(told.intermediate_values)] == loser.outcome.score.value
    whole = frozen_trial(winner, Place(), {})
    assert whole.state is TrialState.COMPLETE
    assert len(whole.intermediate_values) > 1
