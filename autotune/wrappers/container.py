"""Containers: ``docker run`` and ``podman run`` in the foreground, known by their name.

The client is only a window: killed, it leaves its container running, so a stop goes to the runtime.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from autotune.values import LaunchPlan, Wrapper
from autotune.wrappers.base import MARK_NAME, SERVER_ENV, Argv, Inquiry, Launch, Listens, belongs, first_line, name_of

KINDS = ("docker", "podman")
_TARGETS = ("target=", "destination=", "dst=")
_RUNTIME_FAILED = 125
"""The runtime's own exit code: it could not start the container (docker-run(1), podman-run(1))."""


class Container:
    """See ``Wrapping``."""

    def __init__(self, wrapper: Wrapper) -> None:
        self._wrapper = wrapper
        self._program = wrapper.program or wrapper.kind

    @property
    def listens(self) -> Listens:
        return "here" if self._wrapper.network == "host" else "published"

    def inquiries(self) -> tuple[Inquiry, ...]:
        program, image = self._program, self._wrapper.image
        return (
            Inquiry(
                argv=(program, "ps", "--quiet"),
                good=f"{program} answers",
                remedy=f"start its daemon, or see that `{program} ps` works for this user",
            ),
            Inquiry(
                argv=(program, "image", "inspect", "--format", "{{.Id}}", image),
                good=f"image {image} is here",
                remedy=f"`{program} pull {image}` before the night, or correct engine.wrapper.image",
            ),
        )

    def launch(self, plan: LaunchPlan, mark: str) -> Launch:
        return Launch(argv=self._run(plan, name_of(mark), {**SERVER_ENV, MARK_NAME: mark}))

    def served(self, plan: LaunchPlan, name: str) -> LaunchPlan:
        return replace(plan, argv=self._run(plan, name, SERVER_ENV), env={})

    def find(self, mark: str) -> tuple[Argv, ...]:
        names = ("--filter", f"name={name_of(mark)}", "--format", "{{.Names}}")
        return ((self._program, "ps", "--all", *names),)

    def left(self, output: str, mark: str) -> tuple[str, ...]:
        # A runtime's filter is a pattern that may match in the middle; a name is either ours or not.
        return tuple(name for name in output.replace(",", "\n").split() if belongs(name, mark))

    def stop(self, left: Sequence[str], mark: str, term_s: float) -> tuple[Argv, ...]:
        return ((self._program, "stop", "-t", str(max(1, round(term_s))), *left),)

    def kill(self, left: Sequence[str], mark: str) -> tuple[Argv, ...]:
        # podman would be polite once more; docker is not, and knows no such option.
        at_once = ("--time", "0") if self._wrapper.kind == "podman" else ()
        return ((self._program, "rm", "--force", *at_once, *left),)

    def inside(self, mark: str) -> Argv | None:
        return (self._program, "inspect", "--format", "{{.State.Pid}} {{.Id}}", name_of(mark))

    def own_failure(self, exit_code: int | None, log: str) -> str:
        if exit_code != _RUNTIME_FAILED:
            return ""
        told = first_line(log, "docker:", "Error", "error", "Unable", "Cannot", "unknown flag", "time=")
        return f"{self._program} could not start the container: {told or f'exit code {exit_code}'}"

    def describe(self, name: str) -> str:
        return f"container {name}"

    def _run(self, plan: LaunchPlan, name: str, env: dict[str, str]) -> Argv:
        wrapper = self._wrapper
        program, *arguments = plan.argv
        network = ("--network", "host") if wrapper.network == "host" else ("--publish", published(plan))
        variables = (*(f"{key}={value}" for key, value in {**env, **plan.env}.items()), *passed(plan))
        return (
            *(self._program, "run", "--rm", "--name", name, *network),
            *(word for variable in variables for word in ("--env", variable)),
            *self._gpus(),
            *wrapper.options,
            *("--entrypoint", program, wrapper.image, *arguments),
        )

    def _gpus(self) -> Iterator[str]:
        gpus = self._wrapper.gpus
        if self._wrapper.kind == "podman":
            # By the Container Device Interface, which docker's --gpus does without.
            for gpu in filter(None, gpus.split(",")):
                yield from ("--device", f"nvidia.com/gpu={gpu}")
        elif gpus:
            # docker reads the value as CSV, in which a comma needs quotes.
            yield from ("--gpus", "all" if gpus == "all" else f'"device={gpus}"')


def mounted(wrapper: Wrapper) -> tuple[str, ...]:
    """The folders of the container that something outside it is mounted on, by its options."""
    words = [part for word in wrapper.options for part in _split(word)]
    found: list[str] = []
    for option, value in itertools.pairwise([*words, ""]):
        if option in ("--volume", "-v"):
            found += value.split(":")[1:2]
        elif option == "--mount":
            found += [word.partition("=")[2] for word in value.split(",") if word.startswith(_TARGETS)]
    return tuple(path.rstrip("/") for path in found if path.rstrip("/"))


def _split(word: str) -> list[str]:
    """``--volume=a:b`` and ``-va:b`` as two words."""
    if word.startswith("-v") and word[2:3] not in ("", "="):
        return ["-v", word[2:]]
    option, equals, value = word.partition("=")
    return [option, value] if equals and option in ("--volume", "-v", "--mount") else [word]


def passed(plan: LaunchPlan) -> tuple[str, ...]:
    """Variables that are passed on by name: their values are never on a command line."""
    return tuple(dict.fromkeys([*plan.secret_env, *([plan.api_key_env] if plan.api_key_env else [])]))


def published(plan: LaunchPlan) -> str:
    """The port as docker publishes it: the same number on both sides."""
    host = f"[{plan.host}]" if ":" in plan.host else plan.host
    return f"{host}:{plan.port}:{plan.port}"
