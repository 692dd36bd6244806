"""What is particular to SGLang: ranks, versions, clamps, live limits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autotune.engines import Where
from autotune.engines.sglang import SGLang, is_graph_ceiling
from autotune.study.file import EngineSpec, ModelSpec
from autotune.values import Config
from tests.engines_unit.recorded import SGLANG_INFO, SGLANG_LOG, SGLANG_METRICS, answering, rank

ENGINE = SGLang()
NAMES = ("max_running_requests", "cuda_graph_max_bs", "chunked_prefill_size", "mem_fraction_static")


def info(**changes: Any) -> Any:
    """The recorded /server_info with changes."""
    return answering({"/server_info": {**SGLANG_INFO, **changes}})


def test_ranks_are_added_up() -> None:
    """Capacity and running limit are totals over the data-parallel ranks."""
    seen = ENGINE.effective(info(internal_states=[rank(100, 5000), rank(90, 4000)]), "", NAMES)
    assert (seen.running_limit, seen.kv_tokens) == (190, 9000)
    assert seen.values["max_running_requests"] == 190


def test_capacity_without_a_usage_table_is_per_rank() -> None:
    """Before 0.5.8 only the top level tells the capacity, of one rank."""
    states = [{"effective_max_running_requests_per_dp": 8}, {"effective_max_running_requests_per_dp": 8}]
    assert ENGINE.effective(info(internal_states=states), "", NAMES).kv_tokens == 2 * 4096


def test_the_requested_running_limit_is_not_taken_for_the_one_in_force() -> None:
    """The top level repeats what was asked: without a rank's word only the log may be believed."""
    silent = info(internal_states=[{}])
    assert ENGINE.effective(silent, "", NAMES).running_limit is None
    assert ENGINE.effective(silent, SGLANG_LOG, NAMES).running_limit == 2048


def test_a_rank_knows_better_than_the_top_level() -> None:
    """Values that a rank resolved (a chunk divided over ranks) win over the record of arguments."""
    states = [rank(8, 4096, chunked_prefill_size=4096)]
    assert ENGINE.effective(info(internal_states=states), "", NAMES).values["chunked_prefill_size"] == 4096


@pytest.mark.parametrize(
    ("changes", "log", "expected"),
    [
        ({}, "", 512),
        ({}, "Capture target decode CUDA graph begin. backend=full, bs=[1, 2, 448], avail mem=1 GB\n", 448),
        ({"cuda_graph_config": None, "cuda_graph_max_bs": 160}, "", 160),
        ({"cuda_graph_config": None, "cuda_graph_max_bs": 160}, "Capture cuda graph bs [1, 2, 4, 128]\n", 128),
        ({"cuda_graph_config": {"decode": {"backend": "disabled", "max_bs": 32}}}, "", 0),
        ({"disable_cuda_graph": True}, "", 0),
        ({"cuda_graph_config": None}, "", None),
        ({"cuda_graph_config": None}, "Capture target prefill CUDA graph begin. num_tokens=[4, 8192]\n", None),
        ({"decode_cuda_graph_bs": [1, 96]}, "", 96),
    ],
    ids=["0.5.2x", "captured", "0.5.8", "0.5.8 log", "backend off", "off", "unknown", "prefill only", "by state"],
)
def test_the_graph_ceiling_of_each_version(changes: dict[str, Any], log: str, expected: int | None) -> None:
    """What was captured, else what was planned, by any version's names; 0 where graphs are off."""
    seen = ENGINE.effective(info(**changes), log, NAMES)
    assert seen.graph_max_batch == expected
    assert seen.values.get("cuda_graph_max_bs") == expected


def test_both_names_of_the_graph_ceiling_are_one() -> None:
    """Old and new spelling, but not the ceiling of prefill graphs."""
    assert is_graph_ceiling("cuda_graph_max_bs")
    assert is_graph_ceiling("cuda_graph_max_bs_decode")
    assert not is_graph_ceiling("cuda_graph_max_bs_prefill")


def test_plain_replicas_in_the_log_are_added_and_attention_ranks_multiplied() -> None:
    """Every replica prints its summary; under data-parallel attention the first rank's stands for all."""
    line = (
        "[2026-01-01 00:00:00 DP{} TP0] max_total_num_tokens=1000, chunked_prefill_size=1, max_running_requests=8, x\n"
    )
    replicas = ENGINE.effective(answering({}), line.format(0) + line.format(1), NAMES)
    attention = ENGINE.effective(
        answering({}), "server_args=ServerArgs(tp_size=4, dp_size=4)\n" + line.format(0), NAMES
    )
    assert (replicas.kv_tokens, replicas.running_limit) == (2000, 16)
    assert (attention.kv_tokens, attention.running_limit) == (4000, 32)


def test_values_from_the_log_are_those_of_its_echo() -> None:
    """Old servers that answer nothing still print their arguments."""
    values = ENGINE.effective(answering({}), SGLANG_LOG, (*NAMES, "page_size", "schedule_policy")).values
    assert values["mem_fraction_static"] == 0.9
    assert values["schedule_policy"] == "fcfs"
    assert values["max_running_requests"] == 2048
    assert "page_size" not in values


@pytest.mark.parametrize(
    ("config", "states", "log", "sentence"),
    [
        ({"max_running_requests": 4096}, [rank(2048, 4096)], "", "limited by KV capacity (4,096 tokens)"),
        (
            {"max_running_requests": 4096},
            [rank(300, 90000)],
            "max_running_requests is capped to 300 by the mamba state cache\n",
            "limited by the capacity for mamba state (90,000 tokens)",
        ),
        ({"max_running_requests": 4096}, [rank(3000, 900000)], "", "the server's own limit"),
        ({"cuda_graph_max_bs": 600}, [rank(512, 4096)], "", "limited by the running limit"),
        ({"cuda_graph_max_bs": 513}, [rank(2048, 4096)], "", "the largest size that was captured"),
        ({"chunked_prefill_size": 8192}, [rank(8, 99, chunked_prefill_size=2048)], "", "data-parallel attention"),
    ],
    ids=["kv", "mamba", "own", "graph follows", "graph rounded", "chunk"],
)
def test_clamps_name_their_reason(config: dict[str, Any], states: list[Any], log: str, sentence: str) -> None:
    """The sentence says what held the value back, as far as the server's figures tell."""
    seen = ENGINE.effective(info(internal_states=states), log, NAMES)
    (said,) = ENGINE.describe_clamps(Config(params=config), seen, log)
    assert sentence in said


def test_a_live_limit_is_shared_by_the_ranks() -> None:
    """Each rank gets its part, and the request goes to the route with the admin key."""
    request = ENGINE.live_limit(21, info(internal_states=[rank(64, 4096), rank(64, 4096)]))
    assert request is not None
    assert (request.path, request.admin) == ("/set_internal_state", True)
    assert json.loads(request.body) == {"server_args": {"pp_max_micro_batch_size": 10}}


@pytest.mark.parametrize("limit", [0, 2049])
def test_a_live_limit_outside_what_was_started_is_not_asked_for(limit: int) -> None:
    """The server would refuse it; a fresh start must answer."""
    assert ENGINE.live_limit(limit, info()) is None


def test_the_live_limit_in_force_is_read_back() -> None:
    """A limit that did not take shows."""
    states = [rank(64, 4096, pp_max_micro_batch_size=8), rank(64, 4096, pp_max_micro_batch_size=None)]
    assert ENGINE.live_limit_in_force(info(internal_states=states)) == 8 + 64


@pytest.mark.parametrize(
    ("body", "taken"),
    [
        (b"[true, true]", True),
        (b"[true, false]", False),
        (b"[]", False),
        (b"null", False),
        (b'[{"updated": true}]', True),
        (b'[{"updated": false}]', False),
    ],
)
def test_a_refused_live_limit_is_noticed(body: bytes, taken: bool) -> None:
    """The route answers 200 in both cases: the list says which rank took it."""
    assert ENGINE.live_limit_accepted(200, body) is taken


def test_counters_count_each_tensor_rank_once() -> None:
    """Where every rank of a tensor-parallel group publishes, only the first counts."""
    seen = ENGINE.counters(answering({"/metrics": SGLANG_METRICS}))
    assert (seen.prompt_tokens, seen.generated_tokens, seen.cached_tokens) == (2020, 1500, 7)
    assert (seen.retractions, seen.running, seen.queued) == (3, 5, 2)


def test_the_log_counts_when_metrics_are_off() -> None:
    """Prefill and retraction lines tell of cache hits and retractions without /metrics."""
    seen = ENGINE.counters(answering({}), SGLANG_LOG)
    assert (seen.source, seen.prompt_tokens, seen.cached_tokens, seen.retractions) == ("log", 192, 64, 2)


@pytest.mark.parametrize(
    ("command", "model", "name"),
    [
        (["s", "--model-path", "m", "--served-model-name", "n"], {}, "n"),
        (["s", "--model-path", "m"], {"served_name": "n"}, "n"),
        (["s", "--model-path=m"], {"path": "p"}, "m"),
        (["sglang", "serve", "m"], {}, "m"),
        (["docker", "run", "x"], {}, "default"),
    ],
)
def test_the_name_of_the_model(command: list[str], model: dict[str, Any], name: str) -> None:
    """As served, else as given to the server."""
    plan = ENGINE.launch_plan(EngineSpec(command=command), ModelSpec(**model), [], Where(host="h", port=1))
    assert plan.model_name == name


def test_both_spellings_of_the_graph_ceiling_replace_each_other() -> None:
    """The base command may use the spelling of another version."""
    spec = EngineSpec(command=["s", "--cuda-graph-max-bs", "64"])
    plan = ENGINE.launch_plan(spec, ModelSpec(), [("--cuda-graph-max-bs-decode", 512)], Where(host="h", port=1))
    assert plan.argv == ("s", "--cuda-graph-max-bs-decode", "512", "--host", "h", "--port", "1")
