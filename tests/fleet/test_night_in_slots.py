"""A whole night over the slots of one host, on simulated servers."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from autotune.fleet.interference import Interference
from autotune.study.record import read_record
from autotune.values import LaunchPlan, Measured
from tests.nights import Night, autotune, events, left, records, result_bytes


@pytest.mark.slow
def test_a_night_over_two_slots(tmp_path: Path) -> None:
    """Each trial has the devices of its slot, two run at once, and what they cost each other is on record."""
    gpus = tmp_path / "gpus.json"
    gpus.write_text('{"0": 0, "1": 0}')
    study = Night(flags=("--sim-gpu-file", str(gpus)), trials=5).write(tmp_path)
    study.write_text(study.read_text() + "\n[resources]\ngpus_per_trial = 1\n")
    done = autotune("tune", study)
    assert done.returncode == 0, done.stderr
    found = records(study)
    results = found.results()
    searched = [r for r in results if r.config.params]
    assert len(searched) == 4
    assert {r.beside for r in searched} == {1}
    plans = [plan for r in searched if isinstance(plan := found.plan(r.number), LaunchPlan)]
    assert {plan.env["CUDA_VISIBLE_DEVICES"] for plan in plans} == {"0", "1"}
    spans = sorted((r.started_at, r.finished_at) for r in searched)
    assert any(later[0] < earlier[1] for earlier, later in itertools.pairwise(spans))
    starts = [r for r in results if not r.config.params]
    assert sorted(r.beside for r in starts if isinstance(r.outcome, Measured)) == [0, 1, 1]
    told = read_record(found.folder.interference, Interference)
    assert told is not None
    assert (len(told.alone), len(told.beside), told.slots) == (1, 2, 2)
    assert left(study) == []
    assert json.loads(gpus.read_text()) == {"0": 0, "1": 0}
    before = result_bytes(study)
    assert autotune("tune", study).returncode == 0
    assert result_bytes(study) == before
    assert len(events(study, "night_ended")) == 2
