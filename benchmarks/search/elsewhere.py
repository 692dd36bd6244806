"""The same server somewhere else: another GPU, model size or engine version, and others that only look alike."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from autotune.sim.settings import SimSettings
from benchmarks.search.settings import random_surface, simulated
from benchmarks.search.surfaces import SimSurface, Twist

TIMES = (
    "step_base_s",
    "expert_weights_s",
    "decode_per_seq_s",
    "decode_per_context_token_s",
    "eager_s",
    "eager_per_seq_s",
    "prefill_base_s",
    "prefill_per_token_s",
)
FRACTIONS = (0.6, 0.97)
# Random settings whose number is a multiple of five have two parameters, the next three, and so on.
UNRELATED, FEWEST = 50, 2


def another_version(surface: SimSurface) -> SimSurface:
    """A release that is faster per sequence and slower without a graph."""
    machine = replace(surface.settings, decode_per_seq_s=0.85 * surface.settings.decode_per_seq_s)
    return _on(surface, replace(machine, eager_s=1.2 * machine.eager_s))


def another_gpu(surface: SimSurface) -> SimSurface:
    """A GPU with a quarter less memory and two thirds of the speed."""
    old = surface.settings
    total = max(0.75 * old.gpu_total_gb, old.weight_gb / 0.75)
    return _on(surface, replace(_slower(old, 1.5), gpu_total_gb=total, gpu_free_gb=0.99 * total))


def another_size(surface: SimSurface) -> SimSurface:
    """A model of half the weights, and of three quarters of the KV bytes a token."""
    old = surface.settings
    machine = replace(_slower(old, 0.55), weight_gb=0.5 * old.weight_gb)
    return _on(surface, replace(machine, kv_bytes_per_token=round(0.75 * old.kv_bytes_per_token)))


def misleading(surface: SimSurface) -> SimSurface:
    """A server that is best at small batches, where this one is best at large ones."""
    running = surface.region.bounds[0]
    bottom = (running.low or 1.0) * 1.5
    return replace(surface, name=f"{surface.name}, turned round", twist=Twist(peak=bottom, fall=1.2))


def unrelated(surface: SimSurface) -> SimSurface:
    """Another of the random settings, with as many parameters."""
    found = random_surface(UNRELATED + len(surface.region.bounds) - FEWEST)
    assert isinstance(found, SimSurface)
    return found


ELSEWHERE: dict[str, Callable[[SimSurface], SimSurface]] = {
    "the same server": lambda surface: surface,
    "another version": another_version,
    "another GPU": another_gpu,
    "another model size": another_size,
    "misleading: best at small batches": misleading,
    "misleading: another machine": unrelated,
}


def _slower(settings: SimSettings, times: float) -> SimSettings:
    return replace(settings, **{name: times * getattr(settings, name) for name in TIMES})


def _on(surface: SimSurface, settings: SimSettings) -> SimSurface:
    found = simulated(f"{surface.name}, elsewhere", settings, surface.load, len(surface.region.bounds), mem=FRACTIONS)
    return replace(found, twist=surface.twist)
