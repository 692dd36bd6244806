"""``python -m benchmarks.overhead``: the time of a trial that is not server start, load, or the server's own stop.

From the events of a night on the simulated server: the wall time from one settled trial to the next, minus what the
trial's own record gives to start, load and stop. That leaves asking the sampler, writing records, the storage,
preparing, and what a stop takes beyond the server's own end. The part of the load in which no request is under way
(workers starting, read-back, reduction) is listed beside it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

import numpy as np

from autotune.load.driver import raw_path
from autotune.load.records import load
from autotune.study.folder import StudyFolder
from autotune.study.record import Records
from benchmarks.soak.__main__ import ROOT, STUDY

HERE = Path(__file__).parent


def night(folder: Path, trials: int, sampler: str) -> Records:
    """A night without faults; its records."""
    study = folder / "overhead.toml"
    text = STUDY.format(root=ROOT, trials=trials).replace('"--sim-fault-rate", "0.25"', '"--sim-fault-rate", "0"')
    text = text.replace('name = "soak"', 'name = "overhead"').replace('sampler = "tpe"', f'sampler = "{sampler}"')
    study.write_text(text)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", "tests.tuner", "tune", str(study)], env=env, check=True, capture_output=True)
    return Records(StudyFolder.beside(study, "overhead"))


def between(records: Records) -> list[float]:
    """Seconds per trial, from one settled trial to the next, outside start, load and stop of the server."""
    lines = [json.loads(line) for line in records.folder.events.read_text().splitlines()]
    settled = [
        (line["number"], datetime.fromisoformat(line["at"])) for line in lines if line["type"] == "trial_settled"
    ]
    found = []
    for (_, before), (number, after) in itertools.pairwise(settled):
        result = records.result(number)
        assert result is not None
        times = result.timings
        spent = times.start_s + times.load_s + times.live_s + times.stop_s
        found.append((after - before).total_seconds() - spent)
    return found


def beside_the_load(records: Records) -> list[float]:
    """Seconds of ``load_s`` in which no request was under way."""
    found = []
    for result in records.results():
        path = raw_path(records.trial(result.number).load, "0")
        if path.exists():
            found.append(result.timings.load_s - load(path).meta.duration_s)
    return found


def row(name: str, values: list[float]) -> str:
    q = np.quantile(values, [0.5, 0.9, 1.0])
    return f"| {name} | {len(values)} | {q[0]:.2f} | {q[1]:.2f} | {q[2]:.2f} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--samplers", nargs="+", default=["tpe"])
    parser.add_argument("--output", type=Path, default=HERE / "README.md")
    asked = parser.parse_args()
    rows, medians, before = [], [], os.getloadavg()[0]
    for sampler in asked.samplers:
        with tempfile.TemporaryDirectory() as folder:
            records = night(Path(folder), asked.trials, sampler)
            own, idle = between(records), beside_the_load(records)
        rows += [row(f"{sampler}: outside start, load and stop", own)]
        rows += [row(f"{sampler}: inside load, no request under way", idle)]
        both = [a + b for a, b in zip(own, idle[1:], strict=False)]
        rows += [row(f"{sampler}: together", both)]
        medians.append(float(np.median(both)))
    text = [
        "# The tuner's own time per trial",
        "",
        f"`python -m benchmarks.overhead --trials {asked.trials}`, simulated server, seconds. Load average"
        f" {before:.1f} before and {os.getloadavg()[0]:.1f} after, on {os.cpu_count()} cores: what is above the number"
        " of cores is work of others, and it stretches every figure.",
        "",
        "| part | trials | median | 90 % | most |",
        "| --- | ---: | ---: | ---: | ---: |",
        *rows,
        "",
        "Inside the load: read-back of the values in force, start of the worker processes, gathering and reducing.",
    ]
    asked.output.write_text("\n".join(text) + "\n")
    print("\n".join(text))
    return 0 if max(medians) < 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())
