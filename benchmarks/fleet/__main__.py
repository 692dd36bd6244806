"""``python -m benchmarks.fleet``: four places of a Ray cluster against one, and kills of workers, nodes and drivers.

Prints what benchmarks/fleet/README.md holds; exits 1 when a claim does not hold.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from autotune.standing import settled
from autotune.study.folder import StudyFolder
from autotune.study.record import Records
from autotune.values import Infeasible, Refused
from benchmarks.fleet.kills import HEAD, KINDS, night_of_kills
from benchmarks.fleet.local import begin, start_cluster, stop_cluster, write_study

LIMIT_S = 3600.0
PLACES = 4
TIMES = 3.0
SLOW = 0.25
"""Virtual seconds of a server per second: its time is mostly waiting, as that of a real one is for this host."""


class Pace(msgspec.Struct, kw_only=True):
    """How many configurations a night tried, what became of them, and how fast: over the search, which begins with the
    first of them, and over the whole command with connecting, the baseline and the comparison with neighbours.
    """

    places: int
    tried: int
    pruned: int
    refused: int
    a_minute: float
    a_minute_in_all: float

    def row(self) -> str:
        """A line of the table."""
        rates = f"{self.a_minute:.1f}", f"{self.a_minute_in_all:.1f}"
        return "| " + " | ".join(map(str, (self.places, self.tried, self.pruned, self.refused, *rates))) + " |"


def pace(study: Path, cluster: Any, places: int) -> Pace:
    """Run that night to its end."""
    began_s = time.monotonic()
    code = begin(study, cluster.address).wait(timeout=LIMIT_S)
    took_s = time.monotonic() - began_s
    if code:
        sys.exit(f"the night with {places} places ended with code {code}: {(study.parent / 'driver.log').read_text()}")
    results = settled(Records(StudyFolder.beside(study, "fleet")).results())
    tried = [result for result in results if result.config.params]
    first = min(datetime.fromisoformat(result.started_at) for result in tried)
    last = max(datetime.fromisoformat(result.finished_at) for result in tried)
    return Pace(
        places=places,
        tried=len(tried),
        pruned=sum(isinstance(result.outcome, Infeasible) for result in tried),
        refused=sum(isinstance(result.outcome, Refused) for result in tried),
        a_minute=60 * len(tried) / (last - first).total_seconds(),
        a_minute_in_all=60 * len(tried) / took_s,
    )


def speed(folder: Path, trials: int) -> bool:
    """Four places against one, on the same cluster. One place comes before and after, and the faster of these two
    nights counts: what else the machine does must not pass for a gain.
    """
    cluster = start_cluster(PLACES)
    print("| places | configurations tried | pruned | refused | a minute | a minute, whole night |")
    print("| --- " * 6 + "|")
    nights = []
    try:
        for number, places in enumerate((1, PLACES, 1)):
            study = write_study(folder / f"{number}-places-{places}", trials=trials, slots=places, speed=SLOW)
            nights.append(pace(study, cluster, places))
            print(nights[-1].row(), flush=True)
    finally:
        stop_cluster(cluster)
    before, four, after = nights
    times = four.a_minute / max(before.a_minute, after.a_minute)
    in_all = four.a_minute_in_all / max(before.a_minute_in_all, after.a_minute_in_all)
    print(f"{times:.2f} times as fast; {in_all:.2f} times over the whole night")
    return times >= TIMES


def kills(folder: Path, each: int, seed: int) -> bool:
    """A night for each kind, one after the other; prints a table."""
    tallies = []
    for kind in KINDS:
        print(f"kills of a {kind}:")
        tallies.append(night_of_kills(folder, kind, each, seed))
        print(f"{HEAD}\n{tallies[-1].row()}", flush=True)
    return all(tally.held(each) for tally in tallies)


def main() -> None:
    """Both parts, or the one that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("speed", "kills"))
    parser.add_argument("--trials", type=int, default=25, help="of the speed comparison")
    parser.add_argument("--kills", type=int, default=20, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for the studies, which stay there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autotune-fleet-") as made:
        name = options.keep or made
        held = [
            part()
            for kind, part in (
                ("speed", lambda: speed(Path(name), options.trials)),
                ("kills", lambda: kills(Path(name), options.kills, options.seed)),
            )
            if options.only in (None, kind)
        ]
    sys.exit(0 if all(held) else 1)


if __name__ == "__main__":
    main()
