"""What a container changes of a measured command line, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given

from autotune.errors import InputError
from autotune.export.container import CHANGED, UNCHANGED, changes, contained, gpus_of
from autotune.values import LaunchPlan
from tests.export.bundles import arguments


def plan(*argv: str, host: str = "127.0.0.1", env: dict[str, str] | None = None) -> LaunchPlan:
    return LaunchPlan(engine="sglang", argv=argv, host=host, port=30000, env=env or {})


@pytest.mark.parametrize(
    ("argv", "inside"),
    [
        (["p", "--host", "127.0.0.1"], ["p", "--host", "0.0.0.0"]),
        (["p", "--host=127.0.0.1"], ["p", "--host=0.0.0.0"]),
        (["p", "--listen_address", "127.0.0.1"], ["p", "--listen_address", "0.0.0.0"]),
        (["p", "--bind", "127.0.0.1:30000"], ["p", "--bind", "0.0.0.0:30000"]),
        (["p", "http://127.0.0.1:30000/v1"], ["p", "http://0.0.0.0:30000/v1"]),
        (["p", "--url=127.0.0.1:30000"], ["p", "--url=0.0.0.0:30000"]),
        (["p", "--dist-init-addr", "127.0.0.1:5000"], ["p", "--dist-init-addr", "127.0.0.1:5000"]),
        (["p", "--peer", "127.0.0.1"], ["p", "--peer", "127.0.0.1"]),
        (["p", "8127.0.0.1:30000"], ["p", "8127.0.0.1:30000"]),
        (["p", "127.0.0.1:300001"], ["p", "127.0.0.1:300001"]),
    ],
)
def test_only_where_it_listens_becomes_everywhere(argv: list[str], inside: list[str]) -> None:
    """The address to listen on, in its usual forms; other addresses stay what they are."""
    assert list(contained(plan(*argv)).plan.argv) == inside


@given(args=arguments)
def test_everything_else_is_word_for_word(args: list[str]) -> None:
    """Words that tell no address of the server are not touched."""
    assert contained(plan("prog", *args)).plan.argv == ("prog", *args)


def test_a_server_that_listens_everywhere_needs_no_change() -> None:
    """Then the claim is the plain one."""
    there = contained(plan("p", "--host", "0.0.0.0", host="0.0.0.0"))
    assert changes(there) == (UNCHANGED, ())


def test_a_command_without_an_address_is_said_to_have_none() -> None:
    """A reader must see to it, since autotune cannot."""
    claim, (note,) = changes(contained(plan("p", "--port", "30000")))
    assert claim == CHANGED
    assert "names no address" in note


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("/home/a/.venv/bin/python3.12", "python3"),
        ("/opt/venv/bin/vllm", "vllm"),
        ("/usr/bin/python", "python3"),
        ("./server.sh", "./server.sh"),
        ("python3.11", "python3.11"),
    ],
)
def test_programs_are_found_by_name(program: str, name: str) -> None:
    """The path of an interpreter on the measured machine is not that of the image; the change is said."""
    found = contained(plan(program, host="0.0.0.0"))
    assert found.plan.argv == (name,)
    assert [program in note for note in changes(found)[1]] == [True] * (program != name)


def test_gpus_are_numbered_anew() -> None:
    """The variable that picks the host's GPUs does not go inside; which they were is kept and said."""
    found = contained(plan("p", host="0.0.0.0", env={"CUDA_VISIBLE_DEVICES": "4, 5", "A": "1"}))
    assert (found.plan.env, found.devices) == ({"A": "1"}, ("4", "5"))
    assert "GPUs 4, 5" in changes(found)[1][0]


@pytest.mark.parametrize(
    ("argv", "gpus"),
    [
        ([], 1),
        (["--tp", "8"], 8),
        (["--tp-size=4", "--pp-size", "2"], 8),
        (["--tensor_parallel_size", "2", "--data-parallel-size", "4"], 8),
        (["-tp", "2"], 2),
        (["--tp", "8", "--dp", "8", "--enable-dp-attention"], 8),
    ],
)
def test_gpus_follow_from_the_parallel_sizes(argv: list[str], gpus: int) -> None:
    """Tensor times pipeline times data, which under DP attention is within tensor."""
    assert gpus_of(["server", *argv]) == gpus


def test_a_size_that_is_no_number_is_named() -> None:
    """Better no manifest than one with a guessed number of GPUs."""
    with pytest.raises(InputError, match="'many'"):
        gpus_of(["server", "--tp", "many"])
