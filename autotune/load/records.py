"""Raw per-request records: the observation that is kept; every figure is derived from it.

Times are seconds since the load began.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from autotune.errors import InputError
from autotune.load.sharing import Sharing
from autotune.study.atomic import writing
from autotune.values import Value

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

OK, FAILED, CANCELLED = 0, 1, 2
FORMAT = 1

REQUESTS = np.dtype(
    [
        ("index", "i8"),
        ("worker", "i4"),
        ("state", "i1"),  # OK, FAILED, or CANCELLED: cut off by the end of the load
        ("status", "i4"),  # HTTP status; 0: none came
        ("reason", "i4"),  # index into RawRun.reasons
        ("due", "f8"),
        ("send", "f8"),
        ("first", "f8"),  # first token; NaN: none
        ("end", "f8"),
        ("asked_in", "i4"),
        ("asked_out", "i4"),
        ("prompt_tokens", "i4"),
        ("output_tokens", "i4"),
        ("cached_tokens", "i4"),
        ("chunks", "i4"),
    ]
)


class ClientHealth(Value, frozen=True, kw_only=True):
    """How the generator itself did in the steady window, one entry per worker, and the in-flight count over the load.

    ``lag_max_s`` is the worst lateness of the event loop, ``lag_typical_s`` the median of its worst per quarter of a
    second.
    """

    lag_max_s: tuple[float, ...] = ()
    lag_typical_s: tuple[float, ...] = ()
    cpu_share: tuple[float, ...] = ()
    events: tuple[int, ...] = ()
    late_max_s: float = 0.0
    in_flight: tuple[tuple[float, int], ...] = ()


class Meta(Value, frozen=True, kw_only=True):
    """What the arrays do not say. ``ended`` is why the load ended."""

    format: int = FORMAT
    level: str = "0"
    stream: bool = True
    concurrency: int = 0
    ended: str = ""
    duration_s: float = 0.0
    reasons: tuple[str, ...] = ("",)
    sharing: Sharing = Sharing()
    client: ClientHealth = ClientHealth()


class RawRun(msgspec.Struct, frozen=True, kw_only=True):
    """One load. ``requests`` is a table of dtype REQUESTS ordered by send time; ``chunk_times`` and ``chunk_totals``
    hold, request after request (``requests["chunks"]`` entries each), when a chunk came and how many output tokens
    there were by then.
    """

    requests: NDArray[np.void]
    chunk_times: Floats
    chunk_totals: Ints
    meta: Meta

    @property
    def ok(self) -> NDArray[np.bool_]:
        return np.asarray(self.requests["state"] == OK)

    @property
    def chunk_owner(self) -> Ints:
        """Row of the request that each chunk belongs to."""
        return np.repeat(np.arange(len(self.requests)), self.requests["chunks"])

    def chunk_gains(self) -> Ints:
        """Tokens that each chunk brought."""
        gains = np.diff(self.chunk_totals, prepend=0)
        starts = first_rows(self.requests["chunks"])
        gains[starts] = self.chunk_totals[starts]
        return np.asarray(gains, dtype=np.int64)


def first_rows(counts: Ints) -> Ints:
    """Positions in a flat array at which the groups of these sizes begin (empty groups left out)."""
    starts = np.cumsum(counts) - counts
    return np.asarray(starts[counts > 0], dtype=np.int64)


def save(raw: RawRun, path: Path, compress: bool = True) -> None:
    """Write atomically, as a NumPy archive without pickles. Raises ``NightStopped``."""
    part = path.with_name(path.name + ".part")
    meta = np.frombuffer(msgspec.json.encode(raw.meta), dtype=np.uint8)
    write = np.savez_compressed if compress else np.savez
    with writing(path):
        try:
            with open(part, "wb", opener=_private) as file:
                write(file, requests=raw.requests, times=raw.chunk_times, totals=raw.chunk_totals, meta=meta)
            part.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink()
            raise


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def load(path: Path) -> RawRun:
    """Raises InputError when the file is no archive of this format."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
            meta = msgspec.json.decode(data["meta"].tobytes(), type=Meta)
            raw = RawRun(requests=data["requests"], chunk_times=data["times"], chunk_totals=data["totals"], meta=meta)
    except Exception as error:  # zipfile, zlib and numpy raise what they like over damaged bytes
        raise InputError(f"{path}: not a raw load record ({error}); measure again") from error
    if meta.format != FORMAT:
        raise InputError(f"{path}: raw record of format {meta.format}, this version reads {FORMAT}; measure again")
    return raw


def merge(parts: Sequence[RawRun], meta: Meta) -> RawRun:
    """The workers' records as one, ordered by send time, with one list of reasons; ``meta`` gives all else."""
    reasons: dict[str, int] = {"": 0}
    tables = []
    for part in parts:
        codes = np.array([reasons.setdefault(text, len(reasons)) for text in part.meta.reasons], dtype=np.int32)
        table = part.requests.copy()
        table["reason"] = codes[table["reason"]]
        tables.append(table)
    table = np.concatenate([*tables, np.empty(0, REQUESTS)])
    times = np.concatenate([*(p.chunk_times for p in parts), np.empty(0)])
    totals = np.concatenate([*(p.chunk_totals for p in parts), np.empty(0, np.int64)])
    order = np.argsort(table["send"], kind="stable")
    take = _grouped(table["chunks"], order)
    meta = msgspec.structs.replace(meta, reasons=tuple(reasons))
    return RawRun(requests=table[order], chunk_times=times[take], chunk_totals=totals[take], meta=meta)


def _grouped(counts: Ints, order: Ints) -> Ints:
    """Positions of the flat entries when their groups are put into this order."""
    counts = counts.astype(np.int64)
    starts = np.cumsum(counts) - counts
    sizes = counts[order]
    offsets = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.asarray(np.repeat(starts[order], sizes) + offsets, dtype=np.int64)
