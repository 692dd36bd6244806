"""One server from start to verified end: ``with running(plan, options, probe, seams) as server``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from autotune.server import ports
from autotune.server.cancel import Waiting
from autotune.server.gpu import GpuLimits, GpuProbe, GpuReturn, NoGpu, used_by_device, wait_for_baseline
from autotune.server.log import LogReader
from autotune.server.outside import end_everywhere
from autotune.server.process import ServerIdentity, ServerProcess, start
from autotune.server.proctable import read_row
from autotune.server.readiness import Answer, Blocked, Cancelled, Probe, Ready, StartLimits, StartOutcome
from autotune.server.starting import HttpProber, OnVitals, Vitals, wait_ready
from autotune.server.stop import StopLimits, StopReport
from autotune.server.watchdog import Alarm, LoadFacts, LoadLimits, LoadWatch
from autotune.values import LaunchPlan, Value
from autotune.wrappers import listens

_CANCELLED_S = 5.0
_PORT_S = 5.0


class ServeOptions(Value, frozen=True, kw_only=True):
    """``mark`` comes from ``new_mark``. ``gpu_baseline`` maps devices to used bytes before the night's first server;
    None: what is in use right now is taken for the baseline.
    """

    log_path: Path
    mark: str
    start: StartLimits = StartLimits()
    stop: StopLimits = StopLimits()
    gpu: GpuLimits = GpuLimits()
    gpu_baseline: dict[int, int] | None = None


class Seams(msgspec.Struct, frozen=True, kw_only=True):
    """The outside world. ``on_started`` is called before any waiting, so that the identity can be recorded first."""

    gpu: GpuProbe = msgspec.field(default_factory=NoGpu)
    waiting: Waiting = msgspec.field(default_factory=Waiting)
    on_started: Callable[[ServerIdentity], None] | None = None
    on_vitals: OnVitals | None = None


class Teardown(Value, frozen=True, kw_only=True):
    """What was found after the stop."""

    stop: StopReport
    gpu: GpuReturn
    port_free: bool
    exit_code: int | None

    def problem(self) -> str | None:
        """Why no other server may be started now; None: all came back."""
        if self.stop.survivors:
            return f"processes of the server cannot be stopped: {', '.join(self.stop.survivors)}"
        if not self.gpu.clean:
            holders = "; ".join(self.gpu.holders) or "no holder is visible"
            return f"GPU memory did not come back in {self.gpu.seconds:.0f} s: {holders}"
        return None


class LoadGuard:
    """Watches a ready server while it is loaded; looks at the machine once a second at most."""

    def __init__(self, process: ServerProcess, limits: LoadLimits, waiting: Waiting) -> None:
        self._process = process
        self._clock = waiting.clock
        self._watch = LoadWatch(limits, self._clock.now())
        self._members = tuple(row.identity for row in process.members())
        self._looked_s = float("-inf")
        self._lost, self._listening = 0, True

    def check(self, tokens: int, in_flight: int) -> Alarm | None:
        """``tokens``: all that the client has received; ``in_flight``: requests it waits for."""
        now_s = self._clock.now()
        if now_s - self._looked_s >= 1.0:
            self._looked_s = now_s
            self._lost = sum(not _lives(pid, ticks) for pid, ticks in self._members)
            self._listening = _port_open(self._process.plan)
        facts = LoadFacts(
            tokens=tokens,
            in_flight=in_flight,
            exit_code=self._process.poll(),
            lost_members=self._lost,
            listening=self._listening,
        )
        return self._watch.check(facts, now_s)


def _port_open(plan: LaunchPlan) -> bool:
    """Whether somebody listens, as far as this machine can tell without asking."""
    return listens(plan.wrapper) != "here" or ports.is_listening(plan.port)


def _lives(pid: int, start_ticks: int) -> bool:
    row = read_row(pid)
    return row is not None and row.start_ticks == start_ticks


class RunningServer:
    """What the body of ``running`` sees. ``start`` says how the start went, ``teardown`` is set after the stop.

    ``asked`` counts what loads have asked of it so far: a later load goes on from there.
    """

    def __init__(self, plan: LaunchPlan, options: ServeOptions, seams: Seams) -> None:
        self.plan = plan
        self.start: StartOutcome = Blocked(kind="port_in_use", reason="not started")
        self.process: ServerProcess | None = None
        self.log: LogReader | None = None
        self.teardown: Teardown | None = None
        self.asked = 0
        self._options = options
        self._seams = seams
        self._baseline = options.gpu_baseline
        self._prober: HttpProber | None = None

    @property
    def log_path(self) -> Path:
        return self._options.log_path

    def headers(self) -> dict[str, str]:
        """The authorisation that this server wants; keep it out of every record."""
        return auth_headers(self.plan, os.environ)

    def guard(self, limits: LoadLimits) -> LoadGuard:
        """A watch over the load that begins now. Only for a server that is Ready."""
        assert self.process is not None
        return LoadGuard(self.process, limits, self._seams.waiting)

    def poll(self) -> int | None:
        return self.process.poll() if self.process else None

    def vitals(self) -> Vitals:
        assert self.process is not None
        self.process.look_inside()
        return Vitals(
            log_bytes=self.process.log_bytes,
            cpu_s=sum(row.cpu_s for row in self.process.members()),
            gpu_bytes=sum(used_by_device(self._seams.gpu).values()),
        )

    def answer(self) -> Answer:
        return self._prober.answer() if self._prober else Answer()

    def intruder(self) -> Blocked | None:
        """Whoever listens on our port and is not ours."""
        port = self.plan.port
        if listens(self.plan.wrapper) != "here":  # nothing here would tell ours from a stranger's
            return None
        if not ports.is_listening(port) or not (self._foreign() and (foreign := self._foreign())):
            return None
        return Blocked(kind="port_in_use", reason=f"on port {port} listens {foreign}, not our server")

    def _foreign(self) -> ports.Listener | None:
        """One look; a child that ours forks meanwhile may look foreign once."""
        assert self.process is not None
        self.process.look_inside()
        ours = {row.pid for row in self.process.members()}
        return ports.foreign_listener(self.plan.port, ours, unseen=self.process.contained)

    def bring_up(self, probe: Probe) -> StartOutcome:
        """Look that all is free, start, wait for a generation, and see that it was our process that answered."""
        if blocked := self._obstacle():
            self.start = blocked
            return blocked
        self.process = start(self.plan, self._options.log_path, self._options.mark)
        self.log = self.process.reader()
        if self._seams.on_started:
            self._seams.on_started(self.process.identity())
        limits = self._options.start
        self._prober = HttpProber(self.plan.base_url, probe, self.headers(), limits.probe_s)
        self._prober.start()
        outcome = wait_ready(self, limits, self._seams.waiting, self._seams.on_vitals)
        self._prober.end()
        self.start = (isinstance(outcome, Ready) and self.intruder()) or outcome
        return self.start

    def stop(self) -> Teardown | None:
        """Stop everything and wait until port and GPU memory are back. Idempotent; None when nothing was started."""
        if self.process is None or self.teardown is not None:
            return self.teardown
        patience = _Patience(self._seams.waiting)
        try:
            clock, limits = self._seams.waiting.clock, self._options.stop
            report = end_everywhere(self.plan.wrapper, self.process.mark, self.process.members, limits, patience, clock)
            if self._prober:
                self._prober.end(wait_s=1.0)
        finally:
            exit_code = self.process.poll()
            self.process.close()
        self.teardown = Teardown(
            stop=report, gpu=self._wait_for_gpu(), port_free=self._wait_for_port(), exit_code=exit_code
        )
        return self.teardown

    def _obstacle(self) -> Blocked | Cancelled | None:
        if not self._port_free():
            who = ", ".join(map(str, ports.listeners(self.plan.port))) or "nobody visible"
            return Blocked(kind="port_in_use", reason=f"port {self.plan.port} is taken by {who}")
        if self._baseline is None:
            self._baseline = used_by_device(self._seams.gpu)
        back = wait_for_baseline(self._seams.gpu, self._baseline, self._options.gpu, self._seams.waiting)
        if reason := self._seams.waiting.cancel.reason():
            return Cancelled(reason=reason, seconds=back.seconds)
        if back.clean:
            return None
        holders = "; ".join(back.holders) or "no holder is visible"
        return Blocked(kind="gpu_busy", reason=f"GPU memory is above its baseline before the start: {holders}")

    def _wait_for_gpu(self) -> GpuReturn:
        assert self.process is not None
        process = self.process
        return wait_for_baseline(
            self._seams.gpu,
            self._baseline or {},
            self._options.gpu,
            self._seams.waiting,
            lambda: {row.pid for row in process.members()},
        )

    def _port_free(self) -> bool:
        """Whether the server can have its port; on another machine the start shows it."""
        return listens(self.plan.wrapper) == "apart" or ports.is_free(self.plan.host, self.plan.port)

    def _wait_for_port(self) -> bool:
        clock = self._seams.waiting.clock
        # A port that somebody else took does not come back.
        end_s = clock.now() + (0.0 if isinstance(self.start, Blocked) else _PORT_S)
        while not (free := self._port_free()) and clock.now() < end_s:
            self._seams.waiting.pause()
        return free


class _Patience:
    """How long a stop may stay polite: at most a few seconds after a first wish to end, not at all after a second."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._since: float | None = None

    @property
    def cancelled(self) -> bool:
        return self._waiting.cancel.reason() is not None

    def __call__(self) -> bool:
        if not self.cancelled:
            return False
        if self._since is None:
            self._since = self._waiting.clock.now()
        return self._waiting.cancel.urgent() or self._waiting.clock.now() - self._since >= _CANCELLED_S


def auth_headers(plan: LaunchPlan, env: Mapping[str, str]) -> dict[str, str]:
    """``Authorization: Bearer`` with the plan's key; empty when it has none."""
    return bearer(env.get(plan.api_key_env, "") if plan.api_key_env else "")


def bearer(key: str) -> dict[str, str]:
    """The header that carries a key; empty without one."""
    return {"authorization": f"Bearer {key}"} if key else {}


@contextmanager
def running(
    plan: LaunchPlan, options: ServeOptions, probe: Probe, seams: Seams | None = None
) -> Iterator[RunningServer]:
    """Start the plan's server and wait until it is ready, or not: look at ``server.start`` first.

    On every path out, Ctrl-C included, the whole server is stopped, and its port and GPU memory are waited for;
    ``server.teardown`` then says what was found. Raises NightStopped or InputError when nothing can be started.
    """
    server = RunningServer(plan, options, seams or Seams())
    try:
        server.bring_up(probe)
        yield server
    finally:
        server.stop()
