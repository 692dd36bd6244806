"""What ``[engine.wrapper]`` must satisfy: each setting belongs to some kinds of wrapper, and some options are ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from autotune.study.environment import looks_secret
from autotune.study.file import Study
from autotune.study.problem import Known, Problem, one_of
from autotune.values import Wrapper
from autotune.wrappers import LOCAL, WRAPPERS, shares_files

_CONTAINER = ("kind", "program", "options", "image", "gpus", "network")
_USED = {
    LOCAL: ("kind",),
    "docker": _CONTAINER,
    "podman": _CONTAINER,
    "srun": ("kind", "program", "options", "address"),
    "ssh": ("kind", "program", "options", "destination", "address"),
}
_RUN = ("--name", "--detach", "-d", "--tty", "-t", "--interactive", "-i", "-it", "-ti", "--restart", "--entrypoint")
_OURS = {
    "docker": _RUN,
    "podman": (*_RUN, "--replace"),
    "srun": ("--job-name", "-J", "--pty", "--ntasks", "-n", "--input", "-i"),
    "ssh": ("-f", "-N", "-n", "-t", "-tt", "-T", "-M", "-S", "-W"),
}
"""Options that would take the server from the tuner's hands: its name, or its life in the foreground."""
_SLURM = re.compile(r"-[Jni][^-=].*")
"""Slurm's own with the value behind the letter, as in ``-n1``."""
_SETTING = re.compile(r"(?:^|[=,])([A-Za-z_]\w*)=([^,]+)")


def wrapper_rules(study: Study, known: Known) -> None:
    """See ``Rule``."""
    wrapper, command = study.engine.wrapper, study.engine.command
    one_of("engine.wrapper.kind", wrapper.kind, (LOCAL, *WRAPPERS))
    _only_what_is_used(wrapper)
    if wrapper.kind == LOCAL:
        _no_wrapper_as_command(command)
        return
    _needs(wrapper)
    _options(wrapper)
    _slots(study)
    if not shares_files(wrapper) and any("{python}" in argument for argument in command):
        remedy = "write python3, or its path there"
        raise Problem("engine.command", f"{{python}} is this machine's and not there behind {wrapper.kind}", remedy)


def _only_what_is_used(wrapper: Wrapper) -> None:
    for name in wrapper.__struct_fields__:
        if name in _USED[wrapper.kind] or getattr(wrapper, name) == getattr(Wrapper(), name):
            continue
        kinds = " or ".join(kind for kind, used in _USED.items() if name in used)
        raise Problem(f"engine.wrapper.{name}", f"is of no use to kind {wrapper.kind}", f"it belongs to {kinds}")


def _no_wrapper_as_command(command: list[str]) -> None:
    program = PurePath(command[0]).name
    if program in WRAPPERS:
        remedy = f'write kind = "{program}" under [engine.wrapper] and the server\'s own command line here'
        raise Problem("engine.command", f"{program} leaves the server running when it is ended itself", remedy)


def _needs(wrapper: Wrapper) -> None:
    needed = {"docker": "image", "podman": "image", "ssh": "destination"}.get(wrapper.kind, "")
    if not needed:
        return
    text = getattr(wrapper, needed)
    remedies = {"image": "name the image that has the engine, such as lmsysorg/sglang:v0.5.14"}
    remedy = remedies.get(needed, "name the host as ssh knows it, such as user@gpu7")
    if not text.strip():
        raise Problem(f"engine.wrapper.{needed}", "is missing", remedy)
    if text.startswith("-") or text != text.strip():
        raise Problem(f"engine.wrapper.{needed}", f"{text!r} would be read as something else", remedy)


def _options(wrapper: Wrapper) -> None:
    for index, option in enumerate(wrapper.options):
        key = f"engine.wrapper.options[{index}]"
        if option.partition("=")[0] in _OURS[wrapper.kind] or (wrapper.kind == "srun" and _SLURM.fullmatch(option)):
            raise Problem(key, f"{option} takes the server from autotune's hands", "leave it out: autotune sets it")
        if any(looks_secret(name, value) for name, value in _settings(option)):
            raise Problem(
                key,
                "looks like a secret, and options are stored",
                "set it in the environment and name it in engine.pass_env",
            )


def _slots(study: Study) -> None:
    """A slot names its GPUs by this host's numbers, which a container that gets some of them does not know."""
    wrapper = study.engine.wrapper
    if study.resources.gpus_per_trial and wrapper.gpus != "all":
        remedy = 'write gpus = "all", and choose with CUDA_VISIBLE_DEVICES in the environment of autotune'
        raise Problem("engine.wrapper.gpus", "does not go with resources.gpus_per_trial", remedy)


def _settings(option: str) -> Iterator[tuple[str, str]]:
    """Names and values of variables in ``-e``'s ``A=b``, ``--env=A=b`` and ``--export=ALL,A=b``."""
    return ((match[1], match[2]) for match in _SETTING.finditer(option))
