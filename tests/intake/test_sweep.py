"""A vLLM sweep as ranges, flags and a workload."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.drafting import space_of
from autotune.errors import InputError
from autotune.intake.sweep import Sweep, is_parameters, records_of, sweep_of

SPACE = space_of("vllm")


def sweep(*records: dict[str, Any]) -> Sweep:
    return sweep_of(records, SPACE, "serve.json")


def test_what_varies_is_searched_in_the_range_that_was_tried() -> None:
    """In either spelling of a key."""
    found = sweep(
        {"max_num_seqs": 32, "max-num-batched-tokens": 1024}, {"max_num_seqs": 256, "max-num-batched-tokens": 8192}
    )
    assert {name: (o.low, o.high) for name, o in found.overrides.items()} == {
        "max_num_seqs": (32, 256),
        "max_num_batched_tokens": (1024, 8192),
    }


def test_what_is_the_same_for_all_belongs_to_the_command() -> None:
    """Switches and inner configurations too."""
    found = sweep({"enforce_eager": True, "max_num_seqs": 8, "compilation_config": {"level": 3}})
    assert found.overrides == {}
    assert dict(found.flags) == {"--enforce-eager": True, "--max-num-seqs": 8, "--compilation-config": '{"level": 3}'}


def test_what_varies_and_cannot_be_searched_is_named() -> None:
    """It is not dropped silently."""
    found = sweep({"block_size": 16}, {"block_size": 32})
    assert "block_size is varied (16, 32)" in str(found.remarks[0])


def test_options_of_the_load_are_no_options_of_the_server() -> None:
    """They give the workload."""
    found = sweep({"random_input_len": 128, "max_concurrency": 64})
    assert found.flags == ()
    assert found.loads == ({"random_input_len": 128, "max_concurrency": 64},)


def test_results_tell_ranges_load_and_the_fastest() -> None:
    """Their figures are not taken for options."""
    run = {"duration": 1.0, "completed": 9, "total_input_tokens": 9, "total_output_tokens": 9, "num_prompts": 9}
    found = sweep(
        {**run, "max_num_seqs": 32, "output_throughput": 100.0, "date": "a"},
        {**run, "max_num_seqs": 64, "output_throughput": 250.0, "date": "b"},
    )
    assert (found.overrides["max_num_seqs"].low, found.overrides["max_num_seqs"].high) == (32, 64)
    assert found.flags == ()
    assert [str(remark) for remark in found.remarks] == [
        "serve.json: the sweep's fastest: 250 output tok/s with max_num_seqs=64"
    ]


def test_both_forms_of_a_parameter_file() -> None:
    """A list, or an object of named combinations."""
    assert records_of({"a": {"max_num_seqs": 1}, "b": {"max_num_seqs": 2}}, "x") == [
        {"max_num_seqs": 1},
        {"max_num_seqs": 2},
    ]
    assert is_parameters([{"max_num_seqs": 1}])
    assert not is_parameters([{"duration": 1, "completed": 1, "total_output_tokens": 1}])
    with pytest.raises(InputError, match="is no sweep"):
        records_of([1], "x")
