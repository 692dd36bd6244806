"""Starts simulated servers as processes and talks to them with the standard library."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

LIMIT_S = 60.0


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class Sim:
    """One server process, its log, and requests to it."""

    def __init__(self, folder: Path, flags: tuple[str, ...], port: int | None = None) -> None:
        self.port = port or free_port()
        self.log_path = folder / f"sim-{self.port}-{time.monotonic_ns()}.log"
        argv = [sys.executable, "-m", "autotune.sim", "--port", str(self.port), "--sim-noise", "0", *flags]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def wait_for(self, text: str) -> None:
        """Until the log has the text; fails when the process ends first or after a long time."""
        deadline = time.monotonic() + LIMIT_S
        while text not in self.log:
            ended = self.process.poll() is not None
            if (ended and text not in self.log) or time.monotonic() > deadline:
                pytest.fail(f"no {text!r} in the log:\n{self.log[-3000:]}")
            time.sleep(0.02)

    def ready(self) -> Sim:
        self.wait_for("fired up and ready to roll")
        return self

    def exit_status(self) -> int:
        return self.process.wait(timeout=LIMIT_S)

    def request(
        self, method: str, path: str, body: Any = None, *, key: str = "", timeout_s: float = LIMIT_S
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        status, body = self.request("GET", path)
        assert status == 200, (status, body)
        return json.loads(body)

    def generate(self, tokens: int = 4, **extra: Any) -> tuple[int, bytes]:
        body = {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True}, **extra}
        return self.request("POST", "/generate", body)

    def load(self, requests: int = 8, tokens: int = 32) -> list[int | str]:
        """Send so many requests at once; the status of each, or the name of its exception."""
        results: list[int | str] = []

        def one() -> None:
            try:
                results.append(self.generate(tokens)[0])
            except (OSError, http.client.HTTPException) as error:
                results.append(type(error).__name__)

        threads = [threading.Thread(target=one) for _ in range(requests)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.exit_status()


Start = Callable[..., Sim]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers with the given flags; kills at the end those still alive."""
    sims: list[Sim] = []

    def begin(*flags: str, port: int | None = None) -> Sim:
        sims.append(Sim(tmp_path, flags, port))
        return sims[-1]

    yield begin
    for sim in sims:
        sim.process.kill()
        sim.process.wait()


def events(body: bytes) -> list[Any]:
    """The JSON of each event of a stream, without the final [DONE]."""
    lines = [line.removeprefix(b"data: ") for line in body.split(b"\n\n") if line]
    assert lines[-1] == b"[DONE]"
    return [json.loads(line) for line in lines[:-1]]
