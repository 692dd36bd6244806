"""The options of ``autotune bench`` that say what is asked, and the workload that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, get_args

import msgspec
import typer

from autotune.benching import CONCURRENCY
from autotune.errors import InputError
from autotune.study.file import Workload
from autotune.study.workload import KIND_ALIASES, Kind, Route

DEFAULTS = Workload()
KINDS: tuple[str, ...] = get_args(Kind)
ROUTES: tuple[str, ...] = get_args(Route)
UNITS = ("ms", "s")

KindName = Annotated[str, typer.Option(help=f"What is asked: {', '.join(KINDS)}.")]
RouteName = Annotated[str, typer.Option(help="generate, completions or chat; empty: what the engine speaks.")]
File = Annotated[str, typer.Option(help="File of a sharegpt, jsonl or trace workload.")]
Tokenizer = Annotated[str, typer.Option(help="tokenizer.json, where texts must be counted.")]
Context = Annotated[int, typer.Option(help="Leave longer requests of the dataset out; 0: none.")]
PrefixTokens = Annotated[int, typer.Option(help="Length of a shared prefix.")]
PrefixGroups = Annotated[int, typer.Option(help="Shared prefixes in use at once.")]
PerGroup = Annotated[int, typer.Option(help="Prompts behind a prefix before another takes its place; 0: never.")]
Unit = Annotated[str, typer.Option(help="ms or s: the numbers of a trace.")]
Speed = Annotated[float, typer.Option(help="How much faster than recorded a trace is sent.")]
CachedLimit = Annotated[float, typer.Option(help="Share of prompt tokens that a prefix cache may answer.")]
InputTokens = Annotated[int, typer.Option(help="Length of a prompt.")]
OutputTokens = Annotated[
    int | None,
    typer.Option(help=f"Length of a reply; left out: the dataset's, or {DEFAULTS.output_tokens} without one."),
]
IdLow = Annotated[int, typer.Option(help="Lowest token id of random prompts.")]
IdHigh = Annotated[int, typer.Option(help="Upper end of their token ids; below the size of the vocabulary.")]
Ratio = Annotated[float, typer.Option(help="Lengths from this share up; 1 is fixed.")]
Concurrency = Annotated[int | None, typer.Option(help=f"Requests in flight; {CONCURRENCY} where no rate is given.")]
Rate = Annotated[float, typer.Option(help="Requests per second (Poisson); 0: a closed loop.")]
Stream = Annotated[bool, typer.Option("--stream/--no-stream", help="Token by token, or whole.")]
Workers = Annotated[int, typer.Option(help="Load processes; 0: as many as the streams need.")]
MinS = Annotated[float, typer.Option(help="Shortest steady window.")]
MaxS = Annotated[float, typer.Option(help="Longest steady window.")]
WarmupMaxS = Annotated[float, typer.Option(help="Longest warm-up.")]
Precision = Annotated[float, typer.Option(help="Half-width of the interval that is enough.")]


def workload_of(params: Mapping[str, Any]) -> Workload:
    """The workload of the options, by their names. What was left out depends on the rest. Raises InputError."""
    kind = _one_of("--kind", KIND_ALIASES.get(params["kind"], params["kind"]), (*KINDS, *KIND_ALIASES))
    own_pace = params["request_rate"] or kind == "trace"
    at_least_s = params["min_s"]
    given = {name: params[name] for name in Workload.__struct_fields__ if params.get(name) is not None}
    derived = {
        "kind": kind,
        "route": _one_of("--route", params["route"] or _spoken_by(params["engine"]), ROUTES),
        "timestamp_unit": _one_of("--timestamp-unit", params["timestamp_unit"], UNITS),
        "output_from": "fixed" if params["output_tokens"] and params["dataset"] else DEFAULTS.output_from,
        "arrival": "open" if params["request_rate"] else "closed",
        "min_s": min(at_least_s, params["max_s"]) if at_least_s == DEFAULTS.min_s else at_least_s,
    }
    concurrency = {"concurrency": 0 if own_pace else CONCURRENCY} if params["concurrency"] is None else {}
    return msgspec.convert({**given, **derived, **concurrency}, Workload)


def _spoken_by(engine: str) -> str:
    return "generate" if engine == "sglang" else "completions"


def _one_of(option: str, name: str, names: Sequence[str]) -> str:
    if name not in names:
        raise InputError(f"{option}: {name!r} is not known; use one of {', '.join(names)}")
    return name
