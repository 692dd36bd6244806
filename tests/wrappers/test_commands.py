"""The command lines of wrappers, as values."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from autotune.errors import InputError
from autotune.export import render
from autotune.server.proctable import MARK_NAME
from autotune.study.file import EngineSpec
from autotune.values import LaunchPlan, Wrapper
from autotune.wrappers import WRAPPERS, gpu_choice, is_here, listens, place, port_host, wrapping
from autotune.wrappers.base import Wrapping, belongs, name_of
from tests.export.bundles import HOSTILE, bundle

from .conftest import SETTINGS

MARK = "study-0123456789ab/7/0123456789abcdef"
NAME = "autotune-study-0123456789ab-7-0123456789abcdef"
each = pytest.mark.parametrize("setting", SETTINGS)


def of(wrapper: Wrapper) -> Wrapping:
    found = wrapping(wrapper)
    assert found is not None
    return found


def plan_of(wrapper: Wrapper, *argv: str, **fields: object) -> LaunchPlan:
    given: dict[str, object] = {"engine": "x", "host": "127.0.0.1", "port": 8080, "argv": argv or ("serve", "--x")}
    return LaunchPlan(**given | fields, wrapper=wrapper)  # type: ignore[arg-type]


def test_every_wrapper_is_in_the_suite() -> None:
    """No kind ships that the tests of servers do not start."""
    assert {wrapper.kind for wrapper in SETTINGS.values()} == set(WRAPPERS)


@each
@settings(deadline=None, max_examples=40)
@given(args=st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=5))
def test_the_server_s_own_arguments_pass_unchanged(setting: str, args: list[str]) -> None:
    """Whatever an argument holds, it reaches the server as one argument, also through a shell at the other end."""
    argv = list(of(SETTINGS[setting]).launch(plan_of(SETTINGS[setting], "printf", "%s\\0", *args), MARK).argv)
    if setting != "ssh":
        assert argv[-len(args) :] == args
        return
    words = shlex.split(argv[-1])
    assert words[:3] == ["exec", "sh", "-c"]
    assert words[-len(args) :] == args


@settings(deadline=None, max_examples=25)
@given(args=st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=5))
def test_a_real_shell_hands_them_on(args: list[str]) -> None:
    """The script for the other end, run here by sh: the server's output is its arguments, and its exit code is told."""
    script = "import sys; sys.stdout.write(chr(0).join(sys.argv[1:])); sys.exit(5)"
    plan = plan_of(SETTINGS["ssh"], "python3", "-ISc", script, *args, port=1)
    command = of(plan.wrapper).launch(plan, MARK).argv[-1]
    process = subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"A=b c\n\n")
    process.stdin.flush()
    assert process.stdout is not None
    out = process.stdout.read().decode()
    assert process.wait() == 5
    process.stdin.close()
    process.stdout.close()
    assert out.split("\0") == args


def test_a_container_s_command() -> None:
    """The image's own entry point does not stand in the way, settings are literal, secrets are named only."""
    wrapper = Wrapper(kind="docker", image="engine:1", options=("--ipc", "host"))
    plan = plan_of(wrapper, env={"A": "1"}, secret_env=("HF_TOKEN",), api_key_env="KEY")
    assert of(wrapper).launch(plan, MARK).argv == (
        *("docker", "run", "--rm", "--name", NAME, "--network", "host"),
        *("--env", "PYTHONUNBUFFERED=1", "--env", "SPT_NOENV=1", "--env", f"{MARK_NAME}={MARK}"),
        *("--env", "A=1", "--env", "HF_TOKEN", "--env", "KEY", "--gpus", "all", "--ipc", "host"),
        *("--entrypoint", "serve", "engine:1", "--x"),
    )


@pytest.mark.parametrize(
    ("kind", "gpus", "words"),
    [
        ("docker", "0,1", ["--gpus", '"device=0,1"']),
        ("docker", "", []),
        ("podman", "all", ["--device", "nvidia.com/gpu=all"]),
        ("podman", "0,1", ["--device", "nvidia.com/gpu=0", "--device", "nvidia.com/gpu=1"]),
    ],
)
def test_the_gpus_of_a_container(kind: str, gpus: str, words: list[str]) -> None:
    """Each runtime is told in its own way which GPUs the server gets; memory is watched on the same ones."""
    wrapper = Wrapper(kind=kind, image="engine:1", gpus=gpus)
    argv = of(wrapper).launch(plan_of(wrapper), MARK).argv
    assert [word for word in argv if "gpu" in word or "device" in word] == words
    assert gpu_choice(wrapper).get("CUDA_VISIBLE_DEVICES") == (gpus if "," in gpus else None)


def test_names_of_one_study_are_not_those_of_another() -> None:
    """A study whose name begins like another's is not ended with it."""
    assert name_of(MARK) == NAME
    assert belongs(NAME, MARK)
    assert belongs(NAME, "study-0123456789ab/")
    assert not belongs(NAME, "study/")
    assert not belongs(NAME.replace("ab-7", "ab-2-7"), "study-0123456789ab/")
    assert not belongs(f"x{NAME}", MARK)


@pytest.mark.parametrize(
    ("wrapper", "host", "bind", "whose"),
    [
        (Wrapper(), "127.0.0.1", "127.0.0.1", "here"),
        (SETTINGS["docker"], "127.0.0.1", "127.0.0.1", "here"),
        (SETTINGS["bridge"], "127.0.0.1", "0.0.0.0", "published"),
        (SETTINGS["ssh"], "127.0.0.1", "127.0.0.1", "published"),
        (replace(SETTINGS["ssh"], address="gpu7"), "gpu7", "0.0.0.0", "apart"),
        (replace(SETTINGS["srun"], address="gpu7"), "gpu7", "0.0.0.0", "apart"),
    ],
)
def test_where_a_server_is_reached(wrapper: Wrapper, host: str, bind: str, whose: str) -> None:
    """The server binds what makes it reachable where the load goes."""
    spec = EngineSpec(command=["serve"], wrapper=wrapper)
    where = place(spec, 8080)
    assert (where.host, where.bind, listens(wrapper)) == (host, bind, whose)
    assert is_here(wrapper) == (host == "127.0.0.1" and wrapper.kind != "ssh")
    assert port_host(spec) == "127.0.0.1"


def test_ssh_forwards_only_what_it_must() -> None:
    """With an address the load goes straight to it."""
    forwarded = of(SETTINGS["ssh"]).launch(plan_of(SETTINGS["ssh"]), MARK).argv
    assert forwarded[forwarded.index("-L") + 1] == "127.0.0.1:8080:127.0.0.1:8080"
    direct = replace(SETTINGS["ssh"], address="gpu7")
    assert "-L" not in of(direct).launch(plan_of(direct), MARK).argv


def test_a_job_with_its_step_is_cancelled_once() -> None:
    """Cancelling a job is polite; a step without one of ours is asked by signal."""
    there = of(SETTINGS["srun"])
    listing = f"12|{NAME}\n12.0|{NAME}\n13|other\n77.3|{NAME}\n77.extern|extern\n"
    left = there.left(listing, MARK)
    assert left == ("12", "12.0", "77.3")
    assert there.stop(left, MARK, 30.0) == (("scancel", "12"), ("scancel", "--signal=TERM", "77.3"))
    assert there.kill(left, MARK) == (("scancel", "--signal=KILL", "12", "12.0", "77.3"),)


@pytest.mark.parametrize(
    ("setting", "code", "log", "told"),
    [
        ("docker", 125, "docker: Error response from daemon: no such image\n", "no such image"),
        ("docker", 1, "Error: out of memory\n", ""),
        ("ssh", 255, "starting\nclient_loop: send disconnect: Broken pipe\n", "send disconnect"),
        ("ssh", 1, "ssh: x\n", ""),
        ("srun", 1, "srun: error: Unable to create step for job 7: Invalid\n", "Unable to create step"),
        (
            "srun",
            1,
            "slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT 2026-01-01 DUE TO TIME LIMIT ***\n",
            "TIME LIMIT",
        ),
        ("srun", 1, "srun: error: n1: task 0: Exited with exit code 1\n", ""),
    ],
)
def test_whose_failure_it_was(setting: str, code: int, log: str, told: str) -> None:
    """A wrapper's own failure is told from the server's, which alone says something about the parameters."""
    found = of(SETTINGS[setting]).own_failure(code, log)
    assert (told in found) if told else found == ""


@each
@pytest.mark.parametrize("fmt", ["bash", "systemd", "args", "json"])
def test_an_export_starts_the_wrapper(setting: str, fmt: str) -> None:
    """A command line carries the wrapper it was measured behind, under a name of the study's, without a mark."""
    wrapper = SETTINGS[setting]
    plain = bundle(["serve", "--x"])
    given = replace(plain, plan=replace(plain.plan, wrapper=wrapper), baseline=replace(plain.baseline, wrapper=wrapper))
    text = render(fmt, given)
    assert (wrapper.program or wrapper.kind) in text
    assert MARK_NAME not in text
    if setting != "ssh":
        assert "autotune-demo" in text
        assert text.count("${AUTOTUNE_NAME:-autotune-demo}") == (fmt == "bash")
        assert text.count("${AUTOTUNE_NAME:-autotune-demo-baseline}") == (fmt == "bash")


@each
@pytest.mark.parametrize("fmt", ["compose", "kubernetes"])
def test_a_manifest_keeps_the_image_and_says_what_it_leaves_out(setting: str, fmt: str) -> None:
    """A container's manifest has the measured command itself; a wrapper that is no container is named as left out."""
    wrapper = SETTINGS[setting]
    plain = bundle(["serve", "--x"])
    text = render(fmt, replace(plain, plan=replace(plain.plan, wrapper=wrapper)))
    assert "autotune-demo" not in text
    if wrapper.image:
        assert f'image: "{wrapper.image}"' in text
    else:
        assert f"runs behind:     {wrapper.kind}" in text
        assert "which is not in this file" in text


def test_a_secret_argument_does_not_leave_through_ssh() -> None:
    """What would be readable on a command line at the other end is refused, with the way round it."""
    plain = bundle(["serve", "--hf-token", "abc"])
    with pytest.raises(InputError, match=r'pass_env = \["HF_TOKEN"\]'):
        render("bash", replace(plain, plan=replace(plain.plan, wrapper=SETTINGS["ssh"])))
