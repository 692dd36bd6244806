"""From a space, a model and a workload to the range of each searched parameter, with the reason in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from autotune.errors import InputError
from autotune.space.experts import starvation_floor
from autotune.space.kv import KvCapacity, request_lengths, requests_that_fit
from autotune.space.model_config import ModelShape
from autotune.space.parameters import Kind, NamedRule, Parameter, Space
from autotune.values import ParamValue, Value


class LoadShape(Protocol):
    """What the arithmetic needs of a workload; ``study.file.Workload`` is one. ``concurrency`` 0 is unlimited."""

    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def range_ratio(self) -> float: ...
    @property
    def concurrency(self) -> int: ...


class Override(Protocol):
    """The study's changes to one parameter; ``study.file.ParameterOverride`` is one."""

    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...
    @property
    def step(self) -> float | None: ...
    @property
    def choices(self) -> list[ParamValue] | None: ...
    @property
    def force(self) -> bool: ...


class BoundInputs(Value, frozen=True, kw_only=True):
    """Everything that bounds depend on.

    ``parameters`` as in the study (empty: those on by default). ``shape`` is absent for an unknown model, ``kv``
    for an unknown capacity. ``inspected`` maps names to whether the installed engine's code reads them; names
    that it lacks go by the versions table. ``where`` names the study file in messages.
    """

    load: LoadShape
    parameters: tuple[str, ...] = ()
    overrides: Mapping[str, Override] = {}
    min_tokens_per_expert: float = 8.0
    shape: ModelShape | None = None
    kv: KvCapacity | None = None
    version: str = ""
    inspected: Mapping[str, bool] = {}
    where: str = "study file"


class Bound(Value, frozen=True, kw_only=True):
    """The range of one searched parameter. ``low`` and ``high`` are absent where there are ``choices``."""

    name: str
    kind: Kind
    low: float | None = None
    high: float | None = None
    step: float | None = None
    log: bool = False
    choices: tuple[ParamValue, ...] = ()
    derivation: str = ""


class Frozen(Value, frozen=True, kw_only=True):
    """A parameter that the study asks for and that is left at its default, and why."""

    name: str
    reason: str


class _Edge(Value, frozen=True, kw_only=True):
    value: float
    text: str


def derive_bounds(space: Space, inputs: BoundInputs) -> tuple[Bound, ...]:
    """The bounds of the searched parameters, in the study's order.

    Raises InputError for a name that the space lacks and for an override that makes no range.
    """
    searched = _searched(space, inputs)
    found: dict[str, Bound] = {}
    for name in space.order():
        if name in searched:
            found[name] = _bound(space.get(name), inputs, found)
    return tuple(found[name] for name in searched)


def frozen_parameters(space: Space, inputs: BoundInputs) -> tuple[Frozen, ...]:
    """The named parameters that are not searched because the engine does nothing with them."""
    dead = [p for p in _named(space, inputs) if not _is_read(p, inputs) and not _forced(p, inputs)]
    return tuple(Frozen(name=p.name, reason=_dead_reason(p, inputs)) for p in dead)


def _named(space: Space, inputs: BoundInputs) -> tuple[Parameter, ...]:
    for name in inputs.overrides:
        space.get(name, f"{inputs.where}: space.override")
    if not inputs.parameters:
        return tuple(p for p in space.parameters if p.on_by_default)
    return tuple(space.get(name, f"{inputs.where}: space.parameters") for name in dict.fromkeys(inputs.parameters))


def _searched(space: Space, inputs: BoundInputs) -> tuple[str, ...]:
    names = tuple(p.name for p in _named(space, inputs) if _is_read(p, inputs) or _forced(p, inputs))
    if not names:
        raise InputError(
            f"{inputs.where}: space.parameters: nothing is left to search; known: {', '.join(space.names())}"
        )
    return names


def _is_read(p: Parameter, inputs: BoundInputs) -> bool:
    return inputs.inspected.get(p.name, p.is_read_by(inputs.version))


def _forced(p: Parameter, inputs: BoundInputs) -> bool:
    override = inputs.overrides.get(p.name)
    return override is not None and override.force


def _dead_reason(p: Parameter, inputs: BoundInputs) -> str:
    flag, version = p.flag_for(inputs.version), inputs.version or "this version"
    known_by = (
        "found in the installed package" if p.name in inputs.inspected else f"versions table: read by {p.read_by}"
    )
    default = "the engine's default" if p.default is None else f"its default {p.default}"
    return (
        f"frozen at {default}: no code of {version} reads {flag} ({known_by}); "
        f"force = true under [space.override.{p.name}] searches it all the same"
    )


def _bound(p: Parameter, inputs: BoundInputs, found: Mapping[str, Bound]) -> Bound:
    override = inputs.overrides.get(p.name)
    forced = " It is searched although the engine does nothing with it (force)." if not _is_read(p, inputs) else ""
    choices = p.choices
    if override and override.choices is not None:
        choices = _checked_choices(p, override.choices, inputs)
    elif override and (override.low is not None or override.high is not None) and p.low is not None:
        choices = ()
    if p.kind == "bool":
        choices = choices or (False, True)
    if choices:
        text = f"one of {', '.join(str(c) for c in choices)}."
        return Bound(name=p.name, kind=p.kind, choices=choices, derivation=text + forced)
    return _range(p, inputs, found, forced)


def _range(p: Parameter, inputs: BoundInputs, found: Mapping[str, Bound], forced: str) -> Bound:
    override = inputs.overrides.get(p.name)
    low = _edge(p, "low", inputs, found)
    high = _edge(p, "high", inputs, found)
    where = f"{inputs.where}: space.override.{p.name}"
    text = f"at least {low.text}; at most {high.text}."
    if low.value > high.value:
        if override and override.low is not None:
            raise InputError(f"{where}: low {low.value:,g} is above high {high.value:,g}; lower it, or raise high")
        text += f" The lower bound {low.value:,g} never crosses the upper: both are {high.value:,g}."
        low = high
    step = override.step if override and override.step is not None else p.step
    if step is not None and step <= 0:
        raise InputError(f"{where}: step = {step:g}; it must be greater than 0")
    if p.kind == "int" and step is not None and step != int(step):
        raise InputError(f"{where}: step = {step:g}; {p.name} counts whole numbers")
    if p.log and low.value <= 0:
        raise InputError(f"{where}: low = {low.value:g}; {p.name} has a log scale, which needs low > 0")
    return Bound(
        name=p.name, kind=p.kind, low=low.value, high=high.value, step=step, log=p.log, derivation=text + forced
    )


def _edge(p: Parameter, side: str, inputs: BoundInputs, found: Mapping[str, Bound]) -> _Edge:
    """One end of the range: the study's, else the space's number or named rule."""
    stated = getattr(inputs.overrides.get(p.name), side, None)
    if stated is not None:
        if p.kind == "int" and stated != int(stated):
            raise InputError(f"{inputs.where}: space.override.{p.name}: {side} = {stated:g}; write a whole number")
        return _Edge(value=stated, text=f"{stated:,g} (study file)")
    edge = p.low if side == "low" else p.high
    if not isinstance(edge, NamedRule):
        if edge is None:
            raise InputError(f"{inputs.where}: space.override.{p.name}: give low and high, or choices")
        return _Edge(value=edge, text=f"{edge:,g} (search space)")
    if edge.rule == "kv":
        return _kv_edge(edge, inputs)
    if edge.rule == "experts":
        return _experts_edge(edge, inputs)
    return _parameter_edge(edge, side, found)


def _kv_edge(edge: NamedRule, inputs: BoundInputs) -> _Edge:
    load = inputs.load
    cap = load.concurrency
    found = _otherwise(edge, "the KV capacity is unknown") if inputs.kv is None else _fit(edge, inputs, inputs.kv)
    if 0 < cap < found.value:
        text = (
            f"{cap:,} = the client's concurrency: asking for more running requests is the same configuration "
            f"(without that, {found.text})"
        )
        return _Edge(value=cap, text=text)
    return found


def _fit(edge: NamedRule, inputs: BoundInputs, kv: KvCapacity) -> _Edge:
    load = inputs.load
    lengths = request_lengths(load.input_tokens, load.output_tokens, load.range_ratio)
    full = requests_that_fit(kv.tokens, lengths.full_tokens)
    mean = requests_that_fit(kv.tokens, lengths.mean_tokens)
    tokens = f"{kv.tokens:,} KV tokens ({kv.source})"
    if edge.lengths == "full":
        text = f"{full:,} = {tokens} / {lengths.full_tokens:,g} per request at full length (up to {mean:,} run at once)"
        return _Edge(value=max(1, full), text=text)
    text = (
        f"{mean:,} = {tokens} / {lengths.mean_tokens:,g} that a request in flight holds on average "
        f"(in + out/2); {full:,} if every request were at full length, and above that the server throttles by itself"
    )
    return _Edge(value=max(1, mean), text=text)


def _experts_edge(edge: NamedRule, inputs: BoundInputs) -> _Edge:
    shape = inputs.shape
    if shape is None:
        return _otherwise(edge, "the model's config.json is unknown")
    if not shape.is_moe:
        return _otherwise(edge, "a dense model has no expert floor")
    floor = inputs.min_tokens_per_expert
    running = starvation_floor(shape, floor)
    per_expert = f"{floor:g} tokens per expert x {shape.experts} experts / top-{shape.top_k}"
    text = f"{running:,} = {per_expert}: below it experts starve"
    return _Edge(value=running, text=text)


def _parameter_edge(edge: NamedRule, side: str, found: Mapping[str, Bound]) -> _Edge:
    other = found.get(edge.parameter)
    value = getattr(other, side, None) if other else None
    if value is None:
        return _otherwise(edge, f"{edge.parameter} is not searched")
    return _Edge(
        value=value, text=f"{value:,g} = the {'lower' if side == 'low' else 'upper'} bound of {edge.parameter}"
    )


def _otherwise(edge: NamedRule, why: str) -> _Edge:
    return _Edge(value=edge.otherwise, text=f"{edge.otherwise:,g} (search space; {why})")


def _checked_choices(p: Parameter, choices: list[ParamValue], inputs: BoundInputs) -> tuple[ParamValue, ...]:
    where = f"{inputs.where}: space.override.{p.name}.choices"
    if not choices:
        raise InputError(f"{where}: empty; list at least one value")
    kinds: dict[str, tuple[type, ...]] = {
        "int": (int,),
        "float": (int, float),
        "bool": (bool,),
        "choice": (str, int, float),
    }
    for choice in choices:
        wrong_bool = isinstance(choice, bool) and p.kind != "bool"
        if wrong_bool or not isinstance(choice, kinds[p.kind]):
            raise InputError(f"{where}: {choice!r} is no {p.kind}; {p.name} takes {p.kind} values")
        if p.kind == "choice" and choice not in p.choices:
            raise InputError(f"{where}: {choice!r}; known: {', '.join(str(c) for c in p.choices)}")
    return tuple(dict.fromkeys(choices))
