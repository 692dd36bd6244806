"""The map between Optuna's parameters, the unit cube that the model lives in, and the quantities physics speaks of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from autotune.search.region import Region
from autotune.space.parameters import NamedRule, Parameter, Space
from autotune.values import ParamValue

Array = NDArray[np.float64]
Role = Literal["", "running", "graph", "memory", "prefill"]
_DIGITS = 9


class Hint(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one axis.

    ``oom`` is the direction towards running out of memory, ``share_of`` the axis of which values are shares (graph
    ceiling of running limit), ``step`` what values are rounded to, ``values`` a list whose places are searched.
    """

    role: Role = ""
    oom: int = 0
    share_of: str = ""
    step: float = 0.0
    values: tuple[float, ...] = ()
    parameter: str = ""


def hints_of(region: Region) -> dict[str, Hint]:
    """The hints that a space and its bounds hold, by axis name."""
    return {
        domain.name: _hint(region.space, domain.parameter, domain.name, domain.choices) for domain in region.domains()
    }


def _hint(space: Space, name: str, axis: str, choices: tuple[ParamValue, ...]) -> Hint:
    parameter = space.get(name)
    follows = space.follows(name)
    share = axis != name and follows is not None
    numeric = all(isinstance(choice, int | float) for choice in choices)
    return Hint(
        role=role_of(parameter),
        oom=parameter.oom,
        share_of=follows.leader if share and follows else "",
        step=0.0 if share else parameter.step or 0.0,
        values=tuple(float(choice) for choice in choices) if numeric else (),
        parameter=name,
    )


def role_of(parameter: Parameter) -> Role:
    """By what the space says of a parameter, so that it holds for every engine."""
    edges = (parameter.low, parameter.high)
    if any(isinstance(edge, NamedRule) and edge.rule in ("kv", "experts") for edge in edges):
        return "running"
    if parameter.category == "graphs" and parameter.oom > 0:
        return "graph"
    if parameter.category == "prefill" and parameter.kind == "int" and parameter.oom > 0:
        return "prefill"
    return "memory" if parameter.is_memory_fraction else ""


class Chart(msgspec.Struct, frozen=True):
    """The axes in a fixed order; ``tops`` are their largest natural values, see ``quantity``."""

    names: tuple[str, ...]
    distributions: tuple[BaseDistribution, ...]
    hints: tuple[Hint, ...]
    tops: tuple[float, ...] = ()

    @classmethod
    def of(cls, space: Mapping[str, BaseDistribution], hints: Mapping[str, Hint]) -> Chart:
        names = tuple(sorted(space))
        bare = cls(names, tuple(space[n] for n in names), tuple(hints.get(n, Hint()) for n in names))
        top = np.array([[_top_unit(d) for d in bare.distributions]])
        tops = tuple(float(bare.quantity(bare.snap(top), place)[0]) for place in range(bare.dims))
        return msgspec.structs.replace(bare, tops=tops)

    @property
    def dims(self) -> int:
        return len(self.names)

    def top(self, place: int) -> float:
        """The largest unit coordinate of an axis."""
        return _top_unit(self.distributions[place])

    def categorical(self) -> tuple[bool, ...]:
        return tuple(isinstance(d, CategoricalDistribution) for d in self.distributions)

    def units(self, params: Mapping[str, ParamValue]) -> list[float]:
        """Unit coordinates of a trial; a category is its place, not scaled."""
        return [_unit(d, params[n]) for n, d in zip(self.names, self.distributions, strict=True)]

    def params(self, units: Sequence[float]) -> dict[str, ParamValue]:
        """The values that Optuna wants, the inverse of ``units`` for points that ``snap`` made."""
        values = {}
        for name, distribution, hint, unit in zip(self.names, self.distributions, self.hints, units, strict=True):
            values[name] = _value(distribution, float(unit), 0.0 if hint.values else hint.step)
        return values

    def snap(self, units: Array) -> Array:
        """The nearest points that are allowed; ``units`` is (n, dims)."""
        columns = [
            _snapped(d, units[:, i], 0.0 if h.values else h.step)
            for i, (d, h) in enumerate(zip(self.distributions, self.hints, strict=True))
        ]
        return np.stack(columns, axis=1)

    def role(self, role: Role) -> int | None:
        """The place of the axis with that role."""
        return next((i for i, hint in enumerate(self.hints) if hint.role == role), None)

    def lowered(self, units: Array, limits: Array, graphs: Array) -> Array:
        """The points (n, dims) of the same servers at other running limits (n,). What is a share of the limit keeps its
        value, as far as the share goes; ``graphs`` (n,) are the graph ceilings in force (NaN: those of the points).
        """
        place = self.role("running")
        assert place is not None
        after = np.array(units, dtype=float)
        after[:, place] = [self._unit_of(place, limit) for limit in limits]
        limits = self.quantity(after, place)
        for i, hint in enumerate(self.hints):
            if hint.share_of and hint.share_of == self.hints[place].parameter:
                own = self.quantity(np.asarray(units), i)
                kept = np.where(np.isfinite(graphs), graphs, own) if hint.role == "graph" else own
                after[:, i] = [self._unit_of(i, share) for share in kept / limits]
        return self.snap(after)

    def _unit_of(self, place: int, own: float) -> float:
        """The unit coordinate of an axis' own value (of a share the share), the nearest one."""
        values = self.hints[place].values
        if values:
            own = min(range(len(values)), key=lambda i: abs(values[i] - own))
        return _unit(self.distributions[place], own)

    def quantity(self, units: Array, place: int) -> Array:
        """Natural values (n,) of an axis: shares are multiplied out."""
        hint, own = self.hints[place], _natural(self.distributions[place], units[:, place])
        if hint.values:
            own = np.asarray(hint.values)[own.astype(int)]
        leader = next((i for i, h in enumerate(self.hints) if hint.share_of and h.parameter == hint.share_of), None)
        return own if leader is None else own * self.quantity(units, leader)


def _span(distribution: BaseDistribution) -> tuple[float, float, bool]:
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    return float(distribution.low), float(distribution.high), distribution.log


def _unit(distribution: BaseDistribution, value: ParamValue) -> float:
    if isinstance(distribution, CategoricalDistribution):
        return float(distribution.choices.index(value))
    low, high, log = _span(distribution)
    if high <= low:
        return 0.0
    number = min(max(float(value), low), high)
    return math.log(number / low) / math.log(high / low) if log else (number - low) / (high - low)


def _natural(distribution: BaseDistribution, units: Array) -> Array:
    if isinstance(distribution, CategoricalDistribution):
        return units
    low, high, log = _span(distribution)
    return np.asarray(low * np.exp(units * math.log(high / low)) if log else low + units * (high - low), dtype=float)


def _top_unit(distribution: BaseDistribution) -> float:
    return len(distribution.choices) - 1.0 if isinstance(distribution, CategoricalDistribution) else 1.0


def _rounded(distribution: BaseDistribution, natural: Array, step: float) -> Array:
    """To the distribution's own steps, else to multiples of ``step`` (the edges are allowed)."""
    low, high, _ = _span(distribution)
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    if not distribution.log and distribution.step:
        natural = low + np.round((natural - low) / distribution.step) * distribution.step
    elif step:
        near_edge = (natural >= high - step / 2) | (natural <= low + step / 2)
        natural = np.where(near_edge, natural, np.round(natural / step) * step)
        natural = np.where(natural >= high - step / 2, high, np.where(natural <= low + step / 2, low, natural))
    if isinstance(distribution, IntDistribution):
        natural = np.round(natural)
    return np.clip(natural, low, high)


def _snapped(distribution: BaseDistribution, units: Array, step: float) -> Array:
    if isinstance(distribution, CategoricalDistribution):
        return np.clip(np.round(units), 0, len(distribution.choices) - 1)
    low, high, log = _span(distribution)
    if high <= low:
        return np.zeros_like(units)
    natural = _rounded(distribution, _natural(distribution, np.clip(units, 0.0, 1.0)), step)
    return np.asarray(np.log(natural / low) / math.log(high / low) if log else (natural - low) / (high - low))


def _value(distribution: BaseDistribution, unit: float, step: float) -> ParamValue:
    if isinstance(distribution, CategoricalDistribution):
        choice: ParamValue = distribution.choices[int(unit)]  # type: ignore[assignment]
        return choice
    number = float(_rounded(distribution, _natural(distribution, np.array([unit])), step)[0])
    if isinstance(distribution, IntDistribution):
        return round(number)
    low, high, _ = _span(distribution)
    return min(max(round(number, _DIGITS), low), high)
