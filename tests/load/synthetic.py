"""Loads that never ran: raw records with known figures."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from autotune.load.records import CANCELLED, OK, REQUESTS, ClientHealth, Meta, RawRun


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A closed loop in which every request takes the same steps; ``jitter`` is the relative noise of each token gap.

    ``slope`` makes every gap longer by this share per second (a server that slows down); ``spread`` shifts the first
    sends, so that requests do not run in step.
    """

    concurrency: int = 8
    first_s: float = 0.05
    gap_s: float = 0.02
    tokens: int = 20
    seconds: float = 20.0
    stream: bool = True
    jitter: float = 0.1
    slope: float = 0.0
    spread: bool = True
    per_chunk: int = 1
    seed: int = 0


def closed_loop(plan: Plan) -> RawRun:
    """The records of such a load, cut off at ``plan.seconds``."""
    rng = np.random.default_rng(plan.seed)
    rows: list[tuple[object, ...]] = []
    times, totals = [], []
    life = plan.first_s + plan.gap_s * plan.tokens
    for place in range(plan.concurrency):
        send = life * place / plan.concurrency if plan.spread else 0.0
        while send < plan.seconds:
            at, counts = _chunks(plan, rng, send)
            end = at[-1]
            cut = end > plan.seconds
            kept = at <= plan.seconds if plan.stream else np.array([not cut])
            at, counts = (at, counts) if plan.stream else (at[-1:], counts[-1:])
            at, counts = at[kept], counts[kept]
            over = (min(end, plan.seconds), CANCELLED if cut else OK)
            rows.append(_row(plan, len(rows), send, (at, counts), over))
            times.append(at)
            totals.append(counts)
            send = end
    table = np.array(rows, dtype=REQUESTS)
    order = np.argsort(table["send"], kind="stable")
    health = ClientHealth(
        lag_max_s=(0.002,),
        lag_typical_s=(0.001,),
        cpu_share=(0.2,),
        events=(1000,),
        in_flight=tuple((t, plan.concurrency) for t in np.arange(0, plan.seconds, 0.25).tolist()),
    )
    return RawRun(
        requests=table[order],
        chunk_times=np.concatenate([times[i] for i in order]),
        chunk_totals=np.concatenate([totals[i] for i in order]).astype(np.int64),
        meta=Meta(
            stream=plan.stream,
            concurrency=plan.concurrency,
            ended="max_s",
            duration_s=plan.seconds,
            client=health,
            reasons=("", "boom"),
        ),
    )


def _chunks(plan: Plan, rng: np.random.Generator, send: float) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    gaps = plan.gap_s * (1 + plan.jitter * rng.standard_normal(plan.tokens)) * (1 + plan.slope * send)
    gaps[0] = plan.first_s
    at = send + np.cumsum(gaps)
    counts = np.arange(1, plan.tokens + 1)
    pick = np.arange(plan.per_chunk - 1, plan.tokens, plan.per_chunk)
    pick = pick if pick[-1] == plan.tokens - 1 else np.append(pick, plan.tokens - 1)
    return at[pick], counts[pick]


def _row(
    plan: Plan, index: int, send: float, chunks: tuple[NDArray[np.float64], NDArray[np.int64]], end: tuple[float, int]
) -> tuple[object, ...]:
    at, counts = chunks
    first = float(at[0]) if len(at) else float("nan")
    tokens = int(counts[-1]) if len(counts) else 0
    state = end[1]
    prompt = 30 if state == OK else 0
    return (index, 0, state, 200, 0, send, send, first, end[0], 30, plan.tokens, prompt, tokens, 0, len(at))


def edited(raw: RawRun, **columns: tuple[Any, Any]) -> RawRun:
    """The same load with some of its columns overwritten: (rows, value) each."""
    table = raw.requests.copy()
    for name, (rows, value) in columns.items():
        table[name][rows] = value
    return msgspec.structs.replace(raw, requests=table)
