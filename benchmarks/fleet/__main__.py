"""``python -m benchmarks.fleet``: four places of a Ray cluster against one, and kills of workers, nodes and drivers.

Prints what benchmarks/fleet/README.md holds; exits 1 when a claim does not hold.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from autotune.server.proctable import mark_of, read_table
from autotune.study.folder import StudyFolder
from autotune.study.record import Records
from autotune.values import Interrupted, TrialResult
from benchmarks.fleet.local import add_node, begin, start_cluster, stop_cluster, write_study

KINDS = ("worker", "node", "driver")
LIMIT_S = 3600.0


def results_of(study: Path) -> list[TrialResult]:
    """What is settled by now."""
    return Records(StudyFolder.beside(study, "fleet")).results()


def rate(study: Path, cluster: Any) -> float:
    """Searched trials per minute, from the first that began to the last that ended."""
    process = begin(study, cluster.address, "speed")
    process.wait(timeout=LIMIT_S)
    searched = [r for r in results_of(study) if r.config.params and not isinstance(r.outcome, Interrupted)]
    begun = min(datetime.fromisoformat(r.started_at).timestamp() for r in searched)
    ended = max(datetime.fromisoformat(r.finished_at).timestamp() for r in searched)
    return 60 * len(searched) / (ended - begun)


def speed(folder: Path, trials: int) -> bool:
    """Four places against one, one after the other on the same cluster."""
    cluster = start_cluster(4)
    try:
        rates = {
            slots: rate(write_study(folder / f"slots-{slots}", trials=trials, slots=slots, speed=0.25), cluster)
            for slots in (1, 4)
        }
    finally:
        stop_cluster(cluster)
    times = rates[4] / rates[1]
    print(f"trials per minute: {rates[1]:.2f} with one place, {rates[4]:.2f} with four: {times:.2f} times as fast")
    return times >= 3


class Killer:
    """Kills at random moments, and sees that nothing that was settled is ever lost or changed."""

    def __init__(self, study: Path, cluster: Any, seed: int) -> None:
        self.study = study
        self.cluster = cluster
        self.rng = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.seen: dict[str, bytes] = {}
        self.lost: list[str] = []
        self.driver = begin(study, cluster.address, "kills")

    def look(self) -> None:
        """Every result seen before is still there, byte for byte."""
        root = StudyFolder.beside(self.study, "fleet").root
        now = {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("result.json")}
        self.lost += [name for name, data in self.seen.items() if now.get(name) != data]
        self.seen |= now

    def strike(self, kind: str) -> None:
        """One kill of that kind; a node is replaced, the driver begun again."""
        if kind == "worker":
            names = [p for p in psutil.process_iter(["cmdline"]) if "_run_there" in " ".join(p.info["cmdline"] or ())]
            if not names:
                return
            self.rng.choice(names).kill()
        elif kind == "node":
            node = self.rng.choice([n for n in self.cluster.list_all_nodes() if n is not self.cluster.head_node])
            self.cluster.remove_node(node, allow_graceful=False)
            add_node(self.cluster)
        else:
            self.driver.kill()
            self.driver.wait()
            self.driver = begin(self.study, self.cluster.address, "kills")
        self.done[kind] += 1

    def run(self, each: int) -> None:
        """``each`` kills of every kind in random order, then let the night end by itself."""
        end_s = time.monotonic() + LIMIT_S
        while time.monotonic() < end_s and self.driver.poll() is None and min(self.done[k] for k in KINDS) < each:
            time.sleep(self.rng.uniform(1.0, 6.0))
            self.look()
            self.strike(self.rng.choice([kind for kind in KINDS if self.done[kind] < each]))
        self.driver.wait(timeout=LIMIT_S)
        self.look()


def kills(folder: Path, each: int, trials: int, seed: int) -> bool:
    """Kill workers, nodes and drivers, and count what is lost or doubled."""
    study = write_study(folder / "kills", trials=trials, speed=4.0, load_s=0.3)
    cluster = start_cluster(4)
    try:
        killer = Killer(study, cluster, seed)
        killer.run(each)
    finally:
        stop_cluster(cluster)
    settled = [r for r in results_of(study) if not isinstance(r.outcome, Interrupted)]
    fresh = Counter(r.config.key() for r in settled if r.repeat_of is None)
    doubled = [key for key, count in fresh.items() if count > 1]
    left = [row.pid for row in read_table() if (mark_of(row.pid) or "").startswith("fleet-")]
    cut = len(results_of(study)) - len(settled)
    print(f"kills: {dict(killer.done)}; {len(settled)} trials settled, {cut} starts cut off and run again")
    print(f"lost or changed: {len(killer.lost)}; settled twice: {len(doubled)}; processes left: {len(left)}")
    enough = all(killer.done[kind] >= each for kind in KINDS)
    if not enough:
        print("the night ended before all kills were made: give it more --trials")
    return enough and killer.driver.returncode == 0 and not (killer.lost or doubled or left)


def main() -> None:
    """Both parts, or the one that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("speed", "kills"))
    parser.add_argument("--trials", type=int, default=25, help="of the speed comparison")
    parser.add_argument("--kills", type=int, default=20, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autotune-fleet-") as name:
        held = [
            part()
            for kind, part in (
                ("speed", lambda: speed(Path(name), options.trials)),
                ("kills", lambda: kills(Path(name), options.kills, 8 * options.kills, options.seed)),
            )
            if options.only in (None, kind)
        ]
    sys.exit(0 if all(held) else 1)


if __name__ == "__main__":
    main()
