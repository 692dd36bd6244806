"""Recorded output of real servers, where the checkout has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.engines import Fetch, engine

SAMPLES = Path(__file__).parents[3] / "shared" / "samples"
pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the recorded samples are not here")


def sample(**pages: str) -> Fetch:
    """A fetch that serves recorded files, by path with dashes for slashes."""
    return lambda path: (200, (SAMPLES / pages[path]).read_bytes()) if path in pages else (404, b"")


def log(name: str) -> str:
    """A recorded log."""
    return (SAMPLES / name).read_text(errors="replace")


def test_sglang_on_a_gpu() -> None:
    """0.5.14 on an H200 with graphs up to 2,048."""
    fetch = sample(**{"/server_info": "sglang-0.5.14-h200/server_info.json"})
    seen = engine("sglang").effective(fetch, log("sglang-0.5.14-h200/ready_graph_2048.log"), ["mem_fraction_static"])
    assert (seen.version, seen.kv_tokens, seen.running_limit) == ("0.5.14", 669932, 2048)
    assert (seen.graph_max_batch, seen.values) == (2048, {"mem_fraction_static": 0.85})
    assert seen.gpu_memory_gb["kvcache"] == 61.33


def test_sglang_by_its_log() -> None:
    """The same server with default graphs, from its log alone."""
    seen = engine("sglang").effective(sample(), log("sglang-0.5.14-h200/ready.log"), ["cuda_graph_max_bs_decode"])
    assert (seen.source, seen.kv_tokens, seen.running_limit, seen.graph_max_batch) == ("log", 669932, 2048, 256)


def test_sglang_on_a_cpu() -> None:
    """0.5.23 without decode graphs, its counters and its live limit."""
    names = {"/server_info": "sglang_server_info.json", "/metrics": "sglang_metrics.txt"}
    fetch = sample(**{path: f"cpu_engines/{name}" for path, name in names.items()})
    seen = engine("sglang").effective(fetch, "", ["max_running_requests"])
    assert (seen.version, seen.kv_tokens, seen.running_limit, seen.graph_max_batch) == ("0.5.23", 8192, 16, 0)
    counted = engine("sglang").counters(fetch)
    assert (counted.prompt_tokens, counted.generated_tokens, counted.cached_tokens) == (2164, 2133, 1)
    assert engine("sglang").live_limit_in_force(fetch) == 16
    assert engine("sglang").live_limit(16, fetch) is not None
    assert engine("sglang").live_limit(17, fetch) is None


def test_vllm_on_a_cpu() -> None:
    """0.32.0 in development mode and by its log."""
    fetch = sample(**{"/server_info?config_format=json": "cpu_engines/vllm_server_info.json"})
    assert engine("vllm").effective(fetch, "", ["max_num_seqs"]).values == {"max_num_seqs": 64}
    seen = engine("vllm").effective(sample(), log("cpu_engines/vllm_start_ok.log"), ["max_num_seqs"])
    assert (seen.version, seen.kv_tokens, seen.running_limit) == ("0.32.0", 524288, 64)
    counted = engine("vllm").counters(sample(**{"/metrics": "cpu_engines/vllm_metrics.txt"}))
    assert (counted.generated_tokens, counted.retractions) == (16512, 66)


def test_llama_cpp() -> None:
    """By /props and by its log."""
    seen = engine("command").effective(sample(**{"/props": "cpu_engines/llama_props.json"}), "", [])
    assert (seen.running_limit, seen.kv_tokens) == (4, 4096)
    seen = engine("command").effective(sample(), log("cpu_engines/llama_server_start_ok.log"), [])
    assert (seen.source, seen.running_limit, seen.kv_tokens) == ("log", 16, 16384)
