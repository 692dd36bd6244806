"""Memory arithmetic and the values in force, by version."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.sim.memory import (
    default_chunk,
    default_fraction,
    default_graph_max,
    effective_running,
    graph_sizes,
    parse_version,
    resolve,
)
from autotune.sim.profiles import DEMO, GLM5_NVFP4, QWEN3_30B_H200
from autotune.sim.settings import SimSettings


def at(version: str, settings: SimSettings = QWEN3_30B_H200) -> SimSettings:
    return msgspec.structs.replace(settings, version=version)


@pytest.mark.parametrize(
    ("version", "requested", "kv_tokens", "effective"),
    [
        ("0.5.8", None, 669_932, (4096, False)),
        ("0.5.8", None, 6_000, (2048, False)),
        ("0.5.8", None, 3_000, (1500, False)),
        ("0.5.8", 9000, 6_000, (9000, False)),
        ("0.5.12", 9000, 669_932, (4096, False)),
        ("0.5.12", 3000, 6_000, (2048, False)),
        ("0.5.15", 9000, 6_000, (3000, True)),
        ("0.5.23", 100, 6_000, (100, False)),
    ],
)
def test_effective_running(version: str, requested: int | None, kv_tokens: int, effective: tuple[int, bool]) -> None:
    """The running limit in force follows the rule of its version, and is announced only where the engine does."""
    assert effective_running(at(version), requested, kv_tokens) == effective


def test_defaults_by_gpu_memory() -> None:
    """Chunk and graph ceiling follow SGLang's table of GPU sizes."""
    assert [default_chunk(gb) for gb in (16, 24, 48, 80, 141, 192)] == [2048, 2048, 4096, 8192, 8192, 16384]
    assert [default_graph_max(gb, 1) for gb in (16, 24, 48, 80, 141, 192)] == [8, 24, 32, 256, 256, 512]
    assert [default_graph_max(gb, 8) for gb in (16, 24, 48, 80)] == [8, 80, 160, 512]


def test_captured_sizes() -> None:
    """The list of captured sizes for 2,048 has 100 entries, as the real server's log shows, and ends at the ceiling."""
    sizes = graph_sizes(2048)
    assert len(sizes) == 100
    assert sizes[:6] == (1, 2, 4, 8, 12, 16)
    assert sizes[-1] == 2048
    assert graph_sizes(50)[-1] == 50
    assert graph_sizes(0) == ()


@given(ceiling=st.integers(1, 5000))
def test_captured_sizes_rise_to_the_ceiling(ceiling: int) -> None:
    """For every ceiling the sizes rise strictly and end at it."""
    sizes = graph_sizes(ceiling)
    assert sizes[-1] == ceiling
    assert all(a < b for a, b in itertools.pairwise(sizes))


def test_unset_fraction_couples_parameters() -> None:
    """Without a pinned memory fraction a larger graph ceiling costs KV tokens; with it pinned it does not."""
    free = [resolve(GLM5_NVFP4, {"cuda_graph_max_bs": n}).limits.kv_tokens for n in (512, 2048)]
    pinned = [
        resolve(GLM5_NVFP4, {"cuda_graph_max_bs": n, "mem_fraction_static": 0.85}).limits.kv_tokens for n in (512, 2048)
    ]
    assert free[1] < free[0] == 495_488
    assert pinned[0] == pinned[1]
    assert default_fraction(GLM5_NVFP4, 8192, 512) == 0.848


def test_both_spellings_and_dashes() -> None:
    """Flags are understood with dashes and in both spellings of the graph ceiling."""
    one = resolve(DEMO, {"--cuda-graph-max-bs-decode": 64, "max-running-requests": 48})
    two = resolve(DEMO, {"cuda_graph_max_bs": 64, "max_running_requests": 48})
    assert one == two
    assert one.limits.graph_max == 64
    assert one.limits.running == 48


def test_oom_stages() -> None:
    """Each stage runs out of memory where its own arithmetic says so, and a modest start at none."""
    assert resolve(msgspec.structs.replace(DEMO, weight_gb=30.0), {}).oom == "weights"
    assert resolve(DEMO, {"mem_fraction_static": 0.3}).oom == "kv_pool"
    assert resolve(DEMO, {"cuda_graph_max_bs": 400}).oom == "graph_capture"
    assert resolve(DEMO, {"mem_fraction_static": 0.93}).oom == "load"
    assert resolve(DEMO, {}).oom is None


@given(low=st.integers(8, 300), more=st.integers(0, 200), fraction=st.floats(0.5, 0.95), rise=st.floats(0.0, 0.04))
def test_oom_is_monotone_in_graphs_and_fraction(low: int, more: int, fraction: float, rise: float) -> None:
    """What runs out of memory after the pool still does with larger graphs and a larger fraction."""
    small = resolve(DEMO, {"cuda_graph_max_bs": low, "mem_fraction_static": fraction})
    large = resolve(DEMO, {"cuda_graph_max_bs": low + more, "mem_fraction_static": fraction + rise})
    if small.oom in ("graph_capture", "load"):
        assert large.oom is not None


def test_max_total_tokens_only_lowers() -> None:
    """--max-total-tokens caps the pool and never enlarges it."""
    assert resolve(DEMO, {"max_total_tokens": 1000}).limits.kv_tokens == 1000
    assert resolve(DEMO, {"max_total_tokens": 10**9}).limits.kv_tokens == resolve(DEMO, {}).limits.kv_tokens


def test_decode_steps_by_version() -> None:
    """The decode-steps flag reaches the scheduler only before 0.3.6."""
    flags = {"num_continuous_decode_steps": 8}
    assert resolve(at("0.3.5", DEMO), flags).limits.decode_steps == 8
    assert resolve(at("0.3.6", DEMO), flags).limits.decode_steps == 1


def test_versions_compare() -> None:
    """Versions are compared as numbers, with or without a post-release."""
    assert parse_version("0.5.9") < parse_version("0.5.14") == parse_version("0.5.14.post1")
