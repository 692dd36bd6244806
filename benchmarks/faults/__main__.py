"""``python -m benchmarks.faults``: run the fault matrix (tests/faults) and write its table beside this file."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent


def cells(report: Path) -> Iterator[tuple[str, str, str, float, bool]]:
    """Fault, stage, outcome, seconds and whether all of it was right, for every cell that told what it is."""
    for case in ElementTree.parse(report).iter("testcase"):
        told = {entry.get("name", ""): entry.get("value", "") for entry in case.iter("property")}
        right = case.find("failure") is None and case.find("error") is None and case.find("skipped") is None
        if "fault" in told or not right:
            name = told.get("fault", case.get("name", ""))
            yield name, told.get("stage", ""), told.get("outcome", ""), float(case.get("time", 0)), right


def table(rows: list[tuple[str, str, str, float, bool]], seconds: float) -> str:
    """README.md."""
    wrong = sum(not right for *_, right in rows)
    lines = [
        "# Fault matrix",
        "",
        f"`make test-faults`, two cells at a time on 2 busy cores: {len(rows)} cells in {seconds / 60:.1f} minutes,"
        f" {wrong} wrong. Right means: the outcome below, no process left (a brand in the environment of everything"
        " that a cell starts is looked for in /proc), no trial lost or settled twice, and within the deadline"
        " of 60 s. A cell in which a night stops, or its tuner is killed, is resumed without the fault and must then"
        " complete the study.",
        "",
        "| fault | stage | outcome | s | right |",
        "| --- | --- | --- | ---: | --- |",
        *(f"| {f} | {s} | {o} | {t:.1f} | {'yes' if right else 'NO'} |" for f, s, o, t, right in rows),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--output", type=Path, default=HERE / "README.md")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        argv = [sys.executable, "-m", "pytest", "-n", "2", "-m", "faults", "tests/faults", f"--junitxml={report}"]
        begun_s = time.monotonic()
        code = subprocess.run([*argv, "-q", "-p", "no:cacheprovider"], check=False).returncode
        rows = sorted(cells(report))
        asked.output.write_text(table(rows, time.monotonic() - begun_s))
    return code


if __name__ == "__main__":
    sys.exit(main())
