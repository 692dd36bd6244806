"""Throughput against latency: every load of every start, and the front that no other load beats in both. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from autotune.report.facts import Facts
from autotune.values import Measured, TrialResult, Value
from autotune.verdict.objective import METRICS, binding_limits

LATENCIES = ("tpot_p50_s", "e2e_p50_s", "ttft_p50_s")
THROUGHPUT = "output_throughput_tok_s"


class Point(Value, frozen=True, kw_only=True):
    """One load as it was measured. ``concurrency`` 0 is an open loop; ``refused`` did not pass the gates.

    ``limit`` is a running limit that was set while the server ran; None: the one that it started with.
    """

    trial: int
    concurrency: int
    throughput: float
    latency_s: float
    refused: bool = False
    limit: int | None = None

    @property
    def name(self) -> str:
        """Trial and load, for a label."""
        return f"{self.trial} at {self.concurrency}" if self.limit is None else f"{self.trial}, limit {self.limit}"

    def beats(self, other: Point) -> bool:
        """No worse in both figures, and better in one."""
        ahead = self.throughput - other.throughput, other.latency_s - self.latency_s
        return min(ahead) >= 0 and max(ahead) > 0


class Tradeoff(Value, frozen=True, kw_only=True):
    """``latency`` names the figure of the points; ``limit`` is the study's for it, if there is one.

    ``front`` are the valid points that no other valid one beats, from the shortest latency on.
    """

    latency: str
    points: tuple[Point, ...]
    front: tuple[Point, ...]
    limit: float | None = None

    def curves(self) -> dict[int, tuple[Point, ...]]:
        """Trials with several loads, each as its valid points by concurrency, then by limit."""
        found: dict[int, list[Point]] = {}
        for point in self.points:
            if not point.refused:
                found.setdefault(point.trial, []).append(point)
        return {n: tuple(sorted(seen, key=_weight)) for n, seen in found.items() if len(seen) > 1}


def tradeoff(facts: Facts) -> Tradeoff | None:
    """Against the latency that the study limits, else the first that was measured; None where none was."""
    limits = binding_limits(facts.objective)
    limited = [name for name in limits if METRICS[name].direction == "minimise"]
    for name in (*limited, *LATENCIES):
        points = tuple(p for r in facts.results for p in _points(facts, r, name))
        if points:
            return Tradeoff(latency=name, points=points, front=_front(points), limit=limits.get(name))
    return None


def _points(facts: Facts, result: TrialResult, latency: str) -> Iterator[Point]:
    if not isinstance(result.outcome, Measured):
        return
    outcome, concurrency = result.outcome, facts.workload.concurrency
    own = [(concurrency, None, outcome.measurement.steady, ())]
    levels = [(level.concurrency, None, level.steady, level.refused) for level in outcome.curve]
    live = [(concurrency, one.limit, one.steady, one.refused) for one in outcome.live]
    for at, limit, steady, refused in (*(levels or own), *live):
        if steady.get(latency, 0.0) > 0 and THROUGHPUT in steady:
            yield Point(
                trial=result.number,
                concurrency=at,
                throughput=steady[THROUGHPUT],
                latency_s=steady[latency],
                refused=bool(refused),
                limit=limit,
            )


def _weight(point: Point) -> tuple[int, float]:
    return point.concurrency, math.inf if point.limit is None else point.limit


def _front(points: tuple[Point, ...]) -> tuple[Point, ...]:
    valid = [p for p in points if not p.refused]
    kept = [p for p in valid if not any(other.beats(p) for other in valid)]
    return tuple(sorted(kept, key=lambda p: (p.latency_s, p.trial)))
