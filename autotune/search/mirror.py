"""The Optuna storage: a mirror of the records for optuna-dashboard and the like, brought up to date by ``sync``.

Trial n of the storage is trial n of the records. Whatever was cut off, and whenever, the next ``sync`` completes it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

import optuna
import sqlalchemy
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from autotune.errors import InputError
from autotune.search.outcomes import missing_trial
from autotune.search.region import Direction
from autotune.study.atomic import PRIVATE_FILE, writing
from autotune.study.record import quarantine

BUSY_S = 30.0


class OutOfStep(Exception):
    """The storage holds something that the records do not."""


class StorageTrouble(Exception):
    """The storage did not answer; the message has no secret in it."""


class Mirror:
    """One study of an Optuna storage. Every method raises ``StorageTrouble`` when the storage does not answer."""

    def __init__(self, name: str, storage: BaseStorage, direction: Direction) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._storage = storage
        self._name = name
        self._direction = direction
        with _storage_calls():
            self._study = optuna.create_study(
                study_name=name, storage=storage, direction=direction, load_if_exists=True
            )

    @classmethod
    def open(cls, name: str, storage: str | Path, direction: Direction, busy_s: float = BUSY_S) -> Mirror:
        """Open or create. ``storage`` is an SQLite file or a database URL. Raises ``InputError`` with the remedy."""
        where = str(storage) if isinstance(storage, Path) else _without_password(storage)
        if isinstance(storage, Path):
            check_sqlite(storage, busy_s)
        try:
            with _storage_calls():
                return cls(name, _connect(storage, busy_s), direction)
        except StorageTrouble as trouble:
            raise InputError(f"storage {where}: {trouble}; {_remedy(str(trouble))}") from trouble
        except ImportError as error:
            remedy = "`pip install psycopg[binary]` and write postgresql+psycopg://..., or leave storage empty"
            raise InputError(f"storage {where}: no driver for this database ({error}); {remedy}") from None

    def close(self) -> None:
        with contextlib.suppress(SQLAlchemyError):
            self._storage.remove_session()
            if isinstance(self._storage, RDBStorage):
                self._storage.engine.dispose()

    def trials(self) -> list[FrozenTrial]:
        with _storage_calls():
            return self._study.get_trials(deepcopy=False)

    def add(self, trial: FrozenTrial) -> None:
        """Append a trial, in one transaction."""
        with _storage_calls():
            self._study.add_trial(trial)

    def sync(self, wanted: Mapping[int, FrozenTrial]) -> None:
        """Make the storage hold ``wanted``, finished trials by number.

        Numbers between them that never became a trial are FAIL. Raises ``OutOfStep`` when the storage holds
        a finished trial that is not wanted, or a different one: then only a rebuild helps.
        """
        found = self.trials()
        for trial in found:
            self._settle(trial, wanted.get(trial.number))
        for number in range(len(found), max(wanted, default=-1) + 1):
            self.add(wanted.get(number) or missing_trial())

    def clear(self) -> None:
        """Remove every trial of this study."""
        with _storage_calls():
            optuna.delete_study(study_name=self._name, storage=self._storage)
            self._study = optuna.create_study(study_name=self._name, storage=self._storage, direction=self._direction)

    def _settle(self, found: FrozenTrial, wanted: FrozenTrial | None) -> None:
        if found.state.is_finished():
            expected = wanted or missing_trial()
            if _identity(found) != _identity(expected):
                raise OutOfStep(f"trial {found.number} is {_identity(found)}, the records say {_identity(expected)}")
        else:
            self._finish(found, wanted or missing_trial())

    def _finish(self, found: FrozenTrial, wanted: FrozenTrial) -> None:
        """Complete a trial that is running there. The state comes last: until then all of this can be repeated."""
        trial_id, storage = found._trial_id, self._storage
        with _storage_calls():
            if found.state is TrialState.WAITING:
                storage.set_trial_state_values(trial_id, TrialState.RUNNING)
            for name, value in wanted.params.items():
                if name not in found.params:
                    distribution = wanted.distributions[name]
                    storage.set_trial_param(trial_id, name, distribution.to_internal_repr(value), distribution)
            for key, attr in wanted.user_attrs.items():
                storage.set_trial_user_attr(trial_id, key, attr)
            for key, attr in wanted.system_attrs.items():
                storage.set_trial_system_attr(trial_id, key, attr)
            for step, value in wanted.intermediate_values.items():
                storage.set_trial_intermediate_value(trial_id, step, value)
            storage.set_trial_state_values(trial_id, wanted.state, wanted.values)


def _identity(trial: FrozenTrial) -> str:
    kind, key = trial.user_attrs.get("kind", "unknown"), trial.user_attrs.get("config_key", "")
    return f"{trial.state.name} {kind} {key}".strip()


def check_sqlite(path: Path, busy_s: float = BUSY_S) -> None:
    """Raise ``InputError`` when the file cannot be used. A file that is not there yet is created, private."""
    with writing(path):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE))
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=busy_s)) as connection:
            # An immediate transaction finds a lock, and a folder that is read-only, before the night does.
            connection.execute("BEGIN IMMEDIATE")
            connection.rollback()
            answer = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        raise InputError(f"{path}: {error}; {_remedy(str(error))}") from None
    if answer is None or answer[0] != "ok":
        raise InputError(f"{path}: the database is corrupt; {_remedy('corrupt')}")


def set_aside_damaged(path: Path) -> Path | None:
    """Rename an SQLite file that cannot be used, with its journals; None when it is sound."""
    try:
        check_sqlite(path)
    except InputError as error:
        if "repair" not in str(error):
            raise
    else:
        return None
    for suffix in ("-journal", "-wal", "-shm"):
        if (journal := path.with_name(path.name + suffix)).exists():
            quarantine(journal)
    return quarantine(path)


def _connect(storage: str | Path, busy_s: float) -> RDBStorage:
    if isinstance(storage, Path):
        # A creator, so that no character of the path is read as a part of a URL. The rollback journal stays the
        # default: it survives kill -9 and, unlike WAL, network file systems.
        def creator() -> sqlite3.Connection:
            return sqlite3.connect(storage, timeout=busy_s, check_same_thread=False)

        return RDBStorage("sqlite://", engine_kwargs={"creator": creator, "poolclass": sqlalchemy.NullPool})
    backend = sqlalchemy.make_url(storage).get_backend_name()
    if backend == "sqlite":
        return RDBStorage(storage, engine_kwargs={"connect_args": {"timeout": busy_s}})
    return RDBStorage(storage, engine_kwargs={"pool_pre_ping": True})


@contextlib.contextmanager
def _storage_calls() -> Iterator[None]:
    try:
        yield
    except (SQLAlchemyError, StorageInternalError, sqlite3.Error) as error:
        cause = getattr(error, "orig", None) or getattr(error.__cause__, "orig", None) or error
        raise StorageTrouble(" ".join(str(cause).split())[:200]) from error


def _remedy(message: str) -> str:
    text = message.lower()
    if "locked" in text or "busy" in text:
        return "another program holds the database: close it and try again"
    if any(word in text for word in ("malformed", "corrupt", "not a database", "no such table", "no such column")):
        return "`autotune repair` rebuilds it from the records"
    if "readonly" in text or "unable to open" in text or "disk" in text:
        return "check permissions and free space of the folder"
    return "check the URL and that the database runs, or leave storage empty for SQLite"


def _without_password(url: str) -> str:
    try:
        return sqlalchemy.make_url(url).render_as_string(hide_password=True)
    except SQLAlchemyError:
        return "(not a URL)"
