"""Tests of what a ``[workload]`` may say: kinds, the keys that each reads, and names from other benchmarks."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.study.load import study_of
from autotune.study.problem import Known, Problem
from autotune.study.workload import KIND_ALIASES, Workload


def workload_of(**keys: Any) -> Workload:
    """The workload of a minimal study with these keys."""
    workload = {"concurrency": 64, **keys}
    return study_of({"name": "n", "engine": {"command": ["x"]}, "workload": workload}, Known()).workload


@pytest.mark.parametrize(("name", "kind"), KIND_ALIASES.items())
def test_names_of_other_benchmarks_are_understood(name: str, kind: str) -> None:
    """A kind may be written as bench_serving, vLLM or guidellm call it."""
    needs = {"dataset": "x.jsonl"} if kind in ("jsonl", "trace", "sharegpt") else {}
    assert workload_of(kind=name, **needs).kind == kind


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"kind": "share_gpt"}, "workload.kind: 'share_gpt' is not known; did you mean sharegpt?"),
        ({"kind": "jsonl"}, 'workload.dataset: is missing for kind = "jsonl"; give the path'),
        ({"dataset": "x"}, 'workload.dataset: is not used by kind = "random"; remove it, or write kind = "sharegpt"'),
        ({"prefix_groups": 3}, 'workload.prefix_groups: is not used by kind = "random"'),
        ({"kind": "shared_prefix", "trace_speed": 2.0}, 'workload.trace_speed: is not used by kind = "shared_prefix"'),
        ({"kind": "jsonl", "dataset": "x", "input_tokens": 5}, 'workload.input_tokens: is not used by kind = "jsonl"'),
        (
            {"kind": "jsonl", "dataset": "x", "output_tokens": 5},
            'the lengths of replies; remove it, or write output_from = "fixed"',
        ),
        ({"kind": "trace", "dataset": "x", "request_rate": 5.0}, "workload.request_rate: is not used by a trace"),
        ({"kind": "trace", "dataset": "x", "levels": [64]}, "workload.levels: is not used by a trace"),
        ({"kind": "trace", "dataset": "x", "arrival": "open"}, "workload.arrival: is not used by a trace"),
        ({"kind": "trace", "dataset": "x", "trace_speed": 0.0}, "workload.trace_speed: 0 is out of range"),
        ({"kind": "shared_prefix", "prefix_tokens": 0}, "workload.prefix_tokens: 0 is out of range"),
        (
            {"cached_limit": 1.1},
            "workload.cached_limit: 1.1 is out of range; give a number of at least 0 and at most 1",
        ),
    ],
)
def test_keys_that_make_no_load_are_refused(keys: dict[str, Any], words: str) -> None:
    """Each rule names its key and its remedy."""
    with pytest.raises(Problem) as problem:
        workload_of(**keys)
    assert words in str(problem.value)


def test_a_trace_has_its_own_pace() -> None:
    """It needs no concurrency, is no closed loop, and takes one as a ceiling."""
    assert not workload_of(kind="trace", dataset="x", concurrency=0).closed
    assert workload_of(kind="trace", dataset="x", trace_speed=2.0).paced() == "at the times of the trace x 2"


@pytest.mark.parametrize(
    ("keys", "asked"),
    [
        ({}, "128 tokens in, 128 out"),
        ({"kind": "jsonl", "dataset": "a.jsonl"}, "jsonl a.jsonl"),
        ({"kind": "jsonl", "dataset": "a", "output_from": "fixed", "output_tokens": 9}, "jsonl a, 9 out"),
        ({"kind": "shared_prefix"}, "64 shared prefixes of 2048 tokens, 128 in, 128 out"),
    ],
)
def test_a_workload_in_words(keys: dict[str, Any], asked: str) -> None:
    """Reports and exports say what was asked."""
    assert workload_of(**keys).asked() == asked
    assert workload_of(**keys).paced() == "64 in flight"
