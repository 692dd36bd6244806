"""Data sets of load generators, by their options, as kinds of workload. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.intake.numbers import number, whole
from autotune.study.workload import KIND_ALIASES, Kind

Row = Mapping[str, Any]
_KINDS: Mapping[str, Kind] = {**KIND_ALIASES, "sharegpt": "sharegpt", "trace": "trace"}
_SHARED = {
    "prefix_groups": ("gsp_num_groups", "prefix_repetition_num_prefixes"),
    "prompts_per_group": ("gsp_prompts_per_group",),
    "prefix_tokens": ("gsp_system_prompt_len", "prefix_repetition_prefix_len"),
    "input_tokens": ("gsp_question_len", "prefix_repetition_suffix_len"),
    "output_tokens": ("gsp_output_len", "prefix_repetition_output_len"),
}
"""Keys of a study, and the options of sglang.bench_serving and of ``vllm bench serve`` for the same."""


def dataset_of(row: Row) -> dict[str, int | float | str | bool]:
    """The workload's kind and what belongs to it; empty for random prompts, and where the options do not say enough."""
    kind = _KINDS.get(str(row.get("dataset_name") or ""), "random")
    if kind == "random":
        return {}
    if kind == "shared_prefix":
        told = {key: size for key, names in _SHARED.items() if (size := _first(row, names))}
        return {"kind": kind, **told} if told else {}
    path = str(row.get("dataset_path") or "")
    if not path:
        return {}
    found: dict[str, int | float | str | bool] = {"kind": kind, "dataset": path}
    if fixed := _first(row, ("sharegpt_output_len", "custom_output_len", "output_len")):
        found |= {"output_from": "fixed", "output_tokens": fixed}
    if context := whole(row.get("sharegpt_context_len")):
        found["context_tokens"] = context
    if kind == "trace" and (slower := number(row.get("mooncake_slowdown_factor"))):
        found["trace_speed"] = round(1 / slower, 6)
    return found


def _first(row: Row, names: tuple[str, ...]) -> int | None:
    return next((size for name in names if (size := whole(row.get(name)))), None)
