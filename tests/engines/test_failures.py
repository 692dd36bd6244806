"""What goes wrong with a real engine, and what the tuner makes of it: the log decides, never the exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from autotune import rig as rigs
from autotune import trial
from autotune.events import Event, Note, PhaseEntered
from autotune.server.ports import fresh_port, is_free
from autotune.trial import Ticket, run_trial
from autotune.values import Config, Measured
from tests.engines.real import RealNight
from tests.nights import rig

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("sglang")]

GENERATED = {"text": "x", "output_ids": [300], "meta_info": {"completion_tokens": 1, "finish_reason": {"type": "stop"}}}


class Stranger(BaseHTTPRequestHandler):
    """Answers each generation as ``status`` and ``answer`` of its server say."""

    def do_POST(self) -> None:
        assert isinstance(self.server, House)
        body = json.dumps(GENERATED).encode()
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


class House(ThreadingHTTPServer):
    """A foreign server on a port."""

    daemon_threads = True

    def __init__(self, port: int, status: int) -> None:
        super().__init__(("127.0.0.1", port), Stranger)
        self.status = status


@contextmanager
def squatted(port: int, status: int) -> Iterator[House]:
    """Somebody else's server, which generates (200) or says that it is not ready (503)."""
    with House(port, status) as house:
        thread = Thread(target=house.serve_forever, daemon=True)
        thread.start()
        try:
            yield house
        finally:
            house.shutdown()
            thread.join()


def test_ports_that_others_take_during_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a stranger that generates nor one that does not is adopted or waited out; a third port serves, and what a
    small KV pool makes of the running limit is said in words."""
    ports = [fresh_port("127.0.0.1") for _ in range(3)]
    waiting, strangers, notes = list(ports), iter([200, 503]), list[str]()
    monkeypatch.setattr(rigs, "fresh_port", lambda _: waiting.pop(0))
    monkeypatch.setattr(trial, "BACKOFF", 1.0)
    with ExitStack() as stack:

        def hear(event: Event) -> None:
            if isinstance(event, Note):
                notes.append(event.text)
            if isinstance(event, PhaseEntered) and event.phase == "start" and (status := next(strangers, None)):
                stack.enter_context(squatted(ports[2 - len(waiting)], status))

        shared = rig(RealNight(flags=("--max-total-tokens", "96"), concurrency=4).write(tmp_path), hear)
        shared.records.trial(0).root.mkdir()
        done = run_trial(shared, Ticket(number=0, config=Config(params={"max_running_requests": 64})))
        assert not is_free("127.0.0.1", ports[0])
        assert not is_free("127.0.0.1", ports[1])
    assert waiting == []
    for note, port in zip(notes[:2], ports, strict=False):
        assert f"on port {port} listens" in note
        assert "not our server; trying again" in note
    clamps = [note for note in notes if "asked 64" in note]
    assert len(clamps) == 1
    assert "limited by" in clamps[0]
    assert "(96 tokens)" in clamps[0]
    assert isinstance(done.outcome, Measured)
    effective = done.outcome.effective
    assert effective.kv_tokens == 96
    assert effective.running_limit is not None
    assert effective.running_limit < 64
    plan = shared.records.plan(0)
    assert plan is not None
    assert plan.port == ports[2]
