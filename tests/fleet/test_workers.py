"""Several workers, processes of their own, on one study through a real PostgreSQL."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from autotune.fleet.board import Board
from autotune.search.mirror import Mirror
from autotune.search.outcomes import trial_state
from autotune.standing import settled
from autotune.study.folder import TrialFolder
from autotune.values import Interrupted, Measured, TrialResult
from tests.fleet.database import Database
from tests.nights import Night, autotune, begin, events, left, records, stop, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LIMIT_S = 300.0
TRIALS = 4
LATER = 1000.0
names = (f"shared-{number}" for number in itertools.count())


class Team:
    """Workers of one study, each with a folder of its own as on hosts of their own."""

    def __init__(self, postgres: Database, folder: Path, lease_s: float = 60.0) -> None:
        self.postgres = postgres
        self.name = next(names)
        self.studies = [self._study(folder / worker, lease_s) for worker in ("a", "b")]
        self._begun: list[subprocess.Popen[str]] = []
        with closing(Board(postgres.url, self.name, lease_s)) as board:
            board.create()

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever a test that failed has left."""
        for worker in self._begun:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                stop(worker)

    def _study(self, folder: Path, lease_s: float) -> Path:
        folder.mkdir()
        study = Night(name=self.name, trials=TRIALS).write(folder)
        shared = f'storage = "{self.postgres.url}"\n[resources]\nlease_s = {lease_s}\n[engine]'
        study.write_text(study.read_text().replace("[engine]", shared, 1))
        return study

    def start(self, *which: int) -> list[subprocess.Popen[str]]:
        """Begin the workers with these numbers."""
        begun = [begin("worker", self.studies[number]) for number in which]
        self._begun += begun
        return begun

    def under_way(self, worker: subprocess.Popen[str]) -> int | None:
        """The trial beside the baseline that a worker runs and whose server has begun, if there is one."""
        question = (
            f"SELECT number FROM autotune_claims WHERE study = '{self.name}' AND result IS NULL AND role = 'search' "
            f"AND worker LIKE '%/{worker.pid}-%'"
        )
        rows = self.postgres.ask(question)
        return int(str(rows[0][0])) if rows else None

    def busy(self, worker: subprocess.Popen[str]) -> int:
        """Wait for such a trial; its number, and never none."""

        def number() -> tuple[int] | None:
            assert worker.poll() is None, worker.communicate()
            found = self.under_way(worker)
            return None if found is None else (found,)

        found: tuple[int] = wait_for(number, LIMIT_S)
        return found[0]

    def shown(self, worker: subprocess.Popen[str]) -> list[str]:
        """What `status` in the other's folder says of what a worker runs."""
        assert worker.poll() is None, worker.communicate()
        seen = json.loads(autotune("status", self.studies[1], "--json").stdout)
        return [claim["worker"] for claim in seen["claims"] if f"/{worker.pid}-" in claim["worker"]]

    def results(self, worker: int = 0) -> list[TrialResult]:
        """The records in a worker's folder."""
        return records(self.studies[worker], self.name).results()

    def notes(self, worker: int) -> str:
        """All that a worker has remarked so far."""
        return "\n".join(event["text"] for event in events(self.studies[worker], "note", self.name))

    def trial(self, worker: int, number: int) -> TrialFolder:
        """A trial's files in a worker's folder."""
        return records(self.studies[worker], self.name).trial(number)

    def check(self) -> list[TrialResult]:
        """The study is complete, nothing is double, nothing is left, and Optuna agrees; returns the results."""
        results = self.results(0)
        assert results == self.results(1)
        counted = settled(results)
        assert len(counted) == TRIALS
        measured = Counter(r.config.key() for r in counted if isinstance(r.outcome, Measured))
        assert set(measured.values()) == {1}
        with closing(Mirror.open(self.name, self.postgres.url, "maximize")) as mirror:
            assert {t.number: t.state for t in mirror.trials()} == {r.number: trial_state(r) for r in results}
        assert [left(study) for study in self.studies] == [[], []]
        question = f"SELECT number FROM autotune_claims WHERE study = '{self.name}' AND result IS NULL"
        assert self.postgres.ask(question) == []
        return results


def finish(workers: list[subprocess.Popen[str]]) -> list[str]:
    """Wait for all of them; what they said."""
    said = []
    for worker in workers:
        _, told = worker.communicate(timeout=LIMIT_S)
        assert worker.returncode == 0, told
        said.append(told)
    return said


def test_two_workers_finish_a_study(postgres: Database, tmp_path: Path) -> None:
    """Both run trials at the same time, and both folders hold all of them; status says who runs what meanwhile."""
    with Team(postgres, tmp_path) as team:
        workers = team.start(0, 1)
        team.busy(workers[0])
        workers[0].send_signal(signal.SIGSTOP)  # the trial must not end while somebody looks
        try:
            assert team.shown(workers[0])
        finally:
            workers[0].send_signal(signal.SIGCONT)
        refused = autotune("tune", team.studies[0])
        assert refused.returncode == 2
        assert "autotune worker" in refused.stderr
        finish(workers)
        results = team.check()
        assert all(not isinstance(r.outcome, Interrupted) for r in results)
        ran = [postgres.ask(f"SELECT DISTINCT worker FROM autotune_claims WHERE study = '{team.name}'")]
        assert len(ran[0]) == 2
        assert team.trial(0, 0).log.exists() != team.trial(1, 0).log.exists()


def test_a_frozen_worker_tells_nothing_when_it_wakes(postgres: Database, tmp_path: Path) -> None:
    """Its trial is told once, by the other; what it had measured is kept aside; then it works on."""
    with Team(postgres, tmp_path, lease_s=6.0) as team:
        workers = team.start(0, 1)
        number = team.busy(workers[0])
        config = wait_for(lambda: records(team.studies[0], team.name).begun(number), LIMIT_S).config
        workers[0].send_signal(signal.SIGSTOP)
        try:
            # The other one has taken the trial over, and has told it under a number of its own.
            wait_for(lambda: [r for r in settled(team.results(1)) if r.config == config], LIMIT_S)
        finally:
            workers[0].send_signal(signal.SIGCONT)
        said = finish(workers)
        results = team.check()
        lost = next(r for r in results if r.number == number)
        assert isinstance(lost.outcome, Interrupted)
        assert "was not heard of" in lost.outcome.reason
        assert team.trial(0, number).fenced.exists()
        assert "taken over by another worker" in said[0]
        assert [r.number for r in settled(results) if r.config == config] != [number]


def test_connections_cut_in_mid_trial_lose_nothing(postgres: Database, tmp_path: Path) -> None:
    """Workers connect again; no trial is given up for it."""
    with Team(postgres, tmp_path) as team:
        workers = team.start(0, 1)
        cut = 0
        for worker in workers:
            team.busy(worker)
            cut += postgres.cut()
        finish(workers)
        assert cut > 0
        assert all(not isinstance(r.outcome, Interrupted) for r in team.check())


def test_a_database_that_restarts_loses_nothing(postgres: Database, tmp_path: Path) -> None:
    """Trials run on while it is away, and are told when it is back."""
    with Team(postgres, tmp_path) as team:
        workers = team.start(0, 1)
        number = team.busy(workers[0])
        postgres.stop()
        try:
            # It is measured by then, and waits to be told.
            wait_for(team.trial(0, number).so_far.exists, LIMIT_S)
            wait_for(lambda: "is out of reach" in team.notes(0), LIMIT_S)
        finally:
            postgres.start()
        said = finish(workers)
        assert "the database answers again" in "".join(said)
        assert all(not isinstance(r.outcome, Interrupted) for r in team.check())


def test_a_killed_worker_begins_again_where_it_was(postgres: Database, tmp_path: Path) -> None:
    """With the same folder it gives its old trial back at once, without waiting for the lease."""
    with Team(postgres, tmp_path, lease_s=LATER) as team:
        [worker] = team.start(0)
        number = team.busy(worker)
        stop(worker)
        finish(team.start(0))
        finish(team.start(1))
        results = team.check()
        lost = next(r for r in results if r.number == number)
        assert isinstance(lost.outcome, Interrupted | Measured)
        assert len(settled(results)) == TRIALS


def test_other_studies_and_other_folders_are_refused(postgres: Database, tmp_path: Path) -> None:
    """One line says what differs."""
    with Team(postgres, tmp_path) as team:
        finish(team.start(0))
        other = team.studies[1]
        other.write_text(other.read_text().replace("output_tokens = 8", "output_tokens = 9"))
        refused = autotune("worker", other)
        assert refused.returncode == 2
        assert "workload.output_tokens: 8 -> 9" in refused.stderr
        for line in ('storage = ""', 'storage = "mysql://there/x"', 'storage = "postgresql+psycopg://x@127.0.0.1:1/x"'):
            text = other.read_text().splitlines()
            other.write_text("\n".join(line if row.startswith("storage") else row for row in text))
            refused = autotune("worker", other)
            assert refused.returncode == 2
            assert "storage" in refused.stderr
