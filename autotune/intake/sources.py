"""A launch script's calls, sorted: the server, load generators, sweeps, and what is left over. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

import msgspec

from autotune.errors import InputError
from autotune.intake.bench import Load, load_of
from autotune.intake.flags import options
from autotune.intake.launch import Launch, launch_of
from autotune.intake.remark import Remark, short
from autotune.intake.script import Call, Script, read_script
from autotune.intake.server import server_of
from autotune.values import Value

_BENCH_MODULES = {"sglang.bench_serving": "sglang", "sglang.benchmark.serving": "sglang"}
_BENCH_FILES = {"bench_serving.py": "sglang", "benchmark_serving.py": "vllm"}


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

    ``kind``: where no server is seen, the last command is one of that engine.
    """
    script = read_script(text, path, environ)
    others: list[Call] = []
    servers: list[Call] = []
    loads: list[Load] = []
    sweeps: list[SweepCall] = []
    remarks = list(script.remarks)
    for call in script.calls:
        if sweep := _sweep(call):
            inner, params = sweep
            sweeps.append(params)
            servers += [c for c in _calls(inner.get("serve_cmd", ""), path, environ, call.line) if _is_server(c, path)]
            benches = _calls(inner.get("bench_cmd", ""), path, environ, call.line)
            loads += [load for c in benches if (load := _load(c, path.name))]
        elif load := _load(call, path.name):
            loads.append(load)
        elif _is_server(call, path):
            servers.append(call)
        else:
            others.append(call)
    if kind and not servers and others:
        servers.append(others.pop())
    server = _only(servers, path)
    launch = launch_of(server, path.name, kind) if server else None
    for call in others:
        text = f"not taken over: {short(' '.join(call.argv))}"
        remarks.append(Remark(where=path.name, line=call.line, text=text))
    return Sorted(launch=launch, loads=tuple(loads), sweeps=tuple(sweeps), remarks=tuple(remarks))


def _is_server(call: Call, path: Path) -> bool:
    return server_of(call, path.name) is not None


def _only(servers: Sequence[Call], path: Path) -> Call | None:
    """The one server, or the one that surely runs. Raises InputError for a choice that nobody can make here."""
    sure = [call for call in servers if call.sure]
    chosen = servers if len(servers) < 2 else sure
    if len(chosen) > 1 or (len(servers) > 1 and not sure):
        lines = ", ".join(str(call.line) for call in servers)
        raise InputError(f"{path.name}: servers are started in lines {lines}; keep the one to tune in a copy")
    return chosen[0] if chosen else None


def _calls(command: str, path: Path, environ: Mapping[str, str], line: int) -> list[Call]:
    """The calls of a command line that is an argument of another."""
    script: Script = read_script(command, path, environ)
    return [msgspec.structs.replace(call, line=line) for call in script.calls]


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
    return msgspec.structs.replace(load, remarks=(*load.remarks, *unclear), told=told)


def _bench_kind(argv: Sequence[str]) -> str:
    for word, following in zip(argv, [*argv[1:], ""], strict=False):
        if word == "-m" and following in _BENCH_MODULES:
            return _BENCH_MODULES[following]
        if PurePath(word).name in _BENCH_FILES:
            return _BENCH_FILES[PurePath(word).name]
        if PurePath(word).name == "vllm" and following == "bench":
            return "vllm" if "serve" in argv else ""
    return ""
