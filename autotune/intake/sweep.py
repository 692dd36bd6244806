"""A vLLM sweep (``vllm bench sweep serve``): its parameters and its results as a search space and a workload. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.engines.argv import flag_name
from autotune.errors import InputError
from autotune.intake.bench import is_result
from autotune.intake.dataset import Row
from autotune.intake.remark import Remark
from autotune.space.parameters import Parameter, Space
from autotune.study.file import ParameterOverride
from autotune.values import ParamValue, Value

_NAME = "_benchmark_name"
_BENCH_WORDS = (
    "max_concurrency request_rate burstiness num_prompts dataset_name dataset_path random_input_len random_output_len"
    " random_range_ratio random_prefix_len input_len output_len ignore_eos num_warmups endpoint backend seed"
    " sharegpt_output_len percentile_metrics goodput run_number"
)
_BENCH = frozenset(_BENCH_WORDS.split())
"""Options of the load generator, which a sweep may vary too."""


class Sweep(Value, frozen=True, kw_only=True):
    """``overrides`` are the ranges that the sweep tried, ``flags`` what it set for all, ``loads`` its workloads."""

    overrides: dict[str, ParameterOverride] = {}
    flags: tuple[tuple[str, ParamValue], ...] = ()
    loads: tuple[dict[str, Any], ...] = ()
    remarks: tuple[Remark, ...] = ()


def records_of(data: Any, where: str) -> list[dict[str, Any]]:
    """The combinations of a parameter file: a list of objects, or an object of named ones. Raises InputError."""
    records = list(data.values()) if isinstance(data, dict) else data
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise InputError(f"{where}: is no sweep: a list of objects, or an object of named objects, is wanted")
    return records


def is_parameters(data: Any) -> bool:
    """Whether JSON is a parameter file of a sweep, not a result."""
    try:
        records = records_of(data, "")
    except InputError:
        return False
    return bool(records) and all(record and not is_result(record) for record in records)


def sweep_of(records: Sequence[Row], space: Space, where: str) -> Sweep:
    """Ranges of the parameters that the space has; of all other options a flag, or a remark where they vary."""
    overrides: dict[str, ParameterOverride] = {}
    flags: list[tuple[str, ParamValue]] = []
    remarks: list[Remark] = []
    for key, values in _values(records, space).items():
        parameter = _parameter(space, key)
        if len(values) == 1:
            flags.append((f"--{key.replace('_', '-')}", _flag_value(values[0])))
        elif parameter is not None:
            overrides[parameter.name] = _range(parameter, values)
        else:
            tried = ", ".join(map(_text, values))
            text = f"{key} is varied ({tried}), and {space.source or space.engine} has no such parameter: not searched"
            remarks.append(Remark(where=where, text=text))
    if best := _best(records, overrides):
        remarks.append(Remark(where=where, text=best))
    return Sweep(
        overrides=overrides,
        flags=tuple(flags) if not any(map(is_result, records)) else (),
        loads=tuple(_loads(records)),
        remarks=tuple(remarks),
    )


def _values(records: Sequence[Row], space: Space) -> dict[str, list[Any]]:
    """Options of the server and their distinct values, in order of appearance.

    A result holds its options among its figures: there only those count that are parameters.
    """
    found: dict[str, list[Any]] = {}
    for record in records:
        measured = is_result(record)
        for key, value in record.items():
            name = key.replace("-", "_")
            if key == _NAME or name in _BENCH or (measured and _parameter(space, name) is None):
                continue
            seen = found.setdefault(name, [])
            if value not in seen:
                seen.append(value)
    return found


def _parameter(space: Space, key: str) -> Parameter | None:
    flag = flag_name(f"--{key}")
    return next((p for p in space.parameters if p.name == key or flag in {f.flag for f in p.flags}), None)


def _range(parameter: Parameter, values: Sequence[Any]) -> ParameterOverride:
    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if parameter.kind in ("int", "float") and len(numbers) == len(values):
        return ParameterOverride(low=min(numbers), high=max(numbers))
    choices: list[ParamValue] = [value if isinstance(value, bool | int | float) else str(value) for value in values]
    return ParameterOverride(choices=choices)


def _best(records: Sequence[Row], names: Mapping[str, Any]) -> str:
    """What the sweep itself found, as far as its results tell."""
    results = [r for r in records if is_result(r) and isinstance(r.get("output_throughput"), int | float)]
    if not results or not names:
        return ""
    best = max(results, key=lambda r: float(r["output_throughput"]))
    what = ", ".join(f"{k}={v}" for k, v in best.items() if k.replace("-", "_") in names)
    return f"the sweep's fastest: {best['output_throughput']:,.0f} output tok/s with {what}"


def _loads(records: Sequence[Row]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for record in records:
        load = dict(record) if is_result(record) else {}
        load |= {key.replace("-", "_"): value for key, value in record.items() if key.replace("-", "_") in _BENCH}
        if load and load not in found:
            found.append(load)
    return found


def _flag_value(value: Any) -> ParamValue:
    """As a command line has it: inner configurations are JSON there."""
    return value if isinstance(value, bool | int | float | str) else json.dumps(value)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
