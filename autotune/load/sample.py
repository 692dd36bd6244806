"""One view of a load's requests, the same for a running load (heartbeats) and a finished one (raw records).

Both find the steady window and the metric's interval by these functions, so the load ends on the figure that is
reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autotune.load.records import CANCELLED, FAILED, RawRun
from autotune.load.stats import batch_length
from autotune.load.timeline import BIN_S, Floats, edges_between, generation_end, span_counts, step_counts, window_start
from autotune.study.file import Workload

Bools = NDArray[np.bool_]
_EMPTY: Floats = np.empty(0)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Finished requests (arrays of one length) and the output-token counter.

    ``output(edges)`` gives the tokens between each pair of edges, right up to ``end``. ``gap_*`` are the gaps between
    chunks: when they ended, seconds per token, and for how many tokens; empty while a load is running.
    """

    end: float
    send: Floats
    first: Floats
    done: Floats
    ok: Bools
    tokens_in: Floats
    tokens_out: Floats
    output: Callable[[Floats], Floats]
    gap_times: Floats = field(default_factory=lambda: _EMPTY)
    gap_values: Floats = field(default_factory=lambda: _EMPTY)
    gap_weights: Floats = field(default_factory=lambda: _EMPTY)


@dataclass(frozen=True, kw_only=True)
class Window:
    """The steady part of a load: ``bin_s`` divides a wave evenly; ``period`` is a wave in bins (0: none)."""

    start: float
    end: float
    bin_s: float
    period: int

    @property
    def length_s(self) -> float:
        return self.end - self.start

    def edges(self) -> Floats:
        return edges_between(self.start, self.end, self.bin_s)


def from_raw(raw: RawRun) -> Sample:
    """The sample of a finished load. It ends where the in-flight count begins to fall."""
    table = raw.requests
    over = table["state"] != CANCELLED
    finished = table[over]
    gaps = _gaps(raw)
    return Sample(
        end=_steady_end(raw),
        send=finished["send"],
        first=finished["first"],
        done=finished["end"],
        ok=raw.ok[over],
        tokens_in=finished["prompt_tokens"].astype(np.float64),
        tokens_out=finished["output_tokens"].astype(np.float64),
        output=_output(raw),
        gap_times=gaps[0],
        gap_values=gaps[1],
        gap_weights=gaps[2],
    )


def wave_s(sample: Sample, workload: Workload) -> float:
    """Length of the waves in which a closed loop's requests come: their median latency. 0: open loop, no waves."""
    if not workload.closed or not sample.ok.any():
        return 0.0
    wave = float(np.median((sample.done - sample.send)[sample.ok]))
    return wave if wave >= 2 * BIN_S else 0.0


def earliest_start(sample: Sample, workload: Workload) -> float:
    """When one full generation of requests has been answered at the load's own concurrency; infinity: not yet."""
    if workload.closed:
        return generation_end(sample.done, workload.concurrency)
    if not sample.ok.any():
        return math.inf
    return float(sample.send.min() + 2 * np.median((sample.done - sample.send)[sample.ok]))


def find_window(sample: Sample, workload: Workload) -> Window | None:
    """The steady window so far, or None while there is none.

    It begins after the first generation (or when the warm-up has taken ``warmup_max_s``) and once throughput no
    longer trends, and spans whole waves. That of a trace is a fixed stretch of it, from ``warmup_max_s`` on and
    ``max_s`` long: what is asked differs along the way, so every server must be judged by the same part.
    """
    if workload.kind == "trace":
        return _trace_window(sample, workload)
    earliest = min(earliest_start(sample, workload), workload.warmup_max_s)
    if sample.end - earliest < 2 * BIN_S:
        return None
    wave = wave_s(sample, workload)
    bin_s = wave / round(wave / BIN_S) if wave else BIN_S
    period = round(wave / bin_s) if wave else 0
    edges = edges_between(earliest, sample.end, bin_s)
    if len(edges) < 3:
        return None
    rates = sample.output(edges) / bin_s
    start = window_start(rates, float(edges[0]), workload.warmup_max_s, period, bin_s)
    waves = math.floor((sample.end - start) / wave + 1e-6) if wave else 0
    if wave and not waves:
        # Requests that begin together prefill together: a part of a wave says nothing of the whole.
        return None
    if waves:
        start = sample.end - waves * wave
    return Window(start=start, end=sample.end, bin_s=bin_s, period=period)


def _trace_window(sample: Sample, workload: Workload) -> Window | None:
    start, end = workload.warmup_max_s, min(sample.end, workload.warmup_max_s + workload.max_s)
    return Window(start=start, end=end, bin_s=BIN_S, period=0) if end - start >= 2 * BIN_S else None


def batch_edges(sample: Sample, window: Window) -> Floats:
    """Edges of independent batches of the window, judged on its output tokens."""
    edges = window.edges()
    length = batch_length(sample.output(edges), window.period)
    return edges[::-1][::length][::-1]


def _steady_end(raw: RawRun) -> float:
    table = raw.requests
    cut = table["state"] == CANCELLED
    if cut.any():
        return float(table["end"][cut].min() if raw.meta.stream else table["send"][cut].min())
    return float(table["send"].max()) if len(table) else 0.0


def _output(raw: RawRun) -> Callable[[Floats], Floats]:
    table = raw.requests
    if not raw.meta.stream:
        rows = table[raw.ok]
        spans = rows["send"], rows["end"], rows["output_tokens"].astype(np.float64)
        return lambda edges: span_counts(*spans, edges)
    counted = (table["state"] != FAILED)[raw.chunk_owner]
    times, gains = raw.chunk_times[counted], raw.chunk_gains()[counted].astype(np.float64)
    return lambda edges: step_counts(times, gains, edges)


def _gaps(raw: RawRun) -> tuple[Floats, Floats, Floats]:
    """Gaps between successive chunks of the successful requests: (end time, seconds per token, tokens)."""
    if not raw.meta.stream or len(raw.chunk_times) < 2:
        return _EMPTY, _EMPTY, _EMPTY
    owner, gains = raw.chunk_owner, raw.chunk_gains()
    inside = (owner[1:] == owner[:-1]) & raw.ok[owner[1:]] & (gains[1:] > 0)
    gained = gains[1:][inside].astype(np.float64)
    return raw.chunk_times[1:][inside], np.diff(raw.chunk_times)[inside] / gained, gained
