"""Writing so that a reader, or the same tuner after a power cut, sees the old file or the new one.

A disk that is full or read-only breaks an assumption of the night: ``NightStopped`` names the file and
the remedy; what was written before stays.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from autotune.errors import NightStopped
from autotune.study.refusals import unusable

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


def write_atomic(path: Path, data: bytes, mode: int = PRIVATE_FILE) -> None:
    """Replace ``path`` by ``data``, durable when this returns. Raises ``NightStopped``."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path):
        try:
            _write_and_sync(temporary, data, mode)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        sync_folder(path.parent)


def append_line(path: Path, line: bytes) -> None:
    """Append one line in one write. After a crash only the last line of the file can be torn."""
    with writing(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            os.write(descriptor, line.rstrip(b"\n") + b"\n")
        finally:
            os.close(descriptor)


def make_private_folder(path: Path) -> None:
    """Create ``path``, and what is missing above it, for this user only. Raises ``NightStopped``."""
    with writing(path):
        for folder in reversed([path, *path.parents]):
            if not folder.is_dir():
                with contextlib.suppress(FileExistsError):
                    folder.mkdir(mode=PRIVATE_FOLDER)
                sync_folder(folder.parent)
        if not path.is_dir():
            raise NightStopped(f"{path}: a file is in the place of this folder; move it away")


def sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot sync a folder
            raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says about a write into ``NightStopped`` with its remedy."""
    try:
        yield
    except OSError as error:
        raise NightStopped(f"{unusable(path, error, 'written')}, then give the same command again") from error


def _write_and_sync(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
