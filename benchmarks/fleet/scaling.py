"""What a trial costs beside itself as a study grows: ``python -m benchmarks.fleet.scaling``.

Seconds of one suggestion, of reading the records, and of a worker's turn with a real PostgreSQL, its transactions;
bytes that come home from a cluster's node. Medians of a few; a busy machine shows in them.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from autotune.bounding import derive_region
from autotune.brief import Brief, read_brief
from autotune.choosing import strategy
from autotune.fleet.parcel import pack
from autotune.fleet.shared import Shared
from autotune.picking import BASELINE, Searched
from autotune.search.region import Region
from autotune.search.suggest import propose
from autotune.server.cancel import Waiting
from autotune.study.record import Records
from autotune.trial import Ticket
from autotune.values import Config, Effective, Timings, TrialResult
from autotune.working import open_shared
from tests.fleet.database import Database, database
from tests.nights import Night, autotune, records, score

SIZES = (50, 200, 500, 1000)
TIMES = 5
COUNTERS_S = 1.5
"""PostgreSQL tells its counters a little late."""


def main(sizes: Sequence[int]) -> None:
    """Print a row for each size of a study."""
    with tempfile.TemporaryDirectory() as name, database() as server:
        folder = Path(name)
        print(f"one simulated trial comes home in {_home_bytes(folder):,} bytes")
        print("trials   ask s  records s  turn and telling s  transactions a trial  bytes a trial on the board")
        for size in sizes:
            _row(_study(folder / str(size), server.url, size), server, size)


def _row(study: Path, server: Database, size: int) -> None:
    brief = read_brief(study)
    region = derive_region(brief, Effective(source="server_info", kv_tokens=12190))
    history = _history(region, size)
    brief.folder.create()
    for result in history:
        Records(brief.folder).settle(result)
    ask_s = _median_s(lambda: propose(history, region, strategy(brief)))
    read_s = _median_s(lambda: Records(brief.folder).results())
    turn_s, transactions = _turns(brief, server, history)
    question = f"SELECT avg(length(result)) FROM autotune_claims WHERE study = '{brief.study.name}'"
    stored = float(str(server.ask(question)[0][0]))
    print(f"{size:6} {ask_s:7.2f} {read_s:10.3f} {turn_s:19.2f} {transactions:21.0f} {stored:27.0f}", flush=True)


def _turns(brief: Brief, server: Database, history: Sequence[TrialResult]) -> tuple[float, float]:
    """Seconds and transactions of a trial that takes no time: claimed, told, and shown to Optuna at the next turn."""
    _session(brief, server, history, 0)  # takes the records over
    _, opening = _session(brief, server, history, 0)
    took_s, transactions = _session(brief, server, history, TIMES)
    return took_s / TIMES, (transactions - opening) / TIMES


def _session(brief: Brief, server: Database, history: Sequence[TrialResult], count: int) -> tuple[float, int]:
    """Seconds of so many trials of one worker, and transactions of all that it did."""
    before = _commits(server)
    with open_shared(brief, lambda _: None, Waiting()) as shared:
        shared.turn(lambda _: Searched(reason="enough"))
        began_s = time.perf_counter()
        for more in range(count):
            _trial(shared, len(history) + more, history[-1].config)
        took_s = time.perf_counter() - began_s
    time.sleep(COUNTERS_S)
    return took_s, _commits(server) - before


def _trial(shared: Shared, number: int, config: Config) -> None:
    ticket = Ticket(number=number, config=config)
    shared.turn(lambda _: ticket)
    shared.settle(_result(number, config))


def _study(folder: Path, url: str, size: int) -> Path:
    folder.mkdir()
    study = Night(name=f"size-{size}", trials=10 * size, sampler="autotune").write(folder)
    study.write_text(study.read_text().replace("seed = 1", f'seed = 1\nstorage = "{url}"', 1))
    return study


def _history(region: Region, size: int) -> list[TrialResult]:
    """The baseline, and configurations all over the region; more running requests, more tokens."""
    points = [
        {axis.name: axis.at((number * (0.618 + 0.137 * i)) % 1.0) for i, axis in enumerate(region.axes())}
        for number in range(1, size)
    ]
    return [_result(0, BASELINE), *(_result(number, Config(params=p)) for number, p in enumerate(points, start=1))]


def _result(number: int, config: Config) -> TrialResult:
    outcome = score(1000.0 + float(config.params.get("max_running_requests", 24)) + number % 7)
    seen = msgspec.structs.replace(outcome.effective, values=dict(config.params))
    return TrialResult(
        number=number,
        config=config,
        outcome=msgspec.structs.replace(outcome, effective=seen),
        timings=Timings(total_s=100.0),
        started_at="",
        finished_at="",
    )


def _home_bytes(folder: Path) -> int:
    """A trial of a simulated server, as a cluster's node packs it."""
    study = Night(trials=1).write(folder)
    done = autotune("tune", study)
    assert done.returncode == 0, done.stderr
    return len(pack(records(study).trial(0).root, leave={"config.json", "result.json"}))


def _commits(server: Database) -> int:
    return int(str(server.ask("SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'")[0][0]))


def _median_s(act: Callable[[], object]) -> float:
    times = []
    for _ in range(TIMES):
        began_s = time.perf_counter()
        act()
        times.append(time.perf_counter() - began_s)
    return statistics.median(times)


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or SIZES)
