"""Tests of datasets: what files may say, what is made of it, and what is refused with which words."""

from __future__ import annotations

import contextlib
import json
import random
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.errors import InputError
from autotune.load.dataset.lengths import mean_tokens, workload_lengths
from autotune.load.dataset.read import read_dataset
from autotune.load.dataset.stored import BLOCKS, FRESH, IDS, MESSAGES, TEXT, open_stored, store
from autotune.study.file import Workload
from tests.load.dataset.builders import conversations, lines, read, word_tokenizer


@pytest.mark.parametrize(
    ("entry", "form", "lengths"),
    [
        ({"prompt": "eight letters", "output_tokens": 7}, TEXT, (4, 7)),
        ({"text": "abc", "output_len": 7}, TEXT, (1, 7)),
        ({"prompt": [5, 6, 7], "max_tokens": 2}, IDS, (3, 2)),
        ({"input_ids": [5, 6], "output_length": 2}, IDS, (2, 2)),
        ({"input_tokens": 40, "output_tokens": 3}, FRESH, (40, 3)),
        ({"prompt_tokens_count": 40, "output_tokens_count": 3}, FRESH, (40, 3)),
        ({"timestamp": 3, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}, BLOCKS, (600, 3)),
    ],
)
def test_a_line_says_prompt_and_length(tmp_path: Path, entry: Any, form: int, lengths: tuple[int, int]) -> None:
    """Texts, token ids, bare lengths and hashed blocks are read under the names that benchmarks use."""
    found = read(lines(tmp_path, [entry]))
    row = found.table[0]
    assert (row["form"], (row["input"], row["output"])) == (form, lengths)


def test_messages_go_by_chat(tmp_path: Path) -> None:
    """A list of messages is kept as it is, and is refused on a route that has no chat template."""
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    path = lines(tmp_path, [{"messages": messages, "output_tokens": 5}])
    found = read(path, route="chat")
    assert found.table["form"][0] == MESSAGES
    assert msgspec.json.decode(found.piece(0)) == messages
    with pytest.raises(InputError, match=r'line 1: messages go by the chat route; write workload.route = "chat"'):
        read(path, route="generate")


def test_chat_takes_no_token_ids(tmp_path: Path) -> None:
    """Token ids in a file are refused on the chat route, with the line."""
    path = lines(tmp_path, [{"prompt": "x", "output_tokens": 1}, {"input_ids": [1], "output_tokens": 1}])
    with pytest.raises(InputError, match="line 2: the chat route takes no token ids"):
        read(path, route="chat")


def test_sharegpt_counts_replies_with_a_tokenizer(tmp_path: Path) -> None:
    """The first turn is the prompt, the second the length; too short ones and single turns are left out."""
    path = conversations(tmp_path, ("one two three", "a b c d e"), ("x", "too short"), ("alone here",), ("a b", "c d"))
    found = read(path, kind="sharegpt", tokenizer=str(word_tokenizer(tmp_path)))
    assert list(zip(found.table["input"], found.table["output"], strict=True)) == [(3, 5), (2, 2)]
    assert msgspec.json.decode(found.piece(0)) == "one two three"
    assert (found.facts.left_out, found.facts.estimated) == (2, False)


def test_sharegpt_with_fixed_replies_needs_no_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without lengths to count the texts are only sent; lengths of prompts are estimates and said to be."""
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    path = conversations(tmp_path, ("one two three", "a b"), ("four", "c"))
    found = read(path, kind="sharegpt", output_from="fixed", output_tokens=9)
    assert found.table["output"].tolist() == [9, 9]
    assert found.facts.estimated
    assert "estimated" in workload_lengths(Workload(), found).note


def test_the_models_own_tokenizer_is_found(tmp_path: Path) -> None:
    """A tokenizer.json in the model's folder serves where a length hangs on it."""
    path = conversations(tmp_path, ("one two", "a b c"))
    word_tokenizer(tmp_path)
    found = read_dataset(Workload(kind="sharegpt", dataset=path.name), path.parent / "study.toml", str(tmp_path))
    assert found is not None
    assert found.table["output"].tolist() == [3]


def test_context_leaves_out_what_is_longer(tmp_path: Path) -> None:
    """Input and output together may be as long as the context and no longer."""
    entries = [{"input_tokens": n, "output_tokens": 10} for n in (89, 90, 91)]
    found = read(lines(tmp_path, entries), context_tokens=100)
    assert found.table["input"].tolist() == [89, 90]


def test_lengths_weigh_requests_by_their_time_in_flight(tmp_path: Path) -> None:
    """The mean held in flight is sum of out (in + out / 2) over sum of out; the full length is the longest request."""
    found = read(lines(tmp_path, [{"input_tokens": 10, "output_tokens": 2}, {"input_tokens": 20, "output_tokens": 8}]))
    lengths = workload_lengths(Workload(), found)
    assert lengths.full_tokens == 28
    assert lengths.mean_tokens == pytest.approx((2 * (10 + 1) + 8 * (20 + 4)) / 10)
    assert mean_tokens(Workload(), found) == (15, 5)


def test_trace_times_begin_at_zero_and_are_sorted(tmp_path: Path) -> None:
    """Times are seconds from the first request, in milliseconds by default and in order."""
    entries = [{"timestamp": t, "input_length": n, "output_length": 1} for t, n in ((3000, 3), (1000, 1), (1500, 2))]
    found = read(lines(tmp_path, entries), kind="trace")
    assert found.table["at"].tolist() == [0.0, 0.5, 2.0]
    assert found.table["input"].tolist() == [1, 2, 3]
    assert read(lines(tmp_path, entries), kind="trace", timestamp_unit="s").table["at"].tolist() == [0.0, 500.0, 2000.0]


def test_tables_of_public_traces(tmp_path: Path) -> None:
    """A CSV with dates (Azure's columns) or seconds (BurstGPT's) is a trace; requests without a reply are left out."""
    azure = tmp_path / "azure.csv"
    azure.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:48.6805900,396,109\n"
    )
    found = read(azure, kind="trace")
    assert found.table["at"].tolist() == pytest.approx([0.0, 2.0])
    assert found.table["output"].tolist() == [44, 109]
    burst = tmp_path / "burst.csv"
    burst.write_text("Timestamp,Model,Request tokens,Response tokens\n5,m,472,18\n45,m,1087,0\n118,m,417,276\n")
    found = read(burst, kind="trace", timestamp_unit="s")
    assert found.table["at"].tolist() == [0.0, 113.0]


@pytest.mark.parametrize(
    ("text", "keys", "message"),
    [
        ("", {}, "data.jsonl: is empty; give a file"),
        ('{"prompt": "a", "output_tokens": 1}\n{"prompt"', {}, "data.jsonl: line 2: not JSON"),
        ("[1]", {}, "entry 1: is no JSON object"),
        ('[\n{"prompt": "a"},\n{"prompt": }]', {}, "line 3: not JSON"),
        ('{"id": 3}', {}, "line 1: has no prompt; give one of prompt"),
        ('{"prompt": "a"}', {}, "line 1: says no length of its reply; add output_tokens, or write"),
        ('{"prompt": "a", "output_tokens": -3}', {}, "line 1: its output_tokens is -3; write a number of tokens"),
        ('{"prompt": "a", "output_tokens": "many"}', {}, "its output_tokens is 'many'"),
        ('{"input_ids": ["a"], "output_tokens": 1}', {}, "line 1: its token ids are no list of whole numbers"),
        ('{"messages": "hi", "output_tokens": 1}', {}, "line 1: its messages are no list of objects"),
        ('{"conversations": [{"from": "human"}]}', {}, "line 1: a turn of its conversation has no text"),
        ('{"conversations": [{"value": "a"}, {"value": "b"}]}', {}, "name a tokenizer in workload.tokenizer, or"),
        ('{"input_tokens": 90, "output_tokens": 20}', {"context_tokens": 100}, "no request is left of 1"),
        ('{"prompt": "a", "output_tokens": 2}', {"context_tokens": 9}, "workload.context_tokens wants the texts"),
        ('{"input_tokens": 9, "output_tokens": 2}', {"kind": "trace"}, "line 1: has no timestamp; add one"),
        (
            '{"timestamp": 5, "input_tokens": 9, "output_tokens": 2}',
            {"kind": "trace"},
            "all requests have the same timestamp",
        ),
        (
            '{"timestamp": "noon", "input_tokens": 9, "output_tokens": 2}',
            {"kind": "trace"},
            "line 1: its timestamp is 'noon'; write a number, or a date",
        ),
        ('{"prompt": "a b", "output_tokens": 2}', {"tokenizer": "gone.json"}, "gone.json: no such file; give a"),
    ],
)
def test_bad_files_name_line_and_remedy(tmp_path: Path, text: str, keys: dict[str, Any], message: str) -> None:
    """What cannot be used is one error with the file, the place in it and what to do."""
    path = tmp_path / "data.jsonl"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read(path, **keys)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_table_with_a_short_row_names_its_line(tmp_path: Path) -> None:
    """A row of a CSV with other columns than the header is refused with its line."""
    path = tmp_path / "data.csv"
    path.write_text("input_tokens,output_tokens\n1,2\n3\n")
    with pytest.raises(InputError, match="line 3: 1 columns, the header has 2"):
        read(path)


def test_a_missing_file_names_the_key(tmp_path: Path) -> None:
    """A path that leads nowhere is answered with the key to correct."""
    with pytest.raises(InputError, match=r"gone.jsonl: no such file or directory; correct workload.dataset"):
        read(tmp_path / "gone.jsonl")


def test_a_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where texts must be counted and the library is absent, the message says how to install it."""
    tokenizer = word_tokenizer(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(InputError, match=r"pip install 'autotune\[text\]'"):
        read(conversations(tmp_path, ("a b", "c d")), kind="sharegpt", tokenizer=str(tokenizer))


def test_a_damaged_tokenizer_is_refused(tmp_path: Path) -> None:
    """A tokenizer.json that is none is one error."""
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"tokenizer.json: not a tokenizer"):
        read(conversations(tmp_path, ("a b", "c d")), kind="sharegpt", tokenizer=str(tmp_path))


def test_shared_beginnings_are_seen(tmp_path: Path) -> None:
    """The share of a prompt that another one begins with is known, and is near zero for others."""
    system = "you are a helpful assistant that answers every question with great care "
    entries = [{"prompt": text, "output_tokens": 1} for text in (system + "one", system + "two", "zebra")]
    shared = read(lines(tmp_path, entries)).table["shared"]
    assert (shared[:2] > 0.9).all()
    assert shared[2] < 0.2


def test_stored_datasets_come_back_and_are_kept_while_the_file_is_the_same(tmp_path: Path) -> None:
    """What a night stored is used again, also without the file; a file that changed is read anew."""
    path, kept = lines(tmp_path, [{"prompt": "abc", "output_tokens": 2}]), tmp_path / "kept"
    workload = Workload(kind="jsonl", route="completions", dataset=path.name)
    first = read_dataset(workload, tmp_path / "study.toml", kept=kept)
    assert first is not None
    store(first, kept)
    again = open_stored(kept)
    assert again is not None
    assert (again.piece(0), again.facts, again.table.tobytes()) == (b'"abc"', first.facts, first.table.tobytes())
    path.unlink()
    assert read_dataset(workload, tmp_path / "study.toml", kept=kept) is not None
    lines(tmp_path, [{"prompt": "other", "output_tokens": 2}])
    other = read_dataset(workload, tmp_path / "study.toml", kept=kept)
    assert other is not None
    assert other.facts.digest != first.facts.digest


def test_a_stored_dataset_without_texts_can_be_opened(tmp_path: Path) -> None:
    """Bare lengths have no text to store, and are opened all the same."""
    store(read(lines(tmp_path, [{"input_tokens": 4, "output_tokens": 2}])), tmp_path / "kept")
    found = open_stored(tmp_path / "kept")
    assert found is not None
    assert found.piece(0) == b""


GOOD = json.dumps([{"timestamp": 1, "prompt": "a b c", "output_tokens": 3, "hash_ids": [1]}, {"input_ids": [1, 2]}])


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(["jsonl", "trace", "sharegpt"]), csv=st.booleans())
def test_damaged_files_raise_nothing_but_input_errors(tmp_path: Path, seed: int, kind: str, csv: bool) -> None:
    """Whatever is in a file, it is read or refused as wrong input."""
    rng = random.Random(seed)
    text = list("timestamp,input_tokens,output_tokens\n1,2,3\n4,5,6\n" if csv else GOOD)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(text) + 1)
        text[at : at + rng.randint(0, 8)] = rng.choice(["", '"', "[", "{}", "null", "\0", "9" * 30, "1e999", "\n", "é"])
    path = tmp_path / ("data.csv" if csv else "data.jsonl")
    path.write_text("".join(text))
    found = None
    with contextlib.suppress(InputError):
        found = read(path, kind=kind, output_from="fixed")
    if found is not None:
        assert np.isfinite(found.table["at"]).all()
        assert (found.table["output"] > 0).all()
