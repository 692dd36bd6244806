"""The demo keeps its promise."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest

from autotune.values import Infeasible
from tests.nights import ROOT, autotune, left, records, wait_for

pytestmark = pytest.mark.slow


def generates(port: int) -> bool:
    """Whether a server on the port answers a request with tokens."""
    asked = json.dumps({"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 4, "ignore_eos": True}})
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/generate", asked.encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bool(json.load(answer)["meta_info"]["completion_tokens"] == 4)
    except OSError:
        return False


def test_the_demo_prunes_gains_and_exports_a_script_that_starts(tmp_path: Path) -> None:
    """At least one trial out of memory, at least 15 % over the baseline, and a launch script that serves."""
    study = tmp_path / "demo.toml"
    shutil.copy(ROOT / "studies/demo.toml", study)
    shutil.copytree(ROOT / "studies/models", tmp_path / "models")
    done = autotune("tune", study, "--json", limit_s=600)
    assert done.returncode == 0, done.stderr
    seen = json.loads(autotune("status", study, "--json").stdout)
    assert seen["settled"] == seen["trials"]
    outcomes = [result.outcome for result in records(study, "demo").results()]
    assert any(isinstance(o, Infeasible) and o.diagnosis.kind.startswith("oom") for o in outcomes)
    assert seen["gain"] >= 0.15
    script = Path(autotune("export", study).stdout.strip())
    with subprocess.Popen([str(script)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(lambda: generates(seen["plan"]["port"]))
        finally:
            server.terminate()
    assert left(study) == []
