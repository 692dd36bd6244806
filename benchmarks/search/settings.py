"""The surfaces: the table, families of simulated servers, and settings drawn at random (development and held out)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import lru_cache

from msgspec.structs import replace

from autotune.search.region import Region
from autotune.sim.memory import default_chunk, resolve
from autotune.sim.profiles import QWEN3_30B_H200, profile
from autotune.sim.settings import SimSettings
from autotune.sim.virtual import VirtualLoad
from autotune.space.bounds import BoundInputs, derive_bounds
from autotune.space.files import load_space
from autotune.space.kv import KvCapacity, Room, stated_kv_capacity
from autotune.study.file import ParameterOverride, Workload
from autotune.values import Config, ParamValue
from benchmarks.search.records import fitted, read_records
from benchmarks.search.surfaces import TPOT, SimSurface, Surface, Twist
from benchmarks.search.table import TableSurface

RUN, GRAPH, MEM, CHUNK = "max_running_requests", "cuda_graph_max_bs", "mem_fraction_static", "chunked_prefill_size"
PREFILL, CONSERVATIVE = "max_prefill_tokens", "schedule_conservativeness"
# In this order parameters are added: dimensions 2 to 6.
ORDER = (RUN, GRAPH, MEM, CHUNK, CONSERVATIVE, PREFILL)
SPACE = load_space("sglang")
HELD_OUT_FROM = 100_000
LARGEST_FRACTION = 0.88
LIMIT = "time per token limited"
LIMITED_PLACES = (0.5, 0.85)
# Families that come with a limit on the time per token too, and where in the range of running limits it binds.
LIMITED = {"MoE": 0.7, "dense, small KV": 0.75, "dense, large KV": 0.6, "MoE on eight GPUs": 0.75, "flat optimum": 0.6}


def named_surfaces() -> list[Surface]:
    """The table, the records and the simulator's families."""
    return [table(), from_records(), *families()]


def surface_of(key: str) -> Surface:
    """The surface of that name: one of the families, ``setting N`` at random, or ``limited setting N``."""
    name, _, number = key.rpartition("setting ")
    if not number.isdigit():
        return next(s for s in (*named_surfaces(), *limited_surfaces()) if s.name == key)
    surface = random_surface(int(number))
    return limited(surface, random.Random(key).uniform(*LIMITED_PLACES)) if name else surface


@lru_cache(maxsize=1)
def limited_surfaces() -> tuple[Surface, ...]:
    """Families whose best running limit lies inside, since a longer time per token is not allowed."""
    named = {surface.name: surface for surface in families()}
    return tuple(limited(named[name], place) for name, place in LIMITED.items())


def limited(surface: SimSurface, place: float) -> SimSurface:
    """The same with a limit on the mean time per token: that of the running limit at ``place`` of its range, 0 to 1,
    graphs up to it and all else as the default start has it.
    """
    axes = {axis.name: axis for axis in surface.region.axes()}
    share = next((name for name in axes if name.startswith(GRAPH)), None)
    point = {RUN: axes[RUN].at(place), **({share: axes[share].at(1.0)} if share else {})}
    truth = surface.truth(surface.region.config(point)) or surface.truth(Config(params={}))
    assert truth is not None
    return replace(
        surface,
        name=f"{surface.name}, {LIMIT}",
        family=f"{surface.family}, {LIMIT}",
        limits={TPOT: round(1.02 * truth.tpot_s, 5)},
    )


def table() -> TableSurface:
    overrides = {MEM: ParameterOverride(low=0.80, high=0.985), RUN: ParameterOverride(low=128)}
    kv = stated_kv_capacity(669_932, "server")
    region = _region(ORDER[:4], VirtualLoad(concurrency=2048), kv, overrides)
    return TableSurface(name="H200 table, 4 parameters", region=region)


@lru_cache(maxsize=1)
def from_records() -> Surface:
    """The table's machine again, with what the recorded nights of this project say of it."""
    found = fitted(table(), read_records())
    return replace(found, name="H200 records, 4 parameters", family="H200 records")


def families() -> list[SimSurface]:
    """Machines that differ in what limits them."""
    dense = replace(
        QWEN3_30B_H200, name="dense", experts=0, experts_per_token=0, expert_weights_s=0.0, step_base_s=0.014
    )
    latency = replace(dense, name="latency", step_base_s=0.060, decode_per_seq_s=0.000004)
    cliff = replace(QWEN3_30B_H200, name="cliff", auto_running_limit=256, eager_s=0.080, eager_per_seq_s=0.00005)
    flat = replace(dense, name="flat", step_base_s=0.004, decode_per_seq_s=0.00012, eager_s=0.004)
    large_kv = replace(dense, name="large KV", kv_bytes_per_token=1 << 19, auto_running_limit=32)
    hungry = replace(
        QWEN3_30B_H200,
        name="hungry",
        auto_running_limit=512,
        load_reserve_gb=9.0,
        load_per_graph_batch_gb=0.006,
        load_per_running_gb=0.002,
        load_per_chunk_token_gb=0.0004,
    )
    wide, long = VirtualLoad(concurrency=2048), VirtualLoad(concurrency=1024, input_tokens=512, output_tokens=512)
    return [
        simulated("MoE", QWEN3_30B_H200, wide, 3),
        simulated("dense, small KV", dense, wide, 4),
        simulated("dense, large KV", large_kv, long, 4),
        simulated("MoE on eight GPUs", profile("glm5-nvfp4"), wide, 3),
        simulated("latency-bound", latency, wide, 3),
        simulated("cliff at the graph ceiling", cliff, wide, 2),
        simulated("flat optimum", flat, wide, 4),
        simulated("OOM half of the space", hungry, wide, 4, mem=(0.80, 0.97)),
        simulated("demo", profile("demo"), VirtualLoad(concurrency=256, input_tokens=32, output_tokens=24), 2),
        replace(simulated("optimum inside", QWEN3_30B_H200, wide, 3), twist=Twist(peak=700.0, fall=0.35)),
    ]


def random_surface(number: int) -> SimSurface:
    """Setting ``number`` of the random ones; from ``HELD_OUT_FROM`` on they are held out of development."""
    chance = random.Random(f"setting {number}")
    dims = 2 + number % 5
    settings = _machine(chance, number)
    load = VirtualLoad(
        concurrency=chance.choice((256, 512, 1024, 2048)),
        input_tokens=chance.choice((64, 128, 256, 512, 1024)),
        output_tokens=chance.choice((64, 128, 256, 512)),
    )
    while not _sound(settings, load):
        settings = _machine(chance, number)
    twist = Twist()
    if chance.random() < 0.5:
        waves = tuple(
            (chance.uniform(0.01, 0.05), chance.uniform(0, 6.28), tuple(chance.gauss(0, 2.5) for _ in range(dims)))
            for _ in range(3)
        )
        peak = chance.choice((0.0, load.concurrency * chance.uniform(0.3, 1.0)))
        twist = Twist(waves=waves, peak=peak, fall=chance.uniform(0.05, 0.4))
    label = "held out" if number >= HELD_OUT_FROM else "development"
    name = f"{label} {number % HELD_OUT_FROM}, {dims} parameters"
    found = simulated(name, settings, load, dims, mem=(0.6, 0.97))
    return replace(found, family=f"{label} settings", twist=twist)


def _machine(chance: random.Random, number: int) -> SimSettings:
    gpu_gb = chance.choice((24.0, 48.0, 80.0, 96.0, 141.0))
    moe = chance.random() < 0.5
    per_seq_s = 10 ** chance.uniform(-5.3, -4.0)
    base_s = 10 ** chance.uniform(-2.4, -1.4)
    graph_gb = gpu_gb * 10 ** chance.uniform(-5.2, -4.4)
    return SimSettings(
        name=f"random {number}",
        gpu_total_gb=gpu_gb,
        gpu_free_gb=gpu_gb * 0.99,
        weight_gb=gpu_gb * chance.uniform(0.15, 0.65),
        kv_bytes_per_token=int(2 ** chance.uniform(14.5, 19.5)),
        context_tokens=chance.choice((4096, 8192, 32768, 40960)),
        auto_running_limit=chance.choice((None, None, 24, 64, 256)),
        graph_base_gb=0.1,
        graph_per_batch_gb=graph_gb,
        load_reserve_gb=gpu_gb * chance.uniform(0.01, 0.08),
        load_per_graph_batch_gb=graph_gb * chance.uniform(0.3, 5.0),
        load_per_chunk_token_gb=gpu_gb * 10 ** chance.uniform(-6.3, -5.3),
        load_per_running_gb=gpu_gb * 10 ** chance.uniform(-6.5, -5.0),
        experts=chance.choice((32, 128, 256)) if moe else 0,
        experts_per_token=8 if moe else 0,
        step_base_s=base_s * (0.4 if moe else 1.0),
        expert_weights_s=base_s * 0.6 if moe else 0.0,
        decode_per_seq_s=per_seq_s,
        decode_per_context_token_s=per_seq_s * 10 ** chance.uniform(-3.5, -2.5),
        eager_s=base_s * chance.uniform(0.3, 3.0),
        eager_per_seq_s=per_seq_s * chance.choice((0.0, 0.0, 0.5, 1.0)),
        prefill_base_s=base_s * chance.uniform(0.3, 1.0),
        prefill_per_token_s=per_seq_s * chance.uniform(0.05, 0.4),
        start_base_s=chance.choice((20.0, 60.0, 200.0)),
        capture_per_size_s=chance.uniform(0.1, 0.6),
    )


def _sound(settings: SimSettings, load: VirtualLoad) -> bool:
    """Whether the default start works, and a request fits it several times: what a user would begin to tune."""
    resolved = resolve(settings, {})
    return resolved.oom is None and resolved.limits.kv_tokens > 24 * (load.input_tokens + load.output_tokens)


def simulated(
    name: str, settings: SimSettings, load: VirtualLoad, dims: int, mem: tuple[float, float] = (0.7, 0.97)
) -> SimSurface:
    """A surface over the first ``dims`` parameters of ``ORDER``."""
    # The fraction stands on the command line, so that it does not move with the graphs and the chunk.
    fraction = min(resolve(settings, {}).mem_fraction, LARGEST_FRACTION)
    base: dict[str, ParamValue] = {MEM: fraction, CHUNK: default_chunk(settings.gpu_total_gb)}
    found = resolve(settings, base)
    overrides = {MEM: ParameterOverride(low=mem[0], high=mem[1])}
    weights = fraction * settings.weight_gb / (settings.weight_gb + found.kv_gb)
    room = Room(parameter=MEM, fraction=fraction, weights=weights)
    kv = stated_kv_capacity(found.limits.kv_tokens, "server", room)
    region = _region(ORDER[:dims], load, kv, overrides)
    return SimSurface(name=name, family=name, settings=settings, load=load, region=region, base=base)


def _region(
    names: tuple[str, ...], load: VirtualLoad, kv: KvCapacity, overrides: Mapping[str, ParameterOverride]
) -> Region:
    workload = Workload(input_tokens=load.input_tokens, output_tokens=load.output_tokens, concurrency=load.concurrency)
    inputs = BoundInputs(load=workload, parameters=names, overrides=overrides, kv=kv)
    return Region(space=SPACE, bounds=derive_bounds(SPACE, inputs))
