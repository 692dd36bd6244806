"""The search space of one engine: its parameters, the rules between them, and which versions read what.

A space is data (``search_spaces/*.toml``). ``parse_space`` checks it and makes it a frozen ``Space``.
"""

from __future__ import annotations

import graphlib
import tomllib
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from autotune.errors import InputError
from autotune.space.strict import convert, nearest
from autotune.space.versions import in_range, parse_range
from autotune.values import ParamValue, Value

Kind = Literal["int", "float", "bool", "choice"]
SHARE_SUFFIX = "_share"


class Flag(Value, frozen=True, kw_only=True):
    """One spelling of the command-line flag and the engine versions that take it (empty: all)."""

    flag: str
    versions: str = ""


class NamedRule(Value, frozen=True, kw_only=True):
    """A bound that is computed: see ``bounds``. ``otherwise`` holds where the rule's inputs are unknown.

    ``kv``: running requests that fit the KV cache, ``lengths`` "mean" or "full". ``experts``: the running count
    below which experts are starved. ``parameter``: the same edge of another searched parameter.
    """

    rule: Literal["kv", "experts", "parameter"]
    otherwise: float
    lengths: Literal["mean", "full"] = "mean"
    parameter: str = ""


class Parameter(Value, frozen=True, kw_only=True):
    """One tunable of the engine.

    ``default`` absent means that the engine computes it. ``read_by`` is the range of versions in which code
    reads the flag (empty: all). ``oom`` is the direction towards running out of memory: +1 when a larger
    value is likelier to, -1 when a smaller one is, 0 when it has no part in it.
    """

    name: str = ""
    kind: Kind
    flags: tuple[Flag, ...]
    default: ParamValue | None = None
    low: float | NamedRule | None = None
    high: float | NamedRule | None = None
    step: float | None = None
    log: bool = False
    choices: tuple[ParamValue, ...] = ()
    read_by: str = ""
    on_by_default: bool = False
    oom: Literal[-1, 0, 1] = 0
    category: Literal["scheduling", "memory", "graphs", "prefill", "output", "cache"] = "scheduling"
    description: str = ""

    @property
    def is_memory_fraction(self) -> bool:
        """Whether it is the share of the GPU that weights and KV cache may take."""
        a_share = self.kind == "float" and isinstance(self.high, int | float) and self.high <= 1.0
        return self.category == "memory" and a_share

    def flag_for(self, version: str) -> str:
        """The spelling that ``version`` takes; the newest (the last listed) where the version is unknown."""
        if version:
            for spelling in self.flags:
                if in_range(version, spelling.versions):
                    return spelling.flag
        return self.flags[-1].flag

    def is_read_by(self, version: str) -> bool:
        """Whether that version does anything with the value. Of an unknown version nothing is known: yes."""
        return not version or in_range(version, self.read_by)


class Follows(Value, frozen=True, kw_only=True, tag_field="kind", tag="follows"):
    """``parameter`` never needs to exceed ``leader``, and is searched as a share of it (ascending ``shares``)."""

    parameter: str
    leader: str
    shares: tuple[float, ...]

    @property
    def other(self) -> str:
        return self.leader

    @property
    def domain_name(self) -> str:
        return self.parameter + SHARE_SUFFIX


class AtMost(Value, frozen=True, kw_only=True, tag_field="kind", tag="at_most"):
    """``parameter`` <= ``limit``."""

    parameter: str
    limit: str

    @property
    def other(self) -> str:
        return self.limit


class AtLeast(Value, frozen=True, kw_only=True, tag_field="kind", tag="at_least"):
    """``parameter`` >= ``limit``."""

    parameter: str
    limit: str

    @property
    def other(self) -> str:
        return self.limit


class DivisibleBy(Value, frozen=True, kw_only=True, tag_field="kind", tag="divisible_by"):
    """``parameter`` is a multiple of ``divisor``."""

    parameter: str
    divisor: str

    @property
    def other(self) -> str:
        return self.divisor


Rule = Follows | AtMost | AtLeast | DivisibleBy


class Space(Value, frozen=True, kw_only=True):
    """The parameters and rules of one engine. ``source`` names the file in messages."""

    engine: str
    source: str = ""
    parameters: tuple[Parameter, ...]
    rules: tuple[Rule, ...] = ()

    def names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters)

    def get(self, name: str, where: str = "") -> Parameter:
        """The parameter of that name, or InputError naming the nearest one. ``where`` is the asking file or key."""
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise InputError(
            f"{where or 'parameter'}: {self.source or self.engine} has no parameter {name!r}; "
            f"{nearest(name, self.names())}"
        )

    def memory_fraction(self) -> str:
        """The parameter that is the share of the GPU for weights and KV cache; empty: there is none."""
        return next((p.name for p in self.parameters if p.is_memory_fraction), "")

    def flags(self, params: Mapping[str, ParamValue], version: str) -> tuple[tuple[str, ParamValue], ...]:
        """Pairs of command-line flag and value for a configuration, spelled as that version takes them."""
        return tuple((self.get(name).flag_for(version), value) for name, value in params.items())

    def rules_of(self, name: str) -> tuple[Rule, ...]:
        return tuple(rule for rule in self.rules if rule.parameter == name)

    def follows(self, name: str) -> Follows | None:
        return next((r for r in self.rules_of(name) if isinstance(r, Follows)), None)

    def order(self) -> tuple[str, ...]:
        """Names with every rule's other side before the parameter that it binds."""
        graph = {name: {rule.other for rule in self.rules_of(name)} for name in self.names()}
        try:
            return tuple(graphlib.TopologicalSorter(graph).static_order())
        except graphlib.CycleError as error:
            raise InputError(f"{self.source}: rules go round in a circle: {' -> '.join(error.args[1])}") from None


class _SpaceFile(Value, frozen=True, kw_only=True):
    engine: str
    parameters: dict[str, Any]
    rules: tuple[Rule, ...] = ()


def parse_space(text: str, source: str) -> Space:
    """The space written in ``text`` (TOML). ``source`` is the file's name for messages. Raises InputError."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source}: not TOML: {error}") from None
    raw = convert(data, _SpaceFile, source)
    parameters = tuple(_parameter(name, body, source) for name, body in raw.parameters.items())
    space = Space(engine=raw.engine, source=source, parameters=parameters, rules=raw.rules)
    for rule in space.rules:
        _check_rule(space, rule)
    for parameter in parameters:
        for edge in (parameter.low, parameter.high):
            if isinstance(edge, NamedRule) and edge.rule == "parameter":
                space.get(edge.parameter, f"{source}: parameters.{parameter.name}: rule 'parameter'")
    space.order()
    return space


def with_defaults(space: Space, values: Mapping[str, ParamValue]) -> Space:
    """The space whose defaults are those that the base command line sets; names that it lacks are ignored."""
    changed = tuple(
        msgspec.structs.replace(p, default=values[p.name]) if p.name in values else p for p in space.parameters
    )
    return msgspec.structs.replace(space, parameters=changed)


def _parameter(name: str, body: Any, source: str) -> Parameter:
    where = f"{source}: parameters.{name}"
    if not isinstance(body, Mapping):
        raise InputError(f"{where}: write it as a table, [parameters.{name}]")
    parameter = msgspec.structs.replace(convert(body, Parameter, where), name=name)
    for problem in _problems(parameter):
        raise InputError(f"{where}: {problem}")
    for text in (parameter.read_by, *(flag.versions for flag in parameter.flags)):
        parse_range(text)
    return parameter


def _problems(p: Parameter) -> list[str]:
    numeric = p.kind in ("int", "float")
    numbers = [edge for edge in (p.low, p.high) if isinstance(edge, int | float)]
    checks = {
        'flags is empty; list at least one { flag = "--name" }': not p.flags,
        f"kind '{p.kind}' needs low and high": numeric and not p.choices and (p.low is None or p.high is None),
        "kind 'choice' needs choices": p.kind == "choice" and not p.choices,
        "low, high, step and log belong to the kinds int and float": not numeric
        and (p.low is not None or p.high is not None or p.step is not None or p.log),
        "step must be greater than 0": p.step is not None and p.step <= 0,
        "a log scale needs low > 0": p.log and bool(numbers) and min(numbers) <= 0,
        "low is greater than high": len(numbers) == 2 and numbers[0] > numbers[1],
    }
    return [message for message, wrong in checks.items() if wrong]


def _check_rule(space: Space, rule: Rule) -> None:
    where = f"{space.source}: rules"
    for name in (rule.parameter, rule.other):
        if space.get(name, where).kind not in ("int", "float"):
            raise InputError(f"{where}: {name!r} is not a number; rules tie numbers only")
    if isinstance(rule, Follows) and (not rule.shares or list(rule.shares) != sorted(set(rule.shares))):
        raise InputError(f"{where}: shares of {rule.parameter!r} must be ascending and not empty")
    if isinstance(rule, Follows) and not 0 < rule.shares[0] <= rule.shares[-1] <= 1:
        raise InputError(f"{where}: shares of {rule.parameter!r} must lie in (0, 1]")
