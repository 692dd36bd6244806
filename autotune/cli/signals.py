"""SIGINT, SIGTERM and SIGHUP end a night cleanly, a second one at once; and printing where nobody may be left."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from autotune.server.cancel import CancelFlag

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalFlag(CancelFlag):
    """A cancel flag that remembers which signal came first."""

    def __init__(self) -> None:
        super().__init__()
        self.signal: int | None = None

    def hear(self, number: int, _frame: FrameType | None) -> None:
        self.signal = self.signal or number
        self.cancel(f"ended by {signal.Signals(number).name}")


def last_words(text: str) -> None:
    """Print to standard output; where nobody reads any more, the exit code still tells."""
    with suppress(OSError):
        print(text, flush=True)


@contextmanager
def cancel_on_signals() -> Iterator[SignalFlag]:
    """While the body runs, the ending signals set the flag instead of raising.

    A SIGHUP that is ignored stays ignored: that is how nohup(1) keeps a night alive after its terminal. After one of
    them was heard the process ends, and further ones must not disturb its end: the handlers stay.
    """
    flag = SignalFlag()
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    heard = [number for number in ENDING if not (nohup and number is signal.SIGHUP)]
    before = {number: signal.signal(number, flag.hear) for number in heard}
    try:
        yield flag
    finally:
        for number, handler in before.items() if flag.signal is None else ():
            signal.signal(number, handler)
