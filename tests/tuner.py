"""``python -m tests.tuner``: the command line with gates that a busy test machine does not close."""

from __future__ import annotations

import signal

from autotune import night
from autotune.cli import main
from tests.nights import WIDE

if __name__ == "__main__":
    night.GATES = WIDE
    # A test-suite that runs under nohup would have its nights ignore the hang-ups that it sends.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    main()
