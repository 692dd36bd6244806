"""What is searched: servers in virtual time, each with its bounds, its noise-free truth and the price of a start."""

from __future__ import annotations

import math
import random
from typing import Protocol

import msgspec
from msgspec.structs import replace

from autotune.search.region import Region
from autotune.sim.memory import OomStage, Resolved, normalised, resolve
from autotune.sim.settings import SimSettings
from autotune.sim.virtual import SimResult, VirtualLoad, simulate, steady_state
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
    """A simulated server. ``base`` are flags that the study's command line sets.

    The truth is the mean over loads whose prompts and answers are ``lengths`` times as long: requests of one length
    march in step, and where a generation does not quite fit, throughput jumps by several per cent.
    """

    name: str
    family: str
    settings: SimSettings
    load: VirtualLoad
    region: Region
    base: dict[str, ParamValue] = {}
    twist: Twist = Twist()
    lengths: tuple[float, ...] = (1.0,)

    @property
    def request_tokens(self) -> float:
        return self.load.input_tokens + self.load.output_tokens / 2

    def start(self, config: Config, noise: float, seed: str) -> Start:
        chance = int.from_bytes(random.Random(seed).randbytes(6), "big")
        flags = {**self.base, **config.params}
        seen = simulate(self.settings, flags, self.load, chance, noise)
        resolved = resolve(self.settings, flags)
        factor = self._factor(config, seen)
        return Start(
            outcome=_outcome(self.settings, seen, resolved, factor),
            true_tok_s=None if seen.true_tok_s is None else seen.true_tok_s * factor,
            start_s=seen.start_s,
            load_s=seen.load_s + (NOTICED_S if seen.oom == "load" else 0.0),
        )

    def truth(self, config: Config) -> float | None:
        return self.start(config, 0.0, "").true_tok_s

    def _factor(self, config: Config, seen: SimResult) -> float:
        """The truth relative to that of the plain load."""
        if seen.true_tok_s is None:
            return 1.0
        factor = self._smoothed(config) / seen.true_tok_s
        if self.twist.waves or self.twist.peak:
            point = self.region.point({**_values(seen), **config.params})
            units = tuple(axis.unit(point[axis.name]) if axis.name in point else 0.5 for axis in self.region.axes())
            factor *= self.twist.factor(units, seen.running_limit)
        return factor

    def _smoothed(self, config: Config) -> float:
        flags = frozenset(normalised({**self.base, **config.params}).items())
        found = [steady_state(self.settings, flags, _longer(self.load, k)).throughput_tok_s for k in self.lengths]
        return sum(found) / len(found)


def _longer(load: VirtualLoad, times: float) -> VirtualLoad:
    return replace(load, input_tokens=round(load.input_tokens * times), output_tokens=round(load.output_tokens * times))


def _values(seen: SimResult) -> dict[str, ParamValue]:
    return {name: value for name, value in seen.effective.items() if name != "kv_tokens"}


def _outcome(settings: SimSettings, seen: SimResult, resolved: Resolved, factor: float) -> Outcome:
    """What the tuner is told. A server that dies before it is ready reports nothing about itself."""
    if seen.throughput_tok_s is None:
        return failure(seen.oom or "load")
    limits = resolved.limits
    effective = Effective(
        source="server_info",
        kv_tokens=seen.kv_tokens,
        running_limit=seen.running_limit,
        graph_max_batch=seen.graph_max_batch,
        values={
            **_values(seen),
            "chunked_prefill_size": limits.chunk_tokens,
            "max_prefill_tokens": limits.max_prefill_tokens,
            "schedule_conservativeness": limits.conservativeness,
        },
        gpu_memory_gb={
            "weight": round(settings.weight_gb, 2),
            "kvcache": round(resolved.kv_gb, 2),
            "graph": round(resolved.graph_gb, 2),
            "available": round(resolved.after_graphs_gb, 2),
        },
    )
    return success(seen.throughput_tok_s * factor, seen.stderr_tok_s * factor, effective)


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
