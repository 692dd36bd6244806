"""Tests of what the kinds of workload ask: prefixes, rows of a dataset, blocks of a trace, and their sharing."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from autotune.load.arrival import TraceTimes, schedule_for
from autotune.load.body import encode_body, exact_tokens
from autotune.load.dataset.lengths import workload_lengths
from autotune.load.dataset.times import span_s
from autotune.load.sharing import sharing
from autotune.load.words import WORDS
from autotune.load.workload import BLOCK_TOKENS, plan_request, prefix_of, row_of
from autotune.study.file import Workload
from tests.load.dataset.builders import lines, read

PREFIXES = Workload(
    kind="shared_prefix", prefix_tokens=40, prefix_groups=4, prompts_per_group=8, input_tokens=10, output_tokens=5
)


def test_prompts_of_a_group_begin_alike_and_end_differently() -> None:
    """Two requests share exactly their prefix when they are of one group, and nothing else."""
    requests = [plan_request(PREFIXES, (1, 2), index) for index in range(64)]
    first = requests[0]
    for index, other in enumerate(requests[1:], 1):
        same = prefix_of(PREFIXES, 1, 0) == prefix_of(PREFIXES, 1, index)
        assert (first.input_ids[:40] == other.input_ids[:40]) == same
        assert first.input_ids[40:] != other.input_ids[40:]
        assert len(other.input_ids) == 50


def test_prefixes_are_renewed_one_after_the_other() -> None:
    """Each prefix serves as many prompts as asked, and new ones come evenly rather than all at once."""
    used: dict[tuple[int, int], int] = {}
    fresh = []
    for index in range(4 * 8 * 10):
        key = prefix_of(PREFIXES, 3, index)
        fresh.append(key not in used)
        used[key] = used.get(key, 0) + 1
    whole = [count for (_, renewed), count in used.items() if 0 < renewed < 9]
    assert set(whole) == {8}
    assert max(sum(fresh[at : at + 4]) for at in range(4, len(fresh) - 4, 4)) == 1


def test_prefixes_that_are_never_renewed() -> None:
    """prompts_per_group = 0 keeps the groups' prefixes for the whole load."""
    workload = msgspec.structs.replace(PREFIXES, prompts_per_group=0)
    assert {prefix_of(workload, 1, index) for index in range(1000)} == {(place, 0) for place in range(4)}


def test_other_loads_have_other_prefixes() -> None:
    """Another trial's prefixes are fresh, so nothing that a server kept can answer them."""
    assert plan_request(PREFIXES, (1, 2), 0).input_ids[:4] != plan_request(PREFIXES, (1, 3), 0).input_ids[:4]


def test_the_shared_part_of_prefixes() -> None:
    """Of 32 requests on four prefixes all but the first on each can be answered from a cache, as to their prefix."""
    workload = msgspec.structs.replace(PREFIXES, prompts_per_group=0)
    seen = sharing(workload, 1, None, range(32))
    assert seen.shared == pytest.approx(40 / 50 * 28 / 32)
    assert seen.repeated == 0
    assert sharing(Workload(), 1, None, range(32)).shared == 0


def test_bounds_count_prefixes_at_full_length_alone() -> None:
    """A request is at most prefix, question and reply; in flight it holds its own part, since a cache holds one prefix
    for all.
    """
    lengths = workload_lengths(PREFIXES)
    assert (lengths.full_tokens, lengths.mean_tokens) == (55, 12.5)


def test_a_dataset_is_asked_once_before_it_repeats(tmp_path: Path) -> None:
    """Each pass asks every row once, in an order that the study's seed decides and trials share."""
    found = read(lines(tmp_path, [{"prompt": f"p{n}", "output_tokens": n + 1} for n in range(20)]))
    workload = Workload(kind="jsonl", dataset="x", route="completions")
    passes = [[row_of(workload, 7, index, 20) for index in range(20 * k, 20 * k + 20)] for k in range(2)]
    assert [sorted(rows) for rows in passes] == [list(range(20))] * 2
    assert passes[0] != passes[1]
    first = plan_request(workload, (7, 0, 1), 3, found)
    assert first == plan_request(workload, (7, 0, 2), 3, found)
    assert msgspec.json.decode(first.encoded) == f"p{passes[0][3]}"
    assert first.output_tokens == passes[0][3] + 1
    seen = sharing(workload, 7, found, range(25))
    assert seen.repeated == pytest.approx(5 / 25)


def test_bare_lengths_have_fresh_prompts(tmp_path: Path) -> None:
    """Lengths come from the file, tokens from the seed: nothing repeats when the file does."""
    found = read(lines(tmp_path, [{"input_tokens": 12, "output_tokens": 3}]))
    workload = Workload(kind="jsonl", dataset="x")
    first, again = (plan_request(workload, (1, 2), index, found) for index in (0, 1))
    assert len(first.input_ids) == len(again.input_ids) == 12
    assert first.input_ids[:4] != again.input_ids[:4]
    assert sharing(workload, 1, found, range(10)) == sharing(Workload(), 1, None, range(10))


def test_blocks_of_a_trace_are_shared_as_their_hashes_say(tmp_path: Path) -> None:
    """Requests with the same leading hashes begin with the same tokens; the second pass has fresh ones."""
    entries = [
        {"timestamp": 0, "input_length": 1000, "output_length": 2, "hash_ids": [1, 2]},
        {"timestamp": 9, "input_length": 700, "output_length": 2, "hash_ids": [1, 3]},
    ]
    found = read(lines(tmp_path, entries), kind="trace")
    workload = Workload(kind="trace", dataset="x")
    one, two, later = (plan_request(workload, (1,), index, found) for index in (0, 1, 2))
    assert [len(request.input_ids) for request in (one, two, later)] == [1000, 700, 1000]
    assert one.input_ids[:BLOCK_TOKENS] == two.input_ids[:BLOCK_TOKENS]
    assert one.input_ids[BLOCK_TOKENS : BLOCK_TOKENS + 4] != two.input_ids[BLOCK_TOKENS : BLOCK_TOKENS + 4]
    assert one.input_ids[:4] != later.input_ids[:4]
    assert sharing(workload, 1, found, [0, 1]).shared == pytest.approx(BLOCK_TOKENS / 1700)


def test_trace_times_are_shared_among_workers_and_sped_up(tmp_path: Path) -> None:
    """Workers take turns over the trace's arrivals; twice the speed halves the times; after its end it begins again."""
    entries = [{"timestamp": 1000 * n, "input_length": 5, "output_length": 2} for n in range(5)]
    found = read(lines(tmp_path, entries), kind="trace")
    workload = Workload(kind="trace", dataset="x", trace_speed=2.0)
    due = [schedule_for(workload, (w, 2), (1,), found).take(4.9, 0) for w in range(2)]
    assert due == [[0.0, 1.0, 2.0, 3.0, 4.0], [0.5, 1.5, 2.5, 3.5, 4.5]]


def test_trace_times_hold_back_at_the_limit() -> None:
    """A limit on requests in flight delays what is due and keeps its due time; the wait is until the next arrival."""
    at = np.array([0.0, 1.0, 2.0])
    schedule = TraceTimes(at, span_s(at), 1, (0, 1))
    assert schedule.take(1.5, 0) == [0.0]
    assert schedule.take(1.5, 1) == []
    assert schedule.take(1.5, 0) == [1.0]
    assert schedule.wait_s(1.5) == pytest.approx(0.5)


@pytest.mark.parametrize(("route", "key"), [("generate", "text"), ("completions", "prompt")])
def test_texts_are_sent_as_texts(tmp_path: Path, route: str, key: str) -> None:
    """A text of a dataset goes out as it is, and its tokens are the server's to count."""
    found = read(lines(tmp_path, [{"prompt": 'say "é"', "output_tokens": 4}]), route=route)
    workload = msgspec.convert({"kind": "jsonl", "dataset": "x", "route": route}, Workload)
    request = plan_request(workload, (1,), 0, found)
    body = json.loads(encode_body(request, workload, "m"))
    assert body[key] == 'say "é"'
    assert exact_tokens(request, workload) == 0


def test_chat_bodies() -> None:
    """The chat route sends messages: words in place of token ids, and asks for usage in the stream."""
    workload = Workload(input_tokens=6, output_tokens=5, route="chat")
    request = plan_request(workload, (1,), 0)
    body = json.loads(encode_body(request, workload, "m"))
    content = body["messages"][0]["content"]
    assert body["messages"] == [{"role": "user", "content": content}]
    assert len(content.split()) == 6
    assert set(content.split()) <= set(WORDS)
    assert (body["max_tokens"], body["ignore_eos"], body["stream_options"]) == (5, True, {"include_usage": True})
    assert exact_tokens(request, workload) == 0


def test_messages_of_a_dataset_are_sent_as_they_are(tmp_path: Path) -> None:
    """A conversation of a dataset goes out with its roles."""
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    found = read(lines(tmp_path, [{"messages": messages, "output_tokens": 4}]), route="chat")
    workload = Workload(kind="jsonl", dataset="x", route="chat")
    body = json.loads(encode_body(plan_request(workload, (1,), 0, found), workload, "m"))
    assert body["messages"] == messages
