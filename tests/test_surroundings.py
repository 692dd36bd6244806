"""What a load's onlooker makes of the GPUs that it sees."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autotune.load.gates import Surroundings
from autotune.server.clock import FakeClock
from autotune.server.gpu import Device, Holder, NoGpu
from autotune.surroundings import LOOK_S, Onlooker
from autotune.values import LaunchPlan

GIB = 1 << 30
PLAN = LaunchPlan(engine="sglang", argv=("serve",), host="127.0.0.1", port=1)


class Filling(NoGpu):
    """Two devices of 100 GiB, whose use changes from look to look; ``strangers`` hold memory there."""

    def __init__(self, used: list[tuple[int, int]], strangers: tuple[int, ...] = ()) -> None:
        self.used, self.strangers = used, strangers

    def devices(self) -> tuple[Device, ...]:
        now = self.used.pop(0) if len(self.used) > 1 else self.used[0]
        return tuple(Device(index=i, name="x", total_bytes=100 * GIB, used_bytes=n * GIB) for i, n in enumerate(now))

    def holders(self) -> tuple[Holder, ...]:
        return tuple(Holder(index=0, pid=pid) for pid in (7, *self.strangers))


def watched(gpu: NoGpu, looks: int) -> Surroundings:
    """What is seen in so many looks at the GPUs of a server with the process 7."""
    clock = FakeClock()
    rig: Any = SimpleNamespace(
        gpu=gpu,
        waiting=SimpleNamespace(clock=clock),
        slot=SimpleNamespace(cpus=()),
        beside=False,
        cores=4,
        engine=SimpleNamespace(counters=lambda fetch, log: None),
    )
    process = SimpleNamespace(members=lambda: [SimpleNamespace(pid=7)])
    server: Any = SimpleNamespace(plan=PLAN, log_path=None, process=process, vitals=lambda: SimpleNamespace(cpu_s=0.0))
    onlooker = Onlooker(rig, server)
    for _ in range(looks):
        clock.sleep(LOOK_S)
        onlooker.look()
    return onlooker.result()


@pytest.fixture(autouse=True)
def no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no server whose log could be read."""
    monkeypatch.setattr("autotune.surroundings.read_log", lambda path: "")
    monkeypatch.setattr("autotune.surroundings.fetcher", lambda client, waiting: None)


def test_the_fullest_moment_of_the_fullest_gpu_counts() -> None:
    """What a peak needs must be there, on each GPU."""
    assert watched(Filling([(60, 50), (70, 93), (70, 71)]), 3).gpu_free == pytest.approx(0.07)


def test_what_strangers_hold_says_nothing_of_the_server() -> None:
    """They may be gone at the next start."""
    seen = watched(Filling([(60, 50), (70, 90)], strangers=(8,)), 2)
    assert seen.gpu_free is None
    assert seen.gpu_others == ("pid 8 on GPU 0",)


def test_without_gpus_nothing_is_known() -> None:
    """A machine without a driver."""
    assert watched(NoGpu(), 2).gpu_free is None
