"""``python -m benchmarks.fuzz``: at least 100,000 cases of damaged outside text; writes README.md beside this file.

A case that raises anything but the errors a person can read, or that takes longer than ``SLOWEST_S``, ends the run
with the smallest such case, as hypothesis finds it.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS

HERE = Path(__file__).parent
SLOWEST_S = 20.0
"""Far above the slowest case on a busy machine: what takes longer hangs."""
CASES = {
    "study file, text": 3000,
    "study file, values": 3000,
    "search space": 8000,
    "server log": 3000,
    "server_info, SGLang": 6000,
    "server_info, vLLM": 12000,
    "server_info, command": 12000,
    "event stream, native": 18000,
    "event stream, completions": 18000,
    "stored record": 16000,
    "raw load record": 1500,
    "model config": 4000,
}


def fuzz(name: str, cases: int) -> tuple[int, float, float]:
    """Cases run, seconds, and the slowest case in seconds. Raises what a case raises."""
    check, strategies = TARGETS[name]
    seen, slowest = 0, 0.0

    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(st.tuples(*strategies))
    def run(case: tuple[Any, ...]) -> None:
        nonlocal seen, slowest
        begun_s = time.perf_counter()
        check(*case)
        took_s = time.perf_counter() - begun_s
        seen, slowest = seen + 1, max(slowest, took_s)
        assert took_s < SLOWEST_S, f"{name}: {took_s:.0f} s for one case"

    begun_s = time.perf_counter()
    run()
    return seen, time.perf_counter() - begun_s, slowest


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="this share of the cases")
    parser.add_argument("--output", type=Path, default=HERE / "README.md")
    asked = parser.parse_args()
    lines, total = [], 0
    for name in TARGETS:
        seen, seconds, slowest = fuzz(name, max(1, round(CASES[name] * asked.share)))
        total += seen
        lines.append(f"| {name} | {seen:,} | {seconds:.0f} | {slowest * 1e3:.0f} |")
        print(lines[-1], flush=True)
    text = [
        "# Fuzzing",
        "",
        f"`python -m benchmarks.fuzz`: {total:,} cases, none with a traceback, none that hangs (2 busy cores).",
        "",
        "| outside text | cases | seconds | slowest case, ms |",
        "| --- | ---: | ---: | ---: |",
        *lines,
        "",
        "Found on the way and mended: a raw load record with damaged bytes (zlib, zipfile), numbers with two points in"
        " a log, infinite sizes in a model config.",
    ]
    asked.output.write_text("\n".join(text) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
