"""What the doctor asks of a wrapper before a night."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
import pytest

from autotune.brief import Brief, read_brief
from autotune.doctor import Check, look
from autotune.planning import plan_night
from autotune.space.plan_text import lines
from autotune.values import Wrapper
from autotune.wrappers.container import mounted
from tests.nights import Night

from .conftest import SETTINGS, Doubles

each = pytest.mark.parametrize("setting", SETTINGS)


def behind(tmp_path: Path, wrapper: Wrapper, **engine: object) -> Brief:
    """A study of a server behind this wrapper; a sglang one, whatever runs there."""
    brief = read_brief(Night().write(tmp_path))
    changed = msgspec.structs.replace(brief.study.engine, wrapper=wrapper, **engine)
    return msgspec.structs.replace(brief, study=msgspec.structs.replace(brief.study, engine=changed))


def said(brief: Brief, name: str) -> list[Check]:
    return [check for check in look(brief) if check.name == name]


@each
def test_a_wrapper_that_works_is_said_to(setting: str, tmp_path: Path, doubles: Doubles) -> None:
    """Every kind is asked, and answers."""
    checks = said(behind(tmp_path, SETTINGS[setting]), "wrapper")
    assert checks
    assert all(check.ok for check in checks)


@pytest.mark.parametrize(
    ("setting", "cause", "remedy"),
    [
        ("docker", "Is it running? Start its daemon", "`docker ps` works"),
        ("podman", "Is it running? Start its daemon", "`podman ps` works"),
        ("ssh", "ssh: connect to host gpu7 port 22: Connection refused", "ssh -o BatchMode=yes gpu7 true"),
    ],
)
def test_one_that_does_not_answer_is_a_thing_to_fix(
    setting: str, cause: str, remedy: str, tmp_path: Path, doubles: Doubles
) -> None:
    """The wrapper's own words once, and what to do."""
    doubles.fault("down")
    (check,) = said(behind(tmp_path, SETTINGS[setting]), "wrapper")
    assert not check.ok
    assert check.text.startswith(cause) or setting != "ssh", "its own words, and its name once"
    assert cause in check.text
    assert remedy in check.text


def test_a_missing_image_is_a_thing_to_fix(tmp_path: Path, doubles: Doubles) -> None:
    """Or the first start has the download in it."""
    wrapper = msgspec.structs.replace(SETTINGS["docker"], image="missing")
    answers, image = said(behind(tmp_path, wrapper), "wrapper")
    assert answers.ok
    assert not image.ok
    assert "docker pull missing" in image.text


def test_the_options_of_a_study_are_those_that_are_asked_with(tmp_path: Path) -> None:
    """A port or a key that only the study names decides whether ssh gets in."""
    wrapper = msgspec.structs.replace(SETTINGS["ssh"], program="/no/such/ssh")
    brief = behind(tmp_path, wrapper)
    assert [check.text for check in said(brief, "program")] == [
        "/no/such/ssh cannot be run; install it or correct engine.wrapper"
    ]
    assert said(brief, "wrapper") == [], "the same cause is said once"


@pytest.mark.parametrize(
    ("options", "env", "kept"),
    [
        ("", {}, False),
        ("--volume /models:/models:ro", {}, False),
        ("--volume /data/cache:/root/.cache", {}, True),
        ("-v=/data/cache:/root/.cache/sglang:rw", {}, True),
        ("--mount type=bind,src=/data,dst=/data", {"SGLANG_CACHE_DIR": "/data/kernels"}, True),
        ("--volume /data/cache:/root/.cache", {"SGLANG_CACHE_DIR": "/tmp/kernels"}, False),
        ("-v /data/hub:/root/.cache/huggingface", {}, False),
        ("-v/data/home:/home/me", {}, True),
        ("-v /data/sgl:/home/me/.cache/sglang", {}, True),
    ],
)
def test_the_compile_cache_of_a_container(
    options: str, env: dict[str, str], kept: bool, tmp_path: Path, doubles: Doubles
) -> None:
    """This machine's folder says nothing of it: it is kept where it is mounted."""
    wrapper = msgspec.structs.replace(SETTINGS["docker"], options=tuple(shlex.split(options)))
    (check,) = said(behind(tmp_path, wrapper, env=env), "compile cache")
    assert check.ok is kept
    assert "in the container" in check.text if kept else "engine.env.SGLANG_CACHE_DIR" in check.text


def test_the_compile_cache_of_another_host_is_not_looked_at(tmp_path: Path, doubles: Doubles) -> None:
    """Nothing is claimed of it."""
    (check,) = said(behind(tmp_path, SETTINGS["ssh"]), "compile cache")
    assert check.ok
    assert "on gpu7, not looked at" in check.text


def test_mounts_without_a_name_outside_are_none() -> None:
    """An anonymous volume is removed with its container."""
    assert mounted(Wrapper(kind="docker", image="x", options=("-v", "/root/.cache", "--init"))) == ()


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("docker", ["docker run --rm --name autotune-short", "engine:1", "--env 'A=b c'", "'my model'"]),
        ("srun", ["A='b c' srun --job-name autotune-short", "--partition gpu", "'my model'"]),
        ("ssh", ["ssh -S none", "gpu7 'exec env", "A=b c", "my model"]),
    ],
)
def test_a_plan_shows_the_command_line_that_runs(setting: str, parts: list[str], tmp_path: Path) -> None:
    """Behind its wrapper, with its settings, quoted for a shell, and without the value of a secret."""
    plain = read_brief(Night().write(tmp_path)).study.engine.command
    command = [*plain, "--served-model-name", "my model", "--hf-token", "hf_secret"]
    plan = plan_night(behind(tmp_path, SETTINGS[setting], command=command, env={"A": "b c"}))
    (shown,) = [line for line in lines(plan) if "--served-model-name" in line]
    assert shlex.split(shown) == [*([] if setting != "srun" else ["A=b c"]), *plan.command]
    for part in parts:
        assert part in shown
    assert "hf_secret" not in shown
    assert "HF_TOKEN" in shown
