"""How much head-room the load generator has on this machine: the study's load on the built-in server double."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import numpy as np

from autotune.errors import NightStopped
from autotune.load.driver import run_load
from autotune.load.metrics import steady_figures
from autotune.load.sample import find_window, from_raw
from autotune.load.spec import LoadSpec
from autotune.study.file import Workload
from autotune.values import Value

FIRST_S = 0.05
START_S = 60.0
MIN_HEADROOM = 1.5
STREAM_TOK_S = 50.0
"""Of one stream, where neither a number of streams nor a rate says how many there are: a trace."""


class Headroom(Value, frozen=True, kw_only=True):
    """What the generator carried. ``asked_tok_s`` is the study's rate, ``seen_tok_s`` what came of it with this double.

    ``capacity_tok_s`` is what the workers would carry at 90 % of a core each, by their CPU time; ``headroom`` is that
    over the asked rate. The double needs a core of its own: where it is the slower one, ``seen_tok_s`` stays below
    the asked rate while the workers' CPU share is low.
    """

    workers: int
    asked_tok_s: float
    seen_tok_s: float
    cpu_share: float
    lag_typical_s: float
    lag_max_s: float
    capacity_tok_s: float
    headroom: float
    ttft_error_s: float | None
    itl_error_s: float | None

    @property
    def enough(self) -> bool:
        return self.headroom >= MIN_HEADROOM

    def __str__(self) -> str:
        verdict = "enough" if self.enough else "too little: raise workload.workers or use a machine with more cores"
        return (
            f"load generator: {self.workers} worker(s) carried {self.seen_tok_s:,.0f} tok/s at {self.cpu_share:.0%}"
            f" of a core; room for about {self.capacity_tok_s:,.0f} tok/s, {self.headroom:.1f} times the study's rate:"
            f" {verdict}"
        )


def self_test(workload: Workload, rate_tok_s: float, seconds: float = 5.0) -> Headroom:
    """Drive the double with the study's streams at ``rate_tok_s`` for a few seconds.

    Raises NightStopped when the double does not start.
    """
    streams = workload.concurrency or round(workload.request_rate) or max(1, round(rate_tok_s / STREAM_TOK_S))
    gap_s = streams / rate_tok_s
    times = {"min_s": seconds, "max_s": seconds, "warmup_max_s": seconds}
    load = msgspec.structs.replace(_plain(workload), arrival="closed", concurrency=streams, **times)
    with double(FIRST_S, gap_s) as url, tempfile.TemporaryDirectory() as folder:
        raw = run_load(LoadSpec(base_url=url, workload=load, seed=(0, 0, 0), folder=folder))
    sample = from_raw(raw)
    window = find_window(sample, load)
    figures = steady_figures(sample, window, {}) if window else {}
    client = raw.meta.client
    seen = figures.get("output_throughput_tok_s", 0.0)
    used = sum(client.cpu_share)
    capacity = seen / used * 0.9 * len(client.cpu_share) if used > 0 else 0.0
    return Headroom(
        workers=len(client.cpu_share),
        asked_tok_s=rate_tok_s,
        seen_tok_s=seen,
        cpu_share=max(client.cpu_share, default=0.0),
        lag_typical_s=max(client.lag_typical_s, default=0.0),
        lag_max_s=max(client.lag_max_s, default=0.0),
        capacity_tok_s=capacity,
        headroom=capacity / rate_tok_s,
        ttft_error_s=figures["ttft_p50_s"] - FIRST_S if workload.stream and "ttft_p50_s" in figures else None,
        itl_error_s=float(np.abs(sample.gap_values - gap_s).mean()) if len(sample.gap_values) else None,
    )


def _plain(workload: Workload) -> Workload:
    """Streams of the same shape without the dataset: what a prompt says costs the client nothing."""
    return msgspec.structs.replace(workload, kind="random") if workload.from_file else workload


@contextlib.contextmanager
def double(first_s: float, gap_s: float, *flags: str) -> Iterator[str]:
    """The server double as a process: first token after ``first_s``, then one every ``gap_s``; yields its URL."""
    with simulator("--sim-schedule", f"{first_s * 1e3:g}:{gap_s * 1e3:g}", *flags) as url:
        yield url


@contextlib.contextmanager
def simulator(*flags: str) -> Iterator[str]:
    """The simulated server as a process with these flags, ready to answer; yields its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "autotune.sim", "--port", str(port), *flags]
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "double.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        url = f"http://127.0.0.1:{port}"
        try:
            _wait_ready(url, process)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(timeout=5.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    body = {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 1}}
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if httpx.post(f"{url}/generate", json=body, timeout=5.0, trust_env=False).status_code == 200:
                return
        time.sleep(0.05)
    raise NightStopped("the built-in server double does not start: run `python -m autotune.sim --sim-schedule 50:25`")
