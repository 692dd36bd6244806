"""From what a sampler proposes to the nearest valid configuration. Pure.

Samplers search ``domains``. A parameter that follows another (the graph ceiling follows the running limit) has a
domain of shares of its leader, so that one move of the leader takes it along; ``repair`` turns shares into values.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from autotune.space.bounds import Bound
from autotune.space.grid import Window, align, nearest_choice, to_step
from autotune.space.parameters import AtLeast, AtMost, DivisibleBy, Follows, Space
from autotune.values import ParamValue, Value


class Domain(Value, frozen=True, kw_only=True):
    """One dimension of the search, ready for a sampler.

    ``name`` is the parameter's, or ``<parameter>_share`` for a share of its leader. ``int`` and ``float`` have
    ``low`` and ``high``, both included; with a ``step`` the range is a whole number of steps, with ``log`` there
    is none (``repair`` rounds). ``choice`` has ``choices``.
    """

    name: str
    parameter: str
    kind: Literal["int", "float", "choice"]
    low: float = 0.0
    high: float = 0.0
    step: float | None = None
    log: bool = False
    choices: tuple[ParamValue, ...] = ()


def domains(space: Space, bounds: Sequence[Bound]) -> tuple[Domain, ...]:
    """The dimensions of the search, one for each bound and in its order."""
    return tuple(_domain(space, bound, bounds) for bound in bounds)


def repair(params: Mapping[str, ParamValue], space: Space, bounds: Sequence[Bound]) -> dict[str, ParamValue]:
    """The nearest valid configuration: inside the bounds, on the steps, and by the rules between parameters.

    ``params`` may hold values by parameter or by domain name. Parameters that are absent stay absent. Where a
    rule and a bound leave nothing between them, the bound wins. Repairing twice changes nothing.
    Raises InputError for a name that the space lacks.
    """
    values = _resolve_names(params, space)
    by_name = {bound.name: bound for bound in bounds}
    done: dict[str, ParamValue] = {}
    for name in space.order():
        if name not in values:
            continue
        value, is_share = values[name]
        follows = space.follows(name)
        if is_share and follows is not None:
            value = _share_of(float(value), done.get(follows.leader), by_name.get(name))
        window = _window(name, space, by_name.get(name), done)
        done[name] = _nearest(value, space, by_name.get(name), name, window)
    return {name: done[name] for name in space.names() if name in done}


def to_domain_values(params: Mapping[str, ParamValue], space: Space, bounds: Sequence[Bound]) -> dict[str, ParamValue]:
    """The way back: a configuration as values of ``domains`` (to enqueue it). Absent parameters stay absent."""
    valid = repair(params, space, bounds)
    found: dict[str, ParamValue] = {}
    for domain in domains(space, bounds):
        value = valid.get(domain.parameter)
        if value is None or (isinstance(value, str) and domain.kind != "choice"):
            continue
        follows = space.follows(domain.parameter)
        if domain.name != domain.parameter and follows is not None:
            leader = valid.get(follows.leader)
            if not isinstance(leader, int | float) or leader <= 0 or isinstance(value, str):
                continue
            share = value / leader
            value = min(follows.shares, key=lambda s: abs(s - share))
        elif domain.kind != "choice" and domain.step:
            value = _into_steps(float(value), domain)
        found[domain.name] = int(value) if domain.kind == "int" else value
    return found


def _domain(space: Space, bound: Bound, bounds: Sequence[Bound]) -> Domain:
    if bound.choices:
        return Domain(name=bound.name, parameter=bound.name, kind="choice", choices=bound.choices)
    follows = space.follows(bound.name)
    if follows is not None and any(b.name == follows.leader for b in bounds):
        return _share_domain(follows)
    low, high = bound.low or 0.0, bound.high or 0.0
    step = None if bound.log else bound.step or (1 if bound.kind == "int" else None)
    if step:
        low, high = align(low, high, step)
    kind: Literal["int", "float"] = "float"
    if bound.kind == "int":
        kind, low, high, step = "int", int(low), int(high), int(step) if step else None
    return Domain(name=bound.name, parameter=bound.name, kind=kind, low=low, high=high, step=step, log=bound.log)


def _share_domain(follows: Follows) -> Domain:
    """Evenly spaced shares keep their order for the sampler; others become choices."""
    shares, name = follows.shares, follows.domain_name
    gaps = {round(b - a, 9) for a, b in itertools.pairwise(shares)}
    if len(gaps) != 1:
        return Domain(name=name, parameter=follows.parameter, kind="choice", choices=shares)
    return Domain(name=name, parameter=follows.parameter, kind="float", low=shares[0], high=shares[-1], step=gaps.pop())


def _resolve_names(params: Mapping[str, ParamValue], space: Space) -> dict[str, tuple[ParamValue, bool]]:
    """Parameter name to (value, whether it is a share)."""
    shares = {rule.domain_name: rule.parameter for rule in space.rules if isinstance(rule, Follows)}
    found: dict[str, tuple[ParamValue, bool]] = {}
    for name, value in params.items():
        if name in shares:
            found[shares[name]] = (value, True)
        else:
            found.setdefault(space.get(name).name, (value, False))
    return found


def _share_of(share: float, leader: ParamValue | None, bound: Bound | None) -> float:
    if isinstance(leader, int | float):
        return share * leader
    return share * (bound.high or 0.0) if bound else 0.0


def _window(name: str, space: Space, bound: Bound | None, done: Mapping[str, ParamValue]) -> Window:
    """The bound, narrowed by the rules against parameters that are settled or at a known default."""
    window = Window()
    if bound is not None and bound.low is not None and bound.high is not None:
        window = Window(low=bound.low, high=bound.high, step=bound.step or 0.0)
    low, high, divisor = window.low, window.high, 1
    for rule in space.rules_of(name):
        other = done.get(rule.other, space.get(rule.other).default)
        if not isinstance(other, int | float):
            continue
        if isinstance(rule, Follows | AtMost):
            high = max(min(high, other), low)
        elif isinstance(rule, AtLeast):
            low = min(max(low, other), high)
        elif isinstance(rule, DivisibleBy):
            divisor = max(1, int(other))
    return msgspec.structs.replace(window, low=low, high=high, divisor=divisor)


def _nearest(value: ParamValue, space: Space, bound: Bound | None, name: str, window: Window) -> ParamValue:
    kind = space.get(name).kind
    choices = bound.choices if bound else space.get(name).choices
    if kind == "bool":
        value = bool(value)
    if choices:
        return nearest_choice(value, choices, window)
    if isinstance(value, str | bool):
        return value
    number = to_step(float(value), window)
    return round(number) if kind == "int" else number


def _into_steps(value: float, domain: Domain) -> float:
    """``domain`` may be a little narrower than the bound, whose edges need not lie on a step."""
    step = domain.step or 1.0
    steps = round((min(max(value, domain.low), domain.high) - domain.low) / step)
    return round(min(domain.low + steps * step, domain.high), 9)
