"""A surface fitted to the project's own records of real nights: throughput, and where memory ran out."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import numpy as np
from scipy.optimize import least_squares

from autotune.values import Infeasible, Measured, TrialResult, Value
from benchmarks.search.table import DEFAULTS, FREE_GB, TableSurface

RECORDS = Path(__file__).parent.parent / "h200"
CLIENTS = 2048
# What memory a start needs beyond its pools, in GB and in GB per batch of the largest graph.
RESERVES, PER_GRAPH = np.linspace(0.0, 9.0, 91), np.linspace(0.0, 0.006, 61)


class Seen(Value, frozen=True, kw_only=True):
    """One start: running requests, graph ceiling and memory fraction; ``tok_s`` is None where memory ran out."""

    running: float
    graph: float
    fraction: float
    tok_s: float | None


def read_records(folder: Path = RECORDS) -> list[Seen]:
    """All starts of all days that were measured or ran out of memory."""
    found = []
    for path in sorted(folder.glob("*/results.json")):
        nights = msgspec.json.decode(path.read_bytes(), type=dict[str, list[TrialResult]])
        found += [seen for results in nights.values() for result in results if (seen := _seen(result))]
    return found


def _seen(result: TrialResult) -> Seen | None:
    full = {**DEFAULTS, **result.config.params}
    match result.outcome:
        case Measured(score=score, effective=effective):
            full |= effective.values
            tok_s: float | None = score.value
        case Infeasible(diagnosis=diagnosis) if diagnosis.kind.startswith("oom"):
            tok_s = None
        case _:
            return None
    return Seen(
        running=min(float(full["max_running_requests"]), CLIENTS),
        graph=float(full["cuda_graph_max_bs"]),
        fraction=float(full["mem_fraction_static"]),
        tok_s=tok_s,
    )


def fitted(surface: TableSurface, records: list[Seen]) -> TableSurface:
    """``surface`` with its constants fitted to records; those of which they say nothing (chunks) are none."""
    step_s, per_request_s, eager_s = _throughput([seen for seen in records if seen.tok_s])
    reserve_gb, per_graph_gb = _memory(records)
    return msgspec.structs.replace(
        surface,
        step_s=step_s,
        per_request_s=per_request_s,
        eager_s=eager_s,
        reserve_gb=reserve_gb,
        per_graph_gb=per_graph_gb,
        per_chunk_gb=0.0,
    )


def _throughput(measured: list[Seen]) -> tuple[float, float, float]:
    """Seconds of a decode step, per request in it, and for a batch above the graphs, by least squares of logs."""
    running = np.array([s.running for s in measured])
    above = np.array([s.running > s.graph for s in measured])
    logs = np.log([s.tok_s or 1.0 for s in measured])

    def rest(logs_of: np.ndarray) -> np.ndarray:
        step, each, eager = np.exp(logs_of)
        return np.asarray(logs - np.log(running / (step + each * running + eager * above)))

    found = np.exp(least_squares(rest, np.log([0.016, 3.5e-5, 0.03])).x)
    return float(found[0]), float(found[1]), float(found[2])


def _memory(records: list[Seen]) -> tuple[float, float]:
    """The reserve and the share of a graph batch that part the starts that lived from those that died most widely."""

    def margin(pair: tuple[float, float]) -> float:
        left = [FREE_GB * (1 - s.fraction) - pair[0] - pair[1] * s.graph for s in records]
        return min(m if s.tok_s else -m for m, s in zip(left, records, strict=True))

    return max(((float(r), float(g)) for r, g in itertools.product(RESERVES, PER_GRAPH)), key=margin)
