"""The process table, and which of its rows are one server's.

A row belongs to a server when the kernel proves it: it carries the server's mark in its environment, or
shares a session with a member (sessions are only inherited, and a session number is not reused while a
member lives, see setsid(2)). Names are never looked at. Who left the session and wiped its environment too is
let go: so do daemons that serve others as well.
Reads Linux's /proc (proc_pid_stat(5), proc_pid_environ(5)).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterable, Iterator

import msgspec

from autotune.wrappers.base import MARK_NAME as MARK_NAME

_MARK_PREFIX = f"{MARK_NAME}=".encode()
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class ProcessRow(msgspec.Struct, frozen=True):
    """One live process. ``start_ticks`` counts clock ticks since boot: with the pid it names a process for one boot."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    start_ticks: int
    cpu_s: float = 0.0
    name: str = ""

    @property
    def identity(self) -> tuple[int, int]:
        return self.pid, self.start_ticks


def boot_id() -> str:
    """Differs after every reboot; empty where the kernel does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def parse_stat(text: str, zombie: bool = False) -> ProcessRow | None:
    """One /proc/PID/stat line; None for a torn line, and for a zombie (it runs and holds nothing) unless asked for."""
    head, _, tail = text.rpartition(")")
    pid, _, name = head.partition(" (")
    fields = tail.split()
    if len(fields) < 20:
        return None
    # A main thread that has ended shows as a zombie while other threads still run, and still hold port and memory.
    ended = fields[0] in ("X", "x") or (fields[0] == "Z" and int(fields[17]) <= 1)
    if ended and not zombie:
        return None
    return ProcessRow(
        pid=int(pid),
        ppid=int(fields[1]),
        pgid=int(fields[2]),
        sid=int(fields[3]),
        start_ticks=int(fields[19]),
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS_PER_S,
        name=name,
    )


def read_row(pid: int, zombie: bool = False) -> ProcessRow | None:
    """The process as it is now; None when there is none, or only its zombie and ``zombie`` is false."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return parse_stat(file.read(), zombie)
    except OSError:
        return None


def read_table() -> tuple[ProcessRow, ...]:
    """Every live process that this user may see."""
    return tuple(row for pid in _pids() if (row := read_row(pid)) is not None)


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def mark_of(pid: int) -> str | None:
    """The mark in the environment the process was started with; None without one or where it may not be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return None
    found = next((entry for entry in entries if entry.startswith(_MARK_PREFIX)), None)
    return None if found is None else found[len(_MARK_PREFIX) :].decode(errors="replace")


def family(rows: Collection[ProcessRow], seeds: Collection[int], protected: Collection[int] = ()) -> set[int]:
    """The pids of ``seeds`` and of all who share a session with one of them.

    ``protected`` pids (the tuner and its ancestors) are never members, and neither do their sessions spread.
    """
    foreign_sids = {0} | {row.sid for row in rows if row.pid in protected}
    first = {row.pid for row in rows if row.pid in seeds and row.pid not in protected}
    sids = {row.sid for row in rows if row.pid in first} - foreign_sids
    return first | {row.pid for row in rows if row.sid in sids and row.pid not in protected}


def descendants(rows: Collection[ProcessRow], roots: Collection[tuple[int, int]]) -> set[int]:
    """The pids of ``roots`` (pid and start) that live, and of all below them.

    In a container an orphan goes to its first process, so nobody leaves the tree.
    """
    found = {row.pid for row in rows if row.identity in roots}
    fresh = found
    while fresh:
        fresh = {row.pid for row in rows if row.ppid in fresh} - found
        found |= fresh
    return found


def own_line() -> frozenset[int]:
    """This process and its ancestors."""
    pids: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in pids:
        pids.add(pid)
        row = read_row(pid)
        pid = row.ppid if row else 0
    return frozenset(pids)


def marked(rows: Iterable[ProcessRow], mark: str, prefix: bool = False) -> set[int]:
    """Pids whose mark is ``mark``, or begins with it."""
    found = ((row.pid, mark_of(row.pid)) for row in rows)
    return {pid for pid, seen in found if seen is not None and (seen.startswith(mark) if prefix else seen == mark)}


def send(row: ProcessRow, sig: signal.Signals) -> bool:
    """Signal exactly this process; False when it is gone or may not be signalled.

    A pidfd pins the process, so a pid reused between look and signal is never hit (pidfd_open(2), Linux 5.3).
    """
    try:
        fd = os.pidfd_open(row.pid)
    except OSError:
        return _send_unpinned(row, sig)
    try:
        now = read_row(row.pid)
        if now is None or now.start_ticks != row.start_ticks:
            return False
        signal.pidfd_send_signal(fd, sig)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _send_unpinned(row: ProcessRow, sig: signal.Signals) -> bool:
    now = read_row(row.pid)
    if now is None or now.start_ticks != row.start_ticks:
        return False
    try:
        os.kill(row.pid, sig)
    except OSError:
        return False
    return True
