"""A night from its first trial to its script, on the simulated server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest

from autotune.budget import stuck
from autotune.values import Interrupted, Measured
from tests.nights import Night, autotune, begin, events, left, records, result_bytes, stop, wait_for

# Whole nights on a machine that other tests keep busy.
pytestmark = pytest.mark.timeout(400)


def generates(port: int) -> bool:
    """Whether a server on the port answers a request with tokens."""
    asked = json.dumps({"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 4, "ignore_eos": True}})
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/generate", asked.encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bool(json.load(answer)["meta_info"]["completion_tokens"] == 4)
    except OSError:
        return False


def test_a_night_is_cut_resumed_exported_and_its_script_serves(tmp_path: Path) -> None:
    """Killed in its second trial, it goes on with the same command, loses nothing and ends with a script."""
    study = Night(trials=3).write(tmp_path)
    process = begin("tune", study)
    wait_for(lambda: any(e["number"] == 1 and e["phase"] == "warm-up" for e in events(study, "phase")))
    stop(process)
    kept = result_bytes(study)
    assert list(kept) == [first := "trials/0000/result.json"]

    done = autotune("tune", study, "--json")
    assert done.returncode == 0, done.stderr
    ended = json.loads(done.stdout)
    assert (ended["reason"], ended["settled"]) == ("all 3 trials are settled", 3)
    assert [e["type"] for e in map(json.loads, done.stderr.splitlines())][-1] == "night_ended"
    assert result_bytes(study)[first] == kept[first]
    found = records(study)
    cut, again = found.result(1), found.result(2)
    assert cut is not None
    assert again is not None
    assert isinstance(cut.outcome, Interrupted)
    assert again.config == cut.config
    assert left(study) == []

    script, plan = Path(ended["script"]), found.plan(ended["best_number"])
    assert plan is not None
    assert os.access(script, os.X_OK)
    with subprocess.Popen([script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(lambda: generates(plan.port))
        finally:
            server.terminate()


def test_a_settled_night_measures_nothing_more(tmp_path: Path) -> None:
    """The same command says what is known, and a larger budget goes on."""
    study = Night(trials=1).write(tmp_path)
    assert autotune("tune", study).returncode == 0
    kept = result_bytes(study)
    again = autotune("tune", study)
    assert again.returncode == 0
    assert "best configuration: server defaults (trial 0)" in again.stdout
    assert result_bytes(study) == kept
    study.write_text(study.read_text().replace("trials = 1", "trials = 2"))
    assert autotune("resume", study).returncode == 0
    assert len(result_bytes(study)) == 2
    assert isinstance(records(study).results()[1].outcome, Measured) or stuck(records(study).results(), 1)


def test_a_baseline_that_cannot_be_measured_stops_the_night(tmp_path: Path) -> None:
    """Exit code 3 with kind, proof and advice; nothing is left."""
    study = Night(flags=("--sim-fault", "oom_load")).write(tmp_path)
    done = autotune("tune", study)
    assert done.returncode == 3
    assert "the baseline cannot be measured: oom_runtime" in done.stderr
    assert "Traceback" not in done.stderr
    assert left(study) == []


@pytest.mark.parametrize("number", [signal.SIGTERM])
def test_a_signal_ends_the_night_with_its_number(tmp_path: Path, number: signal.Signals) -> None:
    """128 + N, the trial interrupted, no process left."""
    study = Night(trials=1).write(tmp_path)
    process = begin("tune", study)
    wait_for(lambda: any(event["phase"] == "start" for event in events(study, "phase")))
    out, err = stop(process, number)
    assert process.returncode == 128 + number, err
    assert "night ended: ended by SIGTERM" in out
    assert isinstance(records(study).results()[0].outcome, Interrupted)
    assert left(study) == []
