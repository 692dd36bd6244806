"""Tests of ``autotune bench`` against the simulated server."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from autotune import benching
from autotune.benching import BenchAsk, _model, _Wish, bench
from autotune.cli.app import app
from autotune.cli.bench import as_json, as_table
from autotune.errors import InputError
from autotune.load.driver import WorkerLost
from autotune.load.selftest import double
from autotune.study.file import Workload
from tests.gates.loads import WIDE
from tests.load.dataset.builders import lines

WORKLOAD = Workload(input_tokens=6, output_tokens=8, concurrency=4, min_s=0.5, max_s=0.5, warmup_max_s=1.0)
OPTIONS = ("--input-tokens", "6", "--output-tokens", "8", "--concurrency", "4", "--requests", "12")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server that answers on a fixed schedule."""
    with double(0.01, 0.005) as address:
        yield address


@pytest.fixture(autouse=True)
def wide_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy test machine closes no gate."""
    monkeypatch.setattr(benching, "GATES", WIDE)


@pytest.mark.parametrize("route", ["generate", "completions", "chat"])
def test_a_fixed_number_of_requests(url: str, route: str) -> None:
    """Just the requests asked are sent, and the row has bench_serving's names and counts."""
    ask = BenchAsk(url=url, workload=msgspec.convert({**msgspec.to_builtins(WORKLOAD), "route": route}, Workload))
    done = bench(msgspec.structs.replace(ask, requests=12, tag="mine"))
    assert done.ended == "requests"
    assert done.row["completed"] == 12
    assert done.row["total_output_tokens"] == 96
    assert done.row["max_concurrency"] == 4
    assert done.row["tag"] == "mine"
    ttft = done.row["median_ttft_ms"]
    assert isinstance(ttft, float)
    assert ttft >= 9.0


def test_until_it_is_precise(url: str) -> None:
    """Without a number of requests the load has a steady window with an uncertainty of its own."""
    done = bench(BenchAsk(url=url, workload=WORKLOAD))
    assert done.ended in ("precise", "max_s")
    assert done.measurement.window_s > 0
    assert done.measurement.estimates["output_throughput_tok_s"].value > 0


def test_the_caller_can_end_it(url: str) -> None:
    """A reason to stop ends the load and is in the result."""
    done = bench(BenchAsk(url=url, workload=WORKLOAD), should_stop=lambda: "enough")
    assert done.ended == "enough"


def test_no_server_answers() -> None:
    """An address where nothing listens is named, with a remedy."""
    with pytest.raises(InputError, match=r"--url http://127\.0\.0\.1:9: no server answers"):
        bench(BenchAsk(url="http://127.0.0.1:9", workload=WORKLOAD))


@pytest.mark.parametrize("address", ["http://a..b:1", f"http://{'a' * 300}:1", "http://127.0.0.1:9\n"])
def test_an_address_that_is_none(address: str) -> None:
    """It is told as such before anything is asked of it."""
    with pytest.raises(InputError, match="write it as http://HOST:PORT"):
        bench(BenchAsk(url=address, workload=WORKLOAD))


@pytest.mark.parametrize(
    ("option", "value", "near"), [("--metric", "ttft_p99", "ttft_p99_s"), ("--engine", "sgl", "sglang")]
)
def test_an_unknown_name_is_told_before_anything_is_sent(option: str, value: str, near: str) -> None:
    """A load takes a minute: its names are checked first, and the nearest is named."""
    ran = CliRunner().invoke(app, ["bench", "--url", "http://127.0.0.1:9", option, value])
    assert isinstance(ran.exception, InputError)
    assert f"{option}: " in str(ran.exception)
    assert f"did you mean {near}?" in str(ran.exception)


def test_a_workload_without_sense() -> None:
    """The rules of a study hold here too, told with the options' names."""
    with pytest.raises(InputError, match="--range-ratio: 3 is out of range"):
        bench(BenchAsk(url="http://127.0.0.1:9", workload=msgspec.structs.replace(WORKLOAD, range_ratio=3.0)))


def test_the_command_prints_json(url: str) -> None:
    """One JSON object with the row, the findings and whether it is valid."""
    ran = CliRunner().invoke(app, ["bench", "--url", url, *OPTIONS, "--json"])
    assert ran.exit_code == 0, ran.output
    row = json.loads(ran.stdout)
    assert row["completed"] == 12
    assert row["valid"] is True
    assert {"mean_ttft_ms", "p99_itl_ms", "output_throughput", "median_e2e_latency_ms"} <= row.keys()


def test_the_command_prints_a_table(url: str) -> None:
    """A line per figure, for a person."""
    ran = CliRunner().invoke(app, ["bench", "--url", url, *OPTIONS, "--no-stream", "--engine", "command"])
    assert ran.exit_code == 0, ran.output
    assert "12 requests completed, 0 failed" in ran.stdout
    assert "output tokens" in ran.stdout


def test_the_command_asks_a_dataset(url: str, tmp_path: Path) -> None:
    """A file with texts and lengths is asked by the chat route, under the name that bench_serving has for it."""
    path = lines(tmp_path, [{"prompt": f"word {n}", "output_tokens": 3} for n in range(30)])
    asks = ("--kind", "custom", "--dataset", str(path), "--route", "chat")
    ran = CliRunner().invoke(app, ["bench", "--url", url, *asks, "--concurrency", "4", "--requests", "12", "--json"])
    assert ran.exit_code == 0, ran.output
    row = json.loads(ran.stdout)
    assert (row["dataset_name"], row["backend"]) == ("custom", "sglang-oai-chat")
    assert (row["completed"], row["total_output_tokens"]) == (12, 36)


def test_the_command_sends_a_trace(url: str, tmp_path: Path) -> None:
    """A trace needs no concurrency, and --output-tokens replaces its lengths."""
    path = lines(tmp_path, [{"timestamp": 20 * n, "input_length": 5, "output_length": 3} for n in range(9)])
    asks = ("--kind", "mooncake", "--dataset", str(path), "--output-tokens", "2", "--trace-speed", "2")
    ran = CliRunner().invoke(app, ["bench", "--url", url, *asks, "--requests", "9", "--json"])
    assert ran.exit_code == 0, ran.output
    row = json.loads(ran.stdout)
    assert (row["completed"], row["total_output_tokens"], row["request_rate"]) == (9, 18, None)


@pytest.mark.parametrize(
    ("asks", "words"),
    [
        (("--kind", "sharegbt"), "--kind: 'sharegbt' is not known; use one of random, sharegpt"),
        (("--kind", "jsonl"), "--dataset: is missing"),
        (("--timestamp-unit", "us"), "--timestamp-unit: 'us' is not known; use one of ms, s"),
        (("--kind", "jsonl", "--dataset", "gone.jsonl"), "gone.jsonl: no such file or directory"),
    ],
)
def test_a_kind_that_cannot_be_asked(asks: tuple[str, ...], words: str) -> None:
    """What is wrong with the options of a kind is told before anything is sent."""
    ran = CliRunner().invoke(app, ["bench", "--url", "http://127.0.0.1:9", *asks])
    assert isinstance(ran.exception, InputError)
    assert words in str(ran.exception)


def test_a_refused_load_is_told_by_the_exit_code(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that is no valid measurement prints why and ends with 5."""
    monkeypatch.setattr(benching, "GATES", msgspec.structs.replace(WIDE, cpu_share=0.0))
    ran = CliRunner().invoke(app, ["bench", "--url", url, *OPTIONS])
    assert ran.exit_code == 5
    assert "REFUSED  generator_cpu" in ran.stdout


def test_findings_name_options(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What to turn is called as the command line calls it; a load of fixed size is not made longer by its time."""
    monkeypatch.setattr(benching, "GATES", msgspec.structs.replace(WIDE, window_share=1e9, cpu_share=0.0))
    ask = BenchAsk(url=url, workload=WORKLOAD)
    timed = " ".join(finding.message for finding in bench(ask).measurement.findings)
    assert "raise --max-s" in timed
    assert "raise --workers" in timed
    sized = " ".join(
        finding.message for finding in bench(msgspec.structs.replace(ask, requests=12)).measurement.findings
    )
    assert "send more requests" in sized
    assert "workload." not in timed + sized


def test_models_that_are_nested_without_end_name_none() -> None:
    """The server's name for its default model does instead."""
    deep = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"data":[]}'
    ask = BenchAsk(url="http://127.0.0.1:1", workload=WORKLOAD)
    assert _model(ask, lambda _: (200, deep), _Wish(lambda: None)) == "default"


def test_a_lost_worker_names_an_option(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy is one that the command line has."""

    def lost(*_: object) -> None:
        raise WorkerLost("load worker 0 died; try workload.workers = 1")

    monkeypatch.setattr(benching, "run_load", lost)
    with pytest.raises(WorkerLost, match=r"try --workers 1$"):
        bench(BenchAsk(url=url, workload=WORKLOAD))


def test_a_bench_that_is_stopped_before_its_load(url: str) -> None:
    """It ends with an empty measurement, which can be shown."""
    done = bench(BenchAsk(url=url, workload=WORKLOAD), should_stop=lambda: "ended by SIGINT")
    assert (done.ended, done.row["completed"]) == ("ended by SIGINT", 0)
    assert "0 requests completed" in as_table(done)
    assert json.loads(as_json(done))["valid"] is False


def test_a_key_that_is_not_set() -> None:
    """The variable of the API key must exist."""
    ran = CliRunner().invoke(app, ["bench", "--url", "http://127.0.0.1:9", "--api-key-env", "NO_SUCH_KEY"])
    assert isinstance(ran.exception, InputError)
    assert "NO_SUCH_KEY is not set" in str(ran.exception)
