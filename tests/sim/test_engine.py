"""The engine in scaled real time: what it counts, and how faults and noise stretch its steps."""

from __future__ import annotations

import asyncio

import pytest

from autotune.sim.engine import Engine, Pace
from autotune.sim.faults import FaultPlan, parse_faults
from autotune.sim.memory import resolve
from autotune.sim.profiles import DEMO
from autotune.sim.requests import SimRequest


class Sink:
    """A job that remembers."""

    def __init__(self, stream: bool = True) -> None:
        self.stream = stream
        self.counts: list[int] = []
        self.ended = asyncio.Event()

    def token(self, count: int) -> None:
        self.counts.append(count)

    def done(self, request: SimRequest) -> None:
        self.ended.set()


def engine(faults: FaultPlan | None = None, **pace: float | int | str) -> Engine:
    settings = Pace(**{"speed": 1000.0, **pace})  # type: ignore[arg-type]
    return Engine(DEMO, resolve(DEMO, {}), faults or FaultPlan(), settings)


@pytest.mark.parametrize(("interval", "seen"), [(1, list(range(1, 8))), (3, [1, 3, 6])])
def test_stream_interval(interval: int, seen: list[int]) -> None:
    """A stream gets its first token and every n-th; the last comes with the end; the counters add up."""

    async def main() -> None:
        served = engine(stream_interval=interval)
        runner = asyncio.ensure_future(served.run())
        job = Sink()
        served.submit(SimRequest(10, 8, tag=job))
        await asyncio.wait_for(job.ended.wait(), 30)
        assert job.counts == seen
        assert (served.counters.prompt_tokens, served.counters.generation_tokens) == (10, 8)
        runner.cancel()

    asyncio.run(main())


def test_aborted_requests_are_forgotten() -> None:
    """A request whose client left frees its place, is not counted, and the others go on."""

    async def main() -> None:
        served = engine(speed=1.0)
        runner = asyncio.ensure_future(served.run())
        gone, stays = Sink(), Sink(stream=False)
        leaving = SimRequest(10, 4000, tag=gone)
        served.submit(leaving)
        served.submit(SimRequest(10, 10, tag=stays))
        await asyncio.sleep(0.05)
        served.abort(leaving)
        await asyncio.wait_for(stays.ended.wait(), 30)
        assert not gone.ended.is_set()
        assert served.idle
        assert served.counters.requests == 1
        runner.cancel()

    asyncio.run(main())


def test_noise_belongs_to_the_seed() -> None:
    """The same seed gives the same speed, another seed another, and no noise the exact one after warming up."""

    async def main() -> None:
        factors = [engine(noise=0.05, seed=seed)._time_factor() for seed in ("1", "1", "2")]
        assert factors[0] == factors[1] != factors[2]
        quiet = engine(noise=0.0)
        assert quiet._time_factor() == pytest.approx(DEMO.cold_factor)
        quiet._busy_s = 100 * DEMO.cold_s
        assert quiet._time_factor() == pytest.approx(1.0)

    asyncio.run(main())


def test_drift_grows_with_the_load() -> None:
    """The drift fault makes steps slower by its rate per minute of load, and not before."""

    async def main() -> None:
        drifting = engine(parse_faults(["drift=0.5"]))
        drifting._busy_s = 1e6
        assert drifting._time_factor() == pytest.approx(1.0)
        # Two minutes of load: at this speed, 120,000 virtual seconds ago.
        drifting.load_began_s = drifting.clock_s() - 120_000
        assert drifting._time_factor() == pytest.approx(2.0, rel=0.01)

    asyncio.run(main())
