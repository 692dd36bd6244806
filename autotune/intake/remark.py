"""What a reader of somebody else's file has to say about it."""

from __future__ import annotations

from autotune.values import Value

_SHOWN = 80


class Remark(Value, frozen=True, kw_only=True):
    """One thing that was not taken over as it stands, or not understood. ``line`` 0: of the whole file."""

    where: str
    text: str
    line: int = 0

    def __str__(self) -> str:
        place = f"{self.where}:{self.line}" if self.line else self.where
        return f"{place}: {self.text}"


def short(text: str) -> str:
    """The text on one line that is not too long for a remark."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."
