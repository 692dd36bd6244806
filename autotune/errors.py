"""The error tree, drawn by what the caller does next.

Expected bad luck (out of memory, a refused flag, a slow start) is data, see ``values.Outcome``.
Exceptions are for the two cases in which nobody can go on without a person.
"""

from __future__ import annotations

import errno
import stat
from pathlib import Path


def advised(reason: str, advice: str) -> str:
    """What went wrong and what to do about it, as one line, whatever mark the reason ends with."""
    if not advice or not reason:
        return reason or advice
    reason = reason.removesuffix(".") if reason.endswith(("?.", "!.")) else reason  # docker's own words
    if reason.endswith((".", "?", "!")):
        return f"{reason} {advice[0].upper()}{advice[1:]}"
    return f"{reason}; {advice}" if advice[0].islower() else f"{reason}. {advice}"


class AutotuneError(Exception):
    """Something a person must read. ``exit_code`` is what the command line ends with."""

    exit_code = 1


class InputError(AutotuneError):
    """The user's file, flag or argument is wrong: nothing was started and nothing was lost.

    The message names the file, the key and the remedy in one line.
    """

    exit_code = 2


class NightStopped(AutotuneError):
    """An assumption of the night broke (no server binary, disk full): all that was measured is kept.

    The message names the cause and the remedy; the same command continues after the fix.
    """

    exit_code = 3


class StudyLocked(AutotuneError):
    """Another tuner works on this study."""

    exit_code = 4


_REMEDIES = {
    errno.EACCES: "ask its owner, or check its permissions",
    errno.EPERM: "ask its owner, or check its permissions",
    errno.ELOOP: "it is a loop of symbolic links: remove it",
    errno.ENAMETOOLONG: "give a shorter name",
    errno.ENOTDIR: "a file is in the place of a folder: check the path",
    errno.EISDIR: "it is a folder: give a file",
}
_SHOWN = 100
"""Characters of a path in a message, at most twice; the middle of a longer one tells nothing."""


def of_a_path(error: OSError) -> bool:
    """Whether an error says that a path cannot be used as it is, which a person can change."""
    return error.filename is not None and error.errno in _REMEDIES


def unreadable(path: Path | str, error: OSError) -> str:
    """The message for a path that cannot be read, with the remedy."""
    name = str(path)
    if len(name) > 2 * _SHOWN + 3:
        name = f"{name[:_SHOWN]}...{name[-_SHOWN:]}"
    remedy = _REMEDIES.get(error.errno or 0, "check the path and the disk")
    return f"{name}: cannot be read ({error.strerror or error}); {remedy}"


def refuse_endless(path: Path, wanted: str) -> None:
    """Raises InputError for a folder, and for a device, which may never end. Raises OSError where nothing is there."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise InputError(f"{path}: is a folder; give {wanted}")
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
        raise InputError(f"{path}: is no file but a device or a socket; give {wanted}")
