"""A night with live values on the real SGLang: the running limit moves while it serves, and what that gives is kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autotune.guidance import Guide
from autotune.load import records as raw_records
from autotune.trial import Ticket, run_trial
from autotune.values import Config, Measured
from tests.engines.real import LIMIT_S, RealNight
from tests.nights import autotune, events, left, records, rig

pytestmark = pytest.mark.engine

OVERRIDE = "[space.override.max_running_requests]\nlow = 4\nhigh = 64"


def test_a_night_records_live_values(tmp_path: Path) -> None:
    """The search's own trials have loads at smaller limits than their own, slower and with raw records; no restart."""
    study = RealNight(overrides=OVERRIDE, trials=3).write(tmp_path)
    done = autotune("tune", study, limit_s=LIMIT_S)
    assert done.returncode == 0, done.stderr
    assert not [event for event in events(study, "note") if "live value" in event["text"]], done.stderr
    searched = [r for r in records(study).results() if r.config.params]
    seen = [(r, live) for r in searched if isinstance(r.outcome, Measured) for live in r.outcome.live]
    assert seen
    for trial, live in seen:
        assert isinstance(trial.outcome, Measured)
        limit = trial.outcome.effective.running_limit
        assert limit is not None
        assert live.limit < limit
        assert (records(study).trial(trial.number).live(live.limit) / "raw-0.npz").exists()
        assert not (records(study).trial(trial.number).root / "server-2.log").exists()
    assert all(r.timings.live_s > 0 for r, _ in seen)
    assert left(study) == []


def test_one_start_shows_the_whole_curve(tmp_path: Path) -> None:
    """From 64 down to 4 running requests on one server: throughput falls, and so does the time per token."""
    shared = rig(RealNight().write(tmp_path))
    shared.records.trial(0).root.mkdir()
    limits = [24, 4]
    guide = Guide(next_limit=lambda seen: limits[len(seen.live)] if len(seen.live) < len(limits) else None)
    outcome = run_trial(shared, Ticket(number=0, config=Config(params={"max_running_requests": 64})), guide).outcome
    assert isinstance(outcome, Measured), outcome
    assert [live.limit for live in outcome.live] == limits
    last = outcome.live[-1]
    assert outcome.score.value > 1.3 * last.score.value
    assert last.steady["tpot_p50_s"] < outcome.measurement.steady["tpot_p50_s"]
    assert last.steady["ttft_p50_s"] > outcome.measurement.steady["ttft_p50_s"]
    raw = raw_records.load(shared.records.trial(0).live(4) / "raw-0.npz")
    # The prefix cache is on: a prompt that was sent before would show in it.
    assert float(np.mean(raw.requests["cached_tokens"])) < 5
