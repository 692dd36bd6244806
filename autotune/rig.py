"""What all trials of a night share: the study, the engine, the space, and the machine they run on."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime

import httpx
import msgspec

from autotune.engines.base import Engine, Fetch, Request
from autotune.events import Listener
from autotune.fleet.slots import Slot
from autotune.load.gates import GateLimits
from autotune.server.cancel import POLL_S, Waiting
from autotune.server.clock import Deadline
from autotune.server.gpu import GpuProbe
from autotune.server.ports import fresh_port
from autotune.server.receive import receive
from autotune.server.serve import auth_headers
from autotune.space.parameters import Space
from autotune.standing import version_told
from autotune.study.file import Study
from autotune.study.record import Records
from autotune.values import Config, LaunchPlan, ParamValue
from autotune.wrappers import place, port_host

FETCH_S = 20.0
"""For one whole answer, however it comes."""
LONGEST_ANSWER = 32 << 20
PROBE_TOKENS = 8
JSON = {"content-type": "application/json"}
Answer = tuple[int, bytes]
"""HTTP status (0: none came) and body."""


class Rig(msgspec.Struct, frozen=True, kw_only=True):
    """``study_id`` marks every process of this study, ``searched`` names its parameters, frozen ones left out.

    ``gpu_baseline`` maps devices to the bytes used before the night's first server. ``prompts`` tells the loads of
    the search (0) and of the confirmation (1) apart, so that no prompt is ever sent twice. ``gates`` are the limits
    beyond which a load is no measurement. ``fixed`` is what every start runs, whatever its configuration.
    ``dataset`` is the folder of the stored dataset, empty where there is none.
    ``slots`` are the parts of the host that one trial each may get, ``slot`` the one that this rig has; ``beside`` says
    that trials run in the others at the same time. ``cluster`` is the address of the Ray cluster that runs the trials.
    """

    study: Study
    study_id: str
    engine: Engine
    space: Space
    version: str
    searched: tuple[str, ...]
    records: Records
    gpu: GpuProbe
    gpu_baseline: dict[int, int]
    waiting: Waiting
    say: Listener
    prompts: int = 0
    gates: GateLimits = GateLimits()
    fixed: LaunchPlan | None = None
    dataset: str = ""
    slots: tuple[Slot, ...] = (Slot(number=0),)
    slot: Slot = Slot(number=0)
    beside: bool = False
    cluster: str = ""

    @property
    def cores(self) -> int:
        """Processors that this rig has: those of its slot, else of the machine."""
        return len(self.slot.cpus) or os.cpu_count() or 1

    @property
    def known_version(self) -> str:
        """The engine's version; where nothing on this machine tells it, as the baseline's server did."""
        return self.version or version_told(self.records.each_result())

    def flags(self, config: Config) -> list[tuple[str, ParamValue]]:
        """The command-line flags of a configuration, in the order of the space."""
        names = [name for name in self.space.names() if name in config.params]
        version = self.known_version
        return [(self.space.get(name).flag_for(version), config.params[name]) for name in names]

    def plan(self, config: Config, port: int = 0) -> LaunchPlan:
        """How the server of this configuration is started; on a fresh port unless one is given."""
        if self.fixed is not None:
            return self.fixed
        spec = self.study.engine
        where = place(spec, port or fresh_port(port_host(spec)))
        plan = self.engine.launch_plan(spec, self.study.model, self.flags(config), where)
        return msgspec.structs.replace(plan, env=plan.env | self.slot.env())


class EngineProbe:
    """Readiness by a real generation on token ids that no earlier probe has used."""

    def __init__(self, engine: Engine, plan: LaunchPlan, token_ids: tuple[int, int]) -> None:
        self._engine = engine
        self._plan = plan
        self._token_ids = token_ids

    def request(self) -> tuple[str, str]:
        ids = [random.randrange(*self._token_ids) for _ in range(PROBE_TOKENS)]
        request = self._engine.probe(self._plan, ids)
        return request.path, request.body

    def is_ready(self, status: int, body: bytes) -> bool:
        return self._engine.is_ready(status, body)


def fetcher(client: httpx.Client, waiting: Waiting | None = None) -> Fetch:
    """GET that answers status 0 instead of raising, as engines want it; at once where somebody wants to end."""
    return lambda path: _answer(client, client.build_request("GET", path), waiting)


def sender(client: httpx.Client, waiting: Waiting | None = None) -> Callable[[Request, dict[str, str]], Answer]:
    """The same for an engine's request with some headers of its own, which replace the client's."""

    def send(request: Request, headers: dict[str, str]) -> Answer:
        built = client.build_request(
            request.method, request.path, content=request.body or None, headers={**JSON, **headers}
        )
        return _answer(client, built, waiting)

    return send


def _answer(client: httpx.Client, request: httpx.Request, waiting: Waiting | None) -> Answer:
    """The request runs in a thread: a server that hangs must hold up neither a signal nor the night."""
    waiting = waiting or Waiting()
    given_up = threading.Event()
    answers: list[Answer] = []
    ask = threading.Thread(target=lambda: answers.append(_send(client, request, given_up)), name="fetch", daemon=True)
    deadline = Deadline.after(FETCH_S, waiting.clock)
    ask.start()
    while ask.is_alive() and waiting.cancel.reason() is None and not deadline.passed(waiting.clock):
        ask.join(POLL_S)
    given_up.set()
    return answers[0] if answers else (0, b"given up")


def _send(client: httpx.Client, request: httpx.Request, given_up: threading.Event) -> Answer:
    try:
        got = receive(client, request, LONGEST_ANSWER, given_up.is_set)
    except (httpx.HTTPError, OSError, RuntimeError) as error:  # a client that was closed meanwhile
        return 0, repr(error).encode()
    return (got.status, got.body) if got.whole else (0, b"an answer without end")


def control_client(plan: LaunchPlan) -> httpx.Client:
    """For read-back and counters; never for the load. Proxies are for other machines."""
    headers = auth_headers(plan, os.environ)
    # Plain HTTP: without this, certificates are read each time, a tenth of a second and more.
    return httpx.Client(base_url=plan.base_url, headers=headers, timeout=FETCH_S, trust_env=False, verify=False)


def now_text() -> str:
    """The wall clock as records have it: UTC, ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Stopwatch:
    """Splits the time of a trial into named parts; laps of one name add up."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._begin_s = self._last_s = now()
        self.parts: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """What passed since the last lap belongs to ``name``."""
        now_s = self._now()
        self.parts[name] = self.parts.get(name, 0.0) + now_s - self._last_s
        self._last_s = now_s

    @property
    def total_s(self) -> float:
        return self._now() - self._begin_s
