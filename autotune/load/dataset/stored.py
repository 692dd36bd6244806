"""A dataset as workers use it: a table of requests and the pieces that go into their bodies, shared through files."""

from __future__ import annotations

import mmap
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from autotune.study.atomic import make_private_folder, write_atomic
from autotune.values import Value

FORMAT = 1
FRESH, TEXT, IDS, MESSAGES, BLOCKS = 0, 1, 2, 3, 4
FIXED = (TEXT, IDS, MESSAGES)
"""Forms whose prompts are the same each time that they are asked."""

TABLE = np.dtype(
    [
        ("offset", "i8"),
        ("size", "i8"),
        ("form", "u1"),
        ("input", "i4"),  # tokens; of a text without a tokenizer an estimate
        ("output", "i4"),
        ("at", "f8"),  # seconds from the first request of a trace
        ("shared", "f8"),  # share of the prompt that another prompt of the dataset begins with, too
    ]
)


class Facts(Value, frozen=True, kw_only=True):
    """``digest`` is of all that is asked; ``source`` and ``options`` tell whether the file would be read the same
    again. ``estimated``: lengths of prompts are guessed from their texts. ``left_out`` requests were too long or short.
    """

    name: str
    digest: str
    source: str = ""
    options: str = ""
    estimated: bool = False
    left_out: int = 0
    format: int = FORMAT


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """``table`` has dtype TABLE; ``pieces`` are JSON values, one after the other."""

    table: NDArray[np.void]
    pieces: bytes | mmap.mmap
    facts: Facts

    def __len__(self) -> int:
        return len(self.table)

    def piece(self, row: int) -> bytes:
        """The JSON value of one request's prompt; empty for a fresh one."""
        offset = int(self.table["offset"][row])
        return self.pieces[offset : offset + int(self.table["size"][row])]

    def same_as(self, other: Facts | None) -> bool:
        return other is not None and other.digest == self.facts.digest and other.format == FORMAT


def stored_facts(folder: Path) -> Facts | None:
    """What is stored in ``folder``; None: nothing, or by another version."""
    try:
        facts = msgspec.json.decode((folder / "dataset.json").read_bytes(), type=Facts)
    except (OSError, msgspec.MsgspecError):
        return None
    return facts if facts.format == FORMAT else None


def store(dataset: Dataset, folder: Path) -> None:
    """Write it for workers, unless it is there already. The facts come last: without them there is nothing."""
    if dataset.same_as(stored_facts(folder)):
        return
    make_private_folder(folder)
    (folder / "dataset.json").unlink(missing_ok=True)
    write_atomic(folder / "pieces.bin", bytes(dataset.pieces[:]))
    write_atomic(folder / "table.bin", dataset.table.tobytes())
    write_atomic(folder / "dataset.json", msgspec.json.encode(dataset.facts))


def open_stored(folder: Path) -> Dataset | None:
    """What ``store`` wrote, mapped into memory and shared by all who open it; None: there is nothing."""
    facts = stored_facts(folder)
    if facts is None:
        return None
    try:
        table = np.fromfile(folder / "table.bin", dtype=TABLE)
        with (folder / "pieces.bin").open("rb") as file:
            # An empty file cannot be mapped: prompts that are made afresh have no pieces.
            pieces = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.seek(0, 2) else b""
    except OSError:
        return None
    return Dataset(table=table, pieces=pieces, facts=facts)
