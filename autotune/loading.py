"""Loads a server that is ready, watches it meanwhile, and reduces what was seen to a score or a reason."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import msgspec

from autotune.diagnosis.diagnose import LOAD_SILENCE_S
from autotune.events import LoadProgress, Phase, PhaseEntered
from autotune.guidance import NO_GUIDE, Guide
from autotune.load.driver import run_load
from autotune.load.reduce import reduce
from autotune.load.spec import LoadSpec, Progress
from autotune.rig import Rig, control_client, fetcher
from autotune.server.serve import LoadGuard, RunningServer
from autotune.server.watchdog import Alarm, LoadLimits
from autotune.study.file import Objective, Workload
from autotune.surroundings import Onlooker
from autotune.trouble import Retry, Trouble
from autotune.values import (
    Effective,
    Estimate,
    Finding,
    Interrupted,
    Measured,
    Measurement,
    Outcome,
    Refused,
    Value,
)
from autotune.verdict.curve import Level, answering_level
from autotune.verdict.objective import binding_limits, score

SETTLE_S = 10.0
SINGLE = "0"
COURSE_POINTS = 60
LIVE = 1
"""The word that tells the prompts of live loads from those of the trial's own."""
FAILING_AFTER = 16
"""Requests that must have failed before a load of failures is given up early."""


class Load(Value, frozen=True, kw_only=True):
    """Which load of which trial, on a server with these values in force.

    ``live`` is a running limit that was set while it served, 0: the server runs as it was started.
    """

    number: int
    attempt: int
    effective: Effective
    live: int = 0


class Loaded(Value, frozen=True, kw_only=True):
    """What one load gave. ``losing``: why it was ended early, empty where it was not; ``course`` as in ``Measured``."""

    measurement: Measurement
    losing: str = ""
    course: tuple[tuple[float, Estimate], ...] = ()


class Watch:
    """Decides, four times a second, whether a load must end at once; keeps why."""

    def __init__(self, rig: Rig, guard: LoadGuard, failed_limit: float, guide: Guide) -> None:
        self._rig = rig
        self._guard = guard
        self._failed_limit = failed_limit
        self._guide = guide
        self._progress: Progress | None = None
        self.alarm: Alarm | None = None
        self.cancelled: str | None = None
        self.failing = ""
        self.losing = ""
        self.course: list[tuple[float, Estimate]] = []

    def hear(self, progress: Progress) -> None:
        """The figure so far is judged once each time that it changes."""
        self._progress = progress
        seen = progress.estimate
        if seen is not None and (not self.course or seen != self.course[-1][1]):
            self.course.append((progress.window_s, seen))
            self.losing = self._guide.loses(seen) or ""

    def why_stop(self) -> str | None:
        """A reason to end the load now; None: go on."""
        self.cancelled = self._rig.waiting.cancel.reason()
        if self.cancelled:
            return self.cancelled
        seen = self._progress
        if seen is None:
            return None
        self.alarm = self._guard.check(seen.output_tokens, seen.in_flight)
        if self.alarm:
            return self.alarm.reason
        if seen.failed >= FAILING_AFTER and seen.failed > 2 * self._failed_limit * (seen.completed + seen.failed):
            self.failing = f"{seen.failed} of {seen.completed + seen.failed} requests failed: {seen.last_error}"
        return self.failing or self.losing or None


def measure(rig: Rig, load: Load, server: RunningServer, guide: Guide = NO_GUIDE) -> Outcome | Trouble | Retry:
    """All loads of one start, on a server that is ready, and the score among them.

    Only a start of a single load is ended early: of several the one that will answer is not known before, and a part of
    a trace is another load than the whole.
    """
    levels: list[Level] = []
    workloads = rig.study.workload.loads()
    judged = len(workloads) == 1 and rig.study.workload.kind != "trace"
    seen: Loaded | Interrupted | Trouble
    for workload in workloads:
        if levels:
            settle(rig, server)
        seen = load_once(rig, load, server, workload, guide if judged else NO_GUIDE)
        if not isinstance(seen, Loaded):
            return seen
        levels.append(Level(concurrency=workload.concurrency, measurement=seen.measurement))
    outcome = _scored(rig, load, levels)
    assert isinstance(seen, Loaded)
    return _with_course(outcome, seen) if isinstance(outcome, Measured) and len(levels) == 1 else outcome


def load_once(
    rig: Rig, load: Load, server: RunningServer, workload: Workload, guide: Guide = NO_GUIDE
) -> Loaded | Interrupted | Trouble:
    """One load; raises WorkerLost where the client broke."""
    watch = Watch(rig, server.guard(_limits(rig)), workload.failed_limit, guide)
    onlooker = Onlooker(rig, server)
    spec = _spec(rig, load, server, workload)
    raw = run_load(spec, _reporter(rig, load, (watch, onlooker)), watch.why_stop)
    server.asked = max([server.asked, *(raw.requests["index"] + 1).tolist()])
    if watch.cancelled:
        return Interrupted(reason=watch.cancelled)
    if trouble := _trouble(watch, server):
        return trouble
    return Loaded(
        measurement=reduce(raw, workload, rig.study.objective, onlooker.result(), rig.gates),
        losing=watch.losing,
        course=tuple(watch.course),
    )


def _with_course(measured: Measured, seen: Loaded) -> Measured:
    """How the score came about, thinned out where a load was long."""
    every = max(1, -(-len(seen.course) // COURSE_POINTS))
    kept = seen.course[::-1][::every][::-1]
    course = tuple((round(at_s, 2), estimate.value) for at_s, estimate in kept)
    return msgspec.structs.replace(measured, stopped_early=bool(seen.losing), course=course)


def settle(rig: Rig, server: RunningServer) -> None:
    """Wait until the server has let go of the last load's requests, as far as its counters tell."""
    end_s = rig.waiting.clock.now() + SETTLE_S
    last: int | None = None
    with control_client(server.plan) as client:
        while rig.waiting.clock.now() < end_s and not rig.waiting.cancel.reason():
            made = rig.engine.counters(fetcher(client, rig.waiting)).generated_tokens
            if made == last:  # also where nothing is counted
                return
            last = made
            rig.waiting.pause()


def _limits(rig: Rig) -> LoadLimits:
    return LoadLimits(stall_s=rig.study.timeouts.load_stall_s)


def _spec(rig: Rig, load: Load, server: RunningServer, workload: Workload) -> LoadSpec:
    key = rig.study.engine.api_key_env
    # Each load has prompts of its own: those of the level before are in the server's cache.
    level = (workload.concurrency,) if rig.study.workload.levels else ()
    live = (load.live, LIVE) if load.live else ()
    trial = rig.records.trial(load.number)
    return LoadSpec(
        base_url=server.plan.base_url,
        workload=workload,
        level=str(workload.concurrency) if level else SINGLE,
        seed=(rig.study.seed, rig.prompts, load.number, load.attempt, *level, *live),
        folder=str(trial.live(load.live) if load.live else trial.load),
        dataset=rig.dataset,
        first=server.asked if rig.dataset and workload.kind != "trace" else 0,
        api_key=os.environ.get(key, "") if key else "",
        model=server.plan.model_name,
        metric=rig.study.objective.metric,
        slo=rig.study.objective.constraints,
        request_timeout_s=rig.study.timeouts.request_s,
    )


def _reporter(rig: Rig, load: Load, lookouts: tuple[Watch, Onlooker]) -> Callable[[Progress], None]:
    """Hands progress to the watch and to whoever follows the night. A live load is one phase, which has begun."""
    watch, onlooker = lookouts
    number = load.number
    entered: list[str] = ["warm-up", "load"] if load.live else []

    def report(seen: Progress) -> None:
        watch.hear(seen)
        onlooker.look()
        warm = seen.phase != "warmup"
        phase: Phase = "load" if warm else "warm-up"
        if phase not in entered:
            entered.append(phase)
            rig.say(PhaseEntered(number=number, phase=phase))
        rig.say(
            LoadProgress(
                number=number,
                elapsed_s=seen.elapsed_s,
                throughput_tok_s=seen.throughput_tok_s,
                in_flight=seen.in_flight,
                completed=seen.completed,
                failed=seen.failed,
                warm=warm,
            )
        )

    return report


def _trouble(watch: Watch, server: RunningServer) -> Trouble | None:
    """What ended a load early through the server's fault."""
    exit_code = server.poll()
    alarm = watch.alarm
    if alarm is None and exit_code is None and not watch.failing:
        return None
    reason = alarm.reason if alarm else watch.failing or f"the server exited with code {exit_code} under load"
    silent_s = LOAD_SILENCE_S if alarm and alarm.kind in ("stall", "crawl", "front_end") else 0.0
    alive = exit_code is None
    return Trouble(
        phase="load",
        reason=reason,
        exit_code=exit_code,
        alive=alive,
        silent_s=silent_s,
        failing=alive and alarm is None,
    )


def _scored(rig: Rig, load: Load, levels: list[Level]) -> Outcome | Retry:
    """From what was measured to a score, or to the reason why there is none."""
    objective, named = rig.study.objective, rig.study.workload.concurrency
    levels = [msgspec.structs.replace(one, measurement=_told(one.measurement, objective)) for one in levels]
    answer = answering_level(levels, objective, named).measurement
    measurement = msgspec.structs.replace(answer, gpu_free_share=_least_free(levels))
    if measurement.refused:
        refused = Refused(findings=measurement.refused, measurement=measurement, effective=load.effective)
        shown = "; ".join(finding.message for finding in measurement.refused)
        return Retry(reason=f"measurement refused: {shown}", kind="refused", refused=refused)
    curve = tuple(level.figures() for level in levels) if len(levels) > 1 else ()
    return Measured(score=score(measurement, objective), measurement=measurement, effective=load.effective, curve=curve)


def _least_free(levels: Sequence[Level]) -> float | None:
    """Of all loads of a start: the largest must fit too. None where one does not tell."""
    shares = [level.measurement.gpu_free_share for level in levels]
    known = [share for share in shares if share is not None]
    return min(known) if len(known) == len(shares) else None


def _told(measurement: Measurement, objective: Objective) -> Measurement:
    """Refused where its window does not tell what the objective asks: no request ended in it."""
    wanted = (objective.metric, *binding_limits(objective))
    missing = [name for name in wanted if name not in measurement.steady]
    if not missing or measurement.refused:
        return measurement
    message = f"the window has no {', '.join(missing)}: no request ended in it; raise workload.max_s"
    found = Finding(gate="window", message=message, fatal=True)
    return msgspec.structs.replace(measurement, findings=(found, *measurement.findings))
