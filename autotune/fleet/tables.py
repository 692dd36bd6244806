"""The tables of shared studies, beside Optuna's in one PostgreSQL database, and how it is reached."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, PendingRollbackError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from autotune.errors import InputError
from autotune.fleet.claims import BoardLost

CONNECT_S = 10
SILENCE_S = 30
"""A connection whose other side is silent for so long is given up."""
CREATING = 0x6175746F
"""Key of the advisory lock under which the tables are made."""
REMEDY = "workers share a study through PostgreSQL: write postgresql+psycopg://user@host/database"

metadata = sa.MetaData()
# Tokens and places in the order of settling: one sequence, since neither needs to be without gaps.
tokens = sa.Sequence("autotune_tokens", metadata=metadata)
studies = sa.Table(
    "autotune_studies",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("terms", sa.Text, nullable=False),
    sa.Column("region", sa.Text),
)
claims = sa.Table(
    "autotune_claims",
    metadata,
    sa.Column("study", sa.Text, sa.ForeignKey("autotune_studies.name", ondelete="CASCADE"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("worker", sa.Text, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("config", sa.Text, nullable=False),
    sa.Column("repeat_of", sa.Integer),
    sa.Column("began_at", sa.Text, nullable=False),
    sa.Column("lease_until", sa.DateTime(timezone=True), nullable=False),
    # A claim without a result is under way; nothing else says so.
    sa.Column("result", sa.Text),
    sa.Column("plan", sa.Text),
    sa.Column("place", sa.BigInteger),
    # Workers ask for what was settled since they last looked.
    sa.Index("autotune_claims_place", "study", "place"),
)


def connect(url: str) -> sa.Engine:
    """An engine for a PostgreSQL URL; nothing is connected yet. Raises InputError for any other URL."""
    try:
        parsed = sa.make_url(url)
    except SQLAlchemyError:
        raise InputError(f"storage: not a database URL; {REMEDY}") from None
    if parsed.get_backend_name() != "postgresql":
        raise InputError(f"storage: {parsed.get_backend_name()} is not for several hosts; {REMEDY}")
    try:
        return sa.create_engine(url, pool_pre_ping=True, connect_args=_arguments(parsed))
    except ImportError as error:
        remedy = "`pip install 'autotune[postgres]'` and write postgresql+psycopg://..."
        raise InputError(f"storage: no driver for it ({error}); {remedy}") from None


def _arguments(url: sa.URL) -> dict[str, Any]:
    """A host that vanished is noticed, see tcp(7); what the URL says itself stays."""
    wanted = {
        "connect_timeout": CONNECT_S,
        "keepalives_idle": SILENCE_S // 3,
        "keepalives_interval": SILENCE_S // 6,
        "keepalives_count": 4,
        "tcp_user_timeout": 1000 * SILENCE_S,
    }
    return {key: value for key, value in wanted.items() if key not in url.query}


def create(connection: sa.Connection) -> None:
    """Make the tables where they are missing; workers that start at once do not trip over each other."""
    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(CREATING)))
    metadata.create_all(connection)


@contextlib.contextmanager
def database_calls() -> Iterator[None]:
    """Raises ``BoardLost`` for what may pass by itself, InputError for what will not."""
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeout, PendingRollbackError) as error:
        raise BoardLost(_first_line(error)) from error
    except DBAPIError as error:
        if error.connection_invalidated:
            raise BoardLost(_first_line(error)) from error
        raise InputError(f"storage: {_first_line(error)}; check the rights of its user, and the database") from error


def _first_line(error: BaseException) -> str:
    """What the database said, without the statement and its values."""
    cause = getattr(error, "orig", None) or error
    return (" ".join(str(cause).split()) or type(cause).__name__)[:200]
