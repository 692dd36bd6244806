"""What is searched: servers in virtual time, each with its bounds, its noise-free truth and the price of a start."""

from __future__ import annotations

import math
import random
from typing import Protocol

import msgspec

from autotune.search.region import Region
from autotune.sim.memory import OomStage, Resolved, normalised, resolve
from autotune.sim.settings import SimSettings
from autotune.sim.virtual import OOM_AT, VirtualLoad, start_seconds
from autotune.values import (
    Config,
    Diagnosis,
    Effective,
    Estimate,
    Infeasible,
    Measured,
    Measurement,
    Outcome,
    ParamValue,
    Stage,
    Value,
)
from benchmarks.search.mixed import mixed_throughput

METRIC = "output_throughput_tok_s"
KINDS: dict[OomStage, str] = {
    "weights": "oom_weights",
    "kv_pool": "oom_kv",
    "graph_capture": "oom_graph",
    "load": "oom_runtime",
}
STAGES: dict[OomStage, Stage] = {
    "weights": "weights",
    "kv_pool": "kv_pool",
    "graph_capture": "graph_capture",
    "load": "load",
}
# A server that dies under load holds on for a while before it is noticed (H200: 60 s; seen by its progress, 15 s).
NOTICED_S = 15.0


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One start and load: what a tuner is told, the truth (None: out of memory), and the wall clock that it took."""

    outcome: Outcome
    true_tok_s: float | None
    start_s: float
    load_s: float

    @property
    def cost_s(self) -> float:
        return self.start_s + self.load_s


class Surface(Protocol):
    """A server to tune. ``request_tokens`` is what a request in flight holds on average."""

    @property
    def name(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def region(self) -> Region: ...
    @property
    def request_tokens(self) -> float: ...
    def start(self, config: Config, noise: float, seed: str) -> Start: ...
    def truth(self, config: Config) -> float | None: ...


class Twist(Value, frozen=True, kw_only=True):
    """What no formula of ours knows: a smooth factor over the region, and a best running limit inside it.

    ``waves`` has one (amplitude, phase, frequencies) each; ``peak`` is the running limit beyond which each doubling
    costs ``fall`` of the throughput (0: none).
    """

    waves: tuple[tuple[float, float, tuple[float, ...]], ...] = ()
    peak: float = 0.0
    fall: float = 0.0

    def factor(self, units: tuple[float, ...], running: float) -> float:
        log = sum(a * math.cos(p + sum(f * u for f, u in zip(fs, units, strict=True))) for a, p, fs in self.waves)
        if self.peak and running > self.peak:
            log -= self.fall * math.log2(running / self.peak)
        return math.exp(log)


class SimSurface(Value, frozen=True, kw_only=True):
    """A simulated server under requests of mixed lengths. ``base`` are flags that the study's command line sets."""

    name: str
    family: str
    settings: SimSettings
    load: VirtualLoad
    region: Region
    base: dict[str, ParamValue] = {}
    twist: Twist = Twist()

    @property
    def request_tokens(self) -> float:
        return self.load.input_tokens + self.load.output_tokens / 2

    def start(self, config: Config, noise: float, seed: str) -> Start:
        resolved = resolve(self.settings, {**self.base, **config.params})
        chance = random.Random(seed)
        start_s = start_seconds(self.settings, resolved) * (1.0 + 0.05 * chance.random())
        if resolved.oom:
            load_s = self.load.death_s + NOTICED_S if resolved.oom == "load" else 0.0
            lost_s = start_s * OOM_AT[resolved.oom]
            return Start(outcome=failure(resolved.oom), true_tok_s=None, start_s=lost_s, load_s=load_s)
        true = self._true(config, resolved)
        within = noise / 4
        seen = true * math.exp(chance.gauss(0.0, noise)) * (1.0 + chance.gauss(0.0, within))
        outcome = success(seen, true * within, _effective(self.settings, resolved))
        return Start(outcome=outcome, true_tok_s=true, start_s=start_s, load_s=self.load.duration_s)

    def truth(self, config: Config) -> float | None:
        return self.start(config, 0.0, "").true_tok_s

    def _true(self, config: Config, resolved: Resolved) -> float:
        flags = frozenset(normalised({**self.base, **config.params}).items())
        true = mixed_throughput(self.settings, flags, self.load)
        if not (self.twist.waves or self.twist.peak):
            return true
        point = self.region.point({**_values(resolved), **config.params})
        units = tuple(axis.unit(point[axis.name]) if axis.name in point else 0.5 for axis in self.region.axes())
        return true * self.twist.factor(units, resolved.limits.running)


def _values(resolved: Resolved) -> dict[str, ParamValue]:
    limits = resolved.limits
    return {
        "max_running_requests": limits.running,
        "cuda_graph_max_bs": limits.graph_max,
        "mem_fraction_static": resolved.mem_fraction,
        "chunked_prefill_size": limits.chunk_tokens,
        "max_prefill_tokens": limits.max_prefill_tokens,
        "schedule_conservativeness": limits.conservativeness,
    }


def _effective(settings: SimSettings, resolved: Resolved) -> Effective:
    """What a server that serves says of itself. One that died before it was ready says nothing."""
    return Effective(
        source="server_info",
        kv_tokens=resolved.limits.kv_tokens,
        running_limit=resolved.limits.running,
        graph_max_batch=resolved.limits.graph_max,
        values=_values(resolved),
        gpu_memory_gb={
            "weight": round(settings.weight_gb, 2),
            "kvcache": round(resolved.kv_gb, 2),
            "graph": round(resolved.graph_gb, 2),
            "available": round(resolved.after_graphs_gb, 2),
        },
    )


def failure(stage: OomStage) -> Infeasible:
    """Out of memory at that stage."""
    return Infeasible(diagnosis=Diagnosis(kind=KINDS[stage], action="prune", stage=STAGES[stage]))


def success(value: float, stderr: float, effective: Effective) -> Measured:
    """A measured throughput."""
    return Measured(
        score=Estimate(value=value, stderr=stderr, batches=10),
        measurement=Measurement(
            whole={},
            steady={METRIC: value},
            estimates={},
            requests_completed=1000,
            requests_failed=0,
            warmup_s=10.0,
            window_s=30.0,
            duration_s=40.0,
        ),
        effective=effective,
    )
