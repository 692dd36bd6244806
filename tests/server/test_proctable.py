"""Which rows of the process table are one server's."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.server.proctable import ProcessRow, family, own_line, parse_stat, read_row, read_table


def row(pid: int, ppid: int, sid: int) -> ProcessRow:
    return ProcessRow(pid=pid, ppid=ppid, pgid=sid, sid=sid, start_ticks=pid)


def test_a_name_with_spaces_and_parentheses_is_read() -> None:
    """The name of a process may contain anything; the fields after it still count."""
    fields = " ".join(["S", "7", "8", "9", *["0"] * 7, "250", "50", *["0"] * 6, "4242"])
    got = parse_stat(f"12 (sglang::sched) (x) {fields}")
    assert got is not None
    assert (got.pid, got.ppid, got.pgid, got.sid, got.start_ticks) == (12, 7, 8, 9, 4242)
    assert got.name == "sglang::sched) (x"
    assert got.cpu_s > 0


def test_zombies_and_torn_lines_are_nobody() -> None:
    """A zombie runs nothing, and half a line says nothing."""
    zombie = f"12 (x) Z {' '.join(['1'] * 25)}"
    assert parse_stat(zombie) is None
    assert parse_stat(zombie, zombie=True) is not None
    assert parse_stat("12 (x) S 1 2") is None
    assert parse_stat("") is None


def test_a_session_is_a_family() -> None:
    """Session mates belong, with or without their leader; a child's own session needs its own proof."""
    rows = [row(11, 1, 10), row(14, 11, 10), row(12, 11, 12), row(13, 1, 12), row(20, 1, 20)]
    assert family(rows, {11}) == {11, 14}
    assert family(rows, {11, 13}) == {11, 12, 13, 14}


def test_the_tuner_and_its_session_are_protected() -> None:
    """A child caught between fork and setsid does not pull in the tuner's own session."""
    rows = [row(1, 0, 1), row(5, 1, 5), row(6, 5, 5), row(7, 5, 5)]
    assert family(rows, {7}, protected={1, 5}) == {7}
    assert family(rows, {5}, protected={1, 5}) == set()


def test_processes_outside_the_namespace_share_no_session() -> None:
    """Session 0 is what a container shows for a leader it cannot see."""
    assert family([row(5, 0, 0), row(6, 0, 0)], {5}) == {5}


def test_a_process_whose_main_thread_ended_still_lives() -> None:
    """While another thread runs, the process holds its port and memory: it is in the table until the last one ends."""
    # exit(2) ends one thread only; its number is 60 on x86-64 and 93 on arm64.
    code = """
import ctypes, os, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.PyDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            end_s = time.monotonic() + 60
            while " Z " not in Path(f"/proc/{process.pid}/stat").read_text():
                assert time.monotonic() < end_s
                time.sleep(0.02)
            assert read_row(process.pid) is not None
            assert process.poll() is None
        finally:
            process.kill()


_tables = st.lists(
    st.tuples(st.integers(2, 30), st.integers(0, 30), st.integers(0, 30)), max_size=25, unique_by=lambda r: r[0]
).map(lambda rows: [row(*r) for r in rows])


@settings(deadline=None)
@given(_tables, st.sets(st.integers(2, 30)), st.sets(st.integers(2, 30)))
def test_family_is_a_closure(rows: list[ProcessRow], seeds: set[int], protected: set[int]) -> None:
    """Asking again from the answer gives the answer; seeds that live are in, protected pids are out."""
    members = family(rows, seeds, protected)
    assert family(rows, members, protected) == members
    assert members.isdisjoint(protected)
    assert {r.pid for r in rows if r.pid in seeds} - protected <= members
    assert members <= {r.pid for r in rows}


def test_this_process_is_in_the_table_and_in_its_own_line() -> None:
    """The table shows the one who reads it, and a pid of nobody is nobody."""
    assert os.getpid() in {r.pid for r in read_table()}
    assert {os.getpid(), os.getppid()} <= own_line()
    assert read_row(2**22 + 1) is None
