"""Signals become a wish to end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from autotune.cli.signals import ENDING, cancel_on_signals


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Whatever a test does to the handlers ends with it."""
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING, ids=lambda n: n.name)
def test_one_asks_and_a_second_urges(number: signal.Signals) -> None:
    """The first decides reason and exit code; the second, whichever it is, only hurries."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with cancel_on_signals() as flag:
        assert flag.reason() is None
        os.kill(os.getpid(), number)
        assert (flag.reason(), flag.signal, flag.urgent()) == (f"ended by {number.name}", number, False)
        os.kill(os.getpid(), signal.SIGTERM)
        assert (flag.reason(), flag.signal, flag.urgent()) == (f"ended by {number.name}", number, True)


def test_the_handlers_of_before_come_back() -> None:
    """Also when the body raises."""
    before = [signal.getsignal(number) for number in ENDING]
    with pytest.raises(KeyError), cancel_on_signals():
        raise KeyError
    assert [signal.getsignal(number) for number in ENDING] == before


@pytest.mark.parametrize("number", ENDING, ids=lambda n: n.name)
def test_nothing_disturbs_the_end_after_one_was_heard(number: signal.Signals) -> None:
    """The interpreter takes a moment to end, and a storm of signals does not stop for that."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with cancel_on_signals():
        os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), number)


def test_nohup_outlives_the_terminal() -> None:
    """A hang-up that the caller ignores does not end the night."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with cancel_on_signals() as flag:
        os.kill(os.getpid(), signal.SIGHUP)
        assert flag.reason() is None
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
