"""``autotune init`` on the command line: options, questions, errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.brief import read_brief
from tests.nights import ROOT

from .conftest import Run

SCRIPT = "#!/bin/bash\npython3 -m sglang.launch_server --model-path /m --api-key sk-0123456789 --port 30000\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "launch.sh").write_text(SCRIPT)


def test_a_script_and_a_load_are_enough(run: Run, tmp_path: Path) -> None:
    """The file is named after the model; what was left out is said, on the terminal and in the file."""
    said = run("init", "--from", "launch.sh", "--concurrency", "64")
    assert said.code == 0, said.err
    study = tmp_path / "m.toml"
    assert "written: m.toml" in said.out
    assert "--api-key stands in the script itself and was left out" in said.out
    assert "# Note: launch.sh:2: --api-key" in study.read_text()
    assert "sk-" not in study.read_text() + said.out + said.err
    assert read_brief(study).study.workload.concurrency == 64


def test_without_a_terminal_all_that_is_missing_is_one_error(run: Run, tmp_path: Path) -> None:
    """Exit code 2, every option named, nothing written."""
    said = run("init", "x.toml")
    assert said.code == 2
    assert all(option in said.err for option in ("--engine", "--model", "--concurrency"))
    assert not (tmp_path / "x.toml").exists()


def test_a_file_that_exists_is_not_touched(run: Run, tmp_path: Path) -> None:
    """Whatever else was given."""
    (tmp_path / "x.toml").write_text("mine")
    said = run("init", "x.toml", "--from", "launch.sh", "--concurrency", "1")
    assert said.code == 2
    assert "is not overwritten" in said.err
    assert (tmp_path / "x.toml").read_text() == "mine"


def test_options_alone_are_enough(run: Run, tmp_path: Path) -> None:
    """No terminal, no file."""
    options = ("--engine", "vllm", "--model", "meta/L", "--tensor-parallel", "2", "--request-rate", "4")
    more = ("--input-tokens", "100", "--output-tokens", "10", "--trials", "5", "--wall-clock", "2h")
    said = run("init", "--metric", "ttft_p99_s", *options, *more)
    assert said.code == 0, said.err
    study = read_brief(tmp_path / "l.toml").study
    assert study.engine.command[:3] == ["vllm", "serve", "meta/L"]
    assert (study.workload.request_rate, study.workload.input_tokens, study.workload.output_tokens) == (4.0, 100, 10)
    assert (study.objective.metric, study.budget.trials, study.budget.wall_clock) == ("ttft_p99_s", 5, "2h")


def test_on_a_terminal_it_asks(tmp_path: Path) -> None:
    """Few questions; an empty answer takes what is offered."""
    ours, theirs = os.openpty()
    argv = [sys.executable, "-m", "autotune", "init", "asked.toml", "--from", "launch.sh"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        argv, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, env=env
    )
    os.write(ours, b"512\n\n96\n\n")
    out, err = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 0, err
    assert b"Tokens of a prompt [128]" in err
    assert b"written: asked.toml" in out
    workload = read_brief(tmp_path / "asked.toml").study.workload
    assert (workload.input_tokens, workload.output_tokens, workload.concurrency) == (512, 128, 96)
