"""What a study file may say of its wrapper."""

from __future__ import annotations

import pytest

from autotune.study.file import Study
from autotune.study.load import study_of
from autotune.study.problem import Known, Problem

COMMAND = ["python3", "-m", "server"]
IMAGE: dict[str, object] = {"kind": "docker", "image": "engine:1"}


def study(wrapper: dict[str, object], command: list[str] | None = None) -> Study:
    engine = {"command": command or COMMAND, "wrapper": wrapper}
    return study_of({"name": "x", "engine": engine, "workload": {"concurrency": 4}}, Known())


@pytest.mark.parametrize(
    "wrapper",
    [
        {},
        IMAGE,
        {"kind": "podman", "image": "e", "gpus": "0,1", "network": "bridge", "options": ["--ipc", "host"]},
        {"kind": "srun", "options": ["--gres=gpu:1"], "address": "n7"},
        {"kind": "ssh", "destination": "me@gpu7", "program": "/usr/bin/ssh"},
    ],
)
def test_sound_wrappers(wrapper: dict[str, object]) -> None:
    """Each kind with its settings is accepted as written."""
    assert study(wrapper).engine.wrapper.kind == wrapper.get("kind", "local")


@pytest.mark.parametrize(
    ("wrapper", "told"),
    [
        ({"kind": "dokcer"}, "wrapper.kind: 'dokcer' is not known; did you mean docker"),
        ({"image": "e"}, "wrapper.image: is of no use to kind local; it belongs to docker or podman"),
        ({"kind": "ssh", "destination": "h", "gpus": "0"}, "wrapper.gpus: is of no use to kind ssh"),
        ({"kind": "docker"}, "wrapper.image: is missing"),
        ({"kind": "docker", "image": "--privileged"}, "would be read as something else"),
        ({"kind": "ssh"}, "wrapper.destination: is missing"),
        ({"kind": "ssh", "destination": "-oProxyCommand=x"}, "would be read as something else"),
        ({**IMAGE, "options": ["--name", "x"]}, r"options\[0\]: --name takes the server"),
        ({**IMAGE, "options": ["--name=x"]}, r"options\[0\]: --name=x takes the server"),
        ({**IMAGE, "options": ["-e", "HF_TOKEN=abc"]}, r"options\[1\]: looks like a secret"),
        ({"kind": "srun", "options": ["--export=ALL,API_KEY=abc"]}, r"options\[0\]: looks like a secret"),
        ({"kind": "srun", "options": ["--ntasks=1"]}, r"options\[0\]: --ntasks=1 takes the server"),
        ({"kind": "srun", "options": ["--gres=gpu:1", "-n1"]}, r"options\[1\]: -n1 takes the server"),
        ({**IMAGE, "imgae": "x"}, "did you mean engine.wrapper.image"),
    ],
)
def test_problems_name_key_and_remedy(wrapper: dict[str, object], told: str) -> None:
    """Each mistake is one line about the key that holds it."""
    with pytest.raises(Problem, match=told):
        study(wrapper)


def test_this_machine_s_interpreter_is_not_in_an_image() -> None:
    """``{python}`` would name a file that is not there."""
    with pytest.raises(Problem, match="write python3"):
        study(IMAGE, ["{python}", "-m", "server"])
    assert study({"kind": "srun"}, ["{python}", "-m", "server"]).engine.wrapper.kind == "srun"


def test_slots_choose_among_all_gpus() -> None:
    """A container that numbers its GPUs anew cannot be told which are a slot's."""
    engine = {"command": COMMAND, "wrapper": {**IMAGE, "gpus": "2,3"}}
    text = {"name": "x", "engine": engine, "workload": {"concurrency": 4}, "resources": {"gpus_per_trial": 1}}
    with pytest.raises(Problem, match=r"wrapper\.gpus: does not go with resources\.gpus_per_trial"):
        study_of(text, Known())


@pytest.mark.parametrize("program", ["docker", "/usr/bin/podman", "srun", "ssh"])
def test_a_wrapper_in_the_command_is_refused(program: str) -> None:
    """Its server would outlive every stop; the remedy is the table for wrappers."""
    with pytest.raises(Problem, match=r"leaves the server running.*\[engine\.wrapper\]"):
        study({}, [program, "run", "x"])
