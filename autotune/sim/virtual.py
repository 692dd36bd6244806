"""A start and its load in virtual time: the surface on which searches are compared, milliseconds per call."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from autotune.sim.memory import OomStage, Resolved, normalised, resolve
from autotune.sim.model import Batcher
from autotune.sim.profiles import profile as named_profile
from autotune.sim.requests import SimRequest, Step
from autotune.sim.settings import SimSettings
from autotune.values import ParamValue, Value

# Share of a start that has passed when memory runs out at a stage.
OOM_AT: dict[OomStage, float] = {"weights": 0.3, "kv_pool": 0.6, "graph_capture": 0.8, "load": 1.0}
CYCLES = 6


class VirtualLoad(Value, frozen=True, kw_only=True):
    """A closed loop. ``range_ratio`` r draws lengths from [len * r, len]; ``duration_s`` is the load's virtual time.

    ``death_s`` is how long a load lasts when the server dies of it.
    """

    concurrency: int
    input_tokens: int = 128
    output_tokens: int = 128
    range_ratio: float = 1.0
    duration_s: float = 60.0
    death_s: float = 10.0


class SimResult(Value, frozen=True, kw_only=True):
    """What one trial would see. ``throughput_tok_s`` is None where memory ran out at stage ``oom``.

    ``true_tok_s`` is the same without noise, ``stderr_tok_s`` the standard error within this start.
    ``ttft_mean_s`` and ``tpot_mean_s`` are the load's means without noise.
    """

    throughput_tok_s: float | None
    oom: OomStage | None
    start_s: float
    load_s: float
    running_limit: int
    graph_max_batch: int
    kv_tokens: int
    mem_fraction: float
    true_tok_s: float | None = None
    stderr_tok_s: float = 0.0
    ttft_mean_s: float = 0.0
    tpot_mean_s: float = 0.0
    retracted: int = 0

    @property
    def effective(self) -> dict[str, ParamValue]:
        return {
            "max_running_requests": self.running_limit,
            "cuda_graph_max_bs": self.graph_max_batch,
            "mem_fraction_static": self.mem_fraction,
            "kv_tokens": self.kv_tokens,
        }


class SteadyState(Value, frozen=True, kw_only=True):
    """The noiseless figures of one configuration under one load."""

    throughput_tok_s: float
    ttft_mean_s: float
    tpot_mean_s: float
    retracted: int


def simulate(
    profile: str | SimSettings,
    flags: Mapping[str, ParamValue],
    load: VirtualLoad,
    seed: int = 0,
    restart_noise: float = 0.05,
) -> SimResult:
    """One start and one load. The same arguments give the same result.

    ``restart_noise`` is the standard deviation of the logarithm of a factor drawn once per start; a quarter of it
    is the relative error of the measurement within a start.
    """
    settings = named_profile(profile) if isinstance(profile, str) else profile
    resolved = resolve(settings, flags)
    steady = None if resolved.oom else steady_state(settings, frozenset(normalised(flags).items()), load)
    rng = random.Random(f"{seed}|{sorted(normalised(flags).items())}")
    factor = math.exp(rng.gauss(0.0, restart_noise))
    within = restart_noise / 4
    share = 1.0 + rng.gauss(0.0, within)
    start_s = start_seconds(settings, resolved) * (1.0 + 0.05 * rng.random())
    limits = resolved.limits
    return SimResult(
        throughput_tok_s=steady.throughput_tok_s * factor * share if steady else None,
        oom=resolved.oom,
        start_s=start_s * (OOM_AT[resolved.oom] if resolved.oom else 1.0),
        load_s=_load_seconds(resolved, load),
        running_limit=limits.running,
        graph_max_batch=limits.graph_max,
        kv_tokens=limits.kv_tokens,
        mem_fraction=resolved.mem_fraction,
        true_tok_s=steady.throughput_tok_s if steady else None,
        stderr_tok_s=steady.throughput_tok_s * within if steady else 0.0,
        ttft_mean_s=steady.ttft_mean_s if steady else 0.0,
        tpot_mean_s=steady.tpot_mean_s if steady else 0.0,
        retracted=steady.retracted if steady else 0,
    )


def start_seconds(settings: SimSettings, resolved: Resolved) -> float:
    """Seconds until ready: loading, then one capture per graph size."""
    return settings.start_base_s + settings.capture_per_size_s * len(resolved.limits.graph_sizes)


def _load_seconds(resolved: Resolved, load: VirtualLoad) -> float:
    if resolved.oom is None:
        return load.duration_s
    return load.death_s if resolved.oom == "load" else 0.0


def lowered(resolved: Resolved, limit: int) -> Resolved:
    """The same start with its running limit lowered while it serves: its graphs and pools stay as they are.

    A limit of 0, or one above what is in force, changes nothing.
    """
    running = min(limit or resolved.limits.running, resolved.limits.running)
    return msgspec.structs.replace(resolved, limits=msgspec.structs.replace(resolved.limits, running=running))


@lru_cache(maxsize=65536)
def steady_state(
    settings: SimSettings, flags: frozenset[tuple[str, ParamValue]], load: VirtualLoad, live_limit: int = 0
) -> SteadyState:
    """Run the batching model in a closed loop over some generations of requests, the first left out.

    ``live_limit`` is a running limit that was lowered after the start, 0: it is as started.
    """
    return _ClosedLoop(settings, lowered(resolve(settings, dict(flags)), live_limit), load).run()


class _ClosedLoop:
    cycles = CYCLES

    def __init__(self, settings: SimSettings, resolved: Resolved, load: VirtualLoad) -> None:
        limits = msgspec.structs.replace(resolved.limits, radix_cache=False)
        self.batcher = Batcher(settings, limits)
        self.load = load
        self.now_s = 0.0
        self.rng = random.Random(0)
        self.completed = 0
        self.tokens = 0
        self.ttft_sum_s = self.tpot_sum_s = 0.0

    def run(self) -> SteadyState:
        self._arrive(self.load.concurrency)
        self._until(self.load.concurrency)
        begin_s, begin = self.now_s, self.completed
        self.tokens, self.ttft_sum_s, self.tpot_sum_s = 0, 0.0, 0.0
        self._until(begin + (self.cycles - 1) * self.load.concurrency)
        requests = max(1, self.completed - begin)
        return SteadyState(
            throughput_tok_s=self.tokens / (self.now_s - begin_s),
            ttft_mean_s=self.ttft_sum_s / requests,
            tpot_mean_s=self.tpot_sum_s / requests,
            retracted=self.batcher.retracted_total,
        )

    def _until(self, completed: int) -> None:
        while self.completed < completed:
            step = self.batcher.step(max_decode_steps=1 << 30)
            if step is None:
                raise RuntimeError("the closed loop ran dry")
            self.now_s += step.duration_s
            self._account(step)

    def _account(self, step: Step) -> None:
        for request in step.started:
            if request.first_token_s < 0:
                request.first_token_s = self.now_s
        done = 0
        for request in step.finished:
            done += request.count
            self.tokens += request.count * request.output_tokens
            self.ttft_sum_s += request.count * (request.first_token_s - request.arrived_s)
            after_first = self.now_s - request.first_token_s
            self.tpot_sum_s += request.count * after_first / max(1, request.output_tokens - 1)
        if done:
            self.completed += done
            self._arrive(done)

    def _arrive(self, count: int) -> None:
        load = self.load
        if load.range_ratio >= 1.0:
            self.batcher.submit(SimRequest(load.input_tokens, load.output_tokens, count=count), self.now_s)
            return
        for _ in range(count):
            request = SimRequest(self._length(load.input_tokens), self._length(load.output_tokens))
            self.batcher.submit(request, self.now_s)

    def _length(self, longest: int) -> int:
        return self.rng.randint(max(1, int(longest * self.load.range_ratio)), longest)
