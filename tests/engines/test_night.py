"""A whole study on the real engine: cut off by ``kill -9``, resumed, better than its default, exported, started."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import httpx
import optuna
import pytest

from autotune.overview import Overview
from autotune.search.outcomes import trial_state
from autotune.server.proctable import read_table
from autotune.standing import settled
from autotune.values import Interrupted, LaunchPlan, Measured, TrialResult
from tests.engines.real import KV_TOKENS, LIMIT_S, RealNight, tuning
from tests.nights import BRAND, autotune, events, left, records, result_bytes, stop, wait_for

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("sglang")]

TRIALS = 6
CUT = 2
"""The trial in whose load the tuner is killed."""
MARGIN = 1.5
"""The real engine gives two to four times the throughput of four running requests; 64 clients wait."""
NIGHT = RealNight(
    flags=("--max-running-requests", "4", "--enable-metrics"),
    parameters=("max_running_requests", "num_continuous_decode_steps", "chunked_prefill_size"),
    overrides="""
[space.override.max_running_requests]
low = 4
high = 64
[space.override.chunked_prefill_size]
low = 512
high = 4096
""",
    trials=TRIALS,
)


def test_a_night_on_a_real_engine(tmp_path: Path) -> None:
    """Plan, tune, kill the tuner under load, tune again: nothing lost, nothing double, no orphan, and a real gain."""
    study = NIGHT.write(tmp_path)
    check_plan(study)
    kept, orphans = cut_off(study)
    done = autotune("tune", study, limit_s=LIMIT_S)
    assert done.returncode == 0, done.stderr
    assert kept.items() <= result_bytes(study).items()
    assert left(study) == []
    assert not orphans & {row.identity for row in read_table()}
    assert any("that an earlier tuner had left" in event["text"] for event in events(study, "note"))
    results = records(study).results()
    check_trials(study, results)
    best = check_best(study, results)
    check_export(study, best)
    assert left(study) == []


def check_plan(study: Path) -> None:
    """The plan names the command of the baseline, the bounds, and the flag that is not searched."""
    told = autotune("plan", study)
    assert told.returncode == 0, told.stderr
    assert "max_running_requests: 4 to 64" in told.stdout
    assert "num_continuous_decode_steps: frozen at its default 1" in told.stdout
    assert "--max-running-requests 4 --enable-metrics --host 127.0.0.1 --port" in told.stdout
    assert not records(study).folder.root.exists()


def cut_off(study: Path) -> tuple[dict[str, bytes], set[tuple[int, int]]]:
    """Kill the tuner in the load of a trial; what was settled by then, and the server's processes, which go on."""
    with tuning(study) as tuner:
        identity = tuner.wait_for_load(CUT)
        stop(tuner.process)
    orphans = {row.identity for row in read_table() if row.sid == identity.pid}
    assert len(orphans) >= 3
    assert httpx.get(f"http://127.0.0.1:{identity.port}/v1/models").status_code == 200
    kept = result_bytes(study)
    assert len(kept) == CUT
    assert records(study).result(CUT) is None
    return kept, orphans


def check_trials(study: Path, results: list[TrialResult]) -> None:
    """As many settled trials as asked, all different, the cut-off one told as such, and Optuna says the same."""
    counted = settled(results)
    assert [type(result.outcome) for result in counted] == [Measured] * TRIALS
    # The search may ask for one more start of a configuration; then it says so.
    first = [result for result in counted if result.repeat_of is None]
    assert set(Counter(result.config.key() for result in first).values()) == {1}
    cut = results[CUT]
    assert isinstance(cut.outcome, Interrupted)
    assert any(result.config == cut.config for result in counted)
    started = [event["number"] for event in events(study, "trial_started")]
    assert started == list(range(TRIALS + 1))
    mirror = optuna.load_study(study_name="short", storage=f"sqlite:///{records(study).folder.database}")
    assert {t.number: t.state for t in mirror.get_trials()} == {r.number: trial_state(r) for r in results}
    for result in counted:
        check_measurement(result)


def check_measurement(result: TrialResult) -> None:
    """What was asked is in force, and the requests were all good."""
    assert isinstance(result.outcome, Measured)
    effective, measurement = result.outcome.effective, result.outcome.measurement
    limit = result.config.params.get("max_running_requests", 4)
    assert (effective.source, effective.version) == ("server_info", "0.5.23")
    assert (effective.running_limit, effective.kv_tokens) == (limit, KV_TOKENS)
    assert effective.values["max_running_requests"] == limit
    chunk = result.config.params.get("chunked_prefill_size")
    assert chunk is None or effective.values["chunked_prefill_size"] == chunk
    assert "num_continuous_decode_steps" not in result.config.params
    assert measurement.requests_failed == 0
    assert measurement.requests_completed > 32
    assert measurement.refused == ()


def check_best(study: Path, results: list[TrialResult]) -> TrialResult:
    """The best configuration beats four running requests by a wide margin, and ``status`` says the same."""
    told = autotune("status", study, "--json")
    seen = Overview(**{**json.loads(told.stdout), "lines": (), "plan": None, "running": None})
    assert seen.best_number is not None
    assert seen.best is not None
    assert seen.baseline is not None
    best = results[seen.best_number]
    assert seen.best > MARGIN * seen.baseline, told.stdout
    limit = best.config.params["max_running_requests"]
    assert isinstance(limit, int)
    assert limit > 8
    return best


def check_export(study: Path, best: TrialResult) -> None:
    """The script starts the measured command, which serves, with the values that were measured; then it ends."""
    script = study.parent / "launch.sh"
    told = autotune("export", study, "--output", script)
    assert told.returncode == 0, told.stderr
    plan = records(study).plan(best.number)
    assert plan is not None
    environment = {**os.environ, BRAND: str(study.parent)}
    server = subprocess.Popen([script], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: generates(server, plan), LIMIT_S)
        # The script became the server: the same words, behind the interpreter of the wrapper.
        words = Path(f"/proc/{server.pid}/cmdline").read_text().split("\0")[:-1]
        assert words[-len(plan.argv) + 1 :] == list(plan.argv[1:])
        info = httpx.get(f"{plan.base_url}/server_info").json()
        assert info["max_running_requests"] == best.config.params["max_running_requests"]
    finally:
        server.terminate()
        server.wait(timeout=60)
    wait_for(lambda: not left(study))


def generates(server: subprocess.Popen[bytes], plan: LaunchPlan) -> bool:
    """Whether the exported server makes tokens; fails when it is dead."""
    assert server.poll() is None, f"the exported script ended with {server.returncode}"
    sampling = {"max_new_tokens": 8, "temperature": 0, "ignore_eos": True}
    body = {"input_ids": list(range(300, 332)), "sampling_params": sampling}
    try:
        answer = httpx.post(f"{plan.base_url}/generate", json=body, timeout=60, trust_env=False)
    except httpx.HTTPError:
        return False
    return answer.status_code == 200 and answer.json()["meta_info"]["completion_tokens"] == 8
