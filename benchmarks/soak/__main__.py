"""``python -m benchmarks.soak``: 300 trials, one start in four with a random fault, and kills of the tuner.

In the first half the tuner is killed with SIGKILL at random moments and started again; in the second half it is left
alone, so that growth of its memory and descriptors would show. Writes README.md beside this file; exits 1 when a
claim does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec
import psutil

from autotune.server.proctable import read_table
from autotune.standing import settled
from autotune.study.folder import StudyFolder
from autotune.study.record import Records
from autotune.values import Infeasible, Interrupted, Refused, TrialResult

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BRAND = "AUTOTUNE_SOAK"
STUDY = """
name = "soak"
[engine]
command = ["{{python}}", "-m", "autotune.sim", "--sim-profile", "demo", "--sim-noise", "0.02",
           "--sim-speed", "10", "--sim-seed", "7", "--sim-fault-rate", "0.25"]
version = "0.5.14"
[model]
config = "{root}/studies/models/demo.json"
gpu_memory_gb = 24
weight_gb = 8
[space]
parameters = ["max_running_requests", "cuda_graph_max_bs", "schedule_conservativeness", "chunked_prefill_size"]
[workload]
input_tokens = 8
output_tokens = 4
concurrency = 128
stream = false
min_s = 0.1
max_s = 0.2
warmup_max_s = 0.1
precision = 0.9
host_busy_limit = 1
[search]
sampler = "tpe"
[budget]
trials = {trials}
wall_clock = "6h"
infeasible_in_a_row = 1000
confirm_starts = 0
baseline_every = 0
[timeouts]
start_s = 60
start_silence_s = 3
stop_s = 1
gpu_release_s = 5
load_stall_s = 2
request_s = 20
"""


class Look(msgspec.Struct, frozen=True):
    """The tuner's own process when ``settled`` trials were settled."""

    settled: int
    pid: int
    rss_mib: float
    descriptors: int
    threads: int


class Soak:
    """One soak in one folder."""

    def __init__(self, folder: Path, trials: int, kills: int) -> None:
        self.study = folder / "soak.toml"
        self.study.write_text(STUDY.format(root=ROOT, trials=trials))
        self.records = Records(StudyFolder.beside(self.study, "soak"))
        self.trials = trials
        rng = random.Random(20)
        self.kill_at = sorted(rng.sample(range(2, trials // 2), kills))
        self.pause = [rng.uniform(0.0, 3.0) for _ in self.kill_at]
        self.killed = 0
        self.stopped: list[str] = []
        self.looks: list[Look] = []
        self.brand = str(folder)

    def count(self) -> int:
        return sum(1 for _ in self.records.folder.trials.glob("*/result.json"))

    def run(self) -> None:
        """Start the tuner again and again until the study is complete."""
        for _ in range(len(self.kill_at) + 20):
            if self.one_tuner() == 0:
                return
        raise SystemExit("soak: the study did not come to its end")

    def one_tuner(self) -> int:
        """One tuner process, killed or to its end; returns its exit code."""
        env = {**os.environ, BRAND: self.brand, "PYTHONPATH": str(ROOT)}
        argv = [sys.executable, "-m", "tests.tuner", "tune", str(self.study)]
        with tempfile.TemporaryFile("w+") as words:
            process = subprocess.Popen(argv, stdout=words, stderr=words, env=env)
            self.watch(process)
            if process.returncode > 0:
                words.seek(0)
                self.stopped.append(words.read().strip().splitlines()[-1])
        return process.returncode

    def watch(self, process: subprocess.Popen[bytes]) -> None:
        seen = psutil.Process(process.pid)
        while process.poll() is None:
            time.sleep(0.5)
            done = self.count()
            try:
                with seen.oneshot():
                    look = Look(done, seen.pid, seen.memory_info().rss / 2**20, seen.num_fds(), seen.num_threads())
            except psutil.Error:
                continue
            self.looks.append(look)
            if self.killed < len(self.kill_at) and done >= self.kill_at[self.killed]:
                time.sleep(self.pause[self.killed])
                process.kill()
                process.wait()
                self.killed += 1

    def left(self) -> list[str]:
        """Live processes that inherited the brand."""
        wanted, found = f"{BRAND}={self.brand}".encode(), []
        for row in read_table():
            try:
                if wanted in Path(f"/proc/{row.pid}/environ").read_bytes().split(b"\0"):
                    found.append(f"{row.name} ({row.pid})")
            except OSError:
                continue
        return found


def shown(result: TrialResult) -> str:
    """The outcome in a word or two."""
    match result.outcome:
        case Infeasible(diagnosis=found):
            return f"infeasible: {found.kind}"
        case Refused(findings=findings):
            return f"refused: {findings[0].gate}"
        case Interrupted():
            return "interrupted (run again)"
    return "measured"


def claims(soak: Soak) -> dict[str, bool]:
    """What must hold at the end."""
    results = soak.records.results()
    done = settled(results)
    last = [look for look in soak.looks if look.pid == soak.looks[-1].pid]
    late = [look for look in last if look.settled >= soak.trials * 0.6]
    first, final = late[: max(1, len(late) // 5)], late[-max(1, len(late) // 5) :]
    growth = _mean([look.rss_mib for look in final]) / _mean([look.rss_mib for look in first]) - 1
    descriptors = max(look.descriptors for look in final) - max(look.descriptors for look in first)
    keys = Counter(result.config.key() for result in done if result.repeat_of is None)
    return {
        f"exactly {soak.trials} settled trials (seen: {len(done)})": len(done) == soak.trials,
        f"no configuration settled twice (most often: {max(keys.values())})": max(keys.values()) == 1,
        "no trial without a result": not soak.records.interrupted(),
        f"all {len(soak.kill_at)} kills done": soak.killed == len(soak.kill_at),
        f"resident memory grows by less than 5 % over the last 40 % of the trials (seen: {growth:+.1%})": growth < 0.05,
        f"descriptors do not grow (seen: {descriptors:+d})": descriptors <= 2,
        f"no process left (seen: {len(soak.left())})": not soak.left(),
    }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def report(soak: Soak, seconds: float, held: dict[str, bool]) -> str:
    """README.md."""
    outcomes = Counter(shown(result) for result in soak.records.results())
    lines = [
        "# Soak",
        "",
        f"`python -m benchmarks.soak --trials {soak.trials}`: {seconds / 60:.1f} minutes on 2 busy cores,"
        f" {soak.killed} kills of the tuner with SIGKILL at random moments of the first half,"
        f" one server start in four with a random fault. Further stops of the tuner: {len(soak.stopped)}.",
        "",
        "| claim | holds |",
        "| --- | --- |",
        *(f"| {claim} | {'yes' if holds else 'NO'} |" for claim, holds in held.items()),
        "",
        "| outcome | trials |",
        "| --- | ---: |",
        *(f"| {name} | {count} |" for name, count in outcomes.most_common()),
        "",
        "The tuner's own process in the second half, in which nobody killed it:",
        "",
        "| settled | resident MiB | descriptors | threads |",
        "| ---: | ---: | ---: | ---: |",
    ]
    last = [look for look in soak.looks if look.pid == soak.looks[-1].pid]
    step = max(1, len(last) // 12)
    lines += [f"| {x.settled} | {x.rss_mib:.0f} | {x.descriptors} | {x.threads} |" for x in last[::step]]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--output", type=Path, default=HERE / "README.md")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder), asked.trials, asked.kills)
        begun_s = time.monotonic()
        soak.run()
        held = claims(soak)
        asked.output.write_text(report(soak, time.monotonic() - begun_s, held))
    print(json.dumps(held, indent=1))
    return 0 if all(held.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
