"""What the trials of a study say: scores, failures, the values in force and where the memory went."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial, TrialState

from autotune.search.gp.chart import Chart
from autotune.search.outcomes import FEASIBLE, GPU_FREE, LIVE
from autotune.verdict.noise import NoiseModel, Tried, estimate_noise

Array = NDArray[np.float64]
# A load that was ended early saw the ramp more than the plateau: its value is less sure by this much.
EARLY_STDERR = 0.05
OOM_KINDS = ("oom_",)
# Fitting takes the third power of what was read: of a long night the loads of its best starts.
LIVE_LOADS = 32


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration with all its starts. ``point`` is in unit coordinates, ``excess`` the largest violated limit.

    ``logs`` are log scores (negated where less is better), ``running``, ``graph`` and ``kv_tokens`` what was in force
    (an infinite ``graph``: the server captures none), ``gpu_free_share`` the least that its loads left of a GPU.
    ``live`` is one more load of a start at a running limit that was lowered while it served: near a start with that
    limit, but none.
    """

    trials: tuple[int, ...]
    point: tuple[float, ...]
    logs: tuple[float, ...]
    stderrs: tuple[float, ...]
    whole: bool = True
    live: bool = False
    excess: float = math.nan
    running: float = math.nan
    graph: float = math.nan
    fraction: float = math.nan
    kv_tokens: float = math.nan
    gpu_free_share: float = math.nan
    memory_gb: tuple[tuple[str, float], ...] = ()

    def memory(self, name: str) -> float:
        """GB of that part of one GPU's memory, 0.0 where the server did not tell."""
        return dict(self.memory_gb).get(name, 0.0)


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration that cannot be served. ``memory`` tells whether it ran out of it."""

    trial: int
    point: tuple[float, ...]
    memory: bool


class Observations(msgspec.Struct, frozen=True, kw_only=True):
    """All of them. ``noise`` is that of a start, ``sign`` -1 where less is better."""

    groups: tuple[Group, ...]
    failures: tuple[Failure, ...]
    pending: tuple[tuple[float, ...], ...]
    noise: NoiseModel
    sign: float

    @property
    def fresh(self) -> tuple[Group, ...]:
        """What was started, without the loads at lowered limits."""
        return tuple(g for g in self.groups if not g.live)

    def points(self) -> Array:
        return np.array([g.point for g in self.groups])

    def shared(self) -> Array:
        """Which part of the variance between starts each two groups have in common, (n, n)."""
        starts = sorted({number for g in self.groups for number in g.trials})
        part = np.zeros((len(self.groups), len(starts)))
        for row, g in enumerate(self.groups):
            part[row, [starts.index(number) for number in g.trials]] = 1.0 / len(g.trials)
        return np.asarray(part @ part.T)


def observe(trials: Sequence[FrozenTrial], chart: Chart, sign: float) -> Observations:
    """Trials that lack an axis, or that say nothing (FAIL), are left out."""
    known = [t for t in trials if all(name in t.params for name in chart.names)]
    values = {t.number: value for t in known if (value := _value(t)) is not None and math.isfinite(value)}
    scale = _scale(list(values.values()))
    grouped: dict[tuple[Any, ...], list[FrozenTrial]] = {}
    for trial in known:
        if trial.number in values:
            grouped.setdefault(_identity(trial, chart), []).append(trial)
    fresh = tuple(_group(members, values, scale, chart, sign) for members in grouped.values())
    failures = tuple(
        Failure(trial=t.number, point=tuple(chart.units(t.params)), memory=_of_memory(t))
        for t in known
        if t.number not in values and t.state is TrialState.PRUNED
    )
    pending = tuple(tuple(chart.units(t.params)) for t in known if not t.state.is_finished())
    lowered = _lowered([t for t in known if t.number in values], values, scale, chart, sign)
    return Observations(
        groups=(*fresh, *lowered),
        failures=failures,
        pending=pending,
        noise=_noise(fresh),
        sign=sign,
    )


def _value(trial: FrozenTrial) -> float | None:
    if trial.state is TrialState.COMPLETE:
        return trial.value
    if trial.state is TrialState.PRUNED and trial.intermediate_values and trial.constraints.get(FEASIBLE, 0.0) <= 0:
        return trial.intermediate_values[max(trial.intermediate_values)]
    return None


class _Scale(msgspec.Struct, frozen=True):
    """Positive scores are taken by their logarithm; others are shifted and measured by their spread."""

    log: bool
    centre: float = 0.0
    spread: float = 1.0

    def of(self, value: float) -> float:
        return math.log(value) if self.log else (value - self.centre) / self.spread

    def relative(self, stderr: float, value: float) -> float:
        return stderr / value if self.log else stderr / self.spread


def _scale(values: Sequence[float]) -> _Scale:
    if not values or min(values) > 0:
        return _Scale(log=True)
    spread = float(np.std(values)) * 2.0
    return _Scale(log=False, centre=float(np.mean(values)), spread=spread if spread > 0 else 1.0)


def _identity(trial: FrozenTrial, chart: Chart) -> tuple[Any, ...]:
    """Equal configurations, and those that came out equal in force."""
    key = trial.user_attrs.get("config_key")
    whole = trial.state is TrialState.COMPLETE
    return (key, whole) if key is not None else (*chart.units(trial.params), whole)


def _group(
    members: Sequence[FrozenTrial], values: Mapping[int, float], scale: _Scale, chart: Chart, sign: float
) -> Group:
    first = members[0]
    whole = first.state is TrialState.COMPLETE
    errors = [_relative_error(t, values[t.number], scale) for t in members]
    effective = first.user_attrs.get("effective") or {}
    in_force = effective.get("values") or {}
    place = chart.role("memory")
    fraction = in_force.get(chart.hints[place].parameter) if place is not None else None
    return Group(
        trials=tuple(t.number for t in members),
        point=tuple(chart.units(first.params)),
        logs=tuple(sign * scale.of(values[t.number]) for t in members),
        stderrs=tuple(math.hypot(e, 0.0 if whole else EARLY_STDERR) for e in errors),
        whole=whole,
        excess=_excess(members),
        running=_number(effective.get("running_limit")),
        graph=_ceiling(effective.get("graph_max_batch")),
        fraction=_number(fraction),
        kv_tokens=_number(effective.get("kv_tokens")),
        gpu_free_share=_least([_number(t.user_attrs.get(GPU_FREE)) for t in members]) if whole else math.nan,
        memory_gb=tuple((effective.get("gpu_memory_gb") or {}).items()),
    )


def _lowered(
    measured: Sequence[FrozenTrial], values: Mapping[int, float], scale: _Scale, chart: Chart, sign: float
) -> tuple[Group, ...]:
    """The loads at lowered limits, those of the best starts where there are more than the model has time for."""
    if chart.role("running") is None:
        return ()
    found: list[Group] = []
    for trial in sorted(measured, key=lambda t: (-sign * values[t.number], t.number)):
        start = _group([trial], values, scale, chart, sign)
        found += [group for load in trial.user_attrs.get(LIVE, ()) if (group := _load(start, load, scale, chart, sign))]
    return tuple(found[:LIVE_LOADS])


def _load(start: Group, load: Mapping[str, float], scale: _Scale, chart: Chart, sign: float) -> Group | None:
    value = load["score"]
    if scale.log and not value > 0:
        return None
    place = chart.lowered(np.array([start.point]), np.array([load["limit"]]), np.array([start.graph]))
    return msgspec.structs.replace(
        start,
        live=True,
        point=tuple(place[0].tolist()),
        running=load["limit"],
        logs=(sign * scale.of(value),),
        stderrs=(scale.relative(load["score_stderr"], value),),
        excess=load.get("excess", math.nan),
    )


def _excess(members: Sequence[FrozenTrial]) -> float:
    """The largest mean excess over the objective's limits, NaN where there are none."""
    limits = [name for name in members[0].constraints if name != FEASIBLE]
    means = [sum(t.constraints.get(name, 0.0) for t in members) / len(members) for name in limits]
    return max(means, default=math.nan)


def _relative_error(trial: FrozenTrial, value: float, scale: _Scale) -> float:
    stderr = _number(trial.user_attrs.get("score_stderr"))
    return scale.relative(stderr, value) if math.isfinite(stderr) else 0.0


def _ceiling(value: object) -> float:
    """The largest captured graph. A server that captures none has no batch that a graph would serve faster."""
    largest = _number(value)
    return math.inf if largest == 0 else largest


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _least(values: Sequence[float]) -> float:
    """The smallest that is known, NaN where none is."""
    return min((v for v in values if math.isfinite(v)), default=math.nan)


def _of_memory(trial: FrozenTrial) -> bool:
    """Failures of another kind say nothing of memory; a trial without a kind is taken for one of memory."""
    kind = str(trial.user_attrs.get("kind", "oom_"))
    return kind.startswith(OOM_KINDS)


def _noise(groups: Iterable[Group]) -> NoiseModel:
    tried = [
        Tried(
            params={},
            values=tuple(math.exp(v - g.logs[0]) for v in g.logs),
            stderrs=tuple(e * math.exp(v - g.logs[0]) for v, e in zip(g.logs, g.stderrs, strict=True)),
        )
        for g in groups
        if g.whole
    ]
    return estimate_noise(tried)
