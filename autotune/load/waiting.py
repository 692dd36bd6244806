"""Requests that wait: for a connection, or in vain for a server that passes them over. Pure functions of records."""

from __future__ import annotations

import numpy as np

from autotune.load.records import CANCELLED, RawRun
from autotune.load.sample import Window

FEWEST = 8
"""Fewer answered requests say nothing of what is usual."""


def sent(raw: RawRun, window: Window) -> float:
    """Mean number of requests in the window between their sending and their end."""
    overlap = np.minimum(raw.requests["end"], window.end) - np.maximum(raw.requests["send"], window.start)
    return float(np.maximum(overlap, 0.0).sum()) / window.length_s


def late_s(raw: RawRun) -> float:
    """How late the latest 1 % of the requests were sent, the wait for a connection included."""
    return float(np.percentile(raw.requests["send"] - raw.requests["due"], 99)) if len(raw.requests) else 0.0


def starved(raw: RawRun, window: Window, times: float) -> tuple[int, int]:
    """Of the requests that were cut off at the end, how many had waited ``times`` the window's p99; and how many
    there were.
    """
    table = raw.requests
    good = table[raw.ok & (table["end"] >= window.start)]
    cut = table[table["state"] == CANCELLED]
    if len(good) < FEWEST:
        return 0, len(cut)
    usual = float(np.percentile(good["end"] - good["send"], 99))
    return int((cut["end"] - cut["send"] > times * usual).sum()), len(cut)


def accounted(raw: RawRun, window: Window) -> float:
    """How many requests in flight the window's answers account for: rate times mean latency (Little 1961).

    Far fewer than there were: the others waited while the same few were answered again and again.
    """
    table = raw.requests
    good = table[raw.ok & (table["end"] >= window.start) & (table["end"] <= window.end)]
    return float((good["end"] - good["send"]).sum()) / window.length_s
