"""What is particular to vLLM: where it tells its values, and its negative switches."""

from __future__ import annotations

from autotune.engines import Where
from autotune.engines.vllm import VLLM
from autotune.study.file import EngineSpec, ModelSpec
from tests.engines_unit.recorded import VLLM_CONFIG, VLLM_LOG, VLLM_METRICS, answering

ENGINE = VLLM()
NAMES = ("max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "max_cudagraph_capture_size")


def test_development_mode_tells_everything() -> None:
    """With /server_info every parameter in force is known, per rank times ranks where it is a limit."""
    pages = {"/server_info?config_format=json": VLLM_CONFIG, "/version": {"version": "0.33.0"}}
    seen = ENGINE.effective(answering(pages), "", NAMES)
    assert (seen.version, seen.running_limit, seen.kv_tokens, seen.graph_max_batch) == ("0.33.0", 128, 8192, 128)
    assert seen.values == {
        "max_num_seqs": 64,
        "max_num_batched_tokens": 2048,
        "gpu_memory_utilization": 0.92,
        "max_cudagraph_capture_size": 128,
    }


def test_metrics_tell_the_capacity_in_production_mode() -> None:
    """Tokens where the label exists, else blocks times their size, added over the engine cores."""
    seen = ENGINE.effective(answering({"/metrics": VLLM_METRICS}), "", NAMES)
    assert (seen.source, seen.kv_tokens) == ("metrics", 4096 + 4096)


def test_the_log_tells_what_was_asked_for() -> None:
    """vLLM refuses what it cannot run, so an argument that was given is in force."""
    seen = ENGINE.effective(answering({}), VLLM_LOG, (*NAMES, "enable_prefix_caching"))
    assert (seen.version, seen.kv_tokens, seen.running_limit) == ("0.15.1", 524288, 64)
    assert seen.values["gpu_memory_utilization"] == 0.8
    assert seen.values["enable_prefix_caching"] is False
    assert "max_num_batched_tokens" not in seen.values


def test_eager_mode_has_no_graphs() -> None:
    """Then no batch runs as a graph."""
    assert ENGINE.effective(answering({}), VLLM_LOG + "enforce_eager=True", NAMES).graph_max_batch == 0


def test_counters_add_up_the_engine_cores() -> None:
    """Preemptions are vLLM's word for retractions."""
    seen = ENGINE.counters(answering({"/metrics": VLLM_METRICS}))
    assert (seen.generated_tokens, seen.cached_tokens, seen.retractions, seen.queued) == (100, 4, 6, 0)


def test_a_switch_is_turned_off_by_its_negative() -> None:
    """Leaving it out would mean vLLM's default, which is on for prefix caching."""
    spec = EngineSpec(kind="vllm", command=["vllm", "serve", "m", "--enable_prefix_caching"])
    plan = ENGINE.launch_plan(spec, ModelSpec(), [("--enable-prefix-caching", False)], Where(host="h", port=1))
    assert plan.argv == ("vllm", "serve", "m", "--no-enable-prefix-caching", "--host", "h", "--port", "1")
    assert plan.model_name == "m"


def test_its_own_key_variable_reaches_the_server() -> None:
    """vLLM reads its key from VLLM_API_KEY, so naming that is enough."""
    spec = EngineSpec(kind="vllm", command=["vllm"], api_key_env="VLLM_API_KEY")
    assert ENGINE.launch_plan(spec, ModelSpec(), [], Where(host="h", port=1)).secret_env == ("VLLM_API_KEY",)


def test_the_log_tells_what_a_gpu_holds() -> None:
    """Weights and KV cache in GiB, as a worker prints them: the last word counts, and without one nothing is told."""
    log = (
        "(EngineCore pid=2) INFO 07-06 23:40:02 [gpu_model_runner.py:5089] Model loading took 16.91 GiB memory\n"
        "(EngineCore pid=2) INFO 07-06 23:40:21 [gpu_worker.py:773] Available KV cache memory: 9.5 GiB\n"
        "(EngineCore pid=2) INFO 07-06 23:40:29 [gpu_worker.py:773] Available KV cache memory: 8.02 GiB\n"
    )
    assert ENGINE.effective(answering({}), log, NAMES).gpu_memory_gb == {"weight": 16.91, "kvcache": 8.02}
    assert ENGINE.effective(answering({}), VLLM_LOG, NAMES).gpu_memory_gb == {}
