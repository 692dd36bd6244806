"""Tests of the requests that a load asks."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.load.body import encode_body, route_path
from autotune.load.dataset.lengths import length_bounds, mean_tokens
from autotune.load.workload import plan_request
from autotune.study.file import Workload


def test_same_words_give_the_same_request() -> None:
    """A request depends on the seed words and its index only."""
    workload = Workload(input_tokens=50, range_ratio=0.5)
    assert plan_request(workload, (1, 2, 3), 7) == plan_request(workload, (1, 2, 3), 7)


@pytest.mark.parametrize("other", [((1, 2, 4), 7), ((1, 3, 3), 7), ((2, 2, 3), 7), ((1, 2, 3), 8)])
def test_other_words_give_other_prompts(other: tuple[tuple[int, ...], int]) -> None:
    """Another study seed, trial, repeat or index brings a prompt that shares no beginning with the first."""
    first, second = plan_request(Workload(), (1, 2, 3), 7), plan_request(Workload(), *other)
    assert first.input_ids[:4] != second.input_ids[:4]


@settings(deadline=None, max_examples=50)
@given(length=st.integers(1, 300), ratio=st.floats(0, 1), index=st.integers(0, 10**6))
def test_lengths_stay_in_their_bounds(length: int, ratio: float, index: int) -> None:
    """Lengths lie in [max(1, len * ratio), len] and token ids in the study's range."""
    workload = Workload(input_tokens=length, output_tokens=length, range_ratio=ratio, token_id_low=5, token_id_high=9)
    request = plan_request(workload, (0, 0, 0), index)
    low, high = length_bounds(length, ratio)
    assert low <= len(request.input_ids) <= high
    assert low <= request.output_tokens <= high
    assert all(5 <= token < 9 for token in request.input_ids)


def test_uniform_lengths_have_the_stated_mean() -> None:
    """With ratio 0.5 the mean of many lengths is near the middle of the range."""
    workload = Workload(input_tokens=100, output_tokens=40, range_ratio=0.5)
    requests = [plan_request(workload, (3, 1, 0), i) for i in range(2000)]
    mean_in, mean_out = mean_tokens(workload)
    assert sum(len(r.input_ids) for r in requests) / 2000 == pytest.approx(mean_in, rel=0.02)
    assert sum(r.output_tokens for r in requests) / 2000 == pytest.approx(mean_out, rel=0.02)


def test_ratio_one_is_a_fixed_length() -> None:
    """The default ratio gives exactly the lengths that were written."""
    request = plan_request(Workload(input_tokens=128, output_tokens=64), (0, 0, 0), 3)
    assert (len(request.input_ids), request.output_tokens) == (128, 64)


def test_generate_body() -> None:
    """The native route sends token ids and ignores the end of sequence."""
    workload = Workload(input_tokens=2, output_tokens=5, stream=False)
    request = plan_request(workload, (0, 0, 0), 0)
    body = msgspec.json.decode(encode_body(request, workload, "m"))
    params = {"max_new_tokens": 5, "ignore_eos": True, "temperature": 0.0}
    assert body == {"input_ids": request.input_ids, "sampling_params": params, "stream": False}
    assert route_path(workload) == "/generate"


@pytest.mark.parametrize("stream", [True, False])
def test_completions_body(stream: bool) -> None:
    """The OpenAI route sends token ids as the prompt and asks for usage in the stream."""
    workload = Workload(input_tokens=2, output_tokens=5, route="completions", stream=stream)
    request = plan_request(workload, (0, 0, 0), 0)
    body = msgspec.json.decode(encode_body(request, workload, "m"))
    assert body["prompt"] == request.input_ids
    assert (body["model"], body["max_tokens"], body["ignore_eos"], body["stream"]) == ("m", 5, True, stream)
    assert body.get("stream_options") == ({"include_usage": True} if stream else None)
    assert route_path(workload) == "/v1/completions"
