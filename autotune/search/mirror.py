"""The Optuna storage: a mirror of the records for optuna-dashboard and the like, brought up to date by ``sync``.

Trial n of the storage is trial n of the records. Whatever was cut off, and whenever, the next ``sync`` completes it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import optuna
import sqlalchemy
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from autotune.errors import InputError
from autotune.search.outcomes import NOT_BEGUN, Place, missing_trial, running_trial
from autotune.search.region import Direction
from autotune.study.atomic import PRIVATE_FILE, writing
from autotune.study.record import quarantine

BUSY_S = 30.0
REPAIR = "`autotune repair` rebuilds it from the records"


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
        self._opened: optuna.Study | None = None
        with _storage_calls():
            self._study()

    @classmethod
    def open(cls, name: str, storage: str | Path, direction: Direction, busy_s: float = BUSY_S) -> Mirror:
        """Open or create. ``storage`` is an SQLite file or a database URL. Raises ``InputError`` with the remedy."""
        if isinstance(storage, Path):
            check_sqlite(storage, busy_s)
        try:
            with _storage_calls():
                return cls(name, _connect(storage, busy_s), direction)
        except ImportError as error:
            remedy = "`pip install 'autotune[postgres]'` and write postgresql+psycopg://..., or leave storage empty"
            raise InputError(f"storage {_shown(storage)}: no driver for it ({error}); {remedy}") from None
        except Exception as error:  # drivers, and Optuna with a file of another version, raise what they like
            raise InputError(f"storage {_shown(storage)}: {_first_line(error)}; {_remedy(error, storage)}") from error

    def close(self) -> None:
        with contextlib.suppress(SQLAlchemyError):
            self._storage.remove_session()
            if isinstance(self._storage, RDBStorage):
                self._storage.engine.dispose()

    def remove(self) -> None:
        """Remove this study from the storage, and close."""
        with _storage_calls():
            optuna.delete_study(study_name=self._name, storage=self._storage)
        self.close()

    @contextlib.contextmanager
    def within(self, connection: sqlalchemy.Connection) -> Iterator[None]:
        """What is done in here is a part of that transaction, in the same database: it comes to pass with it.

        Where the transaction was undone, ``forget`` what was seen in it.
        """
        assert isinstance(self._storage, RDBStorage)
        # An idle connection of its own would only count against the server's limit.
        self._storage.engine.dispose()
        try:
            self._bind(connection)
            yield
        finally:
            self._bind(self._storage.engine)

    def forget(self) -> None:
        """Read everything anew: Optuna keeps finished trials in memory."""
        self._opened = None

    def trials(self) -> list[FrozenTrial]:
        with _storage_calls():
            return self._study().get_trials(deepcopy=False)

    def add(self, trial: FrozenTrial) -> None:
        """Append a trial, in one transaction."""
        with _storage_calls():
            self._study().add_trial(trial)

    def sync(self, wanted: Mapping[int, FrozenTrial], awaited: Collection[int] = ()) -> None:
        """Make the storage hold ``wanted``, finished trials by number; leave the ``awaited`` ones as they are.

        Numbers between them that never became a trial are FAIL. Raises ``OutOfStep`` when the storage holds
        a finished trial that is not wanted, or a different one: then only a rebuild helps.
        """
        found = self.trials()
        for trial in found:
            if trial.number not in awaited:
                self._settle(trial, wanted.get(trial.number))
        for number in range(len(found), max(wanted, default=-1) + 1):
            absent = running_trial({"kind": "running"}, Place()) if number in awaited else missing_trial()
            self.add(wanted.get(number) or absent)

    def clear(self) -> None:
        """Remove every trial of this study."""
        with _storage_calls():
            optuna.delete_study(study_name=self._name, storage=self._storage)
            self.forget()
            self._study()

    def _study(self) -> optuna.Study:
        if self._opened is None:
            self._opened = optuna.create_study(
                study_name=self._name, storage=self._storage, direction=self._direction, load_if_exists=True
            )
        return self._opened

    def _bind(self, to: sqlalchemy.Engine | sqlalchemy.Connection) -> None:
        """Optuna commits every call of its own; on a connection that is a savepoint of its transaction."""
        assert isinstance(self._storage, RDBStorage)
        self._storage.scoped_session.remove()
        self._storage.scoped_session.configure(bind=to, join_transaction_mode="create_savepoint")

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
    kind = trial.user_attrs.get("kind", "unknown")
    # One that was shown as running and never became a trial still has its parameters there.
    key = trial.user_attrs.get("config_key", "") if kind != NOT_BEGUN else ""
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
        raise InputError(f"{path}: {error}; {_remedy(error, path)}") from None
    if answer is None or answer[0] != "ok":
        raise InputError(f"{path}: the database is corrupt; {REPAIR}")


def set_aside_damaged(path: Path) -> Path | None:
    """Rename an SQLite file that cannot be used, with its journals; None when it is sound.

    Raises ``InputError`` when the trouble is another one, such as a lock.
    """
    try:
        Mirror.open("autotune-repair-probe", path, "maximize").remove()
    except InputError as error:
        if REPAIR not in str(error):
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
            connection = sqlite3.connect(storage, timeout=busy_s, check_same_thread=False)
            # A trial is some thirty commits. What a power cut takes of them is in the records: fewer syncs will do.
            connection.execute("PRAGMA synchronous = NORMAL")
            return connection

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
        raise StorageTrouble(_first_line(error)) from error


def _first_line(error: BaseException) -> str:
    """What the database said, without the statement and its values."""
    cause = getattr(error, "orig", None) or getattr(error.__cause__, "orig", None) or error
    return " ".join(str(cause).split())[:200] or type(cause).__name__


def _remedy(error: BaseException, storage: str | Path) -> str:
    text = str(error).lower()
    if "locked" in text or "busy" in text:
        return "another program holds the database: close it and try again"
    if any(word in text for word in ("readonly", "read-only", "unable to open", "is full", "i/o error", "permission")):
        return "check permissions and free space of the folder"
    if isinstance(storage, Path) or "malformed" in text or "not a database" in text:
        return REPAIR
    return "check the URL and that the database runs, or leave storage empty for SQLite"


def _shown(storage: str | Path) -> str:
    """The storage without its password."""
    if isinstance(storage, Path):
        return str(storage)
    try:
        return sqlalchemy.make_url(storage).render_as_string(hide_password=True)
    except (SQLAlchemyError, ValueError):
        return "(not a URL)"
