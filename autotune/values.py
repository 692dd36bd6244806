"""The values that flow through a night. Frozen, typed, serialisable; no logic that does I/O.

Units are in the names: ``_s`` seconds, ``_tok_s`` tokens per second, ``_tokens`` tokens.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

ParamValue = bool | int | float | str

FailureKind = Literal[
    "oom_weights",
    "oom_kv",
    "oom_graph",
    "oom_runtime",
    "oom_host",
    "invalid_config",
    "port_in_use",
    "nccl",
    "kernel_error",
    "hang",
    "env_error",
    "crash_other",
    "bench_failed",
]
Stage = Literal["launch", "weights", "kv_pool", "graph_capture", "warmup", "load", "stop"]


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of every record that is written to or read from disk."""


class Config(Value, frozen=True, kw_only=True):
    """What one trial asks of the server. A parameter that is absent is left to the engine's default.

    The baseline is ``Config(params={})``.
    """

    params: dict[str, ParamValue]

    def key(self) -> str:
        """Canonical text: equal configs, and only they, have equal keys."""
        return msgspec.json.encode(self.params, order="sorted").decode()


class Wrapper(Value, frozen=True, kw_only=True):
    """Where the server runs: on this machine, or behind another program that starts it there.

    ``kind`` is local, docker, podman, srun or ssh. ``program`` is that program, empty for its own name; ``options`` are
    added to its arguments. ``image``, ``gpus`` (all, or numbers such as "0,1"; empty: none) and ``network`` (host, or
    bridge with the port published) are for containers, ``destination`` is where ssh goes. ``address`` is where the
    server is reached when that is neither this machine nor a port that ssh forwards (srun, ssh).
    """

    kind: str = "local"
    program: str = ""
    options: tuple[str, ...] = ()
    image: str = ""
    gpus: str = "all"
    network: Literal["host", "bridge"] = "host"
    destination: str = ""
    address: str = ""


class LaunchPlan(Value, frozen=True, kw_only=True):
    """How a server is started. The same value launches the trial and is rendered by export.

    ``argv`` is the server's own command line, wherever ``wrapper`` puts it; ``host`` is where it is reached.
    Where it is ``scripted``, ``argv`` is an exported script, which starts the wrapper itself under a name from its
    environment.

    ``env`` holds literal, non-secret settings. ``secret_env`` names variables whose values are taken
    from the tuner's environment when the server starts; their values are never stored.
    """

    engine: str
    argv: tuple[str, ...]
    host: str
    port: int
    env: dict[str, str] = {}
    secret_env: tuple[str, ...] = ()
    api_key_env: str | None = None
    model_name: str = "default"
    wrapper: Wrapper = Wrapper()
    scripted: bool = False

    @property
    def base_url(self) -> str:
        return f"http://{self.host}:{self.port}"


class Effective(Value, frozen=True, kw_only=True):
    """The values in force, as the server itself reports them (totals over data-parallel ranks).

    ``values`` maps parameter names of the search space to the value in force, as far as known.
    ``source`` says where they were read: ``server_info``, ``log``, ``metrics`` or ``none``.
    """

    source: str
    version: str = ""
    kv_tokens: int | None = None
    running_limit: int | None = None
    graph_max_batch: int | None = None
    values: dict[str, ParamValue] = {}
    gpu_memory_gb: dict[str, float] = {}

    def key(self) -> str:
        """Configs whose keys are equal (and not empty) are the same server."""
        return msgspec.json.encode(self.values, order="sorted").decode() if self.values else ""


class Estimate(Value, frozen=True, kw_only=True):
    """A value with its own uncertainty. ``stderr`` is the standard error within one server start."""

    value: float
    stderr: float
    batches: int


class Finding(Value, frozen=True, kw_only=True):
    """What one validity gate saw. ``fatal`` refuses the measurement; otherwise it is a note."""

    gate: str
    message: str
    fatal: bool
    seen: float | None = None
    limit: float | None = None


class Measurement(Value, frozen=True, kw_only=True):
    """One load on one server start, reduced from the raw records.

    ``whole`` has the figures of the whole run by the definitions of sglang.bench_serving, ``steady``
    those of the window without ramp-up and drain; both map metric names to floats, for example
    ``output_throughput_tok_s``, ``request_throughput_req_s``, ``ttft_p99_s``, ``tpot_mean_s``.
    ``estimates`` holds, for the metrics of the steady window that support it, value and standard error.
    ``gpu_free_share`` is the least share of a GPU's memory that was free while it ran, None: not known.
    """

    whole: dict[str, float]
    steady: dict[str, float]
    estimates: dict[str, Estimate]
    requests_completed: int
    requests_failed: int
    warmup_s: float
    window_s: float
    duration_s: float
    findings: tuple[Finding, ...] = ()
    gpu_free_share: float | None = None

    @property
    def refused(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.fatal)


class Diagnosis(Value, frozen=True, kw_only=True):
    """Why a server is not serving. Serialised with the keys ``class``, ``action``, ``evidence``, ``advice``."""

    kind: str = msgspec.field(name="class")
    action: Literal["prune", "retry", "stop", "discard", "score", "score_flag", "wait"]
    evidence: tuple[str, ...] = ()
    advice: str = ""
    stage: str | None = None


class LevelFigures(Value, frozen=True, kw_only=True):
    """The steady figures of a load at one concurrency; ``refused`` names the gates that it did not pass."""

    concurrency: int
    steady: dict[str, float]
    refused: tuple[str, ...] = ()


class LiveFigures(Value, frozen=True, kw_only=True):
    """A load of a server that runs on at a smaller running limit, set without a restart.

    ``limit`` was in force as the server read it back. ``score`` and ``steady`` are as of a trial, ``refused`` names the
    gates that the load did not pass, ``load_s`` is what it took, from setting the limit to its figures.
    """

    limit: int
    score: Estimate
    steady: dict[str, float]
    refused: tuple[str, ...] = ()
    load_s: float


class Measured(Value, frozen=True, kw_only=True, tag="measured"):
    """The trial has a score. ``score`` is the objective's value (greater is better unless it says minimise).

    ``curve`` has all loads of the start where there were several, by concurrency; ``measurement`` is the one that
    answers the objective. ``live`` are later loads of the same start at smaller running limits; the score is never
    one of theirs. ``stopped_early``: the load was ended because it was losing. ``course`` has the score as the load
    went on, as pairs of seconds of steady window and value.
    """

    score: Estimate
    measurement: Measurement
    effective: Effective
    stopped_early: bool = False
    curve: tuple[LevelFigures, ...] = ()
    live: tuple[LiveFigures, ...] = ()
    course: tuple[tuple[float, float], ...] = ()


class Infeasible(Value, frozen=True, kw_only=True, tag="infeasible"):
    """These parameters cannot be served. Told to Optuna as PRUNED; never run again."""

    diagnosis: Diagnosis
    effective: Effective | None = None


class Refused(Value, frozen=True, kw_only=True, tag="refused"):
    """The server ran but the measurement is not valid (client saturated, failed requests): not a score."""

    findings: tuple[Finding, ...]
    measurement: Measurement | None = None
    effective: Effective | None = None


class Interrupted(Value, frozen=True, kw_only=True, tag="interrupted"):
    """The trial was cut off by something that says nothing about its parameters. Run again."""

    reason: str


Outcome = Measured | Infeasible | Refused | Interrupted


class Timings(Value, frozen=True, kw_only=True):
    """Where the time of one trial went, in seconds of a monotonic clock. ``live_s``: loads at other running limits."""

    prepare_s: float = 0.0
    start_s: float = 0.0
    load_s: float = 0.0
    live_s: float = 0.0
    stop_s: float = 0.0
    total_s: float = 0.0


class TrialResult(Value, frozen=True, kw_only=True):
    """The settled record of one trial, written atomically as ``result.json``.

    ``beside`` is the most other trials that ran at its side, on its host or in its cluster.
    """

    number: int
    config: Config
    outcome: Outcome
    timings: Timings
    started_at: str
    finished_at: str
    repeat_of: int | None = None
    beside: int = 0

    @property
    def began_s(self) -> float | None:
        """When it began, in seconds since 1970; None where no time is on record."""
        try:
            return datetime.fromisoformat(self.started_at).timestamp()
        except (ValueError, OverflowError):
            return None
