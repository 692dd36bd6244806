"""``python -m tests.tuner``: the command line with gates that a busy test machine does not close."""

from __future__ import annotations

from autotune import night
from autotune.cli import main
from tests.nights import WIDE

if __name__ == "__main__":
    night.GATES = WIDE
    main()
