"""What each request of a load asks: lengths, fresh random prompts, and the body that carries them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from autotune.study.file import Workload
from autotune.values import Value


class Request(Value, frozen=True, kw_only=True):
    """One request: ``input_ids`` are its prompt's token ids, ``output_tokens`` how many it must produce."""

    index: int
    input_ids: list[int]
    output_tokens: int


def length_bounds(length: int, range_ratio: float) -> tuple[int, int]:
    """Smallest and largest length, both inclusive: [max(1, length * ratio), length], as sglang.bench_serving draws."""
    return max(1, math.floor(length * range_ratio)), max(1, length)


def plan_request(workload: Workload, seed: Sequence[int], index: int) -> Request:
    """The request with this index. It depends on the seed words and the index only, not on how many workers share a
    load.

    Each request has a generator of its own, so a prompt repeats neither inside a load nor in another trial or repeat.
    """
    rng = np.random.default_rng([*seed, index])
    low_in, high_in = length_bounds(workload.input_tokens, workload.range_ratio)
    low_out, high_out = length_bounds(workload.output_tokens, workload.range_ratio)
    input_tokens = high_in if low_in == high_in else int(rng.integers(low_in, high_in + 1))
    output_tokens = high_out if low_out == high_out else int(rng.integers(low_out, high_out + 1))
    ids = rng.integers(workload.token_id_low, workload.token_id_high, size=input_tokens)
    return Request(index=index, input_ids=ids.tolist(), output_tokens=output_tokens)


def encode_body(request: Request, workload: Workload, model: str) -> bytes:
    """The JSON body for the workload's route. Greedy, ``ignore_eos``: the length is the workload's, not the model's."""
    return (
        _encode_generate(request, workload)
        if workload.route == "generate"
        else _encode_completions(request, workload, model)
    )


def route_path(workload: Workload) -> str:
    return "/generate" if workload.route == "generate" else "/v1/completions"


def mean_tokens(workload: Workload) -> tuple[float, float]:
    """Mean input and output length that the workload draws."""
    return (
        sum(length_bounds(workload.input_tokens, workload.range_ratio)) / 2,
        sum(length_bounds(workload.output_tokens, workload.range_ratio)) / 2,
    )


def _encode_generate(request: Request, workload: Workload) -> bytes:
    params = {"max_new_tokens": request.output_tokens, "ignore_eos": True, "temperature": 0.0}
    return msgspec.json.encode({"input_ids": request.input_ids, "sampling_params": params, "stream": workload.stream})


def _encode_completions(request: Request, workload: Workload, model: str) -> bytes:
    body: dict[str, object] = {
        "model": model,
        "prompt": request.input_ids,
        "max_tokens": request.output_tokens,
        "ignore_eos": True,
        "temperature": 0.0,
        "stream": workload.stream,
    }
    if workload.stream:
        body["stream_options"] = {"include_usage": True}
    return msgspec.json.encode(body)
