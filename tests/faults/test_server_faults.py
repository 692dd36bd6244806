"""Every fault of the simulated server, at every stage in which it can occur."""

from __future__ import annotations

import json

import msgspec
import pytest

from autotune.sim.faults import FAULTS
from autotune.values import Measured

from .cells import HANG, Limits, outcome, signals_of
from .conftest import Make, Told

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

STAGES = ("launch", "weights", "kv_pool", "graph_capture")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """``ends`` are the outcomes that are right for trial 1; ``stops`` is part of the reason where the night stops."""

    fault: str
    ends: tuple[str, ...] = ()
    stops: str = ""
    limits: Limits = Limits()
    also: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.fault.partition("=")[0]

    @property
    def stage(self) -> str:
        argument = self.fault.partition("=")[2]
        return argument if argument in STAGES else FAULTS[self.name].stage


CRASH = ("infeasible: crash_other",)
ROWS = (
    *(Row(fault=f"hang_start={stage}", ends=("infeasible: hang",), limits=HANG) for stage in STAGES),
    *(Row(fault=f"die_start={stage}", ends=CRASH) for stage in STAGES),
    Row(fault="slow_start=1", ends=("measured",)),
    Row(fault="exit_start=1", ends=CRASH),
    Row(fault="exit_start=137", ends=CRASH),
    Row(fault="oom_weights", stops="oom_weights after 3 attempts"),
    Row(fault="oom_kv", ends=("infeasible: oom_kv",)),
    Row(fault="no_kv", ends=("infeasible: oom_kv", "infeasible: oom_weights")),
    Row(fault="oom_graph", ends=("infeasible: oom_graph",)),
    Row(fault="oom_load", ends=("infeasible: oom_runtime",)),
    Row(fault="oom_host", stops="oom_host"),
    Row(fault="nccl", stops="nccl"),
    Row(fault="kernel_error", ends=("infeasible: kernel_error",)),
    Row(fault="warmup_error", ends=CRASH),
    Row(fault="port_taken", stops="port_in_use"),
    Row(fault="lying_health", ends=("measured",)),
    Row(fault="death_under_load=0.1", ends=CRASH),
    Row(fault="scheduler_dead", ends=("infeasible: hang",), limits=HANG),
    Row(fault="hang_load=0.1", ends=("infeasible: hang",), limits=HANG),
    Row(fault="hang_front=0.1", ends=("infeasible: hang",), limits=HANG),
    Row(fault="crawl=20", ends=("measured", "refused: window")),
    Row(fault="empty", ends=("infeasible: hang",), limits=HANG),
    Row(fault="error_stream", ends=("infeasible: hang",), limits=HANG),
    Row(fault="short_output=0.5", ends=("refused: output_lengths", "refused: failed_requests")),
    Row(fault="wrong_usage=2", ends=("refused: output_lengths", "refused: failed_requests", "refused: token_counters")),
    Row(fault="drift=0.5", ends=("measured",)),
    Row(fault="retract=0.3", ends=("measured", "refused: retractions")),
    Row(fault="prefix_cache", ends=("refused: prefix_cache",)),
    Row(fault="flood_log=5", ends=("measured",)),
    Row(fault="ignored_flag=max_running_requests", ends=("measured",)),
    # What these do to a live load: tests/faults/test_live.py.
    Row(fault="live_refused", ends=("measured",)),
    Row(fault="live_ignored", ends=("measured",)),
    Row(fault="live_death=0.1", ends=("measured",)),
    Row(fault="deaf", ends=("measured",)),
    Row(fault="child_left=600", ends=("measured",)),
    Row(fault="stale_port=600", ends=("measured",)),
    Row(fault="gpu_leak", ends=("measured",), stops="GPU memory", limits=Limits(trials=3, release_s=1.0)),
    Row(fault="linger=60", ends=("infeasible: oom_runtime",), also=("oom_load",)),
    Row(fault="deaf", ends=("infeasible: hang",), also=("hang_load=0.1",), limits=HANG),
    Row(fault="child_left=600", ends=CRASH, also=("die_start=weights",)),
)


def test_every_fault_of_the_simulated_server_has_a_row() -> None:
    """A fault that is added to the simulator must be added here."""
    assert {row.name for row in ROWS} == set(FAULTS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "+".join((row.fault, *row.also)))
def test_fault_of_the_server(row: Row, make: Make, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial ends as it should, the night goes on or stops with a reason, and goes on without the fault."""
    cell = make(row.limits)
    faults = (row.fault, *row.also)
    signals_of(monkeypatch, 1, *(word for fault in faults for word in ("--sim-fault", fault)))
    seen = cell.night()
    first = cell.records.result(1)
    shown = outcome(first) if first else "not settled"
    told("+".join(faults), row.stage, f"night stopped: {row.stops}" if row.stops else shown)
    if row.stops:
        assert row.stops in seen.stopped
        assert "NightStopped" in seen.stopped
    else:
        assert not seen.stopped
        cell.check_nothing_lost(row.limits.trials)
    if row.ends:
        assert shown in row.ends
    if row.name == "ignored_flag" and first and isinstance(first.outcome, Measured):
        assert first.outcome.effective.running_limit != first.config.params["max_running_requests"]
    if row.stops:
        (cell.root / "gpu.json").write_text(json.dumps({}))
        cell.goes_on(row.limits.trials)
