"""The folder that a script is in as it goes on: ``cd``, ``cd -``, ``pushd``, ``popd``. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import normpath

import msgspec

from autotune.intake.words import Word
from autotune.values import Value


class Folders(Value, frozen=True):
    """``here`` is None where the script never left the folder that it was started in; ``stack`` is that of pushd."""

    here: Word | None = None
    before: Word | None = None
    stack: tuple[Word | None, ...] = ()

    def entered(self, words: Sequence[Word]) -> Folders:
        """After one of the four commands."""
        targets = [word for word in words[1:] if not word.text.startswith("-")]
        if words[0].text == "popd":
            return Folders(self.stack[-1], self.here, self.stack[:-1]) if self.stack else self
        if words[0].text == "pushd":
            if not targets:
                return Folders(self.stack[-1], self.here, (*self.stack[:-1], self.here)) if self.stack else self
            return Folders(_joined(self.here, targets[0]), self.here, (*self.stack, self.here))
        if [word.text for word in words[1:2]] == ["-"]:
            return Folders(self.before, self.here, self.stack)
        return Folders(_joined(self.here, targets[0]) if targets else None, self.here, self.stack)


def _joined(before: Word | None, target: Word) -> Word:
    """A relative folder counts from the one before."""
    if before is None or target.unclear or target.text.startswith("/"):
        return target
    return before + Word(text="" if before.text.endswith("/") else "/") + target


def shown(here: Word | None, start: str) -> Word | None:
    """``$PWD`` in the folder; None where it is that of the reader. ``start``: where the script began."""
    if here is None or here.unclear:
        return here
    whole = here if here.text.startswith("/") else Word(text=f"{start}/{here.text}", names=here.names)
    known = whole.text.startswith("/") and (start or whole is here)
    return msgspec.structs.replace(whole, text=normpath(whole.text)) if known else Word(text="", unclear="$PWD")
