"""Loads of one start at smaller running limits, which the server takes while it serves.

Nothing that goes wrong here takes back what the start has measured before.
"""

from __future__ import annotations

import contextlib
import os

import msgspec

from autotune.engines.base import Request
from autotune.errors import InputError
from autotune.events import PhaseEntered
from autotune.guidance import Guide
from autotune.load.driver import WorkerLost
from autotune.loading import Load, Loaded, load_once, settle
from autotune.rig import Rig, control_client, fetcher, sender
from autotune.server.serve import RunningServer, bearer
from autotune.trouble import read_log
from autotune.values import Estimate, Interrupted, LiveFigures, Measured, Value
from autotune.verdict.objective import score

EXCESS = 1.25
SPARE = 2.0
"""More requests at once than so many times the limit and some, and it is not in force."""
RATE = "request_throughput_req_s"
TRIES = 2
"""Server faults under live loads in so many starts of a night, and it does without them."""


class Setback(Value, frozen=True, kw_only=True):
    """Why there are no figures at a limit. ``lasting``: it would be so again in every start."""

    reason: str
    lasting: bool = False


class LiveSwitch:
    """Whether a night still changes running limits on servers that are up."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._setbacks = 0

    def give_up(self, reason: str) -> None:
        """Never again in this night."""
        self.reason = self.reason or reason

    def count(self, reason: str) -> None:
        """A live load that brought nothing; too many of them are one reason."""
        self._setbacks += 1
        if self._setbacks >= TRIES:
            self.give_up(f"{self._setbacks} live loads brought nothing, the last because {reason}")


def measure_live(rig: Rig, load: Load, server: RunningServer, measured: Measured, guide: Guide) -> Measured:
    """``measured`` with the loads at the limits that the guide asks for."""
    asked: set[int] = set()
    while (limit := guide.next_limit(measured)) is not None and limit not in asked:
        asked.add(limit)
        rig.say(PhaseEntered(number=load.number, phase="live"))
        seen = _at(rig, load, server, limit)
        if isinstance(seen, LiveFigures):
            measured = msgspec.structs.replace(measured, live=(*measured.live, seen))
            guide.keep(measured)
            continue
        if isinstance(seen, Setback):
            (guide.no_live if seen.lasting else guide.setback)(seen.reason)
        break
    return measured


def _at(rig: Rig, load: Load, server: RunningServer, limit: int) -> LiveFigures | Setback | None:
    """The figures at that limit; None where somebody wants to end."""
    began_s = rig.waiting.clock.now()
    settle(rig, server)
    if rig.waiting.cancel.reason():
        return None
    in_force = set_limit(rig, server, limit)
    if isinstance(in_force, Setback):
        return None if rig.waiting.cancel.reason() else in_force
    begin = _log_bytes(server)
    try:
        seen = load_once(rig, msgspec.structs.replace(load, live=in_force), server, rig.study.workload)
    except WorkerLost as error:
        return Setback(reason=str(error))
    if isinstance(seen, Interrupted):
        return None
    if not isinstance(seen, Loaded):
        return Setback(reason=f"{seen.reason} (at a running limit of {limit:,})")
    figure = _figure(rig, seen)
    if figure is None:
        return Setback(reason=f"the load at a running limit of {limit:,} gave no figure")
    live = LiveFigures(
        limit=in_force,
        score=figure,
        steady=seen.measurement.steady,
        refused=tuple(finding.gate for finding in seen.measurement.refused),
        load_s=round(rig.waiting.clock.now() - began_s, 3),
    )
    why = without_effect(live, rig.engine.running_logged(read_log(server.log_path, begin)))
    return Setback(reason=why, lasting=True) if why else live


def _log_bytes(server: RunningServer) -> int:
    with contextlib.suppress(OSError):
        return server.log_path.stat().st_size
    return 0


def without_effect(live: LiveFigures, logged: int | None) -> str | None:
    """Why a limit that reads back as it was told cannot be in force; None: it may be.

    ``logged`` is how many requests the server says to have run at once.
    """
    for who, seen in (("logs", logged), ("answers", generating(live.steady))):
        if seen is not None and seen > EXCESS * live.limit + SPARE:
            return f"the server says that a running limit of {live.limit:,} is in force and {who} {seen:,.0f} at once"
    return None


def generating(steady: dict[str, float]) -> float | None:
    """Requests between their first and last token at one time, by Little's law; None where tokens are not streamed."""
    needed = [steady.get(name, 0.0) for name in (RATE, "e2e_mean_s", "ttft_mean_s")]
    return needed[0] * (needed[1] - needed[2]) if all(value > 0 for value in needed) else None


def set_limit(rig: Rig, server: RunningServer, limit: int) -> int | Setback:
    """Have the server run at most ``limit`` requests at once; the limit in force as it reads back."""
    with control_client(server.plan) as client:
        fetch = fetcher(client, rig.waiting)
        request = rig.engine.live_limit(limit, fetch)
        if request is None:
            return Setback(
                reason=f"the server does not offer a running limit of {limit:,} while it serves", lasting=True
            )
        status, body = sender(client, rig.waiting)(request, _authorisation(rig, request))
        if not rig.engine.live_limit_accepted(status, body):
            return Setback(
                reason=f"it refused a running limit of {limit:,} (HTTP {status}){_remedy(status)}", lasting=True
            )
        in_force = rig.engine.live_limit_in_force(fetch)
    if in_force is None or not limit / 2 < in_force <= limit:
        told = "nothing" if in_force is None else f"{in_force:,}"
        return Setback(reason=f"it accepted a running limit of {limit:,} and reads back {told}", lasting=True)
    return in_force


def _authorisation(rig: Rig, request: Request) -> dict[str, str]:
    """The admin key where the request wants it and the study names one; else the client's own key."""
    name = rig.study.engine.admin_key_env
    return bearer(os.environ.get(name, "")) if request.admin and name else {}


def _remedy(status: int) -> str:
    return ": name the variable that holds its admin key in engine.admin_key_env" if status in (401, 403) else ""


def _figure(rig: Rig, seen: Loaded) -> Estimate | None:
    try:
        found = score(seen.measurement, rig.study.objective)
    except InputError:
        return None
    return found if found.value > 0 else None
