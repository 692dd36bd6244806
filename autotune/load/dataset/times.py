"""The arrival times of a trace. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InputError
from autotune.load.dataset.asked import Asked
from autotune.study.file import Workload


def arrivals(entries: Sequence[Asked], workload: Workload, path: Path) -> tuple[list[Asked], NDArray[np.float64]]:
    """The requests in the order of their times, and the times in seconds from the first.

    Raises InputError where a time is missing or unreadable, or all are the same.
    """
    scale = 1e-3 if workload.timestamp_unit == "ms" else 1.0
    times = [_seconds(entry, scale, path) for entry in entries]
    order = sorted(range(len(times)), key=times.__getitem__)
    at = np.array([times[row] for row in order]) - times[order[0]]
    if at[-1] <= 0:
        raise InputError(f"{path}: all requests have the same timestamp; a trace needs times that pass")
    return [entries[row] for row in order], at


def span_s(at: NDArray[np.float64]) -> float:
    """From one pass of a trace to the next: up to the last request, and one mean gap more; never 0."""
    return float(at[-1] + at[-1] / max(1, len(at) - 1)) or 1.0


def _seconds(entry: Asked, scale: float, path: Path) -> float:
    if entry.at is None:
        raise InputError(
            f'{path}: {entry.where}: has no timestamp; add one, or write kind = "jsonl" to send at a rate of your own'
        )
    if isinstance(entry.at, str):
        try:
            return datetime.fromisoformat(entry.at.strip()).timestamp()
        except (ValueError, OverflowError, OSError):
            remedy = "write a number, or a date such as 2024-05-10 00:00:00.00"
            raise InputError(f"{path}: {entry.where}: its timestamp is {entry.at!r}; {remedy}") from None
    value = float(entry.at) * scale
    if not math.isfinite(value):
        raise InputError(f"{path}: {entry.where}: its timestamp is {entry.at!r}; write a finite number")
    return value
