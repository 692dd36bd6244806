"""What the operating system refuses about a path, in words, and paths that no reading ends on."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

from autotune.errors import InputError

_PERMISSIONS = "ask its owner, or check its permissions and its folder's"
_REMEDIES = {
    errno.EACCES: _PERMISSIONS,
    errno.EPERM: _PERMISSIONS,
    errno.ELOOP: "it is a loop of symbolic links: remove it",
    errno.ENAMETOOLONG: "the name is too long: give a shorter one",
    errno.ENOTDIR: "a file is in the place of a folder: check the path",
    errno.EISDIR: "a folder is in the place of a file: check the path",
    errno.ENOSPC: "the disk is full: free some space",
    errno.EDQUOT: "the disk quota is used up: free some space",
    errno.EROFS: "the file system is read-only: mount it writable",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise fs.file-max",
    errno.EAGAIN: "raise the limits of processes (ulimit -u, pids.max of the control group)",
    errno.ENOMEM: "free memory",
    errno.EADDRNOTAVAIL: "close some of the open connections of this machine",
}
_OF_A_PATH = frozenset({errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR})
_SHOWN = 100
"""Characters of a path in a message, at most twice; the middle of a longer one tells nothing."""


def remedy(number: int | None, otherwise: str = "check the path and the disk") -> str:
    """What a person can change about an error of this number; ``otherwise`` where it says nothing."""
    return _REMEDIES.get(number or 0, otherwise)


def is_of_a_path(error: OSError) -> bool:
    """Whether an error says that a path cannot be used as it is, which a person can change."""
    return error.filename is not None and error.errno in _OF_A_PATH


def unusable(path: Path | str, error: OSError, what: str = "used") -> str:
    """The message for a path that cannot be used, or written, with the remedy."""
    name = str(path)
    if len(name) > 2 * _SHOWN + 3:
        name = f"{name[:_SHOWN]}...{name[-_SHOWN:]}"
    return f"{name}: cannot be {what} ({error.strerror or error}); {remedy(error.errno)}"


def refuse_endless(path: Path, wanted: str) -> None:
    """Raises InputError for a folder, and for a device, which may never end. Raises OSError where nothing is there."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise InputError(f"{path}: is a folder; give {wanted}")
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
        raise InputError(f"{path}: is no file but a device or a socket; give {wanted}")
