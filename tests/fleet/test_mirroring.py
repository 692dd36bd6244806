"""Optuna's tables keep level with the records of a shared study, whenever connections are cut."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from autotune.brief import read_brief
from autotune.choosing import strategy
from autotune.events import Event, Note
from autotune.fleet.board import Board, Held
from autotune.fleet.claims import Right, Terms
from autotune.fleet.leases import Leases
from autotune.fleet.shared import Pick, Shared
from autotune.night import Night
from autotune.picking import BASELINE, Searched
from autotune.search.mirror import Mirror
from autotune.search.outcomes import trial_state
from autotune.search.searcher import Searcher
from autotune.server.cancel import CancelFlag, Waiting
from autotune.standing import settled
from autotune.trial import Ticket
from autotune.values import Config, Interrupted, Timings, TrialResult
from tests import nights
from tests.fleet.database import Database
from tests.nights import records, score

pytestmark = pytest.mark.slow

LEASE_S = 60.0
TRIALS = 8
WORKERS = 3
CUTS = 12
LIMIT_S = 100.0
names = (f"mirrored-{number}" for number in itertools.count())


class Team:
    """Workers of one study in this process, each with a folder of its own; their trials take no time."""

    def __init__(self, postgres: Database, folder: Path) -> None:
        self.postgres = postgres
        self.folder = folder
        self.name = next(names)
        self.cancel = CancelFlag()
        self.notes: list[str] = []
        with closing(Board(postgres.url, self.name, LEASE_S)) as board:
            board.create()
            board.join(Terms(fingerprint={}, hardware={}))

    def study(self, worker: int) -> Path:
        """A worker's study file, written the first time."""
        folder = self.folder / str(worker)
        if not folder.exists():
            folder.mkdir()
            path = nights.Night(name=self.name).write(folder)
            path.write_text(path.read_text().replace("[engine]", f'storage = "{self.postgres.url}"\n[engine]', 1))
        return folder / "study.toml"

    @contextmanager
    def worker(self, number: int) -> Iterator[Shared]:
        """One that has joined, and leaves at the end."""
        rig = nights.rig(self.study(number), self._hear, Waiting(cancel=self.cancel))
        brief, board = read_brief(self.study(number)), Board(self.postgres.url, self.name, LEASE_S)
        with closing(board), Leases(board, LEASE_S, self.cancel) as leases:
            with board.hold():
                opened = Searcher.open(self.name, self.postgres.url, strategy(brief))
            with opened as searcher:
                shared = Shared(Night(brief=brief, rig=rig, searcher=searcher), board, leases, self.cancel)
                shared.join()
                yield shared
                shared.leave()

    def results(self) -> list[TrialResult]:
        """The records in the first worker's folder."""
        return records(self.study(0), self.name).results()

    def numbers(self) -> list[int]:
        """All that are on the board, in order."""
        rows = self.postgres.ask(f"SELECT number FROM autotune_claims WHERE study = '{self.name}' ORDER BY number")
        return [int(str(number)) for (number,) in rows]

    def _hear(self, event: Event) -> None:
        if isinstance(event, Note):
            self.notes.append(event.text)

    def in_step(self) -> bool:
        """Whether the tables hold the records, trial by trial, and nothing else."""
        with closing(Mirror.open(self.name, self.postgres.url, "maximize")) as mirror:
            found = {trial.number: trial.state for trial in mirror.trials()}
        return found == {result.number: trial_state(result) for result in self.results()}


def chooser(shared: Shared) -> Pick:
    """The baseline, then one limit after another."""

    def pick(running: Sequence[Ticket]) -> Ticket | Searched | None:
        searcher = shared.night.searcher
        taken = {r.config.key() for r in searcher.history if not isinstance(r.outcome, Interrupted)}
        taken |= {ticket.config.key() for ticket in running}
        if not searcher.history:
            return None if running else Ticket(number=searcher.next_number, config=BASELINE, role="baseline")
        for limit in range(1, TRIALS):
            config = Config(params={"max_running_requests": 8 * limit})
            if config.key() not in taken:
                return Ticket(number=searcher.next_number, config=config)
        return Searched(reason="all are taken")

    return pick


def result(ticket: Ticket) -> TrialResult:
    """A measured trial."""
    limit = ticket.config.params.get("max_running_requests", 24)
    return TrialResult(
        number=ticket.number,
        config=ticket.config,
        outcome=score(1000.0 + float(limit)),
        timings=Timings(total_s=1.0),
        started_at="",
        finished_at="",
    )


def run_one(shared: Shared, pick: Pick) -> bool:
    """A turn, and its trial, if there is one; whether there may be more."""
    picked = shared.turn(pick)
    if isinstance(picked, Ticket):
        assert shared.settle(result(picked))
    elif picked is None:
        time.sleep(0.02)
    return not isinstance(picked, Searched)


def run(shared: Shared) -> None:
    """Take trials and tell them until none is left."""
    pick = chooser(shared)
    while run_one(shared, pick):
        pass


def test_a_claim_that_is_cut_off_was_never_shown(
    postgres: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks when Optuna knows of the trial and the board does not: its number is free again."""
    team, claim, cut = Team(postgres, tmp_path), Held.claim, itertools.count()

    def cut_once(held: Held, ticket: Ticket, worker: str) -> Right:
        if next(cut) == 1:
            assert postgres.cut()
        return claim(held, ticket, worker)

    monkeypatch.setattr(Held, "claim", cut_once)
    with team.worker(0) as shared:
        run(shared)
    assert next(cut) == TRIALS + 1
    assert team.numbers() == list(range(TRIALS))
    assert team.in_step()


def test_tables_that_fail_are_made_level_when_they_work_again(postgres: Database, tmp_path: Path) -> None:
    """Trials are claimed and told meanwhile, and it is said once."""
    team = Team(postgres, tmp_path)
    with team.worker(0) as shared:
        pick = chooser(shared)
        run_one(shared, pick)
        postgres.ask("ALTER TABLE trial_user_attributes RENAME TO away")
        try:
            run_one(shared, pick)
            run_one(shared, pick)
        finally:
            postgres.ask("ALTER TABLE away RENAME TO trial_user_attributes")
        assert not team.in_step()
    assert team.numbers() == [0, 1, 2]
    assert team.in_step()
    assert sum("Optuna's tables" in note for note in team.notes) == 1


def test_whoever_leaves_brings_the_tables_level(postgres: Database, tmp_path: Path) -> None:
    """One that ends after its trial, without another turn, and while the connections break."""
    team = Team(postgres, tmp_path)
    with team.worker(0) as shared:
        run_one(shared, chooser(shared))
        assert not team.in_step()
        assert postgres.cut()
    assert team.in_step()


def test_several_that_are_cut_off_again_and_again(postgres: Database, tmp_path: Path) -> None:
    """At any moment: no trial is lost or doubled, on the board or in Optuna's tables, and no number is skipped."""
    team, ready = Team(postgres, tmp_path), threading.Barrier(WORKERS + 1)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with team.worker(number) as shared:
                ready.wait(LIMIT_S)
                run(shared)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=work, args=(number,)) for number in range(WORKERS)]
    for thread in threads:
        thread.start()
    ready.wait(LIMIT_S)
    for pause in range(CUTS):
        postgres.cut()
        time.sleep(0.05 * (1 + pause % 5))
    for thread in threads:
        thread.join(LIMIT_S)
    assert errors == []
    assert len({r.config.key() for r in settled(team.results())}) == len(settled(team.results())) == TRIALS
    assert team.numbers() == list(range(len(team.numbers())))
    assert team.in_step()
