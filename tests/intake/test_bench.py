"""Results of load generators as a workload."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autotune.errors import InputError
from autotune.intake.bench import latest, load_of, read_rows

SGLANG: dict[str, Any] = {
    "backend": "sglang",
    "dataset_name": "random",
    "request_rate": float("inf"),
    "max_concurrency": 256,
    "random_input_len": 1024,
    "random_output_len": 256,
    "random_range_ratio": 0.5,
    "duration": 10.0,
    "completed": 1000,
    "total_input_tokens": 768_000,
    "total_output_tokens": 192_000,
}
VLLM: dict[str, Any] = {
    "endpoint_type": "openai",
    "model_id": "meta/L",
    "num_prompts": 500,
    "request_rate": "inf",
    "max_concurrency": 64,
    "duration": 10.0,
    "completed": 500,
    "failed": 0,
    "total_input_tokens": 512_000,
    "total_output_tokens": 64_000,
    "total_token_throughput": 1.0,
}


def test_bench_servings_row_is_a_workload() -> None:
    """Lengths, their spread, requests in flight, the route; its ratio means the same as a study's."""
    found = load_of(SGLANG, "bench.jsonl")
    assert found.kind == "sglang"
    assert found.remarks == ()
    assert found.workload == {
        "input_tokens": 1024,
        "output_tokens": 256,
        "range_ratio": 0.5,
        "concurrency": 256,
        "route": "generate",
    }


@pytest.mark.parametrize(("ratio", "share"), [(0.0, 0.001), (1.0, 1.0), (0.25, 0.25)])
def test_lengths_from_one_up_are_nearly_zero_of_the_length(ratio: float, share: float) -> None:
    """A study's ratio is above 0."""
    assert load_of({**SGLANG, "random_range_ratio": ratio}, "x").workload["range_ratio"] == share


def test_vllms_lengths_vary_around_the_one_that_was_asked() -> None:
    """Its ratio 0.5 is from half to one and a half of the length: a study says a third of the longest."""
    row = {**VLLM, "random_input_len": 1000, "random_output_len": 100, "random_range_ratio": 0.5}
    workload = load_of(row, "x").workload
    assert (workload["input_tokens"], workload["output_tokens"]) == (1500, 150)
    assert workload["range_ratio"] == pytest.approx(1 / 3, abs=1e-3)
    assert workload["route"] == "completions"


def test_lengths_that_are_not_on_record_are_the_means() -> None:
    """And that they stand for something else is said."""
    found = load_of(VLLM, "run.json")
    assert (found.workload["input_tokens"], found.workload["output_tokens"]) == (1024, 128)
    assert found.model == "meta/L"
    assert "mean lengths, 1024 in and 128 out" in str(found.remarks[0])


def test_another_data_set_is_named() -> None:
    """ShareGPT's texts are not taken over."""
    found = load_of({**SGLANG, "dataset_name": "sharegpt"}, "bench.jsonl")
    assert found.workload["input_tokens"] == 768
    assert "the data set sharegpt" in str(found.remarks[0])


def test_a_finite_rate_is_an_open_loop() -> None:
    """With the cap on requests in flight, where one was set."""
    found = load_of({**SGLANG, "request_rate": 8.5}, "x").workload
    assert (found["arrival"], found["request_rate"], found["concurrency"]) == ("open", 8.5, 256)


def test_all_at_once_becomes_a_steady_load_of_as_many() -> None:
    """Said in words, since it is not the same."""
    found = load_of({**SGLANG, "max_concurrency": None}, "bench.jsonl")
    assert found.workload["concurrency"] == 1000
    assert "1000 requests were sent at once" in str(found.remarks[0])


def test_the_last_of_several_results_counts() -> None:
    """bench_serving appends; the other concurrencies are offered as levels."""
    rows = [{**SGLANG, "max_concurrency": n} for n in (64, 128, 256)]
    found = latest(rows, "bench.jsonl")
    assert found.workload["concurrency"] == 256
    assert "holds 3 results; the last one was taken" in str(found.remarks[0])
    assert "workload.levels = [64, 128, 256]" in str(found.remarks[0])


def test_json_lines_with_infinity_are_read() -> None:
    """As the generators write them; a document or a list too."""
    lines = "\n".join(json.dumps(row) for row in (SGLANG, SGLANG))
    assert "Infinity" in lines
    assert len(read_rows(lines, "x")) == 2
    assert len(read_rows(json.dumps([SGLANG]), "x")) == 1
    assert len(read_rows(json.dumps(SGLANG, indent=2), "x")) == 1


@pytest.mark.parametrize("text", ["{", "[1, 2]", "[]", '{"a": 1}\nnonsense', "7"])
def test_what_is_no_result_is_an_error_that_names_the_file(text: str) -> None:
    """With the line, where there are lines."""
    with pytest.raises(InputError, match=r"^bench\.jsonl"):
        latest(read_rows(text, "bench.jsonl"), "bench.jsonl")


@pytest.mark.parametrize("value", [None, "abc", -1, [], {}, float("nan"), True, 1e400])
def test_odd_values_are_not_believed(value: Any) -> None:
    """No number that a study could not have comes out."""
    row = dict.fromkeys(SGLANG, value) | {"duration": 1, "completed": value, "total_output_tokens": value}
    workload = load_of(row, "x").workload
    assert all(workload.get(key, 1) for key in ("input_tokens", "output_tokens", "concurrency"))


@pytest.mark.parametrize(
    ("options", "workload"),
    [
        (
            {"dataset_name": "sharegpt", "dataset_path": "/d/sg.json", "sharegpt_output_len": "64"},
            {"kind": "sharegpt", "dataset": "/d/sg.json", "output_from": "fixed", "output_tokens": 64},
        ),
        ({"dataset_name": "custom", "dataset_path": "q.jsonl"}, {"kind": "jsonl", "dataset": "q.jsonl"}),
        (
            {"dataset_name": "mooncake", "dataset_path": "t.jsonl", "mooncake_slowdown_factor": "0.5"},
            {"kind": "trace", "dataset": "t.jsonl", "trace_speed": 2.0},
        ),
        (
            {"dataset_name": "generated-shared-prefix", "gsp_num_groups": "8", "gsp_system_prompt_len": "512"},
            {"kind": "shared_prefix", "prefix_groups": 8, "prefix_tokens": 512},
        ),
    ],
)
def test_data_sets_are_taken_over_by_their_options(options: dict[str, Any], workload: dict[str, Any]) -> None:
    """Where a command names the file, or makes the prompts itself."""
    found = load_of({"backend": "sglang", "request_rate": 4, **options}, "x").workload
    assert {key: found[key] for key in workload} == workload
    assert ("request_rate" in found) is (workload["kind"] != "trace"), "a trace has its own times"


def test_the_chat_route_is_kept() -> None:
    """By the name of the generator's backend."""
    assert load_of({**SGLANG, "backend": "sglang-oai-chat"}, "x").workload["route"] == "chat"
    assert load_of({**VLLM, "endpoint_type": "openai-chat"}, "x").workload["route"] == "chat"
