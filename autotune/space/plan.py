"""What a night will do, before anything starts: bounds with reasons, memory, experts and time. Pure.

Times are estimates from documented assumptions until measured ones are given.
"""

from __future__ import annotations

from typing import Protocol

from autotune.space.bounds import Bound, BoundInputs, Frozen, derive_bounds, frozen_parameters
from autotune.space.experts import starvation_floor, tokens_per_expert, touched_experts
from autotune.space.kv import KvCapacity, requests_that_fit
from autotune.space.model_config import ModelShape
from autotune.space.parameters import NamedRule, Space
from autotune.values import Value

# Imports, NCCL, warm-up and graph capture: one H200 took 50 to 60 s with 57 GB of weights.
START_BASE_S = 30.0
# GB per second over all GPUs of a host, from a page cache or a fast local disk.
WEIGHTS_GB_PER_S = 2.0
STOP_S = 5.0
# Before the steady window, where the study's own shortest window is not longer: one generation of requests.
WARMUP_S = 15.0
START_SIMULATED_S = 2.0
_SIMULATOR = "autotune.sim"


class LoadTimes(Protocol):
    """The times of a load; ``study.file.Workload`` has them. Seconds."""

    @property
    def min_s(self) -> float: ...
    @property
    def max_s(self) -> float: ...
    @property
    def warmup_max_s(self) -> float: ...


class NightInputs(Value, frozen=True, kw_only=True):
    """The caller's part of a plan. ``command`` is the planned argv of the baseline, ``command_line`` the same with its
    settings as a shell reads it; ``notes`` are what the study leaves open.

    ``start_s`` and ``trial_s`` are measured times (of an earlier night); absent ones are estimated.
    ``weight_gb`` is over all GPUs. ``confirm_starts`` are further starts at the end of the night.
    """

    study: str
    load: LoadTimes
    trials: int
    wall_clock_s: float
    command: tuple[str, ...] = ()
    command_line: str = ""
    notes: tuple[str, ...] = ()
    confirm_starts: int = 0
    weight_gb: float | None = None
    start_s: float | None = None
    trial_s: float | None = None


class KvFigures(Value, frozen=True, kw_only=True):
    """Requests that fit at once: every one at full length, and as they are in flight on average."""

    capacity: KvCapacity
    full_length_tokens: float
    full_length_requests: int
    mean_tokens: float
    mean_requests: int


class ExpertRow(Value, frozen=True, kw_only=True):
    """A decode step at one running count."""

    running: int
    tokens_per_expert: float
    experts_touched: float


class Times(Value, frozen=True, kw_only=True):
    """Expected seconds. ``trial_min_s`` to ``trial_max_s`` spans loads that end early and late."""

    start_s: float
    trial_min_s: float
    trial_max_s: float
    trial_s: float
    night_s: float
    night_ends_by: str
    assumptions: tuple[str, ...]


class NightPlan(Value, frozen=True, kw_only=True):
    """All that ``plan`` prints; ``plan_text`` renders it."""

    study: str
    engine: str
    bounds: tuple[Bound, ...]
    frozen: tuple[Frozen, ...]
    kv: KvFigures | None
    experts: tuple[ExpertRow, ...]
    min_tokens_per_expert: float
    command: tuple[str, ...]
    command_line: str
    notes: tuple[str, ...]
    trials: int
    times: Times


def build_plan(space: Space, inputs: BoundInputs, night: NightInputs) -> NightPlan:
    """Put the plan together. Raises InputError where the bounds cannot be derived."""
    bounds = derive_bounds(space, inputs)
    return NightPlan(
        study=night.study,
        engine=space.engine,
        bounds=bounds,
        frozen=frozen_parameters(space, inputs),
        kv=kv_figures(inputs),
        experts=_expert_rows(space, inputs, bounds),
        min_tokens_per_expert=inputs.min_tokens_per_expert,
        command=night.command,
        command_line=night.command_line,
        notes=night.notes,
        trials=night.trials,
        times=expected_times(night),
    )


def kv_figures(inputs: BoundInputs) -> KvFigures | None:
    """The two KV figures, or None where the capacity is unknown."""
    if inputs.kv is None:
        return None
    lengths = inputs.request_lengths()
    return KvFigures(
        capacity=inputs.kv,
        full_length_tokens=lengths.full_tokens,
        full_length_requests=requests_that_fit(inputs.kv.tokens, lengths.full_tokens),
        mean_tokens=lengths.mean_tokens,
        mean_requests=requests_that_fit(inputs.kv.tokens, lengths.mean_tokens),
    )


def expected_times(night: NightInputs) -> Times:
    """Start, trial and night, with what was assumed said in words."""
    start_s, notes = _start(night)
    warmup_s = min(max(WARMUP_S, night.load.min_s), night.load.warmup_max_s)
    fixed_s = start_s + STOP_S + warmup_s
    low_s, high_s = fixed_s + night.load.min_s, fixed_s + night.load.max_s
    if night.trial_s is None:
        trial_s = (low_s + high_s) / 2
        notes.append(f"a trial: start, {warmup_s:g} s of warm-up, a load, {STOP_S:g} s to stop")
    else:
        trial_s = low_s = high_s = night.trial_s
        notes.append(f"a trial took {trial_s:.0f} s before")
    whole_s = (night.trials + night.confirm_starts) * trial_s
    ends_by = "number of trials" if whole_s <= night.wall_clock_s else "wall clock"
    return Times(
        start_s=start_s,
        trial_min_s=low_s,
        trial_max_s=high_s,
        trial_s=trial_s,
        night_s=min(whole_s, night.wall_clock_s),
        night_ends_by=ends_by,
        assumptions=tuple(notes),
    )


def _start(night: NightInputs) -> tuple[float, list[str]]:
    if night.start_s is not None:
        return night.start_s, [f"a start took {night.start_s:.0f} s before"]
    if _SIMULATOR in night.command:
        return START_SIMULATED_S, [f"a start of the simulated server: {START_SIMULATED_S:g} s"]
    weights = night.weight_gb or 0.0
    start_s = START_BASE_S + weights / WEIGHTS_GB_PER_S
    known = (
        f"{weights:.0f} GB of weights at {WEIGHTS_GB_PER_S:g} GB/s" if weights else "weights of unknown size left out"
    )
    return start_s, [f"a start: {START_BASE_S:g} s for imports, warm-up and graph capture; {known}"]


def _expert_rows(space: Space, inputs: BoundInputs, bounds: tuple[Bound, ...]) -> tuple[ExpertRow, ...]:
    shape = inputs.shape
    if shape is None or not shape.is_moe:
        return ()
    return tuple(_expert_row(shape, running) for running in _interesting(space, inputs, bounds, shape))


def _expert_row(shape: ModelShape, running: int) -> ExpertRow:
    return ExpertRow(
        running=running,
        tokens_per_expert=tokens_per_expert(shape, running),
        experts_touched=touched_experts(shape, running),
    )


def _interesting(space: Space, inputs: BoundInputs, bounds: tuple[Bound, ...], shape: ModelShape) -> list[int]:
    """Both ends of the running limit's range and the powers of two between them."""
    floor = starvation_floor(shape, inputs.min_tokens_per_expert)
    kv = kv_figures(inputs)
    low, high = floor, max(floor, kv.mean_requests if kv else 2048)
    for bound in bounds:
        rule = space.get(bound.name).high
        if isinstance(rule, NamedRule) and rule.rule == "kv" and bound.low is not None and bound.high is not None:
            low, high = int(bound.low), int(bound.high)
            break
    powers = (2**k for k in range(20) if low < 2**k < high)
    return sorted({low, *powers, high})
