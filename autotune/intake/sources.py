"""A launch script's calls, sorted: the server, load generators, sweeps, and what is left over. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

import msgspec

from autotune.errors import InputError
from autotune.intake.bench import Load, load_of
from autotune.intake.call import Call
from autotune.intake.flags import options
from autotune.intake.launch import Launch, launch_of
from autotune.intake.reader import QUIET
from autotune.intake.remark import Remark, short
from autotune.intake.script import read_script
from autotune.intake.server import Server, program_of, server_of
from autotune.values import Value

_BENCH_MODULES = {"sglang.bench_serving": "sglang", "sglang.benchmark.serving": "sglang"}
_BENCH_FILES = {"bench_serving.py": "sglang", "benchmark_serving.py": "vllm"}
_DETACH = re.compile(r"-[it]*d[it]*|--detach(?:=true)?")
_NO_SERVERS_WORDS = (
    "tmux screen systemctl service kubectl scp rsync cp mv ln ulimit sysctl modprobe module conda git pip pip3 uv apt"
    " apt-get alias awk sed sort jq lsof ss netstat ps pgrep free df du eval cd source set shift read"
)
_NO_SERVERS = QUIET | frozenset(_NO_SERVERS_WORDS.split())
"""Programs that --engine does not make a server."""


class SweepCall(Value, frozen=True, kw_only=True):
    """Files of a ``vllm bench sweep serve``, as it names them; empty: none."""

    serve_params: str = ""
    bench_params: str = ""


class Sorted(Value, frozen=True, kw_only=True):
    """What a script holds. ``launch`` is None where it starts no server."""

    launch: Launch | None = None
    loads: tuple[Load, ...] = ()
    sweeps: tuple[SweepCall, ...] = ()
    remarks: tuple[Remark, ...] = ()


def sort_script(text: str, path: Path, environ: Mapping[str, str], kind: str = "") -> Sorted:
    """Read a script and sort its commands. Raises InputError where it starts more than one server.

    ``kind``: where no server is seen, the last command that could be one is one of that engine.
    """
    script = read_script(text, path, environ)
    sorter = _Sorter(path, environ)
    for call in script.calls:
        sorter.sort(call)
    told = sorter.told(kind) if kind and not sorter.servers else []
    chosen = _only(sorter.servers, path)
    return Sorted(
        launch=launch_of(*chosen, path.name) if chosen else None,
        loads=tuple(sorter.loads),
        sweeps=tuple(sorter.sweeps),
        remarks=(*script.remarks, *told, *(_left_over(call, path) for call in sorter.others)),
    )


class _Sorter:
    """What was found so far."""

    def __init__(self, path: Path, environ: Mapping[str, str]) -> None:
        self.servers: list[tuple[Call, Server]] = []
        self.loads: list[Load] = []
        self.sweeps: list[SweepCall] = []
        self.others: list[Call] = []
        self._path = path
        self._environ = environ

    def sort(self, call: Call) -> None:
        """A call by what it does."""
        if sweep := _sweep(call):
            inner, params = sweep
            self.sweeps.append(params)
            for each in self._quoted(inner.get("serve_cmd", ""), call):
                self._server(each)
            benches = self._quoted(inner.get("bench_cmd", ""), call)
            self.loads += [load for each in benches if (load := _load(each, self._path.name))]
        elif load := _load(call, self._path.name):
            self.loads.append(load)
        elif not self._server(call):
            self.others.append(call)

    def told(self, kind: str) -> list[Remark]:
        """The last command that could be a server becomes one."""
        able = [call for call in self.others if program_of(call) not in _NO_SERVERS]
        if not able or not self._server(able[-1], kind):
            return []
        self.others.remove(able[-1])
        text = f"taken for the {kind} server, as --engine says: {short(' '.join(able[-1].argv))}"
        return [Remark(where=self._path.name, line=able[-1].line, text=text)]

    def _server(self, call: Call, kind: str = "") -> bool:
        server = server_of(call, self._path.name, self._environ, kind)
        if server is not None:
            self.servers.append((call, server))
        return server is not None

    def _quoted(self, command: str, call: Call) -> list[Call]:
        """The calls of a command line that is an argument of another."""
        return list(read_script(command, self._path, self._environ, first=call.line).calls)


def _left_over(call: Call, path: Path) -> Remark:
    return Remark(where=path.name, line=call.line, text=f"not taken over: {short(' '.join(call.argv))}")


def _only(servers: Sequence[tuple[Call, Server]], path: Path) -> tuple[Call, Server] | None:
    """The one server, or the one that surely runs. Raises InputError for a choice that nobody can make here."""
    sure = [found for found in servers if found[0].sure]
    chosen = servers if len(servers) < 2 else sure
    if len(chosen) > 1 or (len(servers) > 1 and not sure):
        lines = ", ".join(str(call.line) for call, _ in servers)
        raise InputError(f"{path.name}: servers are started in lines {lines}; keep the one to tune in a copy")
    if chosen and _repeats(chosen[0][0]):
        remedy = "keep the one to tune, with its values, in a copy"
        raise InputError(f"{path.name}:{chosen[0][0].line}: servers are started in a loop; {remedy}")
    return chosen[0] if chosen else None


def _repeats(call: Call) -> bool:
    """Whether a loop leaves several servers behind it; one that waits for its server starts the same one again."""
    unclear = [word.unclear for word in (*call.words, *call.env.values()) if word.unclear]
    varies = any(re.search(rf"\b{re.escape(name)}\b", text) for name in call.loops if name for text in unclear)
    detached = any(_DETACH.fullmatch(word.text) for word in call.words)
    return bool(call.loops) and (call.behind or varies or detached)


def _sweep(call: Call) -> tuple[dict[str, str], SweepCall] | None:
    argv = list(call.argv)
    if "sweep" not in argv[:6] or "bench" not in argv[:6]:
        return None
    told = options(call.words)
    files = SweepCall(serve_params=told.get("serve_params", ""), bench_params=told.get("bench_params", ""))
    return told, files


def _load(call: Call, where: str) -> Load | None:
    """The workload of a load generator that the script runs."""
    kind = _bench_kind(call.argv)
    if not kind:
        return None
    backend = "sglang" if kind == "sglang" else "openai"
    # Without a rate both generators send as fast as they may.
    told = {"backend": backend, "request_rate": "inf"}
    told |= {name: value for name, value in options(call.words).items() if value}
    load = load_of(told, where, call.line)
    unclear = [
        Remark(where=where, line=call.line, text=f"{word.unclear} of the load generator cannot be told")
        for word in call.words
        if word.unclear
    ]
    folder = call.folder.text if call.folder and not call.folder.unclear else ""
    return msgspec.structs.replace(load, remarks=(*load.remarks, *unclear), told=told, folder=folder)


def _bench_kind(argv: Sequence[str]) -> str:
    for word, following in zip(argv, [*argv[1:], ""], strict=False):
        if word == "-m" and following in _BENCH_MODULES:
            return _BENCH_MODULES[following]
        if PurePath(word).name in _BENCH_FILES:
            return _BENCH_FILES[PurePath(word).name]
        if PurePath(word).name == "vllm" and following == "bench":
            return "vllm" if "serve" in argv else ""
    return ""
