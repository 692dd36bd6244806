"""Tests of event parsing and of what makes a reply a failure."""

import itertools
import json
import re
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.load import stream as streams
from autotune.load.stream import EventReader, Reply, new_reply
from tests.load.conftest import event, native

LINE_ENDS = [b"\n", b"\r\n", b"\r"]


def play(reply: Reply, *pieces: bytes, status: int = 200) -> str:
    """Feed the pieces at times 1, 2, ... and finish; the reason."""
    reply.status = status
    for at, piece in enumerate(pieces, 1):
        reply.feed(piece, float(at))
    return reply.finish(float(len(pieces) + 1))


@settings(deadline=None, max_examples=200)
@given(
    payloads=st.lists(st.text(st.characters(blacklist_characters="\r\n", codec="utf-8"), min_size=1), max_size=6),
    cuts=st.lists(st.integers(0, 400), max_size=12),
    end=st.sampled_from(LINE_ENDS),
    comment=st.booleans(),
)
def test_events_do_not_depend_on_packets(payloads: list[str], cuts: list[int], end: bytes, comment: bool) -> None:
    """However a body is cut into packets, with whatever line ends and comments, the same events come out."""
    noise = b": ping" + end + end if comment else b""
    # A field after each event keeps a last CR from waiting for a LF.
    body = b"".join(noise + b"data: " + p.encode() + end + end for p in payloads) + b"id: 1" + end
    reader, seen = EventReader(), []
    edges = sorted({0, len(body), *(min(c, len(body)) for c in cuts)})
    for low, high in itertools.pairwise(edges):
        seen += [e for e in reader.feed(body[low:high]) if e]
    assert seen == [p.encode() for p in payloads]


def test_data_over_several_lines_is_joined() -> None:
    """Lines of one event are joined by a newline, other fields are left out, the space after the colon is optional."""
    reader = EventReader()
    assert reader.feed(b"event: x\ndata: a\ndata:b\nid: 3\n\n") == [b"a\nb"]


def test_native_stream_counts_by_usage_not_by_chunk() -> None:
    """With a stream interval a chunk brings several tokens; gains and times follow completion_tokens."""
    reply = new_reply("generate", 8, True)
    reason = play(reply, event(native(3, 8)), event(native(6, 8)), event(native(8, 8)) + event(b"[DONE]"))
    assert reason == ""
    assert (reply.times, reply.totals) == ([1.0, 2.0, 3.0], [3, 6, 8])
    assert (reply.tokens, reply.prompt_tokens, reply.received) == (8, 4, 8)


def test_native_reply_in_one_piece() -> None:
    """Without streaming the whole body is one message and its tokens are known at the end."""
    reply = new_reply("generate", 4, False)
    body = native(4, 4, cached=2)
    assert play(reply, body[:20], body[20:]) == ""
    assert (reply.times, reply.totals, reply.cached_tokens) == ([3.0], [4], 2)


def meta(**fields: Any) -> bytes:
    return event(json.dumps({"text": "", "meta_info": fields}).encode())


FAILURES = {
    "nothing at all": ([b""], "no tokens"),
    "only done": ([event(b"[DONE]")], "no tokens"),
    "error chunk": (
        [event(native(1, 4)), event(b'{"error": {"message": "out of mem"}}')],
        "error chunk.*out of mem",
    ),
    "abort with empty text": (
        [meta(completion_tokens=0, finish_reason={"type": "abort", "message": "gone"})],
        "aborted.*gone",
    ),
    "abort named by a text": ([meta(completion_tokens=2, finish_reason="abort")], "aborted"),
    "short output": ([event(native(1, 4)) + event(native(2, 4)), event(b"[DONE]")], "2 output tokens, asked 4"),
    "long output": ([event(native(5, 4))], "5 output tokens, asked 4"),
    "not JSON": ([event(b"<html>")], "unreadable chunk"),
    "an object without usage": ([event(b'{"text": "hello"}')], "error chunk"),
    "an error in a plain body": ([b'{"error": "no such route"}'], "no tokens.*no such route"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_native_streams_that_are_failures(name: str) -> None:
    """A 200 that did not bring exactly the tokens that were asked is a failed request, with its reason."""
    pieces, pattern = FAILURES[name]
    reason = play(new_reply("generate", 4, True), *pieces)
    assert re.search(pattern, reason), reason


def test_status_other_than_200_is_a_failure() -> None:
    """The reason carries the status and the beginning of the body."""
    reason = play(new_reply("generate", 4, True), b'{"error":', b'"queue full"}', status=503)
    assert reason == 'status 503: {"error":"queue full"}'


def completion(text: str, finish: str | None = None, usage: dict[str, int] | None = None) -> bytes:
    choices = [{"index": 0, "text": text, "finish_reason": finish}] if text or finish else []
    return event(json.dumps({"object": "text_completion", "choices": choices, "usage": usage}).encode())


def test_completions_spread_usage_over_the_chunks() -> None:
    """Without usage per chunk the total of the last one is spread evenly over the chunks that carried text."""
    reply = new_reply("completions", 6, True)
    usage = {"prompt_tokens": 3, "completion_tokens": 6}
    reason = play(reply, completion("a"), completion("b"), completion("c", "length"), completion("", None, usage))
    assert reason == ""
    assert (reply.times, reply.totals, reply.prompt_tokens) == ([1.0, 2.0, 3.0], [2, 4, 6], 3)


def test_completions_follow_usage_in_every_chunk() -> None:
    """Where every chunk carries usage its own count is taken."""
    reply = new_reply("completions", 5, True)
    pieces = [completion("x", "length" if n == 5 else None, {"completion_tokens": n}) for n in (1, 4, 5)]
    assert play(reply, *pieces) == ""
    assert reply.totals == [1, 4, 5]


def test_completions_in_one_piece_with_cached_tokens() -> None:
    """A plain completion gives its counts, cached prompt tokens included."""
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}}
    body = {"choices": [{"text": "hi", "finish_reason": "length"}], "usage": usage}
    reply = new_reply("completions", 2, False)
    assert play(reply, json.dumps(body).encode()) == ""
    assert (reply.cached_tokens, reply.received) == (8, 2)


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ([completion("a"), completion("b", "length"), event(b"[DONE]")], "no usage in the reply"),
        ([completion("a"), event(b'{"object": "error", "message": "died"}')], "error chunk"),
        ([completion("a"), completion("", "abort", {"completion_tokens": 1})], "aborted"),
        ([completion("a", "length", {"completion_tokens": 1})], "1 output tokens, asked 2"),
    ],
)
def test_completions_that_are_failures(pieces: list[bytes], reason: str) -> None:
    """Missing usage, error objects, aborts and short outputs are failed requests."""
    assert play(new_reply("completions", 2, True), *pieces).startswith(reason)


def chat(delta: dict[str, Any] | None, finish: str | None = None, usage: dict[str, int] | None = None) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    data = {"object": "chat.completion.chunk", "choices": choices, "usage": usage}
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def test_chat_streams_begin_with_the_first_token_not_with_the_role() -> None:
    """The chunk that only names the role is no token; reasoning is; half a character held back is; usage counts all."""
    reply = new_reply("chat", 4, True)
    reply.status = 200
    assert reply.feed(chat({"role": "assistant", "content": ""}), 1.0) == 0
    assert reply.feed(chat({"reasoning_content": "hm"}), 2.0) == 1
    assert reply.feed(chat({"content": ""}), 2.5) == 1
    assert reply.feed(chat({"content": "yes"}, "length"), 3.0) == 1
    reply.feed(chat({}, "length"), 3.5)
    reply.feed(chat(None, usage={"prompt_tokens": 9, "completion_tokens": 4}) + b"data: [DONE]\n\n", 4.0)
    assert reply.finish(4.0) == ""
    assert (reply.times, reply.totals) == ([2.0, 2.5, 3.0], [1, 3, 4])
    assert reply.prompt_tokens == 9


def test_chat_in_one_piece() -> None:
    """Without streaming the message's tokens are those of usage."""
    message = {"index": 0, "message": {"role": "assistant", "content": "hi you"}, "finish_reason": "length"}
    body = json.dumps({"choices": [message], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}).encode()
    reply = new_reply("chat", 2, False)
    assert play(reply, body) == ""
    assert (reply.tokens, reply.prompt_tokens) == (2, 5)


def carrying(ids: int, stated: int, end: bool) -> bytes:
    """A native message that carries ``ids`` token ids and states another count."""
    finish = {"type": "length", "length": stated} if end else None
    fields = {"prompt_tokens": 4, "completion_tokens": stated, "finish_reason": finish}
    return json.dumps({"text": "", "output_ids": [1] * ids, "meta_info": fields}).encode()


@pytest.mark.parametrize("stream", [True, False])
def test_usage_that_states_more_tokens_than_came_is_a_failure(stream: bool) -> None:
    """Half of the output with twice the usage has the length that was asked for; the token ids tell."""
    reply = new_reply("generate", 8, stream)
    pieces = [carrying(n, 2 * n, n == 4) for n in (1, 2, 3, 4)]
    reason = play(reply, *(map(event, pieces) if stream else pieces[-1:]))
    assert reason == "usage says 8 output tokens, and 4 came"


@pytest.mark.parametrize("last", [(2, 8), (0, 6), (7, 8), (8, 8)])
def test_token_ids_may_come_piece_by_piece(last: tuple[int, int]) -> None:
    """Incremental streaming sends the new ids only, an end may bring none, and a stop token may be left out."""
    ids, stated = last
    reply = new_reply("generate", stated, True)
    assert (
        play(reply, event(carrying(3, 3, False)), event(carrying(3, 6, False)), event(carrying(ids, stated, True)))
        == ""
    )


ABSURD = [2**32 - 1, 2**63 - 1, 2**70, -(2**62), 10**400]


@pytest.mark.parametrize("count", ABSURD, ids=["32 bits", "63 bits", "71 bits", "negative", "400 digits"])
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens", "cached_tokens"])
@pytest.mark.parametrize("route", ["generate", "completions", "chat"])
def test_counts_that_no_request_can_have(route: str, name: str, count: int) -> None:
    """Such a reply has failed and says why; what is recorded of it fits the record."""
    stated = {"prompt_tokens": 4, "completion_tokens": 2, "cached_tokens": 0, name: count}
    if route == "generate":
        data: dict[str, Any] = {"meta_info": {**stated, "finish_reason": {"type": "length"}}}
    else:
        details = {"cached_tokens": stated["cached_tokens"]}
        choice = {"text": "a", "delta": {"content": "a"}, "finish_reason": "length"}
        data = {"choices": [choice], "usage": {**stated, "prompt_tokens_details": details}}
    reply = new_reply(route, 2, True)
    reason = play(reply, event(json.dumps(data).encode()))
    what = {"prompt_tokens": "prompt", "completion_tokens": "output", "cached_tokens": "cached"}[name]
    assert re.fullmatch(rf"usage states (-?\d+|2\*\*\d+ or more) {what} tokens", reason), reason
    kept = (reply.tokens or 0, reply.prompt_tokens, reply.cached_tokens, reply.received, *reply.totals)
    assert all(0 <= number <= 4 for number in kept)


@pytest.mark.parametrize(
    "data",
    [
        b'{"meta_info": {"completion_tokens": 2, "finish_reason": "length"}, "output_ids": "none"}',
        b'{"error": ' + b"[" * 100_000,
        b'{"meta_info": {"completion_tokens": ' + b"9" * 5000,
    ],
    ids=["ids of another type", "deep", "long number"],
)
@pytest.mark.parametrize("route", ["generate", "completions"])
def test_any_message_is_read_or_a_failure(route: str, data: bytes) -> None:
    """Whatever a server says, it fails that request alone."""
    assert play(new_reply(route, 2, True), event(data)) != ""


@pytest.mark.parametrize(("status", "stream"), [(200, True), (200, False), (500, True)])
def test_a_reply_without_end_is_not_kept(status: int, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beyond the longest message is thrown away, and the request has failed."""
    monkeypatch.setattr(streams, "LONGEST", 1000)
    reply = new_reply("generate", 2, stream)
    reply.status = status
    tracemalloc.start()
    for _ in range(1000):
        reply.feed(bytes(1000), 1.0)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 100_000
    assert reply.finish(1.0) != ""
