"""The server's output: pumped into one private file of bounded size, read back piece by piece, cleaned, redacted.

Beginning and end of the output are kept (the root cause is near one of them); the middle of a flood is dropped.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

MIB = 1 << 20
REDACTED = "<redacted>"
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_F_SETPIPE_SZ = 1031
_MARKER = b"\n[autotune: the middle of a long log was dropped here]\n"


def clean_lines(text: str) -> list[str]:
    """Lines without ANSI sequences. Each update of a progress bar (after a carriage return) is a line; blanks go."""
    plain = _ANSI.sub("", text)
    return [line.rstrip() for line in re.split(r"[\r\n]+", plain) if line.strip()]


def redact(text: str, secrets: Iterable[str]) -> str:
    """``text`` with every secret replaced. Longest first, so that no secret survives inside another."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    return text


class StreamRedactor:
    """Redacts a byte stream that arrives in arbitrary pieces, and holds back no more than could be a secret's start."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets: Sequence[bytes] = sorted((s.encode() for s in set(secrets) if s), key=len, reverse=True)
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        if not self._secrets:
            return data
        data = self._replace(self._held + data)
        keep = self._open_tail(data)
        self._held = data[len(data) - keep :]
        return data[: len(data) - keep]

    def flush(self) -> bytes:
        held, self._held = self._held, b""
        return self._replace(held)

    def _replace(self, data: bytes) -> bytes:
        for secret in self._secrets:
            data = data.replace(secret, REDACTED.encode())
        return data

    def _open_tail(self, data: bytes) -> int:
        longest = len(self._secrets[0]) - 1
        lengths = range(min(longest, len(data)), 0, -1)
        return next((n for n in lengths if any(s.startswith(data[len(data) - n :]) for s in self._secrets)), 0)


class CappedLog:
    """A file of at most ``head_bytes + 2 * tail_bytes`` (plus a marker line), mode 0600, that appends.

    A full disk never stops the writer: what cannot be written is counted in ``lost_bytes``.
    Positions are those of the stream, so a reader keeps its place when the middle is dropped.
    """

    def __init__(self, path: Path, head_bytes: int = 16 * MIB, tail_bytes: int = 24 * MIB) -> None:
        self.path = path
        self.lost_bytes = 0
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._fd).st_size
        self._head = max(head_bytes, self._size)
        self._tail = tail_bytes
        self._skipped = 0
        self._lock = threading.Lock()

    @property
    def end(self) -> int:
        """The stream position after the last byte written."""
        return self._size + self._skipped

    def write(self, data: bytes) -> None:
        with self._lock:
            try:
                self._append(data)
                if self._size > self._head + len(_MARKER) + 2 * self._tail:
                    self._drop_middle()
            except OSError:
                self.lost_bytes += len(data)

    def read_from(self, position: int, limit: int = MIB) -> tuple[bytes, int]:
        """Up to ``limit`` bytes from a stream position on, and the position after them."""
        with self._lock:
            if self._skipped and self._head <= position < self._head + self._skipped:
                position = self._head + self._skipped
            offset = position if position < self._head else position - self._skipped
            if self._skipped and offset < self._head:
                limit = min(limit, self._head - offset)
            data = self._read(limit, offset)
            return data, position + len(data)

    def close(self) -> None:
        """No more writing; reading goes on, by opening the file each time. Idempotent."""
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)

    def _read(self, limit: int, offset: int) -> bytes:
        if self._fd >= 0:
            return os.pread(self._fd, limit, offset)
        with open(self.path, "rb") as file:
            file.seek(offset)
            return file.read(limit)

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._fd, view, self._size)
            self._size += written
            view = view[written:]

    def _drop_middle(self) -> None:
        tail = os.pread(self._fd, self._tail, self._size - self._tail)
        before = self.end
        os.ftruncate(self._fd, self._head)
        self._size = self._head
        try:
            self._append(_MARKER + tail[tail.find(b"\n") + 1 :])
        finally:
            self._skipped = before - self._size


class LogReader:
    """Incremental, cleaned reading of a ``CappedLog``; an unfinished last line waits for its end."""

    def __init__(self, log: CappedLog, position: int) -> None:
        self._log = log
        self._position = position
        self._rest = b""

    def new_lines(self) -> list[str]:
        """The lines completed since the last call."""
        data = self._rest
        while True:
            piece, self._position = self._log.read_from(self._position)
            data += piece
            if not piece:
                break
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._rest = data[cut:]
        return clean_lines(data[:cut].decode(errors="replace"))

    def last_words(self) -> list[str]:
        """What ``new_lines`` gives, and the unfinished line too: for a server that writes no more."""
        lines = self.new_lines()
        rest, self._rest = self._rest, b""
        return lines + clean_lines(rest.decode(errors="replace"))


class Pump(threading.Thread):
    """Moves a pipe into a ``CappedLog``. ``seen_bytes`` counts all that came, kept or not."""

    def __init__(self, source: IO[bytes], log: CappedLog, secrets: Iterable[str] = ()) -> None:
        super().__init__(name="server-log", daemon=True)
        self.seen_bytes = 0
        self._source = source
        self._log = log
        self._redactor = StreamRedactor(secrets)
        self._closing = threading.Event()
        # A larger pipe keeps a server from waiting for this thread; a refusal (a user's pipe quota) is harmless.
        with contextlib.suppress(OSError):
            fcntl.fcntl(source.fileno(), _F_SETPIPE_SZ, MIB)

    def run(self) -> None:
        fd = self._source.fileno()
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        last_bytes = 4 * MIB
        while last_bytes > 0:
            closing = self._closing.is_set()
            data = os.read(fd, MIB) if poller.poll(0 if closing else 200) else None
            if data:
                self.seen_bytes += len(data)
                self._log.write(self._redactor.feed(data))
            if data == b"" or (closing and data is None):
                break
            last_bytes -= len(data) if closing and data else 0
        self._log.write(self._redactor.flush())
        self._source.close()

    def close(self) -> None:
        """Take what is in the pipe (4 MiB at most) and end, also when an escaped process still writes to it."""
        self._closing.set()
        self.join()
