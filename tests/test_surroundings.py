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

    def __init__(self, used: list[tuple[int, ...]], strangers: tuple[int, ...] = (), total: int = 100) -> None:
        self.used, self.strangers, self.total = used, strangers, total * GIB

    def devices(self) -> tuple[Device, ...]:
        now = self.used.pop(0) if len(self.used) > 1 else self.used[0]
        return tuple(Device(index=i, name="x", total_bytes=self.total, used_bytes=n * GIB) for i, n in enumerate(now))

    def holders(self) -> tuple[Holder, ...]:
        return tuple(Holder(index=0, pid=pid) for pid in (7, *self.strangers))


def watched(gpu: NoGpu, looks: int) -> Surroundings:
    """What is seen in so many looks at the GPUs of a server with the process 7."""
    clock = FakeClock()
    rig: Any = SimpleNamespace(
        gpu=gpu,
        waiting=SimpleNamespace(clock=clock),
        slot=SimpleNamespace(cpus=()),
        gpu_baseline={0: 1 * GIB, 1: 40 * GIB},
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
    assert watched(Filling([(60, 50), (70, 93), (70, 71)]), 3).gpu_free_share == pytest.approx(0.07)


def test_a_load_shorter_than_a_look_is_seen_at_its_end() -> None:
    """What a peak took stays with the allocator."""
    assert watched(Filling([(70, 93)]), 0).gpu_free_share == pytest.approx(0.07)


def test_a_gpu_on_which_the_server_holds_nothing_is_left_out() -> None:
    """It was as full before the night began."""
    assert watched(Filling([(70, 40)]), 1).gpu_free_share == pytest.approx(0.3)


def test_a_moment_without_an_answer_and_gpus_without_a_size_are_passed_over() -> None:
    """A driver that is asked often does not always answer."""
    assert watched(Filling([(80, 41), (), (70, 41)]), 3).gpu_free_share == pytest.approx(0.2)
    assert watched(Filling([(70, 93)], total=0), 1).gpu_free_share is None


def test_what_strangers_hold_says_nothing_of_the_server() -> None:
    """They may be gone at the next start."""
    seen = watched(Filling([(60, 50), (70, 90)], strangers=(8,)), 2)
    assert seen.gpu_free_share is None
    assert seen.gpu_others == ("pid 8 on GPU 0",)


def test_without_gpus_nothing_is_known() -> None:
    """A machine without a driver."""
    assert watched(NoGpu(), 2).gpu_free_share is None
