"""How long the requests of a workload are: for the bounds of the search and the rate of a load. Pure."""

from __future__ import annotations

import math

import numpy as np

from autotune.load.dataset.stored import Dataset
from autotune.space.kv import Lengths, request_lengths
from autotune.study.file import Workload


def length_bounds(length: int, range_ratio: float) -> tuple[int, int]:
    """Smallest and largest length, both inclusive: [max(1, length * ratio), length], as sglang.bench_serving draws."""
    return max(1, math.floor(length * range_ratio)), max(1, length)


def mean_tokens(workload: Workload, dataset: Dataset | None = None) -> tuple[float, float]:
    """Mean input and output length that the workload asks."""
    if dataset is not None:
        return float(dataset.table["input"].mean()), float(dataset.table["output"].mean())
    prefix = workload.prefix_tokens if workload.kind == "shared_prefix" else 0
    return (
        prefix + sum(length_bounds(workload.input_tokens, workload.range_ratio)) / 2,
        sum(length_bounds(workload.output_tokens, workload.range_ratio)) / 2,
    )


def workload_lengths(workload: Workload, dataset: Dataset | None = None) -> Lengths:
    """Full and mean lengths of the requests.

    A request is in flight as long as its output is, so each counts by its output: sum of out (in + out / 2) over the
    sum of out.
    """
    if dataset is not None:
        given, made = dataset.table["input"].astype(np.float64), dataset.table["output"].astype(np.float64)
        return Lengths(
            full_tokens=float((given + made).max()),
            mean_tokens=float((made * (given + made / 2)).sum() / made.sum()),
            note=_note(dataset),
        )
    own = request_lengths(workload.input_tokens, workload.output_tokens, workload.range_ratio)
    if workload.kind != "shared_prefix":
        return own
    return Lengths(
        full_tokens=own.full_tokens + workload.prefix_tokens,
        mean_tokens=own.mean_tokens,
        note="the mean leaves out the shared prefixes, which a cache holds once",
    )


def _note(dataset: Dataset) -> str:
    guessed = ", prompts estimated from their texts" if dataset.facts.estimated else ""
    return f"{len(dataset):,} requests of {dataset.facts.name}{guessed}"
