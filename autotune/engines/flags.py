"""What a study's flags are to the engine that is installed: known, and read by anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autotune.engines.definitions import definitions, look_up
from autotune.engines.inspect import Installed
from autotune.engines.readers import readers
from autotune.space.versions import in_range
from autotune.values import Value

_READERS_NAMED = 5


class Question(Value, frozen=True, kw_only=True):
    """A flag to look at. ``read_by`` is the range of versions in which it is said to do something; empty: all."""

    flag: str
    read_by: str = ""


class FlagFact(Value, frozen=True, kw_only=True):
    """What is known of one flag; None stands for "cannot be told".

    ``known``: the engine's parser takes it. ``dead``: it is taken and nothing reads it. ``read_by``: some of
    the places that read it (``srt/managers/scheduler.py:330``), empty for none or unknown. ``reason``: in words.
    """

    flag: str
    known: bool | None
    dead: bool | None
    read_by: tuple[str, ...] = ()
    reason: str


def inspect_flags(installed: Installed, questions: Sequence[Question]) -> tuple[FlagFact, ...]:
    """One fact per question: from the installed source if there is one, else from the versions table."""
    known = definitions(installed.package, Path(installed.location)) if installed.location else {}
    if not known:
        return tuple(_by_table(installed, question) for question in questions)
    answers = {question.flag: look_up(installed.package, question.flag, known) for question in questions}
    reads = readers(Path(installed.location), {answer.field for answer in answers.values() if answer.field})
    return tuple(
        _by_source(installed, flag, answer.reason, reads.get(answer.field)) for flag, answer in answers.items()
    )


def _by_source(installed: Installed, flag: str, reason: str, reads: tuple[str, ...] | None) -> FlagFact:
    """``reads`` is None for a flag that the parser does not take."""
    name = f"{installed.package} {installed.version}".rstrip()
    if reads is None:
        return FlagFact(flag=flag, known=False, dead=None, reason=f"{name}: {reason}")
    places = reads[:_READERS_NAMED]
    used = f"read in {places[0]}" if places else "accepted, and read by nothing outside argument handling"
    return FlagFact(flag=flag, known=True, dead=not places, read_by=places, reason=f"{name}: {reason}, {used}")


def _by_table(installed: Installed, question: Question) -> FlagFact:
    """Of an engine that cannot be looked into only the table of versions tells, if its version is known."""
    why = installed.reason or "its argument definitions were not found"
    if not installed.version or not question.read_by:
        told = "no entry in the versions table" if installed.version else "its version is not known"
        return FlagFact(flag=question.flag, known=None, dead=None, reason=f"cannot be inspected ({why}); {told}")
    read = in_range(installed.version, question.read_by)
    told = f"versions table: {'read' if read else 'not read'} by {installed.version} (read by {question.read_by})"
    return FlagFact(flag=question.flag, known=None, dead=not read, reason=f"cannot be inspected ({why}); {told}")
