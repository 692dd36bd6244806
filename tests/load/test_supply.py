"""What a worker prepares before a load, and that it changes nothing of what is asked."""

from __future__ import annotations

import pytest

from autotune.load import supply as supplies
from autotune.load.http import parse_target
from autotune.load.spec import LoadSpec, WorkerSpec
from autotune.load.supply import AT_A_TIME, Supply
from autotune.study.file import Workload

URL = "http://127.0.0.1:1"


def spec(input_tokens: int = 4, concurrency: int = 8, requests: int = 0) -> WorkerSpec:
    workload = Workload(input_tokens=input_tokens, output_tokens=4, concurrency=concurrency)
    load = LoadSpec(base_url=URL, workload=workload, seed=(1, 2), folder="", requests=requests)
    return WorkerSpec(load=load, worker=1, workers=2, raw_path="")


def stocked(of: WorkerSpec) -> int:
    """How many requests are prepared where there is time enough."""
    supply = Supply(of, parse_target(URL), None)
    while supply.refill():
        pass
    return len(supply)


def test_short_prompts_are_prepared_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many, or a whole wave of this worker's places."""
    monkeypatch.setattr(supplies, "PREPARED", 100)
    assert stocked(spec()) == 100
    assert stocked(spec(concurrency=301)) == 151


def test_long_prompts_are_prepared_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more of them than a limit, but a whole wave in any case: memory and time before a load stay bounded."""
    monkeypatch.setattr(supplies, "PREPARED_BYTES", 50_000)
    assert stocked(spec(input_tokens=2_000)) in range(4, 8)
    assert stocked(spec(input_tokens=2_000, concurrency=40)) == 20


def test_what_is_taken_is_prepared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of what is ready is that of what is left."""
    monkeypatch.setattr(supplies, "PREPARED_BYTES", 50_000)
    supply = Supply(spec(input_tokens=2_000), parse_target(URL), None)
    while supply.refill():
        pass
    before = len(supply)
    for _ in range(3 * before):
        supply.take()
        supply.refill()
    assert len(supply) in range(before - 1, before + 2)


def test_a_refill_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks at the connections a few requests are made, of long ones a single one."""
    supply = Supply(spec(), parse_target(URL), None)
    assert supply.refill()
    assert len(supply) == AT_A_TIME
    monkeypatch.setattr(supplies, "AT_A_TIME_BYTES", 1)
    assert supply.refill()
    assert len(supply) == AT_A_TIME + 1


def test_preparing_ends_with_its_time() -> None:
    """The load begins with what there is."""
    supply = Supply(spec(), parse_target(URL), None)
    supply.prepare(0.0)
    assert len(supply) == AT_A_TIME


@pytest.mark.parametrize("refills", [0, 1, 3])
def test_the_requests_are_the_same_however_many_are_prepared(refills: int) -> None:
    """Prepared or made when they are sent, they come in one order, and end after the last."""
    plain, supply = (Supply(spec(requests=200), parse_target(URL), None) for _ in range(2))
    for _ in range(refills):
        supply.refill()
    wanted = [item.wire for item in iter(plain.take, None)]
    assert [item.wire for item in iter(supply.take, None)] == wanted
    assert len(wanted) == 100
    assert not supply.refill()
