"""One tuner per study. The kernel holds the lock, so that it ends with its holder, even on kill -9."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from autotune.errors import NightStopped, StudyLocked
from autotune.study.atomic import PRIVATE_FILE, writing
from autotune.values import Value

# A tuner killed a moment ago may have a child that has not come to closing its copy of the descriptor yet.
GRACE_S = 0.5


class Holder(Value, frozen=True, kw_only=True):
    """Who holds the lock; informative only, the lock itself is the kernel's."""

    pid: int
    host: str
    started_at: str


@contextlib.contextmanager
def study_lock(path: Path, now: str) -> Iterator[None]:
    """Hold the lock of a study. Raises ``StudyLocked`` naming the holder.

    The lock is ``flock`` on a descriptor that no child keeps: it is closed on exec and, for workers
    that are forked without exec, in the child after the fork.
    """
    with writing(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        _acquire(descriptor, path)
        _held.add(descriptor)
        with writing(path):
            _write_holder(descriptor, Holder(pid=os.getpid(), host=socket.gethostname(), started_at=now))
        yield
    finally:
        _held.discard(descriptor)
        with contextlib.suppress(OSError):
            os.close(descriptor)


def holder(path: Path) -> Holder | None:
    """The tuner that works on the study now, None when nobody does."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # A shared lock is refused exactly when a tuner holds the exclusive one.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_holder(descriptor) or Holder(pid=0, host="", started_at="")
    else:
        return None
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path) -> None:
    deadline = time.monotonic() + GRACE_S
    while not _try_lock(descriptor, path):
        if time.monotonic() > deadline:
            told = _describe(_read_holder(descriptor))
            raise StudyLocked(f"{path.parent.name}: {told}; wait for it or stop it")
        time.sleep(0.02)


def _try_lock(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise NightStopped(f"{path}: this file system has no locks; put the study on a local disk") from error
        raise
    return True


def _describe(found: Holder | None) -> str:
    if found is None:
        return "another tuner works on this study"
    return f"another tuner works on this study (process {found.pid} on {found.host} since {found.started_at})"


def _write_holder(descriptor: int, value: Holder) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, msgspec.json.encode(value), 0)


def _read_holder(descriptor: int) -> Holder | None:
    try:
        return msgspec.json.decode(os.pread(descriptor, 4096, 0), type=Holder)
    except (OSError, msgspec.MsgspecError):
        return None


_held: set[int] = set()


def _close_in_forked_child() -> None:
    for descriptor in _held:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_forked_child)
