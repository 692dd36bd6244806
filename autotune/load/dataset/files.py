"""The entries of a dataset file: JSON lines, one JSON list, or a table with a header."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from autotune.errors import InputError
from autotune.load.dataset.asked import Asked, BadEntry, read_entry

SIZE_LIMIT_BYTES = 4 << 30


def read_entries(path: Path) -> list[Asked]:
    """What a file asks, in its order. Raises InputError naming file, line and remedy."""
    found: list[Asked] = []
    for where, entry in _entries(path):
        try:
            found.append(read_entry(entry, where))
        except BadEntry as problem:
            raise InputError(f"{path}: {where}: {problem}") from None
    if not found:
        raise InputError(f"{path}: is empty; give a file with at least one request")
    return found


def _entries(path: Path) -> Iterator[tuple[str, Any]]:
    data = _bytes(path)
    if path.suffix.lower() == ".csv":
        return _rows(path, data)
    if data.lstrip()[:1] == b"[":
        return _listed(path, data)
    return _lines(path, data)


def _bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > SIZE_LIMIT_BYTES:
            raise InputError(f"{path}: is larger than {SIZE_LIMIT_BYTES >> 30} GB; give a part of it")
        return path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        reason = "is a folder" if path.is_dir() else str(error.strerror).lower()
        raise InputError(f"{path}: {reason}; correct workload.dataset") from None


def _lines(path: Path, data: bytes) -> Iterator[tuple[str, Any]]:
    decode = msgspec.json.Decoder().decode
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            yield f"line {number}", _decoded(f"{path}: line {number}", line, decode)


def _listed(path: Path, data: bytes) -> Iterator[tuple[str, Any]]:
    try:
        entries = msgspec.json.decode(data, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {_line_of(data, str(error))}not JSON ({error}); correct it") from None
    decode = msgspec.json.Decoder().decode
    for number, entry in enumerate(entries, 1):
        yield f"entry {number}", _decoded(f"{path}: entry {number}", entry, decode)


def _decoded(where: str, data: Any, decode: Any) -> Any:
    try:
        return decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(f"{where}: not JSON ({error}); write one JSON object a line, or one list of them") from None


def _line_of(data: bytes, message: str) -> str:
    """``line 12: `` for a message that names a byte, else nothing."""
    at = message.rpartition("byte ")[2].rstrip(")")
    if not at.isdecimal():
        return ""
    newlines = data.count(b"\n", 0, int(at))
    return f"line {newlines + 1}: "


def _rows(path: Path, data: bytes) -> Iterator[tuple[str, Any]]:
    """Rows of a table. Its column names are compared without regard to case."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}: line {line}: not UTF-8; save the file as UTF-8") from None
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        for row in reader:
            if row:
                if len(row) != len(header):
                    where = f"{path}: line {reader.line_num}"
                    raise InputError(f"{where}: {len(row)} columns, the header has {len(header)}; correct the line")
                entry: dict[str, Any] = dict(zip(header, row, strict=True))
                yield f"line {reader.line_num}", {**entry, "timestamp": _number(entry.get("timestamp"))}
    except csv.Error as error:
        raise InputError(f"{path}: line {reader.line_num}: not a table ({error}); correct it") from None


def _number(text: str | None) -> float | str | None:
    try:
        return float(text) if text else None
    except ValueError:
        return text
