"""Which engine a command would start: found without importing it, and without running the command.

The interpreter behind the command is asked, in a process of its own, for the package's version and
place. Wrappers in another file system (containers, other hosts) cannot be looked into, and are said to be so.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from autotune.engines.argv import substitute, value_of
from autotune.study.file import EngineSpec
from autotune.values import Value
from autotune.wrappers import shares_files

PACKAGES: Mapping[str, str] = {"sglang": "sglang", "vllm": "vllm"}
SIMULATOR = "autotune.sim"
_ELSEWHERE = frozenset({"docker", "podman", "nerdctl", "apptainer", "singularity", "ssh", "srun", "kubectl", "enroot"})
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*$")
_SHELL = re.compile(r"(?:ba|da|z|k)?sh$")
_ASK_S = 60.0
_DEPTH = 4

_ASK = """
import importlib.metadata as m, importlib.util as u, json, sys
name = sys.argv[1]
spec = u.find_spec(name)
places = list(spec.submodule_search_locations or []) if spec else []
version = ""
for known in [name] + (m.packages_distributions().get(name, []) if hasattr(m, "packages_distributions") else []):
    try:
        version = m.version(known)
        break
    except m.PackageNotFoundError:
        pass
print("\\n" + json.dumps({"location": places[0] if places else "", "version": version}))
"""


class Installed(Value, frozen=True, kw_only=True):
    """The engine behind a command. ``location`` is its package folder, empty where it cannot be looked into;
    ``reason`` then says why. ``version`` may be known all the same.
    """

    package: str
    version: str = ""
    location: str = ""
    interpreter: str = ""
    reason: str = ""


class _Answer(Value, frozen=True, kw_only=True):
    location: str
    version: str


def find_engine(spec: EngineSpec, environ: Mapping[str, str]) -> Installed:
    """The engine that the study's command would start under ``environ``. Never raises for an odd command."""
    command = substitute(spec.command, {})
    package = PACKAGES.get(spec.kind, "")
    if SIMULATOR in command:
        version = value_of(command, "--sim-version") or spec.version
        return Installed(package=SIMULATOR, version=version, reason="the simulated server")
    if not package:
        return Installed(package=spec.kind, version=spec.version, reason=f"nothing is known of {spec.kind} packages")
    if not shares_files(spec.wrapper):
        return Installed(package=package, version=spec.version, reason=f"it runs behind {spec.wrapper.kind}")
    env = {**environ, **spec.env}
    interpreter = interpreter_of(command, env)
    if not interpreter:
        return Installed(package=package, version=spec.version, reason=_why_not(command))
    return _ask(package, interpreter, env, spec.version)


def interpreter_of(command: Sequence[str], env: Mapping[str, str], depth: int = _DEPTH) -> str:
    """The path of the Python that the command ends up in, or an empty string.

    Follows console scripts by their first line, ``env`` and other prefixes, and reads shell scripts for
    the command that they start.
    """
    for word in command:
        if Path(word).name in _ELSEWHERE:
            return ""
        path = shutil.which(word, path=env.get("PATH", os.defpath)) or ""
        if path and _PYTHON.search(Path(path).name):
            return path
        if depth and path and (found := _of_script(Path(path), env, depth)):
            return found
        if depth and _is_script(word) and (found := _of_script(Path(word), env, depth)):
            return found
    return ""


def _is_script(word: str) -> bool:
    """Whether a word of a command names a shell script that needs no execute bit, as in ``bash serve.sh``."""
    return word.endswith(".sh") and Path(word).is_file()


def _of_script(path: Path, env: Mapping[str, str], depth: int) -> str:
    """The interpreter behind a script: its first line, or for a shell script what it starts; empty for a binary."""
    with path.open("rb") as file:
        head = file.read(256 * 1024)
    first, _, rest = head.partition(b"\n")
    if not first.startswith(b"#!") and not path.name.endswith(".sh"):
        return ""
    words = first.removeprefix(b"#!").decode("utf-8", "replace").split()
    shell = not words or any(_SHELL.search(Path(word).name) for word in words)
    if not shell:
        return interpreter_of(words, env, depth - 1)
    for command in _commands(rest.decode("utf-8", "replace"), env):
        if found := interpreter_of(command, env, depth - 1):
            return found
    return ""


def _commands(script: str, env: Mapping[str, str]) -> Iterator[list[str]]:
    """The command lines of a shell script, roughly: continued lines joined, variables of ``env`` filled in.

    Also understands the line ``'''exec' PYTHON "$0"`` that pip writes where the interpreter's path is too long.
    """
    for line in script.replace("\\\n", " ").splitlines():
        text = re.sub(r"\$\{?(\w+)\}?", lambda match: env.get(match[1], ""), line.strip().removeprefix("'''"))
        try:
            words = shlex.split(text.removeprefix("exec' "), comments=True)
        except ValueError:
            continue
        words = [word for word in words if word != "exec" and not re.match(r"\w+=", word)]
        if words and (len(words) > 1 or "/" in words[0]):
            yield words[:3]


def _ask(package: str, interpreter: str, env: Mapping[str, str], version: str) -> Installed:
    """Asks one interpreter, in a process of its own, where the package is."""

    def unknown(reason: str) -> Installed:
        return Installed(package=package, version=version, interpreter=interpreter, reason=reason)

    try:
        done = subprocess.run(
            [interpreter, "-c", _ASK, package], env=dict(env), capture_output=True, timeout=_ASK_S, check=False
        )
        answer = msgspec.json.decode(done.stdout.strip().rpartition(b"\n")[2], type=_Answer)
    except subprocess.TimeoutExpired:
        return unknown(f"{interpreter} did not answer within {_ASK_S:.0f} s")
    except (OSError, msgspec.MsgspecError):
        return unknown(f"{interpreter} could not be asked for it")
    if not answer.location:
        return unknown(f"{interpreter} has no package {package}")
    found = Path(answer.location).resolve()
    return Installed(package=package, version=answer.version or version, location=str(found), interpreter=interpreter)


def _why_not(command: Sequence[str]) -> str:
    elsewhere = [Path(word).name for word in command if Path(word).name in _ELSEWHERE]
    if elsewhere:
        return f"it runs behind {elsewhere[0]}"
    return f"no Python interpreter was found behind {command[0] if command else 'an empty command'}"
