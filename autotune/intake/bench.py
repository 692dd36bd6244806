"""Results and options of load generators as a study's workload: sglang.bench_serving and ``vllm bench serve``. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from autotune.errors import InputError
from autotune.intake.dataset import Row, dataset_of
from autotune.intake.numbers import number, whole
from autotune.intake.remark import Remark
from autotune.values import Value

RESULT_KEYS = frozenset({"duration", "completed", "total_output_tokens"})
"""What every result has, and no list of options."""
_RANDOM = frozenset({"random", "random-ids", "random_ids", ""})
_PROMPTS = 1000
"""Both generators send so many requests unless they are told otherwise."""
_LEAST_RATIO = 0.001
_DIGITS = 4


class Load(Value, frozen=True, kw_only=True):
    """``workload`` holds the keys of a study that are known. ``kind`` is the engine, empty where it was not told.

    ``told`` are the options that it was read from, where it was no result; ``folder`` is where it ran, if known.
    """

    workload: dict[str, int | float | str | bool]
    kind: str = ""
    model: str = ""
    remarks: tuple[Remark, ...] = ()
    told: dict[str, str] = {}
    folder: str = ""


def read_rows(text: str, where: str) -> list[dict[str, Any]]:
    """Rows of a JSON document (an object, or a list of them) or of JSON lines. Raises InputError.

    ``Infinity`` is read as the generators write it.
    """
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return list(_lines(text, where))
    rows = whole if isinstance(whole, list) else [whole]
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{where}: holds no result: a JSON object, a list of them, or one on each line is wanted")
    return rows


def _lines(text: str, where: str) -> Iterator[dict[str, Any]]:
    for position, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise InputError(f"{where}:{position}: is no JSON object; give the file that the load generator wrote")
        yield row


def is_result(row: Row) -> bool:
    """Whether a row is what a load generator measured."""
    return row.keys() >= RESULT_KEYS


def load_of(row: Row, where: str, line: int = 0) -> Load:
    """The workload of one result, or of the options of one run (names with underscores). Raises InputError."""
    notes = _Notes(where, line)
    vllm = _is_vllm(row)
    workload: dict[str, int | float | str | bool] = {}
    workload.update(dataset_of(row) or _lengths(row, vllm, notes))
    # A trace has its own times.
    workload.update(_arrival(row, notes) if workload.get("kind") != "trace" else {})
    workload.update(_route(row, vllm))
    if row.get("disable_stream") not in (None, False, "false"):
        workload["stream"] = False
    return Load(
        workload=workload,
        kind=_kind(row, vllm),
        model=str(row.get("model_id") or row.get("model") or _server_info(row).get("model_path") or ""),
        remarks=tuple(notes.said),
    )


def latest(rows: Sequence[Row], where: str) -> Load:
    """The workload of the last result of a file to which runs were appended; the others are named."""
    results = [row for row in rows if is_result(row)]
    if not results:
        raise InputError(f"{where}: holds no result of a load generator; {_expected()}")
    load = load_of(results[-1], where)
    if others := len(results) - 1:
        concurrencies = sorted({n for row in results if (n := whole(row.get("max_concurrency")))})
        text = f"holds {len(results)} results; the last one was taken, the {others} before it were not"
        if len(concurrencies) > 1:
            text += f" (for a curve: workload.levels = {concurrencies})"
        load = Load(
            workload=load.workload,
            kind=load.kind,
            model=load.model,
            remarks=(Remark(where=where, text=text), *load.remarks),
        )
    return load


def _expected() -> str:
    return f"it has the keys {', '.join(sorted(RESULT_KEYS))}"


class _Notes:
    def __init__(self, where: str, line: int) -> None:
        self.where = where
        self._line = line
        self.said: list[Remark] = []

    def say(self, text: str) -> None:
        self.said.append(Remark(where=self.where, line=self._line, text=text))


def _is_vllm(row: Row) -> bool:
    """vLLM's results name the model's id and the number of prompts; its lengths vary around the mean."""
    told = str(row.get("backend") or row.get("endpoint_type") or "")
    return "total_token_throughput" in row or ("num_prompts" in row and "model_id" in row) or told.startswith("openai")


def _kind(row: Row, vllm: bool) -> str:
    told = str(row.get("backend") or "")
    if told.startswith("sglang") or _server_info(row):
        return "sglang"
    return "vllm" if vllm or told.startswith("vllm") else ""


def _server_info(row: Row) -> Row:
    """SGLang's description of itself, which bench_serving puts into a row."""
    info = row.get("server_info")
    return info if isinstance(info, dict) else {}


def _lengths(row: Row, vllm: bool, notes: _Notes) -> dict[str, int | float | str | bool]:
    """Lengths of random prompts; of other data sets the means of what was sent."""
    dataset = str(row.get("dataset_name") or "")
    inputs = whole(row.get("random_input_len") or row.get("input_len"))
    outputs = whole(row.get("random_output_len") or row.get("output_len"))
    if dataset in _RANDOM and inputs and outputs:
        return _random(row, (inputs, outputs), vllm, notes)
    completed = whole(row.get("completed"))
    totals = [number(row.get(key)) for key in ("total_input_tokens", "total_output_tokens")]
    if not completed or not totals[0] or not totals[1]:
        if dataset and dataset not in _RANDOM:
            notes.say(f"the data set {dataset} is not taken over; set the lengths of prompts and replies")
        return {}
    means = [max(1, round(total / completed)) for total in totals if total]
    what = f"the data set {dataset}" if dataset else "lengths that are not on record"
    notes.say(f"{what}: prompts of random tokens with its mean lengths, {means[0]} in and {means[1]} out, stand for it")
    return {"input_tokens": means[0], "output_tokens": means[1]}


def _random(row: Row, asked: tuple[int, int], vllm: bool, notes: _Notes) -> dict[str, int | float | str | bool]:
    """SGLang draws from ratio times the length up to it; vLLM from (1 - ratio) to (1 + ratio) times the length."""
    ratio = number(row.get("random_range_ratio"))
    if vllm:
        ratio = min(ratio or 0.0, 1.0)
        longest = [round(length * (1 + ratio)) for length in asked]
        share = round((1 - ratio) / (1 + ratio), _DIGITS)
    else:
        longest, share = list(asked), 0.0 if ratio is None else ratio
        if ratio is None:
            notes.say("random_range_ratio is not on record: bench_serving's default 0 was taken (lengths from 1 up)")
    share = min(1.0, max(_LEAST_RATIO, share))
    return {"input_tokens": longest[0], "output_tokens": longest[1], "range_ratio": share}


def _arrival(row: Row, notes: _Notes) -> dict[str, int | float | str | bool]:
    """A finite rate is an open loop. An infinite one keeps ``max_concurrency`` in flight, or sends all at once."""
    rate, most = number(row.get("request_rate")), whole(row.get("max_concurrency"))
    if rate and math.isfinite(rate):
        open_loop: dict[str, int | float | str | bool] = {"arrival": "open", "request_rate": rate}
        return open_loop | ({"concurrency": most} if most else {})
    if most:
        return {"concurrency": most}
    sent = whole(row.get("num_prompts")) or whole(row.get("completed"))
    if sent is None and not {"random_input_len", "dataset_name", "request_rate"} & row.keys():
        return {}
    sent = sent or _PROMPTS
    notes.say(f"all {sent} requests were sent at once; a night keeps so many in flight, which is a steady load")
    return {"concurrency": sent}


def _route(row: Row, vllm: bool) -> dict[str, int | float | str | bool]:
    backend = str(row.get("backend") or row.get("endpoint_type") or "")
    if "chat" in backend:
        return {"route": "chat"}
    if backend in ("sglang", "sglang-native"):
        return {"route": "generate"}
    return {"route": "completions"} if vllm or "oai" in backend or backend.startswith(("vllm", "openai")) else {}
