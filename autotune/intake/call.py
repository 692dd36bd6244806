"""One command of a script, as bash would run it."""

from __future__ import annotations

from autotune.intake.words import Word
from autotune.values import Value


class Call(Value, frozen=True, kw_only=True):
    """One command. ``env`` are the variables that the script gives it; ``folder`` is where it runs, None: anywhere.

    ``sure`` is False where it stands under a condition or in a loop. ``loops`` are the variables of the loops around
    it (empty for a ``while``), ``behind``: the script does not wait for it. ``changes`` says what was left out.
    """

    words: tuple[Word, ...]
    env: dict[str, Word] = {}
    folder: Word | None = None
    line: int = 0
    sure: bool = True
    loops: tuple[str, ...] = ()
    behind: bool = False
    changes: tuple[str, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        return tuple(word.text for word in self.words)
