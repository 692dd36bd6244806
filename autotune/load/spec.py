"""The values between the caller, the driver and the workers of one load."""

from __future__ import annotations

from pathlib import Path

import msgspec

from autotune.errors import InputError
from autotune.load.dataset.stored import Dataset, open_stored
from autotune.study.file import Workload
from autotune.values import Estimate, Value


class LoadSpec(Value, frozen=True, kw_only=True):
    """One load on one running server.

    ``seed`` is the words (study seed, trial, repeat): other words, other prompts. ``metric`` is the figure
    whose interval ends the load. ``requests`` above 0 sends just so many and waits for the last reply, as
    ``sglang.bench_serving`` does; 0 runs until the interval is narrow enough. ``slo`` is the objective's constraints.
    ``dataset`` is the folder of a stored dataset, where the workload has one; ``first`` is the index of the first
    request: what earlier loads of the same server have asked is not asked again while the dataset lasts.
    ``folder`` receives the raw records. The key is handed to the workers over a pipe; it is in no file and on no
    command line.
    """

    base_url: str
    workload: Workload
    seed: tuple[int, ...]
    folder: str
    dataset: str = ""
    first: int = 0
    api_key: str = ""
    model: str = "default"
    level: str = "0"
    metric: str = "output_throughput_tok_s"
    slo: dict[str, float] = {}
    requests: int = 0
    request_timeout_s: float = 600.0


def stored_dataset(load: LoadSpec) -> Dataset | None:
    """The dataset of a load. Raises InputError where it has gone."""
    if not load.dataset:
        return None
    dataset = open_stored(Path(load.dataset))
    if dataset is None:
        raise InputError(f"{load.dataset}: the stored dataset is gone or damaged; run the same command again")
    return dataset


class WorkerSpec(Value, frozen=True, kw_only=True):
    """What one worker process reads from stdin: its share of the load. ``raw_path`` is where it writes its records."""

    load: LoadSpec
    worker: int
    workers: int
    raw_path: str


class Done(msgspec.Struct, frozen=True, array_like=True):
    """One finished request, as a heartbeat carries it; times are ``time.monotonic`` seconds (one clock per machine)."""

    send: float
    first: float
    end: float
    prompt_tokens: int
    output_tokens: int
    ok: bool


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says every quarter of a second; ``ticks`` are (time, output tokens so far)."""

    now: float
    ticks: list[tuple[float, int]]
    done: list[Done]
    events: int
    in_flight: int
    completed: int
    failed: int
    oldest_send: float
    last_token: float
    lag_max_s: float
    late_max_s: float
    cpu_s: float
    finished: bool = False
    last_error: str = ""


class Progress(Value, frozen=True, kw_only=True):
    """How a load stands. ``silent_s`` is the time since the last token of any stream, ``estimate`` the metric."""

    elapsed_s: float
    phase: str
    output_tokens: int
    throughput_tok_s: float
    in_flight: int
    completed: int
    failed: int
    silent_s: float
    window_s: float
    estimate: Estimate | None = None
    half_width: float | None = None
    last_error: str = ""
