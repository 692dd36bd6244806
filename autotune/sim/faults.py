"""Faults of the simulated server: what goes wrong, at which stage, and how it is asked for.

``--sim-fault NAME`` or ``--sim-fault NAME=ARGUMENT``, repeatable; ``--sim-fault-rate R`` gives a share R of the
starts one random fault of ``SOAK``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from autotune.errors import InputError
from autotune.values import Stage, Value


class Fault(Value, frozen=True, kw_only=True):
    """``default`` is the argument when none is given; empty where the fault takes none."""

    stage: Stage
    default: str = ""
    meaning: str


FAULTS: dict[str, Fault] = {
    "slow_start": Fault(stage="weights", default="30", meaning="loads for S more seconds, with progress in the log"),
    "hang_start": Fault(stage="weights", default="weights", meaning="falls silent at a stage of the start and stays"),
    "exit_start": Fault(stage="launch", default="1", meaning="exits with this code before loading"),
    "die_start": Fault(stage="weights", default="weights", meaning="SIGKILLs itself at a stage of the start"),
    "oom_weights": Fault(stage="weights", meaning="CUDA out of memory while loading weights"),
    "oom_kv": Fault(stage="kv_pool", meaning="CUDA out of memory while allocating the KV pool"),
    "no_kv": Fault(stage="kv_pool", meaning="the weights leave no room: increase --mem-fraction-static"),
    "oom_graph": Fault(stage="graph_capture", meaning="CUDA out of memory while capturing graphs"),
    "oom_load": Fault(stage="load", meaning="CUDA out of memory at the first load"),
    "oom_host": Fault(stage="weights", meaning="the scheduler is killed by the host's memory"),
    "nccl": Fault(stage="launch", meaning="NCCL cannot initialise"),
    "kernel_error": Fault(stage="load", meaning="illegal memory access at the first load"),
    "warmup_error": Fault(stage="warmup", meaning="the server's own warm-up request fails and it ends"),
    "port_taken": Fault(stage="warmup", meaning="the port is found taken after the model was loaded"),
    "lying_health": Fault(stage="launch", meaning="/health answers 200 from the first moment, long before ready"),
    "death_under_load": Fault(stage="load", default="1", meaning="SIGKILLs itself after S seconds of load"),
    "scheduler_dead": Fault(stage="load", meaning="healthy front end, but no request ever gets a token"),
    "hang_load": Fault(stage="load", default="1", meaning="tokens stop after S seconds of load, /health stays 200"),
    "hang_front": Fault(stage="load", default="1", meaning="nothing answers after S seconds of load, /health neither"),
    "crawl": Fault(stage="load", default="50", meaning="every step takes this many times as long"),
    "empty": Fault(stage="load", meaning="status 200 without a single token"),
    "error_stream": Fault(stage="load", meaning="status 200 and an error chunk after the first token"),
    "short_output": Fault(stage="load", default="0.5", meaning="ends after this share of the requested output"),
    "wrong_usage": Fault(stage="load", default="2", meaning="reports this many times the tokens that it sends"),
    "drift": Fault(stage="load", default="0.5", meaning="every step becomes slower by this share per minute"),
    "retract": Fault(stage="load", default="0.3", meaning="sends this share of the batch back every 20 steps"),
    "prefix_cache": Fault(stage="load", meaning="serves every prompt from the cache, whatever the flags say"),
    "flood_log": Fault(stage="load", default="5", meaning="writes this many MB of log per second"),
    "ignored_flag": Fault(stage="launch", default="max_running_requests", meaning="accepts a flag and ignores it"),
    "live_refused": Fault(stage="load", meaning="takes no running limit while it serves"),
    "live_ignored": Fault(
        stage="load", meaning="reads back a running limit that it was told, and runs as many as before"
    ),
    "live_death": Fault(
        stage="load", default="0.5", meaning="SIGKILLs itself S seconds after it was told a running limit"
    ),
    "deaf": Fault(stage="stop", meaning="ignores SIGTERM and SIGINT"),
    "child_left": Fault(stage="stop", default="600", meaning="leaves a child in its own session for S seconds"),
    "stale_port": Fault(stage="stop", default="600", meaning="a child keeps the listening socket for S seconds"),
    "gpu_leak": Fault(stage="stop", meaning="the memory in --sim-gpu-file never returns to its baseline"),
    "linger": Fault(stage="stop", default="60", meaning="after a crash the process stays for S seconds, as SGLang's"),
}

# Faults of the random kind: each ends or disturbs one trial in seconds and needs no cleaning by a person.
SOAK: tuple[str, ...] = (
    "exit_start=1",
    "die_start=weights",
    "oom_kv",
    "oom_graph",
    "oom_load",
    "kernel_error",
    "warmup_error",
    "port_taken",
    "death_under_load=0.5",
    "hang_load=0.5",
    "empty",
    "error_stream",
    "short_output=0.5",
    "deaf",
    "child_left=120",
    "slow_start=1",
    "lying_health",
)


class FaultPlan(Value, frozen=True, kw_only=True):
    """The faults of one start, name to argument text."""

    active: dict[str, str] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.active

    def __bool__(self) -> bool:
        return bool(self.active)

    def text(self, name: str) -> str:
        return self.active[name]

    def number(self, name: str) -> float | None:
        """The argument as a number, None where the fault is not active."""
        return float(self.active[name]) if name in self.active else None


def parse_faults(items: Sequence[str]) -> FaultPlan:
    """Turn ``NAME[=ARGUMENT]`` texts into a plan. Raises InputError for an unknown name or a bad number."""
    active: dict[str, str] = {}
    for item in items:
        name, _, argument = item.partition("=")
        name = name.replace("-", "_")
        if name not in FAULTS:
            raise InputError(f"--sim-fault: no fault {name!r}; choose one of {', '.join(FAULTS)}")
        default = FAULTS[name].default
        active[name] = argument or default
        if default.replace(".", "").isdigit():
            _check_number(name, active[name])
    return FaultPlan(active=active)


def with_random_fault(plan: FaultPlan, rate: float, rng: random.Random) -> FaultPlan:
    """A plan in which, with probability ``rate``, one fault of ``SOAK`` was added."""
    if rng.random() >= rate:
        return plan
    drawn = parse_faults([rng.choice(SOAK)])
    return FaultPlan(active={**drawn.active, **plan.active})


def _check_number(name: str, text: str) -> None:
    try:
        float(text)
    except ValueError:
        raise InputError(f"--sim-fault {name}: {text!r} is not a number; write for example {name}=2") from None
