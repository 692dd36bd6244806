"""The fitted machines against the measured tables."""

from __future__ import annotations

import pytest

from autotune.sim.virtual import VirtualLoad, simulate

# running limit, graph ceiling, client concurrency, measured output tok/s (mean of the repeats of one start)
H200_ROWS = [
    (256, 256, 512, 10266),
    (256, 256, 2048, 10164),
    (512, 256, 2048, 7510),
    (512, 512, 2048, 15171),
    (1024, 1024, 2048, 19771),
    (2048, 256, 2048, 18919),
    (2048, 256, 2048, 19807),
    (2048, 256, 2048, 17683),
    (2048, 1024, 2048, 17098),
    (2048, 2048, 2048, 23216),
    (4096, 256, 4096, 17877),
]


@pytest.mark.parametrize(("running", "graph", "concurrency", "measured"), H200_ROWS)
def test_h200_row(running: int, graph: int, concurrency: int, measured: float) -> None:
    """Each measured throughput of the H200 table comes out within 15 %."""
    flags = {"max_running_requests": running, "cuda_graph_max_bs_decode": graph, "mem_fraction_static": 0.85}
    result = simulate("qwen3-30b-h200", flags, VirtualLoad(concurrency=concurrency), 1, 0.0)
    assert result.oom is None
    assert result.throughput_tok_s == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize(
    "flags",
    [
        {"max_running_requests": 2048, "mem_fraction_static": 0.985},
        {
            "max_running_requests": 4096,
            "mem_fraction_static": 0.96,
            "chunked_prefill_size": 65536,
            "max_prefill_tokens": 65536,
        },
    ],
)
def test_h200_oom_rows(flags: dict[str, float]) -> None:
    """The two rows that died on the H200 become ready and run out of memory under load."""
    result = simulate("qwen3-30b-h200", flags, VirtualLoad(concurrency=1024), 1, 0.0)
    assert result.oom == "load"
    assert result.throughput_tok_s is None
    assert result.start_s > 40


def test_h200_kv_tokens() -> None:
    """KV capacity at memory fraction 0.85 and 0.985 is that of the server's own log within 0.1 %."""
    for fraction, tokens in ((0.85, 669_932), (0.985, 875_181)):
        flags = {"mem_fraction_static": fraction, "max_running_requests": 2048}
        result = simulate("qwen3-30b-h200", flags, VirtualLoad(concurrency=8), 1, 0.0)
        assert result.kv_tokens == pytest.approx(tokens, rel=0.001)


@pytest.mark.parametrize(("running", "measured"), [(1024, 3249), (2048, 4151)])
def test_glm5_row(running: int, measured: float) -> None:
    """The founding case comes out within 15 %, with its 495,488 KV tokens."""
    result = simulate("glm5-nvfp4", {"max_running_requests": running}, VirtualLoad(concurrency=running), 1, 0.0)
    assert result.kv_tokens == 495_488
    assert result.throughput_tok_s == pytest.approx(measured, rel=0.15)


def test_demo_needs_both_parameters() -> None:
    """On the demo's machine neither parameter alone gains a quarter, both together do, and too much of both dies."""
    load = VirtualLoad(concurrency=128, input_tokens=64, output_tokens=32)

    def rate(**flags: int) -> float:
        return simulate("demo", dict(flags), load, 1, 0.0).throughput_tok_s or 0.0

    base = rate()
    assert max(rate(max_running_requests=n) for n in (32, 64, 96, 128)) < 1.25 * base
    assert max(rate(cuda_graph_max_bs=n) for n in (32, 64, 96, 128)) < 1.25 * base
    assert rate(max_running_requests=96, cuda_graph_max_bs=96) > 1.25 * base
    assert simulate("demo", {"max_running_requests": 160, "cuda_graph_max_bs": 160}, load).oom == "load"
    assert simulate("demo", {"cuda_graph_max_bs": 256}, load).oom == "graph_capture"
