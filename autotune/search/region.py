"""The part of a search space that is searched, and how one axis of it is shown to a sampler."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import msgspec
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from autotune.space.bounds import Bound
from autotune.space.parameters import Space
from autotune.space.repair import Domain, domains, repair, to_domain_values
from autotune.values import Config, ParamValue, Value

Point = dict[str, ParamValue]
_DIGITS = 9  # 0.5 + 42 * 0.01 is 0.92
Direction = Literal["maximize", "minimize"]


class Region(Value, frozen=True, kw_only=True):
    """A space within bounds. Serialisable: the bounds of a study are fixed once, after its baseline."""

    space: Space
    bounds: tuple[Bound, ...]

    def domains(self) -> tuple[Domain, ...]:
        return domains(self.space, self.bounds)

    def axes(self) -> tuple[Axis, ...]:
        return tuple(Axis.of(domain) for domain in self.domains())

    def config(self, point: Mapping[str, ParamValue]) -> Config:
        """The valid config nearest to ``point``."""
        return Config(params=repair(point, self.space, self.bounds))

    def point(self, params: Mapping[str, ParamValue]) -> Point:
        """Where a config, or what a server reports, lies, moved inside; axes that it does not tell are left out."""
        known = {name: value for name, value in params.items() if name in self.space.names()}
        raw = to_domain_values(known, self.space, self.bounds)
        near = {axis.name: axis.nearest(raw[axis.name]) for axis in self.axes() if axis.name in raw}
        return {name: value for name, value in near.items() if value is not None}


class Axis(msgspec.Struct, frozen=True):
    """A domain as samplers see it. Values in a list that have an order are searched by their place in it."""

    name: str
    values: tuple[ParamValue, ...]
    low: float
    high: float
    step: float
    whole: bool
    log: bool

    @classmethod
    def of(cls, domain: Domain) -> Axis:
        if domain.choices:
            return cls(domain.name, domain.choices, 0, len(domain.choices) - 1, 1, True, False)
        whole = domain.kind == "int"
        step = 0.0 if domain.log else domain.step or 0.0
        return cls(domain.name, (), domain.low, domain.high, step or (1.0 if whole else 0.0), whole, domain.log)

    @property
    def ordered(self) -> bool:
        """Whether neighbouring values are alike: numbers are, names are not."""
        return all(isinstance(v, int | float) for v in self.values)

    def distribution(self) -> BaseDistribution:
        """What the sampler draws from; its values are decoded by ``value``."""
        if self.values and not self.ordered:
            return CategoricalDistribution(self.values)
        if self.whole:
            return IntDistribution(int(self.low), int(self._top()), log=self.log, step=int(self.step))
        return FloatDistribution(self.low, self._top(), log=self.log, step=self.step or None)

    def shown(self) -> BaseDistribution:
        """What the storage shows to a reader: the values themselves."""
        return CategoricalDistribution(self.values) if self.values else self.distribution()

    def encode(self, value: ParamValue) -> ParamValue | None:
        """The nearest value of ``distribution``, None where there is none."""
        if self.values:
            place = self._place(value)
            return place if place is None or self.ordered else self.values[place]
        number = self._number(value)
        return None if number is None else self._snap(number)

    def value(self, encoded: ParamValue) -> ParamValue:
        """The inverse of ``encode``."""
        return self.values[int(encoded)] if self.values and self.ordered else encoded

    def nearest(self, value: ParamValue) -> ParamValue | None:
        """The nearest value of this axis, None where there is none."""
        encoded = self.encode(value)
        return None if encoded is None else self.value(encoded)

    def size(self) -> float:
        """How many values there are; infinite on a continuous axis."""
        return (self._top() - self.low) / self.step + 1 if self.step else math.inf

    def unit(self, value: ParamValue) -> float:
        """Where ``value`` lies between the ends, from 0 to 1."""
        number = self.values.index(value) if self.values else float(value)
        if self.high <= self.low:
            return 0.0
        if self.log:
            return (math.log(number) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (number - self.low) / (self.high - self.low)

    def at(self, unit: float) -> ParamValue:
        """The value at ``unit`` between the ends; the inverse of ``unit`` up to rounding."""
        unit = min(1.0, max(0.0, unit))
        if self.log:
            number = math.exp(math.log(self.low) + unit * (math.log(self.high) - math.log(self.low)))
        else:
            number = self.low + unit * (self.high - self.low)
        snapped = self._snap(number)
        return self.values[int(snapped)] if self.values else snapped

    def _top(self) -> float:
        if not self.step:
            return self.high
        return round(self.low + math.floor((self.high - self.low) / self.step + 1e-9) * self.step, _DIGITS)

    def _snap(self, number: float) -> int | float:
        if self.step:
            number = self.low + round((number - self.low) / self.step) * self.step
        number = min(self._top(), max(self.low, number))
        return round(number) if self.whole else round(number, _DIGITS)

    def _place(self, value: ParamValue) -> int | None:
        if value in self.values:
            return self.values.index(value)
        number = self._number(value)
        if number is None or not self.ordered:
            return None
        return min(range(len(self.values)), key=lambda i: abs(float(self.values[i]) - number))

    @staticmethod
    def _number(value: ParamValue) -> float | None:
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
