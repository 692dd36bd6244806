"""What becomes of a measured command line inside a container: where it listens, its program, its GPUs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from msgspec.structs import replace

from autotune.engines.argv import flag_name, value_of
from autotune.errors import InputError
from autotune.export.bundle import ExportBundle
from autotune.values import LaunchPlan, Value
from autotune.wrappers.container import KINDS as CONTAINERS

EVERYWHERE = "0.0.0.0"
"""A container's loopback is reached by nothing outside of it."""
HOST_FLAGS = frozenset(
    {"--host", "--hostname", "--bind", "--bind-address", "--listen", "--listen-address", "--address"}
)
TENSOR = ("--tp", "--tp-size", "--tensor-parallel-size", "-tp")
PIPELINE = ("--pp", "--pp-size", "--pipeline-parallel-size", "-pp")
DATA = ("--dp", "--dp-size", "--data-parallel-size", "-dp")
SHARED_RANKS = "--enable-dp-attention"
"""Under SGLang's DP attention the data-parallel ranks are the tensor-parallel ones."""
VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
HEALTH_PATHS = {"sglang": "/health", "vllm": "/health"}
"""Routes that answer 200 while the engine serves, and that no API key guards."""
_IMAGES = {"sglang": "lmsysorg/sglang", "vllm": "vllm/vllm-openai"}
_PYTHON = re.compile(r"python(3(\.\d+)?)?")


class Contained(Value, frozen=True, kw_only=True):
    """``plan`` as a container runs it; ``devices`` are the GPUs that the measured environment named (empty: any)."""

    plan: LaunchPlan
    devices: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def contained(plan: LaunchPlan) -> Contained:
    """The plan with what a container changes, and a sentence for each change.

    It listens on all addresses, its program is found by name in the image, and the GPUs are those that the container
    is given: inside they are counted from 0, so a variable that picks some of the host's would pick wrong ones.
    """
    argv = tuple(_everywhere(plan))
    notes = [_address_note(plan, argv)]
    # A path that was measured in a container is one of its image.
    if argv and plan.wrapper.kind not in CONTAINERS and (program := _program(argv[0])) != argv[0]:
        notes.append(f"The program is {program} of the image; measured was {argv[0]}.")
        argv = (program, *argv[1:])
    named = next((plan.env[name] for name in VISIBLE if name in plan.env), "")
    devices = tuple(word.strip() for word in named.split(",") if word.strip())
    if devices:
        notes.append(f"Measured on GPUs {', '.join(devices)} of the host; the container has its own numbers for them.")
    env = {name: value for name, value in plan.env.items() if name not in VISIBLE}
    inside = replace(plan, argv=argv, env=env, host=EVERYWHERE)
    return Contained(plan=inside, devices=devices, notes=tuple(filter(None, notes)))


def _everywhere(plan: LaunchPlan) -> Iterator[str]:
    """The arguments; whatever tells the server its address tells it to listen on all of them."""
    before = ""
    for word in plan.argv:
        flag, equals, value = word.partition("=")
        if before in HOST_FLAGS and word == plan.host:
            yield EVERYWHERE
        elif equals and flag_name(flag) in HOST_FLAGS and value == plan.host:
            yield f"{flag}={EVERYWHERE}"
        else:
            yield _with_port(word, plan)
        before = flag_name(word) if not equals else ""


def _with_port(word: str, plan: LaunchPlan) -> str:
    """``127.0.0.1:30000`` as a word, or after ``=`` or ``//``, is where the server listens."""
    address = re.escape(f"{plan.host}:{plan.port}")
    return re.sub(rf"(?:(?<=^)|(?<=[=/])){address}(?=$|/)", f"{EVERYWHERE}:{plan.port}", word)


def _address_note(plan: LaunchPlan, argv: Sequence[str]) -> str:
    if tuple(argv) != plan.argv:
        return f"It listens on {EVERYWHERE} inside the container; measured was {plan.host}."
    if plan.host in (EVERYWHERE, "::"):
        return ""
    return "The command names no address to listen on: see that the server is reached from outside of its container."


def _program(program: str) -> str:
    """The name by which an image has it: paths of this machine's virtual environments are not in there."""
    if not program.startswith("/"):
        return program
    name = PurePosixPath(program).name
    return "python3" if _PYTHON.fullmatch(name) else name or program


def gpus_of(argv: Sequence[str]) -> int:
    """How many GPUs the server of this command line uses. Raises InputError for a size that is no whole number."""
    shared = any(flag_name(word) == SHARED_RANKS for word in argv)
    return _size(argv, TENSOR) * _size(argv, PIPELINE) * (1 if shared else _size(argv, DATA))


def _size(argv: Sequence[str], names: Sequence[str]) -> int:
    text = value_of(argv, *names) or "1"
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"export: {names[0]} is {text!r} in the measured command line; a whole number was expected")
    return int(text)


def default_image(bundle: ExportBundle) -> str:
    """The project's own image of the measured version, as far as the engine has one."""
    version = re.search(r"\d+(\.\w+)+", bundle.provenance.engine)
    return f"{_IMAGES.get(bundle.plan.engine, 'inference-server')}:{'v' + version[0] if version else 'latest'}"


CHANGED = "These command lines are the measured ones but for what a container changes:"
UNCHANGED = "These command lines are exactly the measured ones."


def changes(*parts: Contained) -> tuple[str, tuple[str, ...]]:
    """How the command lines of an export relate to the measured ones: the claim, and a note for each change."""
    notes = tuple(dict.fromkeys(f"- {note}" for part in parts for note in part.notes))
    return (CHANGED if notes else UNCHANGED), notes
