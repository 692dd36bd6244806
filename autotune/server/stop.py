"""Stopping a server for good: politely, then firmly, always all of it, and then looking that it is gone."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence

from autotune.server.clock import Clock, SystemClock
from autotune.server.process import ServerIdentity
from autotune.server.proctable import ProcessRow, boot_id, family, mark_of, marked, own_line, read_table, send
from autotune.values import Value

Members = Callable[[], Sequence[ProcessRow]]
Hurry = Callable[[], bool]
Lost = Callable[[str], bool]
_POLL_S = 0.05
_ROOTS_FIRST_S = 5.0
"""How long parents may end their children themselves. SGLang's launcher takes a SIGTERM to its scheduler for a crash:
it logs one, stays 5 s for diagnostics, and dumps stacks and GPU memory where it can (seen with 0.5.23)."""


class StopLimits(Value, frozen=True, kw_only=True):
    """``term_s`` between SIGTERM and SIGKILL, ``kill_s`` between SIGKILL and giving up (an unkillable process)."""

    term_s: float = 30.0
    kill_s: float = 15.0


class StopReport(Value, frozen=True, kw_only=True):
    """What a stop took. ``terminated`` and ``killed`` count processes, ``survivors`` names those still there."""

    terminated: int
    killed: int
    seconds: float
    survivors: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        return not self.survivors


def never() -> bool:
    return False


def stop_all(members: Members, limits: StopLimits, hurry: Hurry = never, clock: Clock | None = None) -> StopReport:
    """SIGTERM to the members without a parent among them, soon to every member; after ``term_s``, or at once in a
    hurry, SIGKILL to all; then verify.

    An interrupt that arrives here goes on with SIGKILL before it is passed on.
    """
    clock = clock or SystemClock()
    begin_s = clock.now()
    termed: set[tuple[int, int]] = set()
    killed: set[tuple[int, int]] = set()
    try:
        left = _signal_until_gone(members, signal.SIGTERM, termed, limits.term_s, (hurry, clock))
    except BaseException:
        _signal_until_gone(members, signal.SIGKILL, killed, limits.kill_s, (never, clock))
        raise
    if left:
        left = _signal_until_gone(members, signal.SIGKILL, killed, limits.kill_s, (never, clock))
    return StopReport(
        terminated=len(termed),
        killed=len(killed),
        seconds=clock.now() - begin_s,
        survivors=tuple(f"{row.name} (pid {row.pid})" for row in left),
    )


def _signal_until_gone(
    members: Members, sig: signal.Signals, done: set[tuple[int, int]], limit_s: float, how: tuple[Hurry, Clock]
) -> Sequence[ProcessRow]:
    """Signal each member once until none is left or the time is up; returns who is left."""
    hurry, clock = how
    begin_s = clock.now()
    end_s = begin_s + limit_s
    roots_until_s = begin_s + (min(_ROOTS_FIRST_S, limit_s / 2) if sig is signal.SIGTERM else 0.0)
    # Two looks: reading /proc is no snapshot, and a process that forks and exits meanwhile could hide its child.
    while left := members() or members():
        parents = {row.pid for row in left} if clock.now() < roots_until_s else set()
        for row in left:
            if row.identity not in done and row.ppid not in parents:
                send(row, sig)
                done.add(row.identity)
                # A stopped process (SIGSTOP) would sleep through SIGTERM.
                if sig is signal.SIGTERM:
                    send(row, signal.SIGCONT)
        if clock.now() >= end_s or hurry():
            break
        clock.sleep(_POLL_S)
    return left


def every(mark: str) -> bool:
    return True


def orphan_members(
    identities: Iterable[ServerIdentity], study_id: str = "", lost: Lost = every
) -> tuple[ProcessRow, ...]:
    """The live processes of servers that an earlier, dead tuner started, and only those.

    A recorded leader counts only with its start time, in the boot it was recorded in; everything else
    needs a recorded mark, or one that begins with ``study_id`` (a server started a moment before its record).
    """
    rows = read_table()
    boot = boot_id()
    seeds: set[int] = set()
    for identity in identities:
        seeds |= marked(rows, identity.mark)
        if identity.boot_id == boot:
            leader = (identity.pid, identity.start_ticks)
            seeds |= {row.pid for row in rows if row.identity == leader}
    if study_id:
        marks = ((row.pid, mark_of(row.pid)) for row in rows)
        seeds |= {pid for pid, mark in marks if mark and mark.startswith(f"{study_id}/") and lost(mark)}
    found = family(rows, seeds, own_line())
    return tuple(row for row in rows if row.pid in found)


def orphans(identities: Iterable[ServerIdentity], study_id: str = "", lost: Lost = every) -> Members:
    """The members of a stop that ends what ``orphan_members`` finds, and all who ever were that."""
    recorded = tuple(identities)
    known: set[tuple[int, int]] = set()

    def members() -> Sequence[ProcessRow]:
        rows = read_table()
        found = {row.pid for row in orphan_members(recorded, study_id, lost)}
        seeds = found | {row.pid for row in rows if row.identity in known}
        ours = family(rows, seeds, own_line())
        live = [row for row in rows if row.pid in ours]
        known.update(row.identity for row in live)
        return live

    return members


def reap_orphans(
    identities: Iterable[ServerIdentity],
    limits: StopLimits | None = None,
    study_id: str = "",
    hurry: Hurry = never,
    lost: Lost = every,
) -> StopReport:
    """Stop the processes of a dead tuner. Call it under the study's lock: nobody else may run this study.

    ``lost`` says of a mark that nobody runs that trial any more.
    """
    return stop_all(orphans(identities, study_id, lost), limits or StopLimits(), hurry)
