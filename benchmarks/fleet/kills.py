"""Kills of Ray workers, of nodes and of the driver at random moments, and what they cost.

A night for each kind. Asked of it: no result that was on disk is ever gone or changed, no configuration is finished
twice, what was cut off runs again, Optuna holds what the records hold, and no server is left running.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import optuna
import psutil

from autotune.brief import read_brief
from autotune.sameness import manifest_of, study_id
from autotune.search.outcomes import trial_state
from autotune.server.proctable import mark_of, read_table
from autotune.standing import fresh, settled
from autotune.study.folder import StudyFolder
from autotune.study.record import Records
from autotune.values import Infeasible, Interrupted, Measured
from benchmarks.fleet.local import add_node, begin, raylet_of, start_cluster, stop_cluster, write_study

KINDS = ("worker", "node", "driver")
NAME = "fleet"
NODES = 4
SPEED, LOAD_S = 1.0, 0.3
GAP_S = (1.0, 15.0)
EARLY = 0.2
LOOK_S = 0.2
LIMIT_S = 1800.0
MORE_TRIALS = 8
"""How many further trials a night is given to end by itself, once it has been struck often enough."""


class Tally(msgspec.Struct, kw_only=True):
    """What a night of kills says. Figures from ``cut_off`` on are of all its trials, those before of the kills."""

    kind: str
    kills: int
    hit: int
    finished: int
    cut_off: int
    given_up: int
    not_again: int
    lost: int
    doubled: int
    unsettled: int
    told_otherwise: int
    left: int
    code: int

    def row(self) -> str:
        """A line of the table."""
        cells = self.kind, self.kills, self.hit, self.finished, self.cut_off, self.given_up, *self._wrong
        return "| " + " | ".join(map(str, cells)) + " |"

    def held(self, each: int) -> bool:
        """Whether all kills were made and did no harm, and the night ended well afterwards."""
        return self.kills >= each and self.hit > 0 and self.code == 0 and not any(self._wrong)

    @property
    def _wrong(self) -> tuple[int, ...]:
        """What must all be zero, as the last columns of the table have it."""
        return self.lost, self.doubled, self.not_again, self.unsettled, self.told_otherwise, self.left


HEAD = (
    "| killed | kills | of these while a trial ran there | trials finished | cut off | given up after three losses "
    "| lost or changed | finished twice | cut off and not run again | begun and never settled "
    "| told Optuna otherwise | processes left |\n" + "| --- " * 12 + "|"
)


class Killer:
    """Strikes one kind, and sees that nothing that was settled is ever lost or changed."""

    def __init__(self, study: Path, cluster: Any, kind: str, seed: int) -> None:
        self.study = study
        self.cluster = cluster
        self.rng = random.Random(f"{kind} {seed}")
        self.kills = self.hit = 0
        self.seen: dict[str, bytes] = {}
        self.lost: set[str] = set()
        self.driver = begin(study, cluster.address)
        self._strike: Callable[[], bool] = {
            "worker": self._kill_worker,
            "node": self._kill_node,
            "driver": self._kill_driver,
        }[kind]

    def run(self, each: int) -> int:
        """``each`` kills at random moments; then the night goes on to its end. Its exit code."""
        end_s = time.monotonic() + LIMIT_S
        while not self.seen and self.driver.poll() is None and time.monotonic() < end_s:
            self._wait(LOOK_S)
        while self.kills < each and time.monotonic() < end_s and self.driver.poll() is None:
            self._await_work()
            self._wait(self.rng.uniform(*GAP_S))
            self.hit += self._strike()
            self.kills += 1
            print(f"  kill {self.kills}, {self.hit} of a trial under way, {len(self.seen)} results", flush=True)
        if self.driver.poll() is not None:
            return self.driver.returncode or 1  # It ought to run on.
        self._wait(self.rng.uniform(*GAP_S))
        return self._end()

    def look(self) -> None:
        """Every result seen before is still there, byte for byte."""
        root = StudyFolder.beside(self.study, NAME).root
        now = {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("result.json")}
        self.lost |= {name for name, data in self.seen.items() if now.get(name) != data}
        self.seen = now | self.seen

    def _await_work(self) -> None:
        """Until a trial runs again, most of the time: of these moments too some are struck."""
        if self.rng.random() < EARLY:
            return
        while not _workers(self.cluster.list_all_nodes()) and self.driver.poll() is None:
            self._wait(LOOK_S)

    def _wait(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            time.sleep(LOOK_S)
            self.look()

    def _end(self) -> int:
        """Ask the night to end, and let the same command finish a few trials more."""
        self.driver.send_signal(signal.SIGINT)
        self.driver.wait(timeout=LIMIT_S)
        self.look()
        trials = len(fresh(_records(self.study).results())) + MORE_TRIALS
        write_study(self.study.parent, trials=trials, speed=SPEED, load_s=LOAD_S)
        code = begin(self.study, self.cluster.address).wait(timeout=LIMIT_S)
        self.look()
        return code

    def _kill_worker(self) -> bool:
        """The process of one trial, as soon as there is one."""
        while not (found := _workers(self.cluster.list_all_nodes())) and self.driver.poll() is None:
            time.sleep(LOOK_S)
        victim = self.rng.choice(found)
        victim.kill()
        victim.wait(timeout=LIMIT_S)
        return True

    def _kill_node(self) -> bool:
        """All processes of a node; another takes its place."""
        node = self.rng.choice([n for n in self.cluster.list_all_nodes() if n is not self.cluster.head_node])
        hit = bool(_workers([node]))
        self.cluster.remove_node(node, allow_graceful=False)
        add_node(self.cluster)
        return hit

    def _kill_driver(self) -> bool:
        """The tuner; the same command follows."""
        hit = bool(_workers(self.cluster.list_all_nodes()))
        self.driver.kill()
        self.driver.wait()
        self.look()
        self.driver = begin(self.study, self.cluster.address)
        return hit


def night_of_kills(folder: Path, kind: str, each: int, seed: int) -> Tally:
    """A night of short trials on a cluster of its own, struck ``each`` times."""
    study = write_study(folder / kind, trials=100_000, speed=SPEED, load_s=LOAD_S)
    cluster = start_cluster(NODES)
    killer = Killer(study, cluster, kind, seed)
    try:
        code = killer.run(each)
        return _tally(killer, kind, code)
    finally:
        killer.driver.kill()
        stop_cluster(cluster)


def _tally(killer: Killer, kind: str, code: int) -> Tally:
    records = _records(killer.study)
    results = records.results()
    finished, cut = settled(results), [r for r in results if isinstance(r.outcome, Interrupted)]
    given_up = [r for r in finished if isinstance(r.outcome, Infeasible) and r.outcome.diagnosis.kind == "crash_other"]
    again = {r.config.key() for r in finished}
    return Tally(
        kind=kind,
        kills=killer.kills,
        hit=killer.hit,
        finished=len(finished),
        cut_off=len(cut),
        given_up=len(given_up),
        not_again=len({r.config.key() for r in cut} - again),
        lost=len(killer.lost),
        doubled=_doubled(killer.study),
        unsettled=len(records.interrupted()),
        told_otherwise=_told_otherwise(killer.study),
        left=_left(killer.study),
        code=code,
    )


def _doubled(study: Path) -> int:
    """Configurations that count as finished more than once, and trials that were announced as settled twice."""
    results = [r for r in _records(study).results() if isinstance(r.outcome, Measured | Infeasible)]
    finished = Counter(r.config.key() for r in results if r.repeat_of is None)
    lines = StudyFolder.beside(study, NAME).events.read_text().splitlines()
    events = [json.loads(line) for line in lines if '"trial_settled"' in line]
    announced = Counter(event["number"] for event in events)
    return sum(count > 1 for count in (*finished.values(), *announced.values()))


def _told_otherwise(study: Path) -> int:
    """Trials that Optuna holds in another state than the records, or holds alone as if they had ended well."""
    records = _records(study)
    mirror = optuna.load_study(study_name=NAME, storage=f"sqlite:///{records.folder.database}")
    states = {trial.number: trial.state for trial in mirror.get_trials(deepcopy=False)}
    wrong = sum(states.pop(result.number, None) is not trial_state(result) for result in records.results())
    return wrong + sum(state is not optuna.trial.TrialState.FAIL for state in states.values())


def _left(study: Path) -> int:
    """Processes that servers of this study have left running."""
    brief = read_brief(study)
    mark = study_id(brief.folder, manifest_of(brief))
    return sum((mark_of(row.pid) or "").startswith(f"{mark}/") for row in read_table())


def _workers(nodes: list[Any]) -> list[psutil.Process]:
    """Ray's processes on these nodes that run a trial now."""
    found: list[psutil.Process] = []
    for node in nodes:
        for process in psutil.Process(raylet_of(node)).children():
            try:
                if "_run_there" in " ".join(process.cmdline()):
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
    return found


def _records(study: Path) -> Records:
    return Records(StudyFolder.beside(study, NAME))
