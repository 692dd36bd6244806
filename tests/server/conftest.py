"""Helpers of the lifecycle's tests. Whatever a test starts is gone when it ends."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotune.server.ports import fresh_port
from autotune.server.process import ServerProcess, new_mark, start
from autotune.server.proctable import marked, read_table
from autotune.server.stop import StopLimits, reap_orphans
from autotune.values import LaunchPlan

DOUBLE = str(Path(__file__).with_name("double.py"))
# Each process its own: suites that run side by side must not end each other's servers.
STUDY = f"lifecycle-tests-{os.getpid()}"
PATIENCE_S = 60.0


class DoubleProbe:
    """The generation that the double understands."""

    def request(self) -> tuple[str, str]:
        return "/generate", json.dumps({"input_ids": [1, 2, 3]})

    def is_ready(self, status: int, body: bytes) -> bool:
        return status == 200 and json.loads(body).get("tokens", 0) >= 1


def eventually(true: Callable[[], object], what: str) -> None:
    """Wait for a condition on a machine that may be slow."""
    end_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end_s, f"never happened: {what}"
        time.sleep(0.02)


def double_plan(*flags: str, port: int | None = None) -> LaunchPlan:
    port = port or fresh_port("127.0.0.1")
    argv = (sys.executable, DOUBLE, "--port", str(port), *flags)
    return LaunchPlan(engine="double", argv=argv, host="127.0.0.1", port=port)


Starter = Callable[..., ServerProcess]


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[Starter]:
    """Starts doubles (without waiting for them) and cleans up."""
    processes: list[ServerProcess] = []

    def begin(*flags: str) -> ServerProcess:
        process = start(double_plan(*flags), tmp_path / f"server-{len(processes)}.log", new_mark(STUDY, len(processes)))
        processes.append(process)
        return process

    yield begin
    for process in processes:
        reap_orphans([process.identity()], StopLimits(term_s=0.0))
        process.poll()
        process.close()


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No test of this package leaves a process."""
    yield
    left = marked(read_table(), f"{STUDY}/", prefix=True)
    reap_orphans([], StopLimits(term_s=0.0), study_id=STUDY)
    assert not left
