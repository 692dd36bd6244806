"""The error tree, drawn by what the caller does next.

Expected bad luck (out of memory, a refused flag, a slow start) is data, see ``values.Outcome``.
Exceptions are for the two cases in which nobody can go on without a person.
"""

from __future__ import annotations


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
