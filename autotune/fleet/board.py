"""The board of a shared study: who runs which trial, and what came of it, in PostgreSQL.

Whoever changes the order of things holds the study's row. Leases are renewed beside that, by the clock of the database.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import timedelta

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from autotune.errors import InputError
from autotune.fleet.claims import CONFIRMATION, BoardLost, Claim, Right, Terms, Told
from autotune.fleet.tables import claims, connect, create, database_calls, studies, tokens
from autotune.rig import now_text
from autotune.search.region import Region
from autotune.trial import Ticket
from autotune.values import Config, Interrupted, LaunchPlan, TrialResult, Value

SHARED = "postgresql"
"""How the URL of a database begins that several hosts can share."""
LOST = "worker {} is gone, or was not heard of for {:.0f} s"
NEXT = sa.select(tokens.next_value()).scalar_subquery()


class Pulse(Value, frozen=True, kw_only=True):
    """Changes when there is something to do for a worker that waits. ``place`` is the last one settled."""

    place: int
    live: int
    expired: int


class Board:
    """One study. Methods raise ``BoardLost`` when the database does not answer."""

    def __init__(self, url: str, study: str, lease_s: float) -> None:
        """Nothing is connected yet. Raises InputError for a URL that is not PostgreSQL's."""
        self._engine = connect(url)
        self._study = study
        self._lease = timedelta(seconds=lease_s)

    def close(self) -> None:
        self._engine.dispose()

    def create(self) -> None:
        """Make the tables where they are missing."""
        with database_calls(), self._engine.begin() as connection:
            create(connection)

    @contextlib.contextmanager
    def hold(self) -> Iterator[Held]:
        """One transaction in which nobody else changes this study. ``join`` it first.

        A worker that is frozen in here is cut off by the database after a lease, so that others can go on.
        """
        with database_calls(), self._engine.begin() as connection:
            for name in ("idle_in_transaction_session_timeout", "lock_timeout"):
                wait_ms = str(round(1000 * self._lease.total_seconds()))
                connection.execute(sa.select(sa.func.set_config(name, wait_ms, True)))
            connection.execute(sa.select(studies.c.name).where(studies.c.name == self._study).with_for_update())
            yield Held(connection, self._study, self._lease)

    def join(self, terms: Terms) -> Terms:
        """The terms of the study: those of whoever came first."""
        row = {"name": self._study, "terms": _text(terms)}
        with database_calls(), self._engine.begin() as connection:
            connection.execute(insert(studies).values(row).on_conflict_do_nothing())
            found = connection.scalar(sa.select(studies.c.terms).where(studies.c.name == self._study))
        return msgspec.json.decode(found or "", type=Terms)

    def renew(self, rights: Sequence[Right]) -> set[int]:
        """Extend the leases that are still held; the numbers of their trials."""
        mine = claims.c.token.in_([right.token for right in rights])
        later = (
            sa.update(claims)
            .where(claims.c.study == self._study, mine, claims.c.result.is_(None))
            .values(lease_until=sa.func.clock_timestamp() + self._lease)
            .returning(claims.c.number)
        )
        with database_calls(), self._engine.begin() as connection:
            return set(connection.scalars(later))

    def pulse(self) -> Pulse:
        """A glance without a lock."""
        live = claims.c.result.is_(None)
        glance = sa.select(
            sa.func.coalesce(sa.func.max(claims.c.place), 0),
            sa.func.count().filter(live),
            sa.func.count().filter(live, claims.c.lease_until < sa.func.clock_timestamp()),
        ).where(claims.c.study == self._study)
        with database_calls(), self._engine.connect() as connection:
            place, under_way, expired = connection.execute(glance).one()
        return Pulse(place=place, live=under_way, expired=expired)

    def exists(self) -> bool:
        """Whether workers have ever shared this study."""
        with database_calls(), self._engine.connect() as connection:
            if not sa.inspect(connection).has_table(studies.name):
                return False
            return connection.scalar(sa.select(sa.exists().where(studies.c.name == self._study))) is True

    def live(self) -> list[Claim]:
        """The claims under way, as a reader sees them."""
        with database_calls(), self._engine.connect() as connection:
            return Held(connection, self._study, self._lease).live()


class Held:
    """The study while its row is held; all or nothing of what is done here, or on ``connection``, comes to pass."""

    def __init__(self, connection: sa.Connection, study: str, lease: timedelta) -> None:
        self.connection = connection
        self._study = study
        self._lease = lease
        self._own = claims.c.study == study

    def region(self) -> Region | None:
        """The bounds of the search, None before there is a baseline."""
        text = self.connection.scalar(sa.select(studies.c.region).where(studies.c.name == self._study))
        return msgspec.json.decode(text, type=Region) if text else None

    def fix_region(self, region: Region) -> None:
        """Write the bounds down."""
        self.connection.execute(sa.update(studies).where(studies.c.name == self._study).values(region=_text(region)))

    def empty(self) -> bool:
        """Whether nothing was ever claimed."""
        return self.connection.scalar(sa.select(sa.exists().where(self._own))) is not True

    def live(self) -> list[Claim]:
        """The claims under way, by number."""
        rows = self.connection.execute(self._selected(claims.c.result.is_(None)).order_by(claims.c.number))
        return [_claim(row) for row in rows]

    def expire(self, worker: str) -> list[Claim]:
        """Settle what nobody will: leases that ran out, and claims of ``worker``, who runs nothing now."""
        over = sa.or_(claims.c.lease_until < sa.func.clock_timestamp(), claims.c.worker == worker)
        lost = [_claim(row) for row in self.connection.execute(self._selected(claims.c.result.is_(None), over))]
        for claim in lost:
            if claim.number == CONFIRMATION:
                self.connection.execute(sa.delete(claims).where(self._own, claims.c.number == CONFIRMATION))
                continue
            reason = LOST.format(claim.worker, self._lease.total_seconds())
            result = claim.ticket.begun(claim.began_at).unmeasured(Interrupted(reason=reason), now_text())
            self._put(claim.number, {"result": _text(result)})
        return lost

    def told_after(self, place: int) -> list[Told]:
        """Trials settled after that place, in order."""
        wanted = (
            sa.select(claims.c.place, claims.c.worker, claims.c.result, claims.c.plan)
            .where(self._own, claims.c.place > place, claims.c.number != CONFIRMATION)
            .order_by(claims.c.place)
        )
        return [
            Told(
                place=row.place,
                worker=row.worker,
                result=msgspec.json.decode(row.result, type=TrialResult),
                plan=msgspec.json.decode(row.plan, type=LaunchPlan) if row.plan else None,
            )
            for row in self.connection.execute(wanted)
        ]

    def claim(self, ticket: Ticket, worker: str) -> Right:
        """Take a trial, for one lease."""
        row = {
            "study": self._study,
            "number": ticket.number,
            "token": NEXT,
            "worker": worker,
            "role": ticket.role,
            "config": _text(ticket.config),
            "repeat_of": ticket.repeat_of,
            "began_at": now_text(),
            "lease_until": sa.func.clock_timestamp() + self._lease,
        }
        token = self.connection.execute(sa.insert(claims).values(row).returning(claims.c.token)).scalar_one()
        return Right(number=ticket.number, token=token, worker=worker)

    def settle(self, right: Right, result: msgspec.Struct, plan: LaunchPlan | None = None) -> bool:
        """Tell what came of it; False when the trial was taken over meanwhile: then nothing is told.

        Telling it again, after an answer that was lost, is as telling it once.
        """
        values = {"result": _text(result), "plan": _text(plan) if plan else None}
        if self._put(right.number, values, right.token):
            return True
        same = sa.select(claims.c.result).where(
            self._own, claims.c.number == right.number, claims.c.token == right.token
        )
        return self.connection.scalar(same) == values["result"]

    def release(self, right: Right) -> None:
        """Give a claim back as if it had never been."""
        mine = (claims.c.number == right.number, claims.c.token == right.token, claims.c.result.is_(None))
        self.connection.execute(sa.delete(claims).where(self._own, *mine))

    def adopt(self, worker: str, results: Sequence[tuple[TrialResult, LaunchPlan | None]]) -> None:
        """Put trials of a study that began on one host onto an empty board."""
        for result, plan in results:
            ticket = Ticket(number=result.number, config=result.config, repeat_of=result.repeat_of)
            self.settle(self.claim(ticket, worker), result, plan)

    def confirmed(self) -> tuple[int, str] | None:
        """Of the confirmation on record: on how many settled trials it rests, and itself, encoded."""
        wanted = sa.select(claims.c.repeat_of, claims.c.result).where(self._own, claims.c.number == CONFIRMATION)
        row = self.connection.execute(wanted.where(claims.c.result.is_not(None))).one_or_none()
        return (row[0], row[1]) if row else None

    def forget_confirmation(self) -> None:
        """Make room for another one."""
        self.connection.execute(sa.delete(claims).where(self._own, claims.c.number == CONFIRMATION))

    def _selected(self, *which: sa.ColumnElement[bool]) -> sa.Select[tuple[sa.Row[tuple[object, ...]], ...]]:
        left = sa.extract("epoch", claims.c.lease_until - sa.func.clock_timestamp()).label("left_s")
        return sa.select(claims, left).where(self._own, *which)

    def _put(self, number: int, values: dict[str, str | None], token: int | None = None) -> bool:
        mine = [claims.c.token == token] if token is not None else []
        told = (
            sa.update(claims)
            .where(self._own, claims.c.number == number, claims.c.result.is_(None), *mine)
            .values(**values, place=NEXT)
        )
        return self.connection.execute(told).rowcount == 1


def _claim(row: sa.Row[tuple[sa.Row[tuple[object, ...]], ...]]) -> Claim:
    return Claim(
        number=row.number,
        role=row.role,
        config=msgspec.json.decode(row.config, type=Config),
        worker=row.worker,
        began_at=row.began_at,
        repeat_of=row.repeat_of,
        left_s=float(row.left_s),
    )


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def claims_of(storage: str, study: str) -> tuple[Claim, ...]:
    """Who runs what in a shared study, for readers; nothing where it is not shared. Raises ``BoardLost``."""
    if not storage.startswith(SHARED):
        return ()
    with contextlib.closing(Board(storage, study, lease_s=0)) as board:
        return tuple(board.live()) if board.exists() else ()


def refuse_shared(storage: str, study: str, where: str) -> None:
    """Raises InputError for a study that workers share: a night of one host would tell what they tell."""
    if not storage.startswith(SHARED):
        return
    # Whoever opens the storage next says better why it cannot be reached.
    with contextlib.suppress(BoardLost), contextlib.closing(Board(storage, study, lease_s=0)) as board:
        if board.exists():
            raise InputError(
                f"{where}: workers share this study through its storage; go on with `autotune worker {where}`, "
                "whose last worker confirms too"
            )


def require_idle(storage: str, study: str, where: str) -> bool:
    """Whether workers share this study. Raises InputError while one of them runs something, or nobody can tell."""
    if not storage.startswith(SHARED):
        return False
    try:
        with contextlib.closing(Board(storage, study, lease_s=0)) as board:
            shared, live = board.exists(), claims_of(storage, study)
    except BoardLost as error:
        raise InputError(f"{where}: storage: {error}; check the URL and that the database runs") from None
    if live:
        names = ", ".join(claim.worker for claim in live)
        raise InputError(f"{where}: workers run trials of this study ({names}); end them first")
    return shared
