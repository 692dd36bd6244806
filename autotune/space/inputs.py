"""What bounds are derived from, and the values that come out. Shapes of others are asked for as protocols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from autotune.space.kv import KvCapacity, Lengths, request_lengths
from autotune.space.model_config import ModelShape
from autotune.space.parameters import Kind
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
    that it lacks go by the versions table. ``where`` names the study file in messages. ``lengths`` are those of the
    requests where ``load`` does not say them.
    """

    load: LoadShape
    lengths: Lengths | None = None
    parameters: tuple[str, ...] = ()
    overrides: Mapping[str, Override] = {}
    min_tokens_per_expert: float = 8.0
    shape: ModelShape | None = None
    kv: KvCapacity | None = None
    version: str = ""
    inspected: Mapping[str, bool] = {}
    where: str = "study file"

    def request_lengths(self) -> Lengths:
        """Of the requests that the load asks."""
        return self.lengths or request_lengths(self.load.input_tokens, self.load.output_tokens, self.load.range_ratio)


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
