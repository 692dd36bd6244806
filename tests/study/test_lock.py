"""One tuner per study."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotune.errors import StudyLocked
from autotune.study.lock import holder, study_lock

HOLD = """
import os, subprocess, sys, pathlib, time
from autotune.study.lock import study_lock
with study_lock(pathlib.Path(sys.argv[1]), "2026-01-02"):
    children = []
    if "server" in sys.argv:
        children.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid)
    if "worker" in sys.argv:
        ready, done = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(done, b"1")
            time.sleep(60)
            os._exit(0)
        os.read(ready, 1)
        children.append(pid)
    print("held", *children, flush=True)
    time.sleep(60)
"""


@contextmanager
def tuner(lock: Path, *children: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Another tuner that holds the lock, and the children that it left."""
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock), *children], stdout=subprocess.PIPE, text=True, cwd=root
    )
    pids: list[int] = []
    try:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()[1:]]
        yield process, pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.communicate()


def test_a_second_tuner_is_refused_and_told_who_holds_the_study(tmp_path: Path) -> None:
    """The message has the process, the machine and the time."""
    lock = tmp_path / "lock"
    with tuner(lock) as (process, _):
        with pytest.raises(StudyLocked, match=f"process {process.pid} on .* since 2026-01-02"), study_lock(lock, "now"):
            pass
        found = holder(lock)
        assert found is not None
        assert found.pid == process.pid


@pytest.mark.parametrize("child", ["server", "worker"])
def test_kill_9_frees_the_study_although_children_live_on(tmp_path: Path, child: str) -> None:
    """Neither a server that was started nor a worker that was forked keeps the lock."""
    lock = tmp_path / "lock"
    with tuner(lock, child) as (process, pids):
        assert len(pids) == 1
        process.kill()
        process.wait()
        os.kill(pids[0], 0)
        with study_lock(lock, "now"):
            found = holder(lock)
            assert found is not None
            assert found.pid == os.getpid()


def test_the_lock_ends_with_its_block(tmp_path: Path) -> None:
    """It can be taken again, and asking who holds it takes nothing."""
    lock = tmp_path / "lock"
    assert holder(lock) is None
    for _ in range(2):
        with study_lock(lock, "now"):
            assert holder(lock) is not None
            with pytest.raises(StudyLocked), study_lock(lock, "now"):
                pass
        assert holder(lock) is None
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600


def test_a_lock_file_with_rubbish_is_still_a_lock_file(tmp_path: Path) -> None:
    """What it says about its holder is for people only."""
    lock = tmp_path / "lock"
    lock.write_bytes(b"\xff rubbish")
    with study_lock(lock, "now"):
        assert holder(lock) is not None
