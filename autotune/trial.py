"""The story of one trial: from a configuration to a settled result, whatever happens on the way."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from autotune.errors import NightStopped
from autotune.events import Note, Phase, PhaseEntered
from autotune.guidance import NO_GUIDE, Guide
from autotune.livelimits import measure_live
from autotune.load.driver import WorkerLost
from autotune.loading import Load, measure
from autotune.rig import EngineProbe, Rig, Stopwatch, control_client, fetcher, now_text
from autotune.server.clock import slept_s
from autotune.server.gpu import GpuLimits
from autotune.server.host import host_refusals, require_disk
from autotune.server.kernel import kernel_log
from autotune.server.process import ServerIdentity, StartFailed, child_environment, environment_record, new_mark
from autotune.server.readiness import Blocked, Cancelled, Died, Ready, StartLimits, TimedOut
from autotune.server.serve import RunningServer, Seams, ServeOptions, running
from autotune.server.stop import StopLimits
from autotune.study.record import Begun, write_record
from autotune.trouble import Retry, Trouble, judge_trouble, read_log
from autotune.values import Config, Interrupted, LaunchPlan, Measured, Outcome, Timings, TrialResult, Value

BACKOFF = 4.0
"""The pause before each further attempt is this many times as long as the one before."""
SLEPT = "the machine slept"
SLEEP_S = 1.0
"""A machine that was suspended for longer spoils whatever was measured meanwhile."""
DISK_BYTES = 256 << 20


class Ticket(Value, frozen=True, kw_only=True):
    """Which trial is to run. ``role`` is baseline, search, repeat or confirm."""

    number: int
    config: Config
    role: str = "search"
    repeat_of: int | None = None

    def begun(self, at: str) -> Begun:
        """What is on record of it from then on."""
        return Begun(number=self.number, config=self.config, started_at=at, repeat_of=self.repeat_of)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One trial as it goes. ``suspended_s`` is how long the machine had slept when it began, ``problems`` what was
    said of its stops: attempts that meet the same one say it once.
    """

    rig: Rig
    ticket: Ticket
    guide: Guide
    watch: Stopwatch
    started_at: str
    suspended_s: float
    problems: set[str] = msgspec.field(default_factory=set)

    @property
    def slept(self) -> float:
        """Seconds that the machine slept during this trial."""
        return slept_s() - self.suspended_s

    def result(self, outcome: Outcome) -> TrialResult:
        """The trial with that outcome, and with the times until now."""
        parts = {name: round(seconds, 3) for name, seconds in self.watch.parts.items()}
        return TrialResult(
            number=self.ticket.number,
            config=self.ticket.config,
            outcome=outcome,
            timings=Timings(total_s=round(self.watch.total_s, 3), **parts),
            started_at=self.started_at,
            finished_at=now_text(),
            repeat_of=self.ticket.repeat_of,
        )

    def keep(self, measured: Measured) -> None:
        """Write down what is measured so far: whatever ends the tuner now, this is not lost."""
        if self.slept <= SLEEP_S:
            self.rig.records.keep(self.result(measured))


def run_trial(rig: Rig, ticket: Ticket, guide: Guide = NO_GUIDE) -> TrialResult:
    """Start, load, measure, stop; with bounded retries for faults that say nothing about the parameters.

    Raises NightStopped when an assumption of the night is broken; whatever was started is stopped by then.
    """
    run = Run(
        rig=rig,
        ticket=ticket,
        guide=guide,
        watch=Stopwatch(rig.waiting.clock.now),
        started_at=now_text(),
        suspended_s=slept_s(),
    )
    with host_refusals():
        outcome = _with_retries(run)
    if run.slept > SLEEP_S and not isinstance(outcome, Interrupted):
        before = rig.records.kept(ticket.number)
        asleep = Interrupted(reason=f"{SLEPT} for {run.slept:.0f} s during this trial")
        outcome = before.outcome if before else asleep
    return run.result(outcome)


def _with_retries(run: Run) -> Outcome:
    attempt, rig = 0, run.rig
    while isinstance(outcome := _attempt(run, attempt), Retry):
        attempt += 1
        if attempt >= outcome.attempts:
            return outcome.give_up()
        rig.say(Note(text=f"trial {run.ticket.number}: {outcome.reason}; trying again", level="warning"))
        if reason := _back_off(rig, outcome.pause_s * BACKOFF ** (attempt - 1)):
            return Interrupted(reason=reason)
    return outcome


def _back_off(rig: Rig, seconds: float) -> str | None:
    clock, end_s = rig.waiting.clock, rig.waiting.clock.now() + seconds
    while clock.now() < end_s:
        if reason := rig.waiting.cancel.reason():
            return reason
        rig.waiting.pause()
    return None


def _attempt(run: Run, attempt: int) -> Outcome | Retry:
    """One server, from start to verified end; what the machine cannot do just now is tried again."""
    try:
        return _serve_once(run, attempt)
    except (StartFailed, WorkerLost) as error:
        return Retry(reason=str(error), kind="env_error")


def _serve_once(run: Run, attempt: int) -> Outcome | Retry:
    rig, ticket, watch = run.rig, run.ticket, run.watch
    _enter(rig, ticket, "prepare")
    require_disk(rig.records.folder.root, DISK_BYTES)
    plan = rig.plan(ticket.config)
    rig.records.write_plan(ticket.number, plan)
    options = _options(rig, ticket, attempt)
    _record_environment(rig, ticket, plan, options.mark)
    seams = Seams(gpu=rig.gpu, waiting=rig.waiting, on_started=_recorder(rig, ticket, watch))
    workload = rig.study.workload
    probe = EngineProbe(rig.engine, plan, (workload.token_id_low, workload.token_id_high))
    with running(plan, options, probe, seams) as server:
        watch.lap("start_s" if server.process else "prepare_s")
        outcome = _while_serving(run, server, attempt)
        watch.lap("live_s" if isinstance(outcome, Measured) else "load_s")
        log = read_log(options.log_path) if isinstance(outcome, Trouble) and outcome.alive else None
        _enter(rig, ticket, "stop")
    watch.lap("stop_s")
    problem = server.teardown.problem() if server.teardown else None
    if problem and problem not in run.problems:
        run.problems.add(problem)
        rig.say(Note(text=f"trial {ticket.number}: {problem}", level="warning"))
    if isinstance(outcome, Trouble):
        # The last words of a server that died are in the file only after the stop.
        outcome = msgspec.structs.replace(outcome, kernel_log=_kernel_log(server))
        return judge_trouble(rig, outcome, options.log_path, read_log(options.log_path) if log is None else log)
    return outcome


def _kernel_log(server: RunningServer) -> str | None:
    process = server.process
    return kernel_log(process.ever_pids, process.started_s) if process else None


def _while_serving(run: Run, server: RunningServer, attempt: int) -> Outcome | Trouble | Retry:
    match server.start:
        case Ready():
            return _read_and_measure(run, server, attempt)
        case Cancelled(reason=reason):
            return Interrupted(reason=reason)
        case Died(exit_code=code):
            return Trouble(phase="startup", reason=f"exited with code {code} before it was ready", exit_code=code)
        case TimedOut(kind=kind, reason=reason, seconds=seconds):
            silent_s = 0.0 if kind == "cap" else seconds
            return Trouble(phase="startup", reason=reason, alive=True, silent_s=silent_s, timed_out=kind)
        case Blocked(kind="port_in_use", reason=reason):
            return Retry(reason=reason, kind="port_in_use")
        case Blocked(reason=reason):
            raise NightStopped(f"{reason}; stop what holds it (autotune never does), then run the same command")


def _read_and_measure(run: Run, server: RunningServer, attempt: int) -> Outcome | Trouble | Retry:
    rig, ticket = run.rig, run.ticket
    _enter(rig, ticket, "read back")
    written = read_log(server.log_path)
    with control_client(server.plan) as client:
        effective = rig.engine.effective(fetcher(client, rig.waiting), written, rig.space.names())
    for sentence in rig.engine.describe_clamps(ticket.config, effective, written):
        rig.say(Note(text=f"trial {ticket.number}: {sentence}"))
    load = Load(number=ticket.number, attempt=attempt, effective=effective)
    guide = msgspec.structs.replace(run.guide, keep=run.keep)
    outcome = measure(rig, load, server, guide)
    if not isinstance(outcome, Measured):
        return outcome
    run.watch.lap("load_s")
    guide.keep(outcome)
    return measure_live(rig, load, server, outcome, guide)


def _record_environment(rig: Rig, ticket: Ticket, plan: LaunchPlan, mark: str) -> None:
    env = child_environment(plan, os.environ, mark)
    write_record(rig.records.trial(ticket.number).environment, environment_record(plan, env))


def _enter(rig: Rig, ticket: Ticket, phase: Phase) -> None:
    rig.say(PhaseEntered(number=ticket.number, phase=phase))


def _recorder(rig: Rig, ticket: Ticket, watch: Stopwatch) -> Callable[[ServerIdentity], None]:
    """Writes down which process the server is, before anything is waited for."""

    def record(identity: ServerIdentity) -> None:
        write_record(rig.records.trial(ticket.number).identity, identity)
        watch.lap("prepare_s")
        _enter(rig, ticket, "start")

    return record


def _options(rig: Rig, ticket: Ticket, attempt: int) -> ServeOptions:
    limits, trial = rig.study.timeouts, rig.records.trial(ticket.number)
    name = "server.log" if attempt == 0 else f"server-{attempt + 1}.log"
    return ServeOptions(
        log_path=trial.root / name,
        mark=new_mark(rig.study_id, ticket.number),
        start=StartLimits(start_s=limits.start_s, silence_s=limits.start_silence_s, probe_s=limits.request_s),
        stop=StopLimits(term_s=limits.stop_s),
        gpu=GpuLimits(release_s=limits.gpu_release_s),
        gpu_baseline=rig.gpu_baseline,
    )
