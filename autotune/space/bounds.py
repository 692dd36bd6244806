"""From a space, a model and a workload to the range of each searched parameter, with the reason in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.errors import InputError
from autotune.space.edges import edge_of
from autotune.space.inputs import Bound, BoundInputs
from autotune.space.parameters import Parameter, Space
from autotune.values import ParamValue, Value

__all__ = ["Bound", "BoundInputs", "Frozen", "derive_bounds", "frozen_parameters"]


class Frozen(Value, frozen=True, kw_only=True):
    """A parameter that the study asks for and that is left at its default, and why."""

    name: str
    reason: str


def derive_bounds(space: Space, inputs: BoundInputs) -> tuple[Bound, ...]:
    """The bounds of the searched parameters, in the study's order.

    Raises InputError for a name that the space lacks and for an override that makes no range.
    """
    searched = _searched(space, inputs)
    found: dict[str, Bound] = {}
    # How much fits the KV cache depends on the memory fractions that are searched.
    fraction = space.memory_fraction()
    for name in sorted(space.order(), key=lambda name: name != fraction):
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
    low = edge_of(p, "low", inputs, found)
    high = edge_of(p, "high", inputs, found)
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
