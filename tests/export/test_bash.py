"""The bash script: run by a real bash."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from autotune.export import ExportBundle, render
from tests.export.bundles import HOSTILE, PROVENANCE, arguments, bundle, settings_, text

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="no bash here")


def run(script: str, *args: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """The script, run by bash from its standard input's text, with nothing in its environment but PATH."""
    assert BASH is not None
    command = [BASH, "-c", script, "launch.sh", *args]
    environ = {"PATH": os.environ.get("PATH", os.defpath), **env}
    return subprocess.run(command, env=environ, capture_output=True, timeout=60, check=False)


def said(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    """The NUL-separated output."""
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().split("\0")[:-1]


@settings(deadline=None, max_examples=60)
@given(args=arguments)
def test_argv_in_is_argv_out(args: list[str]) -> None:
    """Whatever the arguments hold, the server gets exactly them, and so does the one from before tuning."""
    both = render("bash", bundle(["printf", "%s\\0", *args], ["printf", "%s\\0", "before", *args]))
    assert said(run(both)) == args
    assert said(run(both, "--baseline")) == ["before", *args]


def test_every_hostile_string_at_once() -> None:
    """The known ways out of a quote, none of which works."""
    assert said(run(render("bash", bundle(["printf", "%s\\0", *HOSTILE])))) == list(HOSTILE)


@settings(deadline=None, max_examples=40)
@given(env=settings_)
def test_settings_in_are_settings_out(env: dict[str, str]) -> None:
    """Literal settings reach the server unchanged."""
    got = dict(item.split("=", 1) for item in said(run(render("bash", bundle(["env", "-0"], env=env)))))
    assert {name: value for name, value in got.items() if name.startswith("T_")} == env


@settings(deadline=None, max_examples=40)
@given(lines=st.lists(st.sampled_from(HOSTILE) | text, min_size=3, max_size=3))
def test_comments_cannot_be_left(lines: list[str]) -> None:
    """A study's name or a model's path with line breaks stays a comment."""
    study, model, score = (f"x\n{line}\nexit 3\n" for line in lines)
    hostile = replace(PROVENANCE, study=study, model=model, score=score)
    script = render("bash", replace(bundle(["printf", "ok\\0"]), provenance=hostile))
    assert said(run(script)) == ["ok"]


def test_the_baseline_is_one_argument_away() -> None:
    """``--baseline`` starts what ran before tuning; anything else is refused."""
    script = render("bash", bundle(["printf", "tuned\\0"], ["printf", "before\\0"]))
    assert said(run(script)) == ["tuned"]
    assert said(run(script, "--baseline")) == ["before"]
    assert run(script, "--other").returncode == 2


SECRET = "sk-do-not-write-me"


def secret_bundle() -> ExportBundle:
    """A plan with a secret in every place that can hold one."""
    argv = ["env", "-0", "--api-key", SECRET, f"--admin-api-key={SECRET}", "--hf_token", SECRET]
    return bundle(argv, argv, env={"VLLM_API_KEY": SECRET, "MODE": "x"}, secret_env=("HF_HOME_TOKEN",), api_key_env="K")


@pytest.mark.parametrize("fmt", ["bash", "systemd", "compose", "kubernetes", "args", "json"])
def test_secrets_are_never_written(fmt: str) -> None:
    """Not from the command line, not from the settings; their variables are named instead."""
    written = render(fmt, secret_bundle())
    assert SECRET not in written
    for name in ("K", "ADMIN_API_KEY", "HF_TOKEN", *(() if fmt == "args" else ("VLLM_API_KEY", "HF_HOME_TOKEN"))):
        assert name in written


def test_secrets_come_from_the_environment() -> None:
    """The script refuses to start without them, and hands them on where they belong."""
    argv = ["printf", "%s\\0", "--api-key", SECRET, f"--admin-api-key={SECRET}"]
    script = render("bash", bundle(argv))
    refused = run(script, API_KEY="one")
    assert refused.returncode != 0
    assert b"ADMIN_API_KEY" in refused.stderr
    got = said(run(script, API_KEY="one", ADMIN_API_KEY="two words"))
    assert got == ["--api-key", "one", "--admin-api-key=two words"]


def test_provenance_is_in_the_script() -> None:
    """A reader sees where the numbers come from, and whether they were confirmed."""
    script = render("bash", bundle())
    assert script.startswith("#!/usr/bin/env bash\n")
    for _, fact in PROVENANCE.lines():
        assert fact in script
    unconfirmed = replace(bundle(), provenance=replace(PROVENANCE, confirmed_gain=""))
    assert "confirmed" not in render("bash", unconfirmed)


def test_the_script_starts_where_the_measured_server_did(tmp_path: Path) -> None:
    """Relative paths in the command mean the same folder."""
    folder = tmp_path / "a b"
    folder.mkdir()
    script = render("bash", replace(bundle(["pwd"]), folder=str(folder)))
    assert run(script).stdout.decode().strip() == str(folder)
