"""One load through the real loading path: a simulated server is started, watched, loaded and stopped as in a night."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from autotune import loading
from autotune.brief import read_brief
from autotune.load.driver import run_load
from autotune.load.gates import GateLimits, Surroundings
from autotune.load.records import RawRun
from autotune.loading import Load, measure
from autotune.night import open_night
from autotune.rig import EngineProbe, Rig
from autotune.server.cancel import Waiting
from autotune.server.process import new_mark
from autotune.server.readiness import Ready, StartLimits
from autotune.server.serve import RunningServer, ServeOptions, running
from autotune.server.stop import StopLimits
from autotune.surroundings import Onlooker
from autotune.trouble import Retry, Trouble
from autotune.values import Config, Effective, Finding, Measured, Outcome
from tests.nights import Night

FRESH = itertools.count()
"""Numbers of loads, so that no prompt is sent twice."""
WIDE = GateLimits(
    cpu_share=100.0,
    lag_typical_s=100.0,
    in_flight_share=0.0,
    generations=0.0,
    requests=1,
    window_share=0.0,
    drift=1e9,
    host_busy=2.0,
)
NOTHING_KNOWN = Effective(source="none")


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """``flags`` of the simulated server, ``workload`` lines of the study, what is injected, and stricter gates.

    The gates are wide open for a busy test machine but for those that the test is about.
    """

    flags: tuple[str, ...] = ()
    workload: Mapping[str, float | bool | str] = {}
    around: Callable[[Surroundings], Surroundings] = lambda seen: seen
    raw: Callable[[RawRun], RawRun] = lambda raw: raw
    gates: Mapping[str, float] = {}


class Reduced(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the load, and what the gates found."""

    outcome: Outcome | Trouble | Retry
    findings: dict[str, Finding]

    def fatal(self, gate: str) -> bool:
        return gate in self.findings and self.findings[gate].fatal


def load(case: Case) -> Reduced:
    """Start, load and stop one server."""
    with tempfile.TemporaryDirectory() as folder, ready(case.flags, Path(folder)) as (rig, server):
        return load_again(case, rig, server)


def load_again(case: Case, rig: Rig, server: RunningServer) -> Reduced:
    """Another load on a server that is up."""
    given = {"input_tokens": 8, "output_tokens": 8, "concurrency": 8, "stream": True, "min_s": 0.5, "max_s": 0.5}
    workload = msgspec.structs.replace(rig.study.workload, **{**given, "warmup_max_s": 1.0, **case.workload})
    study = msgspec.structs.replace(rig.study, workload=workload)
    rig = msgspec.structs.replace(rig, study=study, gates=msgspec.structs.replace(WIDE, **case.gates))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "Onlooker", _seen_as(case.around))
        patch.setattr(loading, "run_load", lambda *given: case.raw(run_load(*given)))
        return _reduced(measure(rig, Load(number=0, attempt=next(FRESH), effective=NOTHING_KNOWN), server))


def _seen_as(change: Callable[[Surroundings], Surroundings]) -> type[Onlooker]:
    class Changed(Onlooker):
        """Sees the machine as the test wants it."""

        def result(self) -> Surroundings:
            return change(super().result())

    return Changed


class _Easy(EngineProbe):
    """Takes any reply for a proof of life: a fault that also spoils this reply would never be loaded."""

    def is_ready(self, status: int, body: bytes) -> bool:
        return status == 200 or b"error" in body


@contextmanager
def ready(flags: tuple[str, ...], folder: Path) -> Iterator[tuple[Rig, RunningServer]]:
    """A study on a simulated server that is up."""
    with open_night(read_brief(Night(flags=flags).write(folder)), lambda _: None, Waiting()) as night:
        plan = night.rig.plan(Config(params={}))
        options = ServeOptions(
            log_path=folder / "server.log",
            mark=new_mark(night.rig.study_id, 0),
            start=StartLimits(start_s=60, probe_s=10),
            stop=StopLimits(term_s=3.0),
        )
        with running(plan, options, _Easy(night.rig.engine, plan, (1000, 2000))) as server:
            assert isinstance(server.start, Ready), (folder / "server.log").read_text()
            yield night.rig, server


def _reduced(outcome: Outcome | Trouble | Retry) -> Reduced:
    if isinstance(outcome, Retry) and outcome.refused and outcome.refused.measurement:
        found = outcome.refused.measurement.findings
    else:
        found = outcome.measurement.findings if isinstance(outcome, Measured) else ()
    return Reduced(outcome=outcome, findings={finding.gate: finding for finding in found})
