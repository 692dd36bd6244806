"""The draft of a study: what was said, found and read, put together. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from autotune.engines.argv import with_flags
from autotune.errors import InputError
from autotune.intake.launch import Launch
from autotune.intake.remark import Remark
from autotune.intake.sweep import Sweep
from autotune.space.parameters import Space
from autotune.study.file import Budget, EngineSpec, Objective, ParameterOverride, Workload
from autotune.values import ParamValue, Value
from autotune.verdict.objective import FITS_ARRIVALS, tells_the_arrivals
from autotune.wrappers import shares_files

Setting = int | float | str | bool
_SLUG = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 64


class Wish(Value, frozen=True, kw_only=True):
    """What somebody has answered; None: nothing. ``engine`` is sglang or vllm, ``workload`` has keys of a study."""

    name: str | None = None
    engine: str | None = None
    model: str | None = None
    tensor_parallel: int | None = None
    workload: dict[str, Setting] = {}
    metric: str | None = None
    trials: int | None = None
    wall_clock: str | None = None


class Gathered(Value, frozen=True, kw_only=True):
    """What the files that were named hold. ``workload`` has keys of a study, ``origins`` are the names of the files."""

    launch: Launch | None = None
    workload: dict[str, Setting] = {}
    sweep: Sweep = Sweep()
    kind: str = ""
    model: str = ""
    origins: tuple[str, ...] = ()
    remarks: tuple[Remark, ...] = ()


class Draft(Value, frozen=True, kw_only=True):
    """All that goes into a study file; everything else stays at its default."""

    name: str
    description: str
    engine: EngineSpec
    model_path: str = ""
    served_name: str = ""
    parameters: tuple[str, ...]
    others: tuple[str, ...] = ()
    overrides: dict[str, ParameterOverride] = {}
    workload: dict[str, Setting]
    metric: str
    trials: int
    wall_clock: str
    remarks: tuple[Remark, ...] = ()


class Question(Value, frozen=True, kw_only=True):
    """Something that only a person knows. ``default`` is offered; ``needed``: without a terminal it must be said.

    ``key`` is a field of a ``Wish``, or ``workload.KEY``.
    """

    key: str
    option: str
    text: str
    kind: type[int] | type[float] | type[str]
    default: int | float | str | None = None
    needed: bool = False


class Seen(Value, frozen=True, kw_only=True):
    """What this machine has: command lines of the engines that are installed, models, GPUs."""

    engines: dict[str, tuple[str, ...]] = {}
    models: tuple[str, ...] = ()
    gpus: int = 0


CONCURRENCY = 64
"""Offered, not assumed: how many clients a service has is for its owner to say."""


def questions(wish: Wish, gathered: Gathered, seen: Seen) -> list[Question]:
    """What is still open, in the order in which it is asked."""
    known = {**gathered.workload, **wish.workload}
    found: list[Question] = []
    if gathered.launch is None:
        found += _server_questions(wish, gathered, seen)
    lengths = {"input_tokens": "Tokens of a prompt", "output_tokens": "Tokens of a reply"}
    for key, text in lengths.items():
        if key not in known and known.get("kind", "random") == "random":
            option = f"--{key.replace('_', '-')}"
            default = getattr(Workload(), key)
            found.append(Question(key=f"workload.{key}", option=option, text=text, kind=int, default=default))
    if not known.get("concurrency") and not known.get("request_rate") and known.get("kind") != "trace":
        text = "Requests in flight at once"
        found.append(
            Question(
                key="workload.concurrency",
                option="--concurrency",
                text=text,
                kind=int,
                default=CONCURRENCY,
                needed=True,
            )
        )
    if wish.wall_clock is None:
        text = "How long may a night take (8h, 45m)"
        found.append(
            Question(key="wall_clock", option="--wall-clock", text=text, kind=str, default=Budget().wall_clock)
        )
    return found


def _server_questions(wish: Wish, gathered: Gathered, seen: Seen) -> list[Question]:
    found = []
    installed = gathered.kind or next(iter(seen.engines), None)
    if wish.engine is None:
        text = "Engine (sglang or vllm)"
        found.append(
            Question(key="engine", option="--engine", text=text, kind=str, default=installed, needed=installed is None)
        )
    if wish.model is None:
        only = gathered.model or (seen.models[0] if len(seen.models) == 1 else None)
        text = "Model (its folder, or the name that the engine downloads)"
        found.append(Question(key="model", option="--model", text=text, kind=str, default=only, needed=only is None))
    if wish.tensor_parallel is None:
        text = "GPUs for one server (tensor parallel size)"
        found.append(
            Question(key="tensor_parallel", option="--tensor-parallel", text=text, kind=int, default=max(1, seen.gpus))
        )
    return found


def answered(wish: Wish, question: Question, answer: Setting) -> Wish:
    """The wish with one more answer."""
    section, _, key = question.key.partition(".")
    if key:
        return msgspec.structs.replace(wish, workload={**wish.workload, key: answer})
    return msgspec.structs.replace(wish, **{section: answer})


def draft(wish: Wish, gathered: Gathered, seen: Seen, space: Space) -> Draft:
    """The study. Every question must be answered by now. Raises InputError."""
    launch = gathered.launch or _launch(wish, seen)
    command = _with_sweep(launch.command, gathered.sweep)
    on = [p.name for p in space.parameters if p.on_by_default]
    parameters = tuple(dict.fromkeys([*on, *gathered.sweep.overrides]))
    workload = _workload(launch.kind, {**gathered.workload, **wish.workload})
    metric, remarks = _objective(wish, workload)
    origin = f"From {', '.join(gathered.origins)}" if gathered.origins else f"{launch.kind} with {launch.model_path}"
    return Draft(
        name=wish.name or default_name(wish, gathered),
        description=f"{origin}: which settings serve this load best?",
        engine=EngineSpec(
            kind=launch.kind,
            command=list(command),
            env=launch.env,
            pass_env=list(launch.pass_env),
            version=launch.version,
            wrapper=launch.wrapper,
            api_key_env=launch.api_key_env,
            admin_key_env=launch.admin_key_env,
        ),
        model_path=launch.model_path,
        served_name=launch.served_name,
        parameters=parameters,
        others=tuple(p.name for p in space.parameters if p.name not in parameters),
        overrides=gathered.sweep.overrides,
        workload=workload,
        metric=metric,
        trials=wish.trials or Budget().trials,
        wall_clock=wish.wall_clock or Budget().wall_clock,
        remarks=(*launch.remarks, *gathered.remarks, *_version(launch), *remarks),
    )


def _version(launch: Launch) -> list[Remark]:
    """That the version of an engine in an image or on another host must be written."""
    if launch.version or shares_files(launch.wrapper):
        return []
    text = f"not known, since {launch.kind} runs behind {launch.wrapper.kind}; write it under [engine]"
    return [Remark(where="engine.version", text=text)]


def _objective(wish: Wish, workload: Mapping[str, Setting]) -> tuple[str, list[Remark]]:
    """The metric: what was asked for, else one that the settings decide; and what is to be said of it."""
    arrivals = {key: workload[key] for key in ("kind", "arrival") if key in workload}
    metric = wish.metric or Objective().metric
    told = tells_the_arrivals(msgspec.convert(arrivals, Workload), metric)
    if wish.metric or not told:
        return metric, [Remark(where="objective.metric", text=told)] if told else []
    text = f"{FITS_ARRIVALS}, since requests come at times of their own: throughput would be theirs, not the server's"
    return FITS_ARRIVALS, [Remark(where="objective.metric", text=text)]


def default_name(wish: Wish, gathered: Gathered) -> str:
    """A name for the study: the model's, else the first file's."""
    launch = gathered.launch
    told = wish.model or (launch.model_path if launch else "") or gathered.model
    text = told.rstrip("/").rpartition("/")[2] or (gathered.origins[0].rpartition(".")[0] if gathered.origins else "")
    slug = _SLUG.sub("-", text).strip("-._")[:_LONGEST_NAME].rstrip("-._")
    return slug.lower() or "study"


def known_engine(wish: Wish) -> str:
    """The engine that was asked for. Raises InputError for one whose command line is not known."""
    if wish.engine is None or wish.engine not in _BARE:
        raise InputError(
            f"--engine: {wish.engine!r} is not known here; use one of {', '.join(_BARE)}, or --from a script"
        )
    return wish.engine


def _launch(wish: Wish, seen: Seen) -> Launch:
    """The plain command line of an engine that was asked for."""
    kind, model = known_engine(wish), wish.model or ""
    program = seen.engines.get(kind, _BARE[kind])
    by_position = program[-1] == "serve" and kind == "vllm"
    flag = "--model" if kind == "vllm" else "--model-path"
    size = wish.tensor_parallel or 1
    parallel = [_PARALLEL[kind], str(size)] if size > 1 else []
    return Launch(kind=kind, command=(*program, *([] if by_position else [flag]), model, *parallel), model_path=model)


_BARE: Mapping[str, tuple[str, ...]] = {
    "sglang": ("python3", "-m", "sglang.launch_server"),
    "vllm": ("vllm", "serve"),
}
"""How an engine is started where none was found on this machine."""
_PARALLEL = {"sglang": "--tp-size", "vllm": "--tensor-parallel-size"}


def _with_sweep(command: Sequence[str], sweep: Sweep) -> list[str]:
    """What the sweep sets for all its starts belongs to the base command."""
    flags: list[tuple[str, ParamValue]] = list(sweep.flags)
    return with_flags(command, flags, negate=lambda flag: f"--no-{flag.removeprefix('--')}")


def _workload(kind: str, told: Mapping[str, Setting]) -> dict[str, Setting]:
    """The load in the order of the study's page. A rate makes an open loop; only SGLang has a route of its own."""
    workload = dict(told)
    if workload.get("request_rate"):
        workload["arrival"] = "open"
    if kind != "sglang" and workload.get("route") != "chat":
        workload["route"] = "completions"
    order = Workload.__struct_fields__
    return {key: workload[key] for key in order if key in workload}
