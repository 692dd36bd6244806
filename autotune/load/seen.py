"""What the gates look at, and where they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autotune.engines.base import Counters
from autotune.load.records import RawRun
from autotune.load.sample import Sample, Window
from autotune.study.file import Workload
from autotune.values import Finding, Value


class GateLimits(Value, frozen=True, kw_only=True):
    """Where the gates are. Shares are of 1; a ``note`` limit remarks, the other refuses."""

    cpu_share: float = 0.9
    lag_typical_s: float = 0.05
    late_s: float = 0.25
    in_flight_share: float = 0.95
    output_lengths_share: float = 0.0
    prompt_tokens_share: float = 0.02
    starved_share: float = 0.05
    starved_times: float = 2.0
    accounted_share: float = 0.4
    retractions_note: float = 0.05
    retractions: float = 0.5
    counters_share: float = 0.02
    requests: int = 8
    generations: float = 0.5
    window_share: float = 0.5
    drift_note: float = 0.05
    drift: float = 0.15
    host_busy_note: float = 0.2
    host_busy: float = 0.5
    throttled_note: float = 0.05
    throttled: float = 0.5


class Surroundings(Value, frozen=True, kw_only=True):
    """What the caller saw around the load; None: not known.

    ``before`` and ``after`` are the server's own counters. ``host_busy`` is the share of the host's CPU taken by others
    (0 to 1), ``throttled`` the share of the load in which the GPU's clocks were held down, ``gpu_others`` names
    processes of others on the GPUs, ``gpu_free_share`` is the least share of a GPU's memory that was free.
    """

    before: Counters | None = None
    after: Counters | None = None
    host_busy: float | None = None
    throttled: float | None = None
    gpu_others: tuple[str, ...] = ()
    gpu_free_share: float | None = None


@dataclass(frozen=True, kw_only=True)
class Seen:
    """All that a gate may look at."""

    raw: RawRun
    sample: Sample
    window: Window | None
    workload: Workload
    around: Surroundings
    limits: GateLimits


def gain(around: Surroundings, field: Callable[[Counters], int | None]) -> int | None:
    """How much one of the server's counters grew over the load; None where it is not known."""
    if around.before is None or around.after is None:
        return None
    before, after = field(around.before), field(around.after)
    return None if before is None or after is None else after - before


def fatal(gate: str, message: str, seen: float, limit: float) -> Finding:
    """A finding that refuses the load."""
    return Finding(gate=gate, message=message, fatal=True, seen=seen, limit=limit)
