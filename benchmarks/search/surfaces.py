"""What is searched: servers in virtual time, each with its bounds, its noise-free truth and the price of a start."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Protocol

import msgspec

from autotune.search.region import Region
from autotune.sim.memory import OomStage, Resolved, normalised, resolve
from autotune.sim.settings import SimSettings
from autotune.sim.virtual import OOM_AT, VirtualLoad, lowered, start_seconds
from autotune.values import (
    Config,
    Diagnosis,
    Effective,
    Estimate,
    Infeasible,
    LiveFigures,
    Measured,
    Measurement,
    Outcome,
    ParamValue,
    Stage,
    Value,
)
from benchmarks.search.mixed import mixed_state

METRIC, TPOT = "output_throughput_tok_s", "tpot_mean_s"
# By how much loads at lowered limits are off a fresh start, one draw for each surface: the search has to learn it.
LIVE_OFF = 0.015
# Shares of a GPU: what is needed and no driver shows, one draw for each surface, and what an allocator holds without
# need, one for each start.
UNSEEN, ALLOCATOR = 0.006, 0.008
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


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration without noise: throughput, seconds per token, and by what share a limit is missed, 0.0: none."""

    tok_s: float
    tpot_s: float
    excess: float = 0.0


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One start and load: what a tuner is told, the truth (None: out of memory), and the wall clock that it took."""

    outcome: Outcome
    truth: Truth | None
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
    @property
    def limits(self) -> Mapping[str, float]:
        """Largest values of other figures, by metric."""
        ...

    def start(self, config: Config, noise: float, seed: str) -> Start: ...

    def live(self, config: Config, limit: int, noise: float, seed: str) -> LiveFigures:
        """One more load of the start with that seed, its running limit lowered."""
        ...

    def truth(self, config: Config) -> Truth | None: ...


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
    limits: dict[str, float] = {}

    @property
    def request_tokens(self) -> float:
        return self.load.input_tokens + self.load.output_tokens / 2

    def start(self, config: Config, noise: float, seed: str) -> Start:
        resolved = resolve(self.settings, {**self.base, **config.params})
        draw = Draw.of(noise, seed)
        start_s = start_seconds(self.settings, resolved) * draw.start
        if resolved.oom:
            load_s = self.load.death_s + NOTICED_S if resolved.oom == "load" else 0.0
            lost_s = start_s * OOM_AT[resolved.oom]
            return Start(outcome=failure(resolved.oom), truth=None, start_s=lost_s, load_s=load_s)
        true = self._true(config, resolved)
        score, steady = draw.seen(true, draw.within)
        free = draw.free(self.name, resolved.left_gb(self.settings) / self.settings.gpu_total_gb)
        outcome = success(score, steady, _effective(self.settings, resolved), free)
        return Start(outcome=outcome, truth=true, start_s=start_s, load_s=self.load.duration_s)

    def live(self, config: Config, limit: int, noise: float, seed: str) -> LiveFigures:
        resolved = resolve(self.settings, {**self.base, **config.params})
        true = self._true(config, resolved, limit)
        return live_figures(self.name, limit, true, (noise, seed, self.load.duration_s))

    def truth(self, config: Config) -> Truth | None:
        return self.start(config, 0.0, "").truth

    def _true(self, config: Config, resolved: Resolved, limit: int = 0) -> Truth:
        flags = frozenset(normalised({**self.base, **config.params}).items())
        state = mixed_state(self.settings, flags, self.load, limit)
        factor = self._twisted(config, lowered(resolved, limit)) if self.twist.waves or self.twist.peak else 1.0
        tpot_s = state.tpot_mean_s / factor
        most = self.limits.get(TPOT)
        excess = max(0.0, tpot_s / most - 1.0) if most else 0.0
        return Truth(tok_s=state.throughput_tok_s * factor, tpot_s=tpot_s, excess=excess)

    def _twisted(self, config: Config, resolved: Resolved) -> float:
        # More than there are clients never run, whatever the limit.
        running = min(resolved.limits.running, self.load.concurrency)
        point = self.region.point({**_values(resolved), **config.params, "max_running_requests": running})
        units = tuple(axis.unit(point[axis.name]) if axis.name in point else 0.5 for axis in self.region.axes())
        return self.twist.factor(units, running)


class Draw(msgspec.Struct, frozen=True, kw_only=True):
    """The chance of one start: factors of its time and of its throughput, and the error within it, relative; and the
    share of a GPU that its allocator holds without need.
    """

    start: float
    between: float
    within: float
    chance: float
    kept_back: float

    @classmethod
    def of(cls, noise: float, seed: str) -> Draw:
        chance = random.Random(seed)
        start = 1.0 + 0.05 * chance.random()
        between = math.exp(chance.gauss(0.0, noise))
        own, kept_back = chance.gauss(0, 1), abs(chance.gauss(0.0, ALLOCATOR))
        return cls(start=start, between=between, within=noise / 4, chance=own, kept_back=kept_back)

    def free(self, name: str, left: float) -> float:
        """What a driver shows free of a GPU, as a share, where ``left`` is what could still be had."""
        unseen = abs(random.Random(f"unseen memory of {name}").gauss(0.0, UNSEEN))
        return max(0.0, left + unseen - self.kept_back)

    def seen(self, true: Truth, within: float) -> tuple[Estimate, dict[str, float]]:
        """Score and figures of the start's own load."""
        return _seen(true, self.between * (1.0 + self.chance * within), within)


def live_figures(name: str, limit: int, true: Truth, start: tuple[float, str, float]) -> LiveFigures:
    """A load of a start (noise, seed, seconds of a load) at a lowered limit: off by what lowered loads of this surface
    are off, and with an error of its own.
    """
    noise, seed, seconds = start
    off = math.exp(random.Random(f"live loads of {name}").gauss(0.0, LIVE_OFF))
    own = 1.0 + random.Random(f"{seed}|{limit}").gauss(0.0, noise / 4)
    score, steady = _seen(true, Draw.of(noise, seed).between * off * own, noise / 4)
    return LiveFigures(limit=limit, score=score, steady=steady, load_s=seconds)


def _seen(true: Truth, factor: float, within: float) -> tuple[Estimate, dict[str, float]]:
    value = true.tok_s * factor
    score = Estimate(value=value, stderr=true.tok_s * within, batches=10)
    return score, {METRIC: value, TPOT: true.tpot_s / factor}


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


def success(
    score: Estimate, steady: dict[str, float], effective: Effective, gpu_free_share: float | None = None
) -> Measured:
    """A measured throughput; ``gpu_free_share`` is the share of a GPU that the load left."""
    return Measured(
        score=score,
        measurement=Measurement(
            whole={},
            steady=steady,
            estimates={},
            requests_completed=1000,
            requests_failed=0,
            warmup_s=10.0,
            window_s=30.0,
            duration_s=40.0,
            gpu_free_share=gpu_free_share,
        ),
        effective=effective,
    )
