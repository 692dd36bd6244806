"""Which call of a script starts a server, and what of it is the server's own command line. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

import msgspec

from autotune.intake.call import Call
from autotune.intake.grammar import parse
from autotune.intake.prefixes import Bare, bare
from autotune.intake.remark import short
from autotune.intake.script import read_script
from autotune.intake.shells import opened_by
from autotune.intake.syntax import fault_of
from autotune.intake.words import Word
from autotune.intake.wrapped import CONTAINERS, Wrapped, wrapped_of
from autotune.values import Value

MODULES = {
    "sglang.launch_server": "sglang",
    "autotune.sim": "sglang",
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.cli.main": "vllm",
}
"""Python modules that are servers, and the engine that each is."""
_FILES = {"launch_server.py": "sglang", "api_server.py": "vllm"}
_STARTS = frozenset({"sglang", "vllm", "numactl", "taskset", "env", "bash"})
"""Words with which the command line of a server begins."""
_FRONT = frozenset({"chrt", "ionice", "nice", "nsys", "stdbuf", "timeout", "uv"})
"""Programs that run what follows them, and leave a server as it is."""
_IMAGES = {"vllm-openai": (("python3", "-m", "vllm.entrypoints.openai.api_server"), ("vllm", "serve"))}
"""Images whose entry point is the server: how it takes its model behind a flag, and by place."""
_ELSEWHERE = frozenset(
    {*CONTAINERS, "docker-compose", "podman-compose", "kubectl", "systemd-run", "sbatch", "ssh", "srun"}
)
"""Programs whose server goes on when they are ended themselves."""
_ENDS = frozenset({"pkill", "pgrep", "killall"})
"""Programs that only name a server."""

_BESIDE = (
    "what is run beside the server in its container or on its host is not done; build it into the image or the host"
)


def kind_of(argv: Sequence[str]) -> str:
    """The engine that a command line starts, empty for another program."""
    at = start_of(argv)
    ends = any(PurePath(word).name in _ENDS for word in argv[:at])
    return _kind_at(argv, at) if at is not None and not ends else ""


def start_of(argv: Sequence[str]) -> int | None:
    """Where in a command line the server itself begins; what stands before has flags of its own."""
    return next((at for at in range(len(argv)) if _kind_at(argv, at)), None)


def _kind_at(argv: Sequence[str], at: int) -> str:
    word, following = argv[at], argv[at + 1] if at + 1 < len(argv) else ""
    name = PurePath(word).name
    if word == "-m" and following in MODULES:
        return MODULES[following]
    if name in ("sglang", "vllm") and following == "serve":
        return name
    if name == "autotune" and following == "sim":
        return "sglang"
    return _FILES.get(name, "")


def stranger(argv: Sequence[str]) -> str:
    """The program that runs the server, where it is none that is known to leave it as it is."""
    program = PurePath(argv[0]).name
    known = program in _STARTS | _FRONT or program in _FILES or program.startswith(("python", "pypy"))
    return "" if known or program == "autotune" else argv[0]


def program_of(call: Call) -> str:
    """The program of a call, whatever stands before it."""
    words = bare(call.words, {}).words
    return PurePath(words[0].text).name if words else ""


class Server(Value, frozen=True, kw_only=True):
    """A call that starts a server, taken apart: engine, wrapper, the server's own words, the settings it gets.

    ``refusal`` says why a night could not start or end it, empty where it can.
    """

    kind: str
    wrapped: Wrapped | None
    words: tuple[Word, ...]
    env: dict[str, Word]
    changes: tuple[str, ...] = ()
    refusal: str = ""


def server_of(call: Call, where: str, environ: Mapping[str, str], kind: str = "") -> Server | None:
    """The server that a call starts, None for any other call. ``kind``: it is one, of that engine, if none is seen."""
    own = bare(call.words, call.env)
    body, env = list(own.words), own.env
    wrapped = wrapped_of(body, _STARTS)
    changes = (*call.changes, *own.changes, *(wrapped.changes if wrapped else ()))
    if wrapped:
        env = _reaching(env, wrapped)
        body = _with_entry(list(wrapped.rest), wrapped)
        inside = _from_shell(Bare(words=tuple(body), env=env), Path(where), {} if wrapped.isolated else environ)
        env, changes = inside.env, (*changes, *inside.changes)
        # A variable of the other side: nobody could export it here.
        body = [_placed(word, call.line) if wrapped.isolated and word.unclear else word for word in inside.words]
    kind = kind_of([word.text for word in body]) or kind
    if not kind:
        return None
    refusal = _refusal([word.text for word in body], wrapped)
    return Server(kind=kind, wrapped=wrapped, words=tuple(body), env=env, changes=changes, refusal=refusal)


def _refusal(argv: Sequence[str], wrapped: Wrapped | None) -> str:
    """Why a night could not start or end a server."""
    program = PurePath(argv[0]).name if argv else ""
    scope = program == "systemd-run" and "--scope" in argv[: start_of(argv)]
    if not wrapped and program in _ELSEWHERE and not scope:
        return (
            f"{' '.join(argv[:2])}: the server would go on when this is ended; give a script that starts it "
            "in the foreground: its own command line, or docker run, podman run, srun or ssh in front of that"
        )
    if wrapped and wrapped.several:
        return f"{wrapped.several}: a night starts one task on one node; give a script of a server that fits one"
    return ""


def _reaching(env: dict[str, Word], wrapped: Wrapped) -> dict[str, Word]:
    """The settings that reach the server: a container gets what ``--env`` says, by value or by name."""
    if not wrapped.isolated:
        return env
    return {
        name: env.get(name, word) if word.unclear == f"${name}" and not word.text else word
        for name, word in wrapped.env.items()
    }


def _with_entry(body: list[Word], wrapped: Wrapped) -> list[Word]:
    """The command line with the image's entry point, where that is the server."""
    if wrapped.entry:
        return [Word(text=wrapped.entry), *body]
    known = next((known for mark, known in _IMAGES.items() if mark in wrapped.wrapper.image), None)
    if known is None or kind_of([word.text for word in body]):
        return body
    by_flag, by_place = known
    program = by_flag if not body or body[0].text.startswith("-") else by_place
    return [*(Word(text=text) for text in program), *body]


def _from_shell(outer: Bare, where: Path, environ: Mapping[str, str]) -> Bare:
    """``bash -c 'SERVER ...'`` is the server itself: flags could not be added behind the quoted text."""
    opened = opened_by(outer.words)
    if not opened or not opened[0].text:
        return outer
    settings = {**environ, **{name: word.text for name, word in outer.env.items() if not word.unclear}}
    if fault_of(opened[0].text, parse(opened[0].text).root_node):
        return outer
    script = read_script(opened[0].text, where, settings)
    calls = [call for call in script.calls if kind_of(call.argv)]
    if len(calls) != 1:
        return outer
    inner = bare(calls[0].words, calls[0].env)
    words = inner.words
    if folder := calls[0].folder:
        words = (Word(text="env"), Word(text="--chdir=") + folder, *words)
    beside = [f"not taken over: {short(' '.join(call.argv))}" for call in script.calls if call is not calls[0]]
    said = (*(remark.text for remark in script.remarks), *beside, *([_BESIDE] if beside else []))
    return Bare(words=words, env={**outer.env, **inner.env}, changes=(*said, *calls[0].changes, *inner.changes))


def _placed(word: Word, line: int) -> Word:
    return msgspec.structs.replace(word, line=word.line or line)
