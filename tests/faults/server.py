"""``python -m tests.faults.server``: the simulated server, with faults that depend on the trial.

``FAULTS_AT`` maps trial numbers to arguments, such as ``{"1": ["--sim-fault", "oom_kv"]}``. Where ``FAULT_ONCE``
names a file, only the first such start has the fault.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from autotune.server.proctable import MARK_NAME
from autotune.sim.__main__ import main


def extra(environ: dict[str, str]) -> list[str]:
    """The arguments for the trial that this process is marked with."""
    number = environ.get(MARK_NAME, "//").split("/")[1]
    found: list[str] = json.loads(environ.get("FAULTS_AT", "{}")).get(number, [])
    once = environ.get("FAULT_ONCE")
    if found and once:
        try:
            Path(once).touch(exist_ok=False)
        except FileExistsError:
            return []
    return found


if __name__ == "__main__":
    sys.exit(main([*extra(dict(os.environ)), *sys.argv[1:]]))
