"""What the package believes of SGLang, held against a real one: read-back, loads, counters, the live limit."""

from __future__ import annotations

import statistics
from pathlib import Path

import httpx
import pytest

from autotune.brief import read_brief
from autotune.doctor import examine
from autotune.load.records import OK
from autotune.load.reduce import reduce
from autotune.rig import fetcher
from autotune.study.file import Objective, Workload
from tests.engines.real import KV_TOKENS, Live, RealNight

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("sglang")]

REQUESTS = 48
JSON = {"content-type": "application/json"}


def test_the_values_in_force_are_read_back(live: Live) -> None:
    """Running limit, KV capacity and version are the server's own, and they agree with its log."""
    names = live.rig.space.names()
    with live.client as client:
        found = live.rig.engine.effective(fetcher(client), live.log(), names)
    assert (found.source, found.version) == ("server_info", "0.5.23")
    assert (found.running_limit, found.kv_tokens, found.graph_max_batch) == (64, KV_TOKENS, 0)
    assert found.values["max_running_requests"] == 64
    assert found.values["chunked_prefill_size"] == live.info()["chunked_prefill_size"]
    assert found.gpu_memory_gb["kvcache"] > 0
    blind = live.rig.engine.effective(lambda _: (0, b""), live.log(), names)
    assert (blind.source, blind.running_limit, blind.kv_tokens) == ("log", 64, KV_TOKENS)


def test_streamed_token_counts_by_the_openai_route(live: Live, tmp_path: Path) -> None:
    """By the route that the suite does not take, client and server count the same tokens, and the gates are content."""
    raw, around = live.load(tmp_path, requests=REQUESTS, route="completions", concurrency=16)
    table = raw.requests
    assert (table["state"] == OK).all(), raw.meta.reasons
    assert (table["output_tokens"] == 32).all()
    assert (table["cached_tokens"] <= 4).all()
    assert (table["chunks"] > 8).all()
    assert (table["first"] < table["end"]).all()
    assert around.before is not None
    assert around.after is not None
    assert around.after.retractions == around.before.retractions
    measured = reduce(raw, Workload(concurrency=16), Objective(), around)
    assert not [finding for finding in measured.refused if finding.gate in ("token_counters", "output_lengths")]
    assert measured.whole["output_throughput_tok_s"] > 0


def test_a_live_limit_is_taken_and_holds(live: Live, tmp_path: Path) -> None:
    """Without a restart the running limit goes down to 4 and up again: less throughput at 4, and 4 is in force."""
    speeds: dict[int, list[float]] = {64: [], 4: []}
    for turn, limit in enumerate((64, 4, 64, 4)):
        _limit(live, limit)
        raw, _ = live.load(tmp_path / str(turn), requests=96)
        speeds[limit].append(reduce(raw, Workload(concurrency=64), Objective()).whole["output_throughput_tok_s"])
    assert statistics.mean(speeds[64]) > 1.3 * statistics.mean(speeds[4]), speeds
    _limit(live, 64)
    with live.client as client:
        assert live.rig.engine.live_limit(65, fetcher(client)) is None


def _limit(live: Live, limit: int) -> None:
    engine = live.rig.engine
    with live.client as client:
        asked = engine.live_limit(limit, fetcher(client))
        assert asked is not None
        answer = client.request(asked.method, asked.path, content=asked.body, headers=JSON)
        assert engine.live_limit_accepted(answer.status_code, answer.content), answer.text
        assert engine.live_limit_in_force(fetcher(client)) == limit


def test_a_refused_live_limit_is_seen(live: Live) -> None:
    """The server answers 200 to a limit that it does not take; that is no acceptance, and nothing changes."""
    body = '{"server_args": {"pp_max_micro_batch_size": 100000}}'
    with live.client as client:
        answer: httpx.Response = client.post("/set_internal_state", content=body, headers=JSON)
        assert not live.rig.engine.live_limit_accepted(answer.status_code, answer.content)
        assert live.rig.engine.live_limit_in_force(fetcher(client)) == 64


def test_the_doctor_finds_the_dead_flag(tmp_path: Path) -> None:
    """Behind the wrapper script the installed package is found, and in it a flag that nothing reads."""
    parameters = ("max_running_requests", "num_continuous_decode_steps", "chunked_prefill_size")
    brief = read_brief(RealNight(parameters=parameters).write(tmp_path))
    assert (brief.installed.package, brief.version) == ("sglang", "0.5.23")
    assert {name: fact.dead for name, fact in brief.facts.items()} == dict(
        zip(parameters, (False, True, False), strict=True)
    )
    assert [frozen.name for frozen in brief.frozen()] == ["num_continuous_decode_steps"]
    assert brief.searched() == ("max_running_requests", "chunked_prefill_size")
    assert examine(brief).sound
