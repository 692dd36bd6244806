"""What the kernel says of a server: its OOM killer leaves no line in the server's own log."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

KMSG = Path("/dev/kmsg")
_RECORD_BYTES = 8192
_MOST_RECORDS = 100_000


def kernel_log(pids: Collection[int], since_s: float, source: Path = KMSG) -> str | None:
    """The kernel's messages about these processes, from ``since_s`` seconds after boot on; None where unreadable.

    Only lines that name one of the pids: another program that ran out of memory says nothing of this server. The
    format is that of /dev/kmsg: ``priority,sequence,microseconds since boot,flags;message``.
    """
    try:
        fd = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return "\n".join(_about(_records(fd), pids, since_s))
    finally:
        os.close(fd)


def _records(fd: int) -> Iterable[str]:
    """One record a read, until there is none."""
    for _ in range(_MOST_RECORDS):
        # EPIPE: records were overwritten meanwhile; the next read goes on after them.
        with contextlib.suppress(BrokenPipeError):
            try:
                data = os.read(fd, _RECORD_BYTES)
            except BlockingIOError:
                return
            if not data:
                return
            yield from data.decode(errors="replace").splitlines()


def _about(records: Iterable[str], pids: Collection[int], since_s: float) -> Iterable[str]:
    named = re.compile(rf"\b(?:{'|'.join(map(str, sorted(pids)))})\b") if pids else None
    for record in records:
        head, _, message = record.partition(";")
        fields = head.split(",")
        if named is None or len(fields) < 3 or not fields[2].isdecimal() or int(fields[2]) / 1e6 < since_s:
            continue
        if named.search(message):
            yield message
