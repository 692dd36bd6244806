"""What workers of a shared study say to each other through its database, and under which names."""

from __future__ import annotations

import os
import platform
import secrets

from autotune.confirmation import Confirmation, ConfirmationPlan
from autotune.trial import Ticket
from autotune.values import Config, LaunchPlan, TrialResult, Value

CONFIRMATION = -1
"""The number under which the confirmation is claimed; it is no trial."""


def worker_name() -> str:
    """Names this process among all workers: the host, its number, and something that never comes again."""
    return f"{platform.node()}/{os.getpid()}-{secrets.token_hex(2)}"


class BoardLost(Exception):
    """The database did not answer, or gave up on the connection; try again. The message has no secret in it."""


class Right(Value, frozen=True, kw_only=True):
    """``claim.json``: the right to tell one trial. ``token`` is never given twice."""

    number: int
    token: int
    worker: str


class Claim(Value, frozen=True, kw_only=True):
    """A trial under way. ``left_s`` is what was left of its lease, by the clock of the database."""

    number: int
    role: str
    config: Config
    worker: str
    began_at: str
    repeat_of: int | None = None
    left_s: float = 0.0

    @property
    def ticket(self) -> Ticket:
        return Ticket(number=self.number, config=self.config, role=self.role, repeat_of=self.repeat_of)


class Told(Value, frozen=True, kw_only=True):
    """A settled trial as others need it. ``place`` is where it stands in the order of settling."""

    place: int
    worker: str
    result: TrialResult
    plan: LaunchPlan | None = None


class Confirmed(Value, frozen=True, kw_only=True):
    """A confirmation as others need it; empty where there was nothing to compare, or no time."""

    plan: ConfirmationPlan | None = None
    starts: tuple[TrialResult, ...] = ()
    confirmation: Confirmation | None = None


class Terms(Value, frozen=True, kw_only=True):
    """What all workers of a study have in common: the manifest's fingerprint, and what the hosts are."""

    fingerprint: dict[str, bool | int | float | str | None]
    hardware: dict[str, str]
