"""``python -m tests.tuner``: the command line with gates that a busy test machine does not close."""

from __future__ import annotations

import msgspec

from autotune import night
from autotune.cli import main
from autotune.load.gates import GateLimits

WIDE = msgspec.structs.replace(
    GateLimits(),
    cpu_share=100.0,
    lag_typical_s=100.0,
    in_flight_share=0.0,
    generations=0.0,
    requests=1,
    window_share=0.0,
    drift=1e9,
    host_busy=2.0,
)

if __name__ == "__main__":
    night.GATES = WIDE
    main()
