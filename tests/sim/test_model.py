"""The batching model: conservation, limits, and the equality of its slow and fast ways."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.sim.memory import graph_sizes
from autotune.sim.model import Batcher, experts_touched
from autotune.sim.profiles import DEMO, GLM5_NVFP4
from autotune.sim.requests import SimRequest
from autotune.sim.settings import Limits, SimSettings


def limits(**changes: Any) -> Limits:
    base = Limits(running=16, kv_tokens=4000, graph_sizes=graph_sizes(16), chunk_tokens=256, radix_cache=False)
    return msgspec.structs.replace(base, **changes)


def drain(batcher: Batcher, at_once: int = 1) -> tuple[float, int]:
    """Run until empty; time and number of finished requests."""
    total_s, finished, guard = 0.0, 0, 0
    while (step := batcher.step(at_once)) is not None:
        total_s += step.duration_s
        finished += sum(request.count for request in step.finished)
        guard += 1
        assert guard < 100_000
    return total_s, finished


@given(
    lengths=st.lists(st.tuples(st.integers(1, 900), st.integers(1, 60)), min_size=1, max_size=40),
    running=st.integers(1, 20),
    kv_tokens=st.integers(1000, 4000),
    chunk=st.sampled_from([0, 32, 256]),
)
@settings(deadline=None, max_examples=60)
def test_every_request_ends_within_the_limits(
    lengths: list[tuple[int, int]], running: int, kv_tokens: int, chunk: int
) -> None:
    """Whatever the lengths and limits, all requests finish, no limit is passed, and nothing stays in the pool."""
    batcher = Batcher(DEMO, limits(running=running, kv_tokens=kv_tokens, chunk_tokens=chunk))
    for prompt, output in lengths:
        batcher.submit(SimRequest(prompt, output), 0.0)
    finished = 0
    while (step := batcher.step()) is not None:
        assert batcher.running_count <= running
        assert batcher.used_tokens <= kv_tokens or batcher.running_count <= 1
        assert step.duration_s > 0
        finished += len(step.finished)
    assert finished == len(lengths)
    assert (batcher.used_tokens, batcher.running_count, len(batcher.waiting)) == (0, 0, 0)


@given(count=st.integers(1, 200), output=st.integers(1, 50), running=st.integers(1, 64))
@settings(deadline=None, max_examples=40)
def test_groups_and_jumps_equal_single_steps(count: int, output: int, running: int) -> None:
    """A group advanced many steps at once takes as long as its single requests step by step."""
    bounds = limits(running=running, kv_tokens=100_000, graph_sizes=graph_sizes(64))
    slow, fast = Batcher(DEMO, bounds), Batcher(DEMO, bounds)
    for _ in range(count):
        slow.submit(SimRequest(32, output), 0.0)
    fast.submit(SimRequest(32, output, count=count), 0.0)
    slow_s, slow_done = drain(slow)
    fast_s, fast_done = drain(fast, at_once=1 << 20)
    assert slow_done == fast_done == count
    assert fast_s == pytest.approx(slow_s, rel=1e-6)


def test_retraction_under_memory_pressure() -> None:
    """A pool too small for all running requests at full length sends some back, and they still finish."""
    batcher = Batcher(DEMO, limits(kv_tokens=600, conservativeness=0.1))
    for _ in range(16):
        batcher.submit(SimRequest(20, 60), 0.0)
    _, finished = drain(batcher)
    assert finished == 16
    assert batcher.retracted_total > 0


def test_eager_batches_cost_more() -> None:
    """A batch one above the largest captured graph costs the eager penalty."""
    batcher = Batcher(DEMO, limits(running=64))
    within, above = batcher.decode_cost_s(16, 100), batcher.decode_cost_s(17, 100)
    assert above - within > DEMO.eager_s * 0.99


def test_decode_steps_matter_only_before_036() -> None:
    """More continuous decode steps make a step cheaper only where the limits carry them."""
    plain, continuous = Batcher(DEMO, limits()), Batcher(DEMO, limits(decode_steps=8))
    assert continuous.decode_cost_s(8, 100) < plain.decode_cost_s(8, 100)


def test_experts_touched_saturates() -> None:
    """One token touches top-k of the experts, thousands touch all, and a dense model always counts as all."""
    assert experts_touched(GLM5_NVFP4, 1) == pytest.approx(8 / 256)
    assert experts_touched(GLM5_NVFP4, 4096) == pytest.approx(1.0)
    assert experts_touched(msgspec.structs.replace(DEMO, experts=0), 1) == 1.0


def test_live_cap_limits_admission() -> None:
    """Lowering the cap of a running batcher keeps further requests waiting until it falls below."""
    batcher = Batcher(GLM5_NVFP4, limits(running=16))
    batcher.running_cap = 4
    for _ in range(10):
        batcher.submit(SimRequest(8, 20), 0.0)
    batcher.step()
    assert batcher.running_count == 4
    batcher.running_cap = 8
    batcher.step()
    assert batcher.running_count == 8


def test_paced_admission_spreads_equal_requests() -> None:
    """Where a machine paces its admission, requests that came together do not end together; elsewhere they do."""

    def together(settings: SimSettings) -> int:
        batcher = Batcher(settings, limits(running=48, kv_tokens=100_000, graph_sizes=graph_sizes(48)))
        for _ in range(48):
            batcher.submit(SimRequest(4, 32), 0.0)
        most = 0
        while (step := batcher.step()) is not None:
            most = max(most, len(step.finished))
        return most

    assert together(DEMO) <= 2
    assert together(msgspec.structs.replace(DEMO, admission_steps=0)) == 48


def test_abort_frees_what_a_request_held() -> None:
    """An aborted request leaves the queue or the batch, with its tokens."""
    batcher = Batcher(DEMO, limits(running=1))
    first, second = SimRequest(8, 20), SimRequest(8, 20)
    batcher.submit(first, 0.0)
    batcher.submit(second, 0.0)
    batcher.step()
    batcher.abort(second)
    batcher.abort(first)
    assert batcher.step() is None
    assert batcher.used_tokens == 0


def test_cached_prefix_makes_prefill_cheaper() -> None:
    """The same prompt again is mostly cached and prefilled faster, another prompt is not."""
    batcher = Batcher(DEMO, limits(radix_cache=True))
    seen: list[tuple[int, float]] = []
    for blocks in ((1, 2, 3), (1, 2, 3), (7, 8, 9)):
        request = SimRequest(24, 1)
        request.blocks = blocks
        batcher.submit(request, 0.0)
        step = batcher.step()
        assert step is not None
        seen.append((request.cached_tokens, step.duration_s))
    assert [cached for cached, _ in seen] == [0, 23, 0]
    assert seen[1][1] < seen[0][1] == seen[2][1]
