"""Tests of whole loads: real worker processes against a scripted server."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest

from autotune.errors import InputError, NightStopped
from autotune.load import driver, records
from autotune.load.driver import WorkerLost, raw_path, run_load, worker_count
from autotune.load.records import CANCELLED, FAILED, OK
from autotune.load.reduce import reduce
from autotune.load.spec import LoadSpec, Progress, WorkerSpec
from autotune.study.file import Objective, Workload
from tests.load.conftest import Script, Server, Step, event, full, good_reply

Serve = Callable[[Script], Server]


def spec(server: Server, folder: Path, requests: int = 0, **fields: object) -> LoadSpec:
    defaults = {
        "input_tokens": 12,
        "output_tokens": 5,
        "concurrency": 3,
        "min_s": 1.0,
        "max_s": 2.0,
        "warmup_max_s": 2.0,
        "workers": 1,
    }
    workload = msgspec.convert({**defaults, **fields}, Workload)
    return LoadSpec(
        base_url=server.url, workload=workload, seed=(1, 2, 3), folder=str(folder), api_key="key", requests=requests
    )


@pytest.mark.parametrize("stream", [True, False])
def test_a_load_of_fixed_size(serve: Serve, tmp_path: Path, stream: bool) -> None:
    """Two workers send exactly the requests asked, each with its own fresh prompt, and all are recorded."""
    server = serve(good_reply)
    raw = run_load(spec(server, tmp_path, requests=20, stream=stream, workers=2))
    assert raw.meta.ended == "requests"
    assert sorted(raw.requests["index"].tolist()) == list(range(20))
    assert (raw.requests["state"] == OK).all()
    assert (raw.requests["output_tokens"] == 5).all()
    assert (raw.requests["prompt_tokens"] == 12).all()
    assert len({tuple(body["input_ids"]) for body in server.bodies}) == 20
    assert all(b"Bearer key" in head for head in server.heads)
    assert set(raw.requests["worker"].tolist()) == {0, 1}
    measured = reduce(raw, Workload(concurrency=3, stream=stream), Objective())
    assert measured.requests_completed == 20
    assert measured.whole["e2e_mean_s"] >= 0.045


def test_records_are_saved_without_the_key(serve: Serve, tmp_path: Path) -> None:
    """One raw file per level is left in the folder, equal to what was returned; no part files, no API key."""
    raw = run_load(spec(serve(good_reply), tmp_path, requests=6))
    assert [p.name for p in tmp_path.iterdir()] == ["raw-0.npz"]
    again = records.load(raw_path(tmp_path, "0"))
    assert again.requests.tobytes() == raw.requests.tobytes()
    assert again.meta == raw.meta
    assert b"Bearer" not in (tmp_path / "raw-0.npz").read_bytes()


def test_a_closed_loop_is_measured(serve: Serve, tmp_path: Path) -> None:
    """A steady server is measured in a window after the first generation; what is in flight at the end is cut off."""
    seen: list[Progress] = []
    server = serve(good_reply)
    load = spec(server, tmp_path)
    raw = run_load(load, seen.append)
    assert raw.meta.ended in ("precise", "max_s")
    assert server.connections == 3
    assert (raw.requests["state"] != FAILED).all()
    assert 1 <= (raw.requests["state"] == CANCELLED).sum() <= 3
    measured = reduce(raw, load.workload, Objective())
    assert measured.window_s > 0.5
    assert 0 < measured.steady["output_throughput_tok_s"] < 3 * 5 / 0.05
    assert [p.phase for p in seen][-1] == "measure"
    assert max(p.in_flight for p in seen) == 3
    assert seen[-1].output_tokens > 0


def test_an_open_loop_sends_at_its_rate(serve: Serve, tmp_path: Path) -> None:
    """Poisson arrivals come at their rate, on as many connections as are needed."""
    load = spec(serve(good_reply), tmp_path, requests=60, arrival="open", request_rate=60.0, concurrency=0)
    raw = run_load(load)
    assert (raw.requests["state"] == OK).all()
    due = np.sort(raw.requests["due"])
    assert 60 / (due[-1] - due[0]) == pytest.approx(60, rel=0.5)
    assert (raw.requests["send"] >= raw.requests["due"]).all()


def test_the_caller_can_stop_a_load(serve: Serve, tmp_path: Path) -> None:
    """A reason from should_stop ends the load soon and becomes the reason in the record."""
    load = spec(serve(good_reply), tmp_path, min_s=60.0, max_s=60.0)
    asked = []

    def should_stop() -> str | None:
        asked.append(1)
        return "server died" if len(asked) > 3 else None

    raw = run_load(load, should_stop=should_stop)
    assert raw.meta.ended == "server died"
    assert raw.meta.duration_s < 30


@pytest.mark.parametrize("asked", [0, 2, 6], ids=["nothing started", "some started", "all started"])
def test_a_load_can_be_stopped_before_it_begins(
    serve: Serve, tmp_path: Path, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that start, or prepare long prompts, are not waited for, and nothing is left of them."""
    monkeypatch.setattr(driver, "_worker_process", lambda: sleeper(started))
    started: list[subprocess.Popen[bytes]] = []
    left = [None] * asked
    raw = run_load(spec(serve(good_reply), tmp_path, workers=3), should_stop=lambda: left.pop() if left else "enough")
    assert (raw.meta.ended, len(raw.requests)) == ("enough", 0)
    assert len(started) == min(asked, 3)
    assert all(process.returncode == -signal.SIGKILL for process in started)
    assert reduce(raw, Workload(concurrency=3), Objective()).requests_completed == 0
    assert records.load(raw_path(tmp_path, "0")).meta == raw.meta


def sleeper(started: list[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """A worker that never gets ready."""
    started.append(subprocess.Popen(["sleep", "1000"], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    return started[-1]


def test_a_stalled_server_is_seen(serve: Serve, tmp_path: Path) -> None:
    """When tokens stop, the silence grows in the progress, so that the caller can end the load."""
    server = serve(lambda head, body: [60.0])
    silent: list[float] = []
    raw = run_load(
        spec(server, tmp_path, min_s=60.0),
        lambda p: silent.append(p.silent_s),
        lambda: "stalled" if silent and silent[-1] > 1.0 else None,
    )
    assert raw.meta.ended == "stalled"
    assert (raw.requests["state"] == CANCELLED).all()
    assert len(raw.requests) == 3


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (lambda h, b: [full(500, b"out of memory")], "status 500: out of memory"),
        (lambda h, b: [full(200, event(b"[DONE]"))], "no tokens"),
        (lambda h, b: [None], "connection lost"),
    ],
)
def test_failures_are_recorded_with_their_reason(serve: Serve, tmp_path: Path, script: Script, reason: str) -> None:
    """Failed requests are kept with their reason, and the load goes on."""
    raw = run_load(spec(serve(script), tmp_path, requests=6))
    assert (raw.requests["state"] == FAILED).all()
    assert len(raw.requests) == 6
    assert raw.meta.reasons[int(raw.requests["reason"][0])].startswith(reason)
    assert reduce(raw, Workload(concurrency=3), Objective()).requests_failed == 6


@pytest.mark.parametrize("count", [2**32 - 1, 2**70])
def test_an_absurd_count_fails_its_request_alone(serve: Serve, tmp_path: Path, count: int) -> None:
    """A server that states more tokens than a record can hold breaks neither the load nor the other requests."""
    asked = itertools.count()

    stated = dict.fromkeys(("completion_tokens", "prompt_tokens", "cached_tokens"), count)
    reply = json.dumps({"meta_info": {**stated, "finish_reason": "stop"}}).encode()

    def once(head: bytes, body: dict[str, Any]) -> list[Step]:
        return [full(200, reply)] if next(asked) == 2 else good_reply(head, body)

    raw = run_load(spec(serve(once), tmp_path, requests=6, stream=False))
    assert (raw.requests["state"] == OK).sum() == 5
    (failed,) = raw.requests[raw.requests["state"] == FAILED]
    assert (failed["prompt_tokens"], failed["output_tokens"], failed["cached_tokens"]) == (0, 0, 0)
    assert raw.meta.reasons[1].startswith("usage states")


def test_a_server_that_is_gone_ends_the_load_as_failing(serve: Serve, tmp_path: Path) -> None:
    """Refused connections are failures with a pause between them, and a hopeless load ends by itself."""
    server = serve(good_reply)
    server.close()
    raw = run_load(spec(server, tmp_path, concurrency=8, max_s=60.0, warmup_max_s=60.0))
    assert raw.meta.ended == "failing"
    assert "cannot connect" in raw.meta.reasons[1]
    assert len(raw.requests) < 1000


def test_a_request_without_end_times_out(serve: Serve, tmp_path: Path) -> None:
    """A request older than the limit fails, its place is used again."""
    load = spec(serve(lambda h, b: [60.0]), tmp_path, requests=3)
    raw = run_load(msgspec.structs.replace(load, request_timeout_s=0.3))
    assert (raw.requests["state"] == FAILED).all()
    assert raw.meta.reasons[1] == "no reply within 0.3 s"


def workers_of(pid: int) -> list[psutil.Process]:
    return [p for p in psutil.Process(pid).children() if "autotune.load.worker" in p.cmdline()]


def test_a_worker_that_dies_stops_the_night(serve: Serve, tmp_path: Path) -> None:
    """A killed worker is a broken assumption: the caller learns of it at once and no process is left."""
    load = spec(serve(good_reply), tmp_path, workers=2, min_s=60.0, max_s=60.0)
    started: list[psutil.Process] = []

    def kill_one(_: Progress) -> None:
        if not started:
            started.extend(workers_of(os.getpid()))
            started[0].kill()

    with pytest.raises(NightStopped, match="load worker 0 died"):
        run_load(load, kill_one)
    assert len(started) == 2
    assert not any(p.is_running() for p in started)


def test_a_full_disk_that_a_worker_meets_is_told_in_its_words(serve: Serve, tmp_path: Path) -> None:
    """The night stops, and is not tried again as for a worker that died."""
    (tmp_path / "raw-0-worker0.part.npz.part").symlink_to("/dev/full")
    with pytest.raises(NightStopped, match=r"worker0\.part\.npz: cannot be written .*free some space") as told:
        run_load(spec(serve(good_reply), tmp_path, requests=3))
    assert not isinstance(told.value, WorkerLost)


def test_workers_die_with_their_parent(serve: Serve, tmp_path: Path) -> None:
    """Killed with SIGKILL, the tuner leaves no worker behind."""
    load = spec(serve(good_reply), tmp_path, min_s=300.0, max_s=300.0)
    code = (
        "import sys, msgspec; from autotune.load.driver import run_load; from autotune.load.spec import LoadSpec;"
        "run_load(msgspec.json.decode(sys.argv[1], type=LoadSpec), lambda p: print(p.in_flight, flush=True))"
    )
    argv = [sys.executable, "-c", code, msgspec.json.encode(load).decode()]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline()
        workers = workers_of(parent.pid)
        assert workers
        parent.send_signal(signal.SIGKILL)
        _, alive = psutil.wait_procs(workers, timeout=30)
    assert alive == []


def test_a_worker_ends_with_its_input(serve: Serve, tmp_path: Path) -> None:
    """The end of stdin means stop, before the start and during a load; records are written in the second case."""
    load = spec(serve(good_reply), tmp_path)
    argv = [sys.executable, "-m", "autotune.load.worker"]
    part = tmp_path / "part.npz"
    line = msgspec.json.encode(WorkerSpec(load=load, worker=0, workers=1, raw_path=str(part))) + b"\n"
    assert subprocess.run(argv, input=line, capture_output=True, timeout=60, check=False).returncode == 1
    assert not part.exists()
    go = f"go {time.monotonic()!r}\n".encode()
    assert subprocess.run(argv, input=line + go, capture_output=True, timeout=60, check=False).returncode == 0
    assert records.load(part).meta.stream


@pytest.mark.parametrize(
    ("workload", "key"),
    [(Workload(), "workload.concurrency"), (Workload(arrival="open", concurrency=5), "workload.request_rate")],
)
def test_a_load_that_sends_nothing_is_refused(tmp_path: Path, workload: Workload, key: str) -> None:
    """Without a concurrency or a rate there is no load: the message names the key."""
    with pytest.raises(InputError, match=key):
        run_load(LoadSpec(base_url="http://127.0.0.1:1", workload=workload, seed=(0,), folder=str(tmp_path)))


@pytest.mark.parametrize(
    ("workload", "cores", "expected"),
    [
        (Workload(concurrency=64), 8, 1),
        (Workload(concurrency=2048), 8, 4),
        (Workload(concurrency=2048), 2, 2),
        (Workload(concurrency=2048, stream=False), 8, 1),
        (Workload(concurrency=4, workers=3), 8, 3),
        (Workload(concurrency=4, workers=1024), 8, 4),
        (Workload(arrival="open", request_rate=5.0, workers=3), 8, 3),
        (Workload(arrival="open", request_rate=5.0), 8, 1),
    ],
)
def test_worker_count(workload: Workload, cores: int, expected: int) -> None:
    """About 512 streams a worker, never more workers than cores, unless the study says so."""
    assert worker_count(workload, cores) == expected


@pytest.mark.parametrize("pause_s", [0.0, 0.05], ids=["at-once", "late"])
def test_a_server_that_closes_after_each_reply(serve: Serve, tmp_path: Path, pause_s: float) -> None:
    """A kept connection that the server closes costs no request: it is sent again on a new one, and answered once."""
    server = serve(lambda head, body: [*good_reply(head, body), pause_s, None])
    raw = run_load(spec(server, tmp_path, requests=20))
    assert (raw.requests["state"] == OK).all(), raw.meta.reasons
    assert sorted(raw.requests["index"].tolist()) == list(range(20))


def test_a_server_that_closes_instead_of_replying(serve: Serve, tmp_path: Path) -> None:
    """A request that was lost on a connection of its own has failed; it is not sent for ever."""
    seen: list[bytes] = []

    def once(head: bytes, body: dict[str, object]) -> list[bytes | float | None]:
        seen.append(head)
        return good_reply(head, body) if len(seen) <= 3 else [None]

    raw = run_load(spec(serve(once), tmp_path, requests=6))
    assert (raw.requests["state"] == OK).sum() == 3
    assert (raw.requests["state"] == FAILED).sum() == 3
    assert any("closed by the server" in reason for reason in raw.meta.reasons)
    assert 6 < len(seen) <= 9
