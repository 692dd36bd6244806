"""The machine under the night: disk, descriptors, processes, and how busy others keep it."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import psutil

from autotune.errors import NightStopped
from autotune.study.refusals import remedy
from autotune.values import Value

MIB = 1 << 20


def free_bytes(folder: Path) -> int:
    """Bytes that this user may still write in ``folder``."""
    return shutil.disk_usage(folder).free


def require_disk(folder: Path, need_bytes: int) -> None:
    """Raise NightStopped unless ``folder`` is writable and has ``need_bytes`` left."""
    try:
        free = free_bytes(folder)
        _try_write(folder)
    except OSError as error:
        why = "is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else f"cannot be written ({error.strerror})"
        raise NightStopped(f"disk: {folder} {why}; make room or correct its permissions, then start again") from error
    if free < need_bytes:
        raise NightStopped(
            f"disk: {folder} has {free // MIB} MiB left, a trial may need {need_bytes // MIB}; "
            "make room and start again: all finished trials are kept"
        )


def _try_write(folder: Path) -> None:
    probe = folder / f".write-test-{os.getpid()}"
    fd = os.open(probe, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, b"x")
    finally:
        os.close(fd)
        probe.unlink()


@contextlib.contextmanager
def host_refusals() -> Iterator[None]:
    """Turn what the machine refuses (files, processes, threads, memory) into NightStopped with its remedy."""
    try:
        yield
    except OSError as error:
        what = f"{error.filename}: " if error.filename else ""
        advice = remedy(error.errno, "look at the machine")
        raise NightStopped(f"host: {what}{error.strerror or error}; {advice}, then start again") from error
    except MemoryError as error:
        raise NightStopped("host: out of memory; free some or use fewer workers, then start again") from error
    except RuntimeError as error:
        if "new thread" not in str(error):
            raise
        raise NightStopped(f"host: {error}; {remedy(errno.EAGAIN)}, then start again") from error


def raise_descriptor_limit(need: int) -> int:
    """Lift the soft limit of open files to the hard one; returns it. Raises NightStopped when ``need`` exceeds it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and need > hard:
        raise NightStopped(f"limits: {need} open files are needed, {hard} allowed; raise ulimit -Hn or the concurrency")
    wanted = hard if hard != resource.RLIM_INFINITY else max(soft, need)
    if soft not in (resource.RLIM_INFINITY, wanted):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def process_headroom() -> int | None:
    """Processes and threads that may still be created in this control group; None: no limit is known.

    RLIMIT_NPROC is left out: it counts all threads of the user, which only the kernel knows.
    """
    try:
        group = Path("/proc/self/cgroup").read_text().strip().rpartition("::")[2]
        folder = Path("/sys/fs/cgroup") / group.lstrip("/")
        return int((folder / "pids.max").read_text()) - int((folder / "pids.current").read_text())
    except (OSError, ValueError):
        return None


class HostLoad(Value, frozen=True, kw_only=True):
    """Processor time between two looks, in cores: all, ours, and what is left for others."""

    seconds: float
    busy_cores: float
    our_cores: float

    @property
    def other_cores(self) -> float:
        return max(0.0, self.busy_cores - self.our_cores)


class HostMeter:
    """Says how busy others kept the machine since the last ``read`` (a noisy neighbour spoils a measurement)."""

    def __init__(self, our_cpu_s: Callable[[], float], cpus: Collection[int] = ()) -> None:
        """``our_cpu_s``: processor seconds so far of the server; the tuner and its workers are added here.

        ``cpus`` are the processors to look at (empty: all); of the tuner's own those that are bound to them.
        """
        self._our_cpu_s = our_cpu_s
        self._cpus = frozenset(cpus)
        self._last = self._sample()

    def read(self) -> HostLoad:
        last, self._last = self._last, self._sample()
        seconds = max(self._last[0] - last[0], 1e-9)
        # A member that ended takes its processor time with it: then "ours" is unknown, not negative.
        ours = max(0.0, self._last[2] - last[2])
        return HostLoad(seconds=seconds, busy_cores=(self._last[1] - last[1]) / seconds, our_cores=ours / seconds)

    def _sample(self) -> tuple[float, float, float]:
        if self._cpus:
            each = psutil.cpu_times(percpu=True)
            busy_s = sum(_busy_s(times) for cpu, times in enumerate(each) if cpu in self._cpus)
        else:
            busy_s = _busy_s(psutil.cpu_times())
        me = psutil.Process()
        own = [p for p in (me, *me.children(recursive=True)) if _same_session(p.pid) and self._bound(p)]
        return time.monotonic(), busy_s, self._our_cpu_s() + sum(map(_cpu_s, own))

    def _bound(self, process: psutil.Process) -> bool:
        if not self._cpus:
            return True
        try:
            return self._cpus >= set(process.cpu_affinity())
        except psutil.Error:
            return False


def _busy_s(times: Any) -> float:
    idle = times.idle + getattr(times, "iowait", 0.0) + getattr(times, "guest", 0.0)
    return float(sum(times) - idle)


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _same_session(pid: int) -> bool:
    # The server is a child of the tuner too, in a session of its own, and is counted by its members.
    try:
        return os.getsid(pid) == os.getsid(0)
    except OSError:
        return False
