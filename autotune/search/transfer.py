"""Another study's trials in the terms of this one: its bounds, its GPU, its requests. Pure.

A memory fraction is carried over by what it leaves free: the same GB beside the pools, whatever the GPU holds.
Parameters that this space lacks are dropped, those that the other study did not report stand as in this baseline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from autotune.search.gp.chart import role_of
from autotune.search.region import Region
from autotune.space.bounds import Bound
from autotune.study.transfer import Transfer
from autotune.values import Config, Effective, Infeasible, Measured, ParamValue, TrialResult

# A number that lies further outside the bounds than this share of their width is not moved in, but left out.
SLACK = 0.1
# GPUs whose memory differs by less are alike: the figure is put together from rounded parts.
ALIKE = 0.02


def in_force(result: TrialResult) -> dict[str, ParamValue]:
    """The parameters of a trial as far as they are known: what the server reported, else what was asked."""
    effective: Effective | None = getattr(result.outcome, "effective", None)
    return {**result.config.params, **(effective.values if effective else {})}


class Bridge(msgspec.Struct, frozen=True, kw_only=True):
    """From the other study to this one. ``memory`` and ``running`` name the memory fraction and the running limit,
    ``leaves`` is how many times as large a share of the GPU the same GB are here, ``requests`` how many times as many
    tokens a request holds, ``peak`` the most requests that were in flight there (0: no limit). ``alike`` where both
    servers told that GPU and weights are as large.
    """

    region: Region
    defaults: Mapping[str, ParamValue]
    memory: str = ""
    running: str = ""
    leaves: float = 1.0
    requests: float = 1.0
    peak: int = 0
    alike: bool = False

    def fraction(self, there: ParamValue) -> float:
        """The memory fraction that leaves as many GB free."""
        return 1.0 - (1.0 - float(there)) * self.leaves

    def all_brought(self, transfer: Transfer) -> tuple[TrialResult, ...]:
        """All trials that have a place here."""
        found = (self.brought(result) for result in transfer.results)
        return tuple(result for result in found if result is not None)

    def brought(self, result: TrialResult) -> TrialResult | None:
        """The trial as if it had been one here; None where it lies outside the bounds."""
        failed = isinstance(result.outcome, Infeasible)
        params = self._params(result)
        if any(b.name not in params or not self._has_place(b, params[b.name], failed) for b in self.region.bounds):
            return None
        outcome = result.outcome
        if isinstance(outcome, Measured):
            outcome = msgspec.structs.replace(outcome, effective=self._effective(outcome.effective, params))
        return msgspec.structs.replace(result, config=Config(params=params), outcome=outcome)

    def _params(self, result: TrialResult) -> dict[str, ParamValue]:
        known = {**self.defaults, **in_force(result)}
        params = {bound.name: known[bound.name] for bound in self.region.bounds if bound.name in known}
        if self.memory in params:
            params[self.memory] = self.fraction(params[self.memory])
        if self.running in params:
            params[self.running] = self._in_flight(int(params[self.running]))
        return params

    def _in_flight(self, limit: int) -> int:
        return min(limit, self.peak) if self.peak else limit

    def _has_place(self, bound: Bound, value: ParamValue, failed: bool) -> bool:
        # A follower is taken as a share of its leader. A pool larger or smaller than any here still tells of
        # throughput, since the server counted its tokens; of memory it would tell something else at the edge.
        if self.region.space.follows(bound.name) or (bound.name == self.memory and not failed):
            return True
        return fits(bound, value)

    def _effective(self, told: Effective, params: dict[str, ParamValue]) -> Effective:
        return msgspec.structs.replace(
            told,
            kv_tokens=None if told.kv_tokens is None else round(told.kv_tokens * self.requests),
            running_limit=None if told.running_limit is None else self._in_flight(told.running_limit),
            values=params,
        )


def bridge(transfer: Transfer, region: Region, history: Sequence[TrialResult], request_tokens: float) -> Bridge:
    """How that study's trials are brought into this region, whose baseline is in ``history``."""
    base = next((r for r in history if not r.config.params and isinstance(r.outcome, Measured)), None)
    # Servers tell their memory fraction whether or not it is searched.
    roles = {role_of(parameter): parameter.name for parameter in reversed(region.space.parameters)}
    memory = roles.get("memory", "")
    there = next((gb for r in transfer.results if (gb := _memory_gb(r, memory))), None)
    here = _memory_gb(base, memory) if base else None
    gpus, weights = (a / b for a, b in zip(there, here, strict=True)) if there and here else (1.0, 0.0)
    known = transfer.request_tokens > 0 and request_tokens > 0
    same_gpu = abs(gpus - 1.0) <= ALIKE
    return Bridge(
        region=region,
        defaults=in_force(base) if base else {},
        memory=memory,
        running=roles.get("running", ""),
        leaves=1.0 if same_gpu else gpus,
        requests=request_tokens / transfer.request_tokens if known else 1.0,
        peak=transfer.peak,
        alike=same_gpu and abs(weights - 1.0) <= ALIKE,
    )


def first_config(transfer: Transfer, region: Region, history: Sequence[TrialResult]) -> Config | None:
    """The other study's best, inside these bounds: the first start of the search. None where it is the defaults.

    Only what it asked for; a memory fraction is lowered where it would leave fewer GB free here, and never raised.
    """
    best = next((r for r in transfer.results if r.number == transfer.best), None)
    if best is None:
        return None
    way = bridge(transfer, region, history, 0.0)
    asked = {
        bound.name: best.config.params[bound.name]
        for bound in region.bounds
        if bound.name in best.config.params and _can_be(bound, best.config.params[bound.name])
    }
    if way.memory in asked:
        asked[way.memory] = min(float(asked[way.memory]), way.fraction(asked[way.memory]))
    config = region.config(asked)
    return config if config.params else None


def _can_be(bound: Bound, value: ParamValue) -> bool:
    """Whether some value of the bounds is the nearest one: of names only the name itself."""
    return value in bound.choices or not isinstance(value, str | bool)


def fits(bound: Bound, value: ParamValue) -> bool:
    """Whether the value lies inside the bounds, or so little outside that the edge stands for it."""
    numbers = [c for c in bound.choices if isinstance(c, int | float) and not isinstance(c, bool)]
    if value in bound.choices:
        return True
    if isinstance(value, str | bool) or (bound.choices and not numbers):
        return False
    low, high = (min(numbers), max(numbers)) if numbers else (bound.low or 0.0, bound.high or 0.0)
    number, bottom, top = float(value), float(low), float(high)
    if bound.log and number > 0 and bottom > 0:
        number, bottom, top = math.log(number), math.log(bottom), math.log(top)
    room = SLACK * max(top - bottom, 1e-9)
    return bottom - room <= number <= top + room


def _memory_gb(result: TrialResult, memory: str) -> tuple[float, float] | None:
    """One GPU's memory by the server's own account, and the weights in it: with the pool they are its fraction."""
    if not isinstance(result.outcome, Measured):
        return None
    told = result.outcome.effective
    fraction, pools = told.values.get(memory), told.gpu_memory_gb
    if not isinstance(fraction, int | float) or not fraction > 0 or not pools.get("kvcache") or not pools.get("weight"):
        return None
    return (pools["kvcache"] + pools["weight"]) / float(fraction), pools["weight"]
