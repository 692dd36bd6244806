"""What a reader of somebody else's file has to say about it."""

from __future__ import annotations

from autotune.values import Value


class Remark(Value, frozen=True, kw_only=True):
    """One thing that was not taken over as it stands, or not understood. ``line`` 0: of the whole file."""

    where: str
    text: str
    line: int = 0

    def __str__(self) -> str:
        place = f"{self.where}:{self.line}" if self.line else self.where
        return f"{place}: {self.text}"
