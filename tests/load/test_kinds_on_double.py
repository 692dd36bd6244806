"""Whole loads of each kind on the simulated server: what is asked arrives; the gates know what the workload shares."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from autotune.engines.sglang import SGLang
from autotune.load.dataset.stored import store
from autotune.load.driver import run_load
from autotune.load.gates import Surroundings
from autotune.load.records import FAILED, RawRun
from autotune.load.reduce import reduce
from autotune.load.selftest import simulator
from autotune.load.spec import LoadSpec
from autotune.study.file import Objective, Workload
from autotune.values import Finding
from tests.load.dataset.builders import lines, read

FRESH = itertools.count()
BUSY = {"generator_lag", "generator_cpu", "generator_late", "in_flight", "drift", "window", "requests", "starved"}
"""A busy test machine may trip these; they have tests of their own."""
SHORT = {"concurrency": 8, "output_tokens": 8, "min_s": 1.0, "max_s": 1.2, "warmup_max_s": 1.0, "workers": 1}


@pytest.fixture(scope="module")
def cached() -> Iterator[str]:
    """A server with a prefix cache."""
    with simulator("--enable-metrics", "--sim-noise", "0") as url:
        yield url


@pytest.fixture(scope="module")
def plain() -> Iterator[str]:
    """A server without one."""
    with simulator("--enable-metrics", "--sim-noise", "0", "--disable-radix-cache") as url:
        yield url


def load(
    url: str, folder: Path, keys: dict[str, Any], entries: list[Any] | None = None
) -> tuple[RawRun, dict[str, Finding]]:
    """One load, and what the gates say of it apart from the test machine's own noise."""
    workload = msgspec.convert({**SHORT, **keys}, Workload)
    spec = LoadSpec(base_url=url, workload=workload, seed=(1, next(FRESH)), folder=str(folder))
    if entries is not None:
        store(read(lines(folder, entries), kind=workload.kind, route=workload.route), folder / "dataset")
        spec = msgspec.structs.replace(spec, dataset=str(folder / "dataset"))
    before = counters(url)
    raw = run_load(spec)
    findings = reduce(raw, workload, Objective(), Surroundings(before=before, after=counters(url))).findings
    return raw, {finding.gate: finding for finding in findings if finding.gate not in BUSY}


def counters(url: str) -> Any:
    def fetch(path: str) -> tuple[int, bytes]:
        reply = httpx.get(url + path, trust_env=False)
        return reply.status_code, reply.content

    return SGLang().counters(fetch)


@pytest.mark.parametrize("stream", [True, False])
def test_chat_is_measured(cached: str, tmp_path: Path, stream: bool) -> None:
    """Random prompts by the chat route are answered in the length asked; the template's tokens are no cache hits."""
    raw, found = load(cached, tmp_path, {"route": "chat", "input_tokens": 40, "stream": stream})
    assert found == {}
    good = raw.requests[raw.ok]
    assert (good["prompt_tokens"] == 42).all()
    assert (good["asked_in"] == 0).all()
    assert (good["output_tokens"] == 8).all()


def test_shared_prefixes_may_be_answered_by_the_cache(cached: str, tmp_path: Path) -> None:
    """Hits up to what the prompts share are the workload's own."""
    keys = {"kind": "shared_prefix", "prefix_tokens": 96, "prefix_groups": 2, "input_tokens": 16}
    raw, found = load(cached, tmp_path, keys)
    good = raw.requests[raw.ok]
    assert found == {}
    assert good["cached_tokens"].sum() > 0.3 * good["prompt_tokens"].sum()
    assert 0.5 < raw.meta.sharing.shared < 96 / 112


def test_shared_prefixes_without_a_cache_are_noted(plain: str, tmp_path: Path) -> None:
    """A server that answers none of a shared prefix is measured, and that is said."""
    keys = {"kind": "shared_prefix", "prefix_tokens": 96, "prefix_groups": 2, "input_tokens": 16}
    _, found = load(plain, tmp_path, keys)
    assert list(found) == ["prefix_cache"]
    assert not found["prefix_cache"].fatal
    assert "although the prompts share" in found["prefix_cache"].message


PROMPTS = [{"prompt": " ".join(f"w{n}x{k}" for k in range(40)), "output_tokens": 4 + n} for n in range(4)]


def test_a_dataset_that_repeats_is_refused_where_a_cache_answers(cached: str, tmp_path: Path) -> None:
    """Four prompts asked again and again measure the cache; the message says why, and a raised limit accepts it."""
    keys = {"kind": "jsonl", "dataset": "x", "route": "completions"}
    raw, found = load(cached, tmp_path, keys, PROMPTS)
    assert raw.meta.sharing.repeated > 0.5
    assert found["prefix_cache"].fatal
    assert "the dataset is smaller than the load" in found["prefix_cache"].message
    assert set(found) == {"prefix_cache"}
    _, accepted = load(cached, tmp_path, {**keys, "cached_limit": 1.0}, PROMPTS)
    assert accepted == {}


def test_a_dataset_that_repeats_is_measured_without_a_cache(plain: str, tmp_path: Path) -> None:
    """Texts of a file and replies of several lengths arrive as asked, and repetition does no harm."""
    raw, found = load(plain, tmp_path, {"kind": "jsonl", "dataset": "x", "route": "generate"}, PROMPTS)
    good = raw.requests[raw.ok]
    assert found == {}
    assert set(good["output_tokens"].tolist()) == {4, 5, 6, 7}
    assert (good["output_tokens"] == good["asked_out"]).all()
    assert (good["prompt_tokens"] == 40).all()


def test_a_trace_is_sent_at_its_times(plain: str, tmp_path: Path) -> None:
    """Requests are due when the trace says, sped up, on two workers; the window is the stretch that was asked for."""
    entries = [{"timestamp": 200 * n, "input_length": 10 + n, "output_length": 2 + n % 5} for n in range(8)]
    keys = {"kind": "trace", "dataset": "x", "trace_speed": 4.0, "concurrency": 0, "workers": 2}
    raw, found = load(plain, tmp_path, keys, entries)
    assert found == {}
    assert (raw.requests["state"] != FAILED).all()
    assert np.allclose(np.sort(raw.requests["due"]), 0.05 * np.arange(len(raw.requests)), atol=1e-6)
    assert len(raw.requests) > 30
    workload = msgspec.convert({**SHORT, **keys}, Workload)
    measured = reduce(raw, workload, Objective())
    assert (measured.warmup_s, raw.meta.ended) == (1.0, "max_s")
    assert measured.window_s == pytest.approx(1.2, abs=0.25)
