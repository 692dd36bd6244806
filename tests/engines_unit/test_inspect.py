"""Finding the engine behind a command, and what its flags are to it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from autotune.engines.flags import FlagFact, Question, inspect_flags
from autotune.engines.inspect import Installed, find_engine
from autotune.study.file import EngineSpec

DECLARED = 'class ServerArgs:\n    {}: A[int, "help"] = 1\n    max_running_requests: A[int, "help"] = 1\n'
SCHEDULER = "limit = server_args.max_running_requests\n"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a tiny sglang 0.5.14, to be put on PYTHONPATH."""
    files = {
        "sglang/__init__.py": "raise RuntimeError('must not be imported')\n",
        "sglang/srt/server_args.py": DECLARED.format("num_continuous_decode_steps"),
        "sglang/srt/managers/scheduler.py": SCHEDULER,
        "sglang-0.5.14.dist-info/METADATA": "Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.14\n",
        "sglang-0.5.14.dist-info/RECORD": "",
    }
    for name, text in files.items():
        (tmp_path / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / name).write_text(text)
    return tmp_path / "site"


def script(path: Path, text: str) -> str:
    """An executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def found(command: list[str], site: Path, **environ: str) -> Installed:
    """What is found behind a command with the tiny package installed."""
    spec = EngineSpec(command=command, env={"PYTHONPATH": str(site)})
    return find_engine(spec, {"PATH": os.environ.get("PATH", os.defpath), **environ})


def test_the_package_is_found_without_importing_it(site: Path) -> None:
    """Its version and place are known although importing it would fail."""
    seen = found(["{python}", "-m", "sglang.launch_server"], site)
    assert (seen.version, seen.location, seen.reason) == ("0.5.14", str(site / "sglang"), "")


@pytest.mark.parametrize(
    "text",
    [
        f"#!{sys.executable}\nimport sglang\n",
        f"#!/bin/sh\n'''exec' \"{sys.executable}\" \"$0\" \"$@\"\n' '''\nimport sglang\n",
        f"#!/usr/bin/env bash\nset -e\nexport A=1\nA=2 exec {sys.executable} \\\n  -m sglang.launch_server $@\n",
        '#!/bin/bash\n# "unbalanced\nexec "$MY_PYTHON" -m sglang.launch_server\n',
    ],
    ids=["console script", "long path", "wrapper", "variable"],
)
def test_scripts_are_followed_to_their_interpreter(site: Path, tmp_path: Path, text: str) -> None:
    """Console scripts and shell wrappers end in an interpreter, which is asked; none of them is run."""
    seen = found([script(tmp_path / "bin/serve", text), "--port", "1"], site, MY_PYTHON=sys.executable)
    assert seen.location == str(site / "sglang")


def test_prefixes_and_shells_are_followed(site: Path, tmp_path: Path) -> None:
    """``env``, ``nice`` and ``bash script`` stand before the program that matters."""
    assert found(["env", "A=1", "nice", sys.executable, "-m", "sglang"], site).version == "0.5.14"
    wrapper = tmp_path / "serve.sh"
    wrapper.write_text(f"exec {sys.executable} -m sglang.launch_server\n")
    assert found(["bash", str(wrapper)], site).version == "0.5.14"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["docker", "run", "image", "python3", "-m", "sglang"], "behind docker"),
        (["no-such-program-anywhere"], "no Python interpreter was found behind no-such-program-anywhere"),
        ([], "an empty command"),
    ],
)
def test_what_cannot_be_inspected_is_said(site: Path, command: list[str], reason: str) -> None:
    """Containers and unknown programs are not looked into, with the reason."""
    seen = found(command, site)
    assert seen.location == ""
    assert reason in seen.reason


def test_a_missing_package_is_said(tmp_path: Path) -> None:
    """The interpreter is there, the engine is not."""
    assert "has no package sglang" in found([sys.executable, "-m", "sglang"], tmp_path).reason


def test_the_simulated_server_is_known_by_its_flag(site: Path) -> None:
    """It pretends to be the version that its command line names."""
    seen = found(["{python}", "-m", "autotune.sim", "--sim-version", "0.3.5"], site)
    assert (seen.version, seen.location, seen.reason) == ("0.3.5", "", "the simulated server")


def facts(installed: Installed, *questions: tuple[str, str]) -> dict[str, FlagFact]:
    """The facts by flag."""
    asked = [Question(flag=flag, read_by=read_by) for flag, read_by in questions]
    return {fact.flag: fact for fact in inspect_flags(installed, asked)}


def test_a_dead_flag_is_found(site: Path) -> None:
    """Accepted and read by nothing is dead; read in the scheduler is alive; undefined is refused."""
    installed = Installed(package="sglang", version="0.5.14", location=str(site / "sglang"))
    seen = facts(installed, ("--num-continuous-decode-steps", ""), ("--max-running-requests", ""), ("--nope", ""))
    dead, alive, unknown = seen.values()
    assert (dead.known, dead.dead) == (True, True)
    assert "read by nothing" in dead.reason
    assert (alive.known, alive.dead, alive.read_by) == (True, False, ("srt/managers/scheduler.py:1",))
    assert (unknown.known, unknown.dead) == (False, None)


def test_the_same_flag_alive_in_an_older_version(site: Path) -> None:
    """Whether a flag is dead is a fact of the installed source, not of its name."""
    loop = site / "sglang/srt/managers/loop.py"
    loop.write_text("for _ in range(self.server_args.num_continuous_decode_steps - 1):\n    step()\n")
    installed = Installed(package="sglang", version="0.3.5", location=str(site / "sglang"))
    assert facts(installed, ("--num-continuous-decode-steps", ""))["--num-continuous-decode-steps"].dead is False


@pytest.mark.parametrize(
    ("version", "read_by", "dead", "reason"),
    [
        ("0.5.14", "<0.3.6", True, "not read by 0.5.14"),
        ("0.3.5", "<0.3.6", False, "read by 0.3.5"),
        ("", "<0.3.6", None, "its version is not known"),
        ("0.5.14", "", None, "no entry in the versions table"),
    ],
)
def test_the_versions_table_stands_in(version: str, read_by: str, dead: bool | None, reason: str) -> None:
    """Of an engine that cannot be looked into only the table can tell, and only for a known version."""
    installed = Installed(package="sglang", version=version, reason="it runs behind docker")
    fact = facts(installed, ("--steps", read_by))["--steps"]
    assert (fact.known, fact.dead) == (None, dead)
    assert "behind docker" in fact.reason
    assert reason in fact.reason
