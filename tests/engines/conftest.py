"""One real server for the tests that only look at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.server.readiness import Ready
from autotune.values import Config
from tests.conformance.subjects import Subject
from tests.engines.real import ENGINES, Live, RealNight, serving
from tests.nights import rig, wait_for

SGLANG = ENGINES / "serve"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before anything starts: the server of the test's subject must be installed, SGLang's where it has none."""
    callspec = getattr(item, "callspec", None)
    subject = callspec.params.get("subject") if callspec else None
    script = Path(subject.command[0]) if isinstance(subject, Subject) else SGLANG
    assert script.exists(), f"{script} is missing: run `make test-engines`, or add -m 'not engine'"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A real SGLang that is ready, with its metrics on and 64 running requests."""
    folder = tmp_path_factory.mktemp("live")
    shared = rig(RealNight(flags=("--enable-metrics",)).write(folder))
    plan = shared.plan(Config(params={"max_running_requests": 64}))
    with serving(shared, plan, folder / "server.log") as server:
        assert isinstance(server.start, Ready), server.start
        live = Live(shared, server)
        # Its own warm-up request runs beside our first generation; the counters are held still after it.
        wait_for(live.healthy)
        yield live
    assert server.teardown is not None
    assert server.teardown.problem() is None
    assert server.teardown.port_free
