"""Ask and tell, over the records of the study and its mirror in an Optuna storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

import msgspec
import sqlalchemy

from autotune.errors import InputError
from autotune.search.fantasies import propose_beside
from autotune.search.live import next_limit
from autotune.search.mirror import Mirror, OutOfStep, StorageTrouble, set_aside_damaged
from autotune.search.outcomes import Place, frozen_trial, running_trial
from autotune.search.outlook import trust
from autotune.search.region import Region
from autotune.search.samplers import Knowledge, make_sampler
from autotune.search.suggest import Strategy, fresh_trials
from autotune.search.transfer import in_force
from autotune.study.transfer import Trust
from autotune.values import Config, Effective, Interrupted, Measured, ParamValue, TrialResult


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """What to try next, under which number. ``rerun_of`` is the trial that was cut off, if it is one again;
    ``repeat_of`` the measured trial of which the search wants one more start, because that tells more than a new one.
    Run it as a trial like any other, so that it counts against the budget.
    """

    number: int
    config: Config
    rerun_of: int | None = None
    repeat_of: int | None = None


class Searcher:
    """The search of one study.

    The order of a trial: ``ask``, write the config to disk, ``begin``, run, write the result to disk, ``tell``.
    After a crash between any two of them: ``Records.settle_interrupted``, then ``reconcile``.
    Records are the source of truth. When the storage fails during a night, ``trouble`` says so, the night
    goes on, and the next call that succeeds completes what is missing.
    """

    def __init__(self, mirror: Mirror, strategy: Strategy) -> None:
        self._mirror = mirror
        self._strategy = strategy
        self._history: list[TrialResult] = []
        self._burnt = 0
        self._running: dict[int, Config] = {}
        self.trouble: str = ""

    @classmethod
    def open(cls, name: str, storage: str | Path, strategy: Strategy) -> Searcher:
        """Open or create the study ``name`` in ``storage`` (an Optuna URL, or the path of an SQLite file).

        Raises ``InputError``: unknown sampler, storage locked, corrupt or out of reach.
        """
        make_sampler(strategy.sampler, Knowledge())
        return cls(Mirror.open(name, storage, strategy.direction), strategy)

    def __enter__(self) -> Searcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._mirror.close()

    def within(self, connection: sqlalchemy.Connection) -> AbstractContextManager[None]:
        """What the storage learns in here is a part of that transaction: it comes to pass with it, or not at all."""
        return self._mirror.within(connection)

    def forget(self) -> None:
        """A transaction of ``within`` was undone: read the storage anew."""
        self._mirror.forget()

    @property
    def history(self) -> tuple[TrialResult, ...]:
        return tuple(self._history)

    def reconcile(self, results: Sequence[TrialResult], region: Region | None = None) -> list[Suggestion]:
        """Take over all settled trials and tell Optuna what it does not know yet. Doing it twice changes nothing.

        Returns the trials that are to run again; ``ask`` hands them out first.
        Raises ``InputError`` when the storage holds other trials than the records.
        """
        self._history = sorted(results, key=lambda result: result.number)
        try:
            self._sync(region)
            self._burnt = len(self._mirror.trials())
        except OutOfStep as error:
            raise InputError(
                f"storage: it does not agree with the records ({error}); `autotune repair` rebuilds it from them, "
                "or choose another study name"
            ) from None
        except StorageTrouble as error:
            raise InputError(f"storage: {error}; close other programs that use it, or `autotune repair`") from None
        return self.pending()

    def take_over(
        self, results: Sequence[TrialResult], running: Mapping[int, Config], region: Region | None = None
    ) -> None:
        """Like ``reconcile`` in the middle of a study that others work on too: ``running`` are all trials under way.

        Where the storage fails, or holds something else, ``trouble`` says so: the results do not depend on it.
        """
        self._history = sorted(results, key=lambda result: result.number)
        self._running = dict(running)
        try:
            self._sync(region)
            self._burnt = len(self._mirror.trials())
            self.trouble = ""
        except (StorageTrouble, OutOfStep) as error:
            self.trouble = str(error)

    def pending(self) -> list[Suggestion]:
        """Interrupted trials whose parameters no later trial has taken up, each under a new number."""
        last = {result.config.key(): result for result in self._history if result.repeat_of is None}
        taken_up = {config.key() for config in self._running.values()}
        cut = [
            r
            for key, r in last.items()
            if isinstance(r.outcome, Interrupted) and r.config.params and key not in taken_up
        ]
        return [
            Suggestion(number=self.next_number + i, config=r.config, rerun_of=r.number)
            for i, r in enumerate(sorted(cut, key=lambda r: r.number))
        ]

    @property
    def next_number(self) -> int:
        last = max((*self._running, *(r.number for r in self._history)), default=-1)
        return max(last + 1, self._burnt)

    def ask(self, region: Region) -> Suggestion | None:
        """What to try next: an interrupted config first, else a new one. None when the region is exhausted.

        Trials that run now are taken for what the search expects of them (``fantasies``). Nothing is written. The same
        records, running trials, seed and region give the same answer.
        """
        if waiting := self.pending():
            return waiting[0]
        found = propose_beside(self._history, self._running, region, self._strategy)
        if found is None:
            return None
        return Suggestion(number=self.next_number, config=found.config, repeat_of=found.repeat_of)

    def ask_live(self, config: Config, effective: Effective, measured: Measured, region: Region | None) -> int | None:
        """The running limit to lower the server to that is up with ``config``, and to load it at once more; None where
        that is not worth its time. ``measured`` has its loads so far, the own and the lowered ones.

        Nothing is written. The same records, seed, region and loads give the same answer. Bounds that the baseline
        fixes are known once its values in force are: it should be asked for the baseline too.
        """
        if region is None:
            return None
        seen = msgspec.structs.replace(measured, effective=effective)
        return next_limit(self._history, (config, seen), region, self._strategy)

    def trust(self, region: Region) -> Trust | None:
        """How far what was taken over from another study is believed; None where nothing was, or it is not asked."""
        return trust(self._history, region, self._strategy)

    def begin(self, number: int, config: Config, region: Region | None = None) -> None:
        """Show the trial as RUNNING. Before the bounds are known, as in the baseline, ``region`` is None."""
        self._running[number] = config
        try:
            if len(self._mirror.trials()) == number:
                attrs = {"kind": "running", "config": dict(config.params), "config_key": config.key()}
                self._mirror.add(running_trial(attrs, _place(config.params, region)))
            self.trouble = ""
        except StorageTrouble as error:
            self.trouble = str(error)

    def tell(self, result: TrialResult, region: Region | None = None) -> None:
        """Take over a settled trial. Telling it twice changes nothing.

        Without ``region`` a measured trial, the baseline, stays RUNNING there: tell it again when the region is known.
        """
        self._running.pop(result.number, None)
        if all(known.number != result.number for known in self._history):
            self._history = sorted((*self._history, result), key=lambda known: known.number)
        try:
            self._sync(region)
            self.trouble = ""
        except (StorageTrouble, OutOfStep) as error:
            self.trouble = str(error)

    def rebuild(self, results: Sequence[TrialResult], region: Region | None = None) -> None:
        """Throw the study in the storage away and write it again from the records."""
        self._mirror.clear()
        self.reconcile(results, region)

    @property
    def fresh_trials(self) -> int:
        """Settled trials without interrupted ones and repeats: what counts against the budget of trials."""
        return fresh_trials(self._history)

    def _sync(self, region: Region | None) -> None:
        # Optuna takes no parameters for a trial that is finished: a measured baseline waits for the region.
        unplaced = {r.number for r in self._history if region is None and isinstance(r.outcome, Measured)}
        awaited = unplaced | self._running.keys()
        self._mirror.sync(
            {
                result.number: frozen_trial(result, _place(in_force(result), region), self._strategy.limits)
                for result in self._history
                if result.number not in awaited
            },
            awaited,
        )


def repair_storage(storage: str | Path) -> Path | None:
    """Set an SQLite file aside that cannot be used; its new name, or None when it is sound or no file."""
    return set_aside_damaged(storage) if isinstance(storage, Path) else None


def _place(params: dict[str, ParamValue], region: Region | None) -> Place:
    if region is None:
        return Place()
    point = region.point(params)
    return Place(point, {axis.name: axis.shown() for axis in region.axes() if axis.name in point})
