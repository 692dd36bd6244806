"""Keeps the lease of whatever this worker runs, and ends that when the lease cannot be kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

from autotune.errors import InputError
from autotune.fleet.board import Board
from autotune.fleet.claims import BoardLost, Right
from autotune.server.cancel import Cancel

RENEWALS = 6
"""So many times a lease."""
TRUST = 2 / 3
"""Of a lease without an answer from the database: then the trial is ended, to be over before others begin it."""


class Leases:
    """A ``Cancel``: the person's wishes, and the loss of a lease. One claim at a time.

    ``reason`` needs no thread to see that the lease is old: a worker that was frozen sees it when it wakes.
    """

    def __init__(self, board: Board, lease_s: float, outer: Cancel, now: Callable[[], float] = time.monotonic) -> None:
        self._board = board
        self._lease_s = lease_s
        self._outer = outer
        self._now = now
        self._right: Right | None = None
        self._renewed_s = 0.0
        self._lost = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def __enter__(self) -> Leases:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def keep(self, right: Right, since_s: float) -> None:
        """From here on; ``since_s`` is when the claim was asked for."""
        self._lost, self._renewed_s, self._right = "", since_s, right

    def drop(self) -> None:
        """The claim is settled, or lost for good."""
        self._right, self._lost = None, ""

    def reason(self) -> str | None:
        """See ``Cancel.reason``."""
        if wish := self._outer.reason():
            return wish
        silent_s = self._now() - self._renewed_s
        if self._right is not None and not self._lost and silent_s > TRUST * self._lease_s:
            self._lost = f"the lease of this trial could not be renewed for {silent_s:.0f} s"
        return self._lost or None

    def urgent(self) -> bool:
        """See ``Cancel.urgent``."""
        return self._outer.urgent()

    def renew(self) -> None:
        """Once, for the claim that is kept; a database that does not answer is asked again later."""
        right, asked_s = self._right, self._now()
        if right is None:
            return
        try:
            kept = self._board.renew([right])
        except (BoardLost, InputError):
            return
        if right is not self._right:
            return
        if kept:
            self._renewed_s = asked_s
        else:
            self._lost = self._lost or "another worker took this trial over"

    def _run(self) -> None:
        while not self._over.wait(self._lease_s / RENEWALS):
            self.renew()
