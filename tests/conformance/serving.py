"""Servers and nights of the suite: started, asked and loaded as the package does it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

from autotune.load.driver import run_load
from autotune.load.gates import Surroundings
from autotune.load.records import RawRun
from autotune.load.spec import LoadSpec
from autotune.rig import EngineProbe, Rig, control_client, fetcher
from autotune.server.process import ServerIdentity, new_mark
from autotune.server.readiness import StartLimits
from autotune.server.serve import RunningServer, ServeOptions, running
from autotune.server.stop import StopLimits
from autotune.study.file import Workload
from autotune.study.record import read_record
from autotune.values import Effective, LaunchPlan
from tests.nights import begin, events, records, wait_for

TOKEN_IDS = (260, 1000)
"""Inside the vocabulary of 1,024 of the tiny model, behind the bytes and special tokens."""
START = StartLimits(start_s=600.0, silence_s=300.0, probe_s=60.0)
LIMIT_S = 1500.0


@contextmanager
def tuning(study: Path) -> Iterator[Tuner]:
    """``autotune tune`` in the background; killed on the way out where it still runs."""
    with begin("tune", study) as process:
        try:
            yield Tuner(study, process)
        finally:
            process.kill()


class Tuner:
    """A night that runs."""

    def __init__(self, study: Path, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._study = study

    def wait_for_load(self, number: int) -> ServerIdentity:
        """Until the requests of a trial are under way; which process is its server."""

        def loading() -> bool:
            assert self.process.poll() is None, self.process.communicate()
            entered = events(self._study, "phase")
            return any(event["number"] == number and event["phase"] in ("warm-up", "load") for event in entered)

        wait_for(loading, LIMIT_S)
        identity = read_record(records(self._study).trial(number).identity, ServerIdentity)
        assert identity is not None
        return identity


@contextmanager
def serving(rig: Rig, plan: LaunchPlan, log: Path) -> Iterator[RunningServer]:
    """A server of this plan, started and stopped as a trial does it."""
    options = ServeOptions(log_path=log, mark=new_mark(rig.study_id, 0), start=START, stop=StopLimits(term_s=10.0))
    with running(plan, options, EngineProbe(rig.engine, plan, TOKEN_IDS)) as server:
        yield server


class Live:
    """A server that is up, and how to ask it."""

    def __init__(self, rig: Rig, server: RunningServer) -> None:
        self.rig = rig
        self.server = server
        self._loads = 0

    @property
    def client(self) -> httpx.Client:
        return control_client(self.server.plan)

    def healthy(self) -> bool:
        with self.client as client:
            return client.get("/health").status_code == 200

    def info(self) -> dict[str, Any]:
        """What a server of SGLang says of itself."""
        with self.client as client:
            found: dict[str, Any] = client.get("/server_info").json()
            return found

    def effective(self) -> Effective:
        """The values in force, by routes and log."""
        with self.client as client:
            return self.rig.engine.effective(fetcher(client), self.log(), self.rig.space.names())

    def log(self) -> str:
        return self.server.log_path.read_text(errors="replace")

    def load(self, folder: Path, requests: int = 0, **workload: object) -> tuple[RawRun, Surroundings]:
        """One load, and the server's own counters around it. ``requests`` 0: as long as the workload says."""
        self._loads += 1
        asked = {**msgspec.to_builtins(self.rig.study.workload), "workers": 1, **workload}
        spec = LoadSpec(
            base_url=self.server.plan.base_url,
            workload=msgspec.convert(asked, Workload),
            seed=(os.getpid(), self._loads),
            folder=str(folder),
            model=self.server.plan.model_name,
            requests=requests,
            request_timeout_s=60.0,
        )
        with self.client as client:
            engine, fetch = self.rig.engine, fetcher(client)
            before = engine.counters(fetch, self.log())
            raw = run_load(spec)
            return raw, Surroundings(before=before, after=engine.counters(fetch, self.log()))
