"""How a person's wish to end reaches every wait loop."""

from __future__ import annotations

from typing import Protocol

import msgspec

from autotune.server.clock import Clock, SystemClock

POLL_S = 0.2


class Cancel(Protocol):
    """Asked at least every 0.2 s by every loop that waits."""

    def reason(self) -> str | None:
        """Why to end soon and cleanly; None: go on."""
        ...

    def urgent(self) -> bool:
        """True after a second wish: no polite waiting any more."""
        ...


class CancelFlag:
    """The flag a signal handler sets. The first call asks for a clean end, the second for an immediate one."""

    def __init__(self) -> None:
        self._reasons: list[str] = []

    def cancel(self, reason: str) -> None:
        self._reasons.append(reason)

    def reason(self) -> str | None:
        return self._reasons[0] if self._reasons else None

    def urgent(self) -> bool:
        return len(self._reasons) > 1


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """How a loop waits: on which clock, and for whom it stops."""

    clock: Clock = msgspec.field(default_factory=SystemClock)
    cancel: Cancel = msgspec.field(default_factory=CancelFlag)

    def pause(self, seconds: float = POLL_S) -> None:
        self.clock.sleep(min(seconds, POLL_S))
