"""A load worker: ``python -m autotune.load.worker``.

Reads a WorkerSpec (one line of JSON) from stdin, answers ``ready``, begins at ``go TIME`` and stops at ``stop`` or at
the end of stdin; heartbeats go to stdout as lines of JSON, the raw records to ``raw_path``. A line of text other than
``ready`` is why a night cannot go on. It dies with its parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import resource
import signal
import sys
import time
from pathlib import Path

import msgspec
import uvloop

from autotune.errors import InputError, NightStopped
from autotune.load import records
from autotune.load.client import Client
from autotune.load.spec import Heartbeat, WorkerSpec

TICK_S = 0.05
TICKS_PER_BEAT = 5
PREPARE_S = 20.0
STDIN, STDOUT = 0, 1
PR_SET_PDEATHSIG = 1


class Commands:
    """Lines from stdin, as they come."""

    def __init__(self) -> None:
        self._buffer = b""

    def read_line(self) -> str:
        """Block for one line; EOFError when the parent is gone."""
        while b"\n" not in self._buffer:
            data = os.read(STDIN, 65536)
            if not data:
                raise EOFError
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()


class Pulse:
    """Ticks: samples the token count, measures how late the loop is, and writes a heartbeat every fifth time."""

    def __init__(self, client: Client, ended: asyncio.Event) -> None:
        self._client = client
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._due = time.monotonic() + TICK_S
        self._cpu = _cpu_s()
        self._lag = 0.0
        self._count = 0
        self._ticks: list[tuple[float, int]] = [(0.0, 0)]
        self._loop.call_later(TICK_S, self.tick)

    def tick(self) -> None:
        if self._ended.is_set():
            return
        now = time.monotonic()
        self._lag = max(self._lag, now - self._due)
        self._ticks.append((now - self._client.recorder.started, self._client.tokens))
        self._client.expire(now)
        self._client.supply.refill()
        self._count += 1
        if self._count % TICKS_PER_BEAT == 0:
            self.beat(now)
        if self._client.finished:
            self._ended.set()
            return
        self._due = time.monotonic() + TICK_S
        self._loop.call_later(TICK_S, self.tick)

    def beat(self, now: float, finished: bool = False) -> None:
        client, recorder = self._client, self._client.recorder
        started = recorder.started
        oldest = next(iter(client.busy)).sent if client.busy else now
        beat = Heartbeat(
            now=now - started,
            ticks=self._ticks,
            done=recorder.fresh,
            events=client.events,
            in_flight=len(client.busy),
            completed=recorder.completed,
            failed=recorder.failed,
            oldest_send=oldest - started,
            last_token=client.last_token - started if client.last_token else 0.0,
            lag_max_s=self._lag,
            late_max_s=client.late_max,
            cpu_s=_cpu_s() - self._cpu,
            finished=finished,
            last_error=recorder.last_error,
        )
        self._ticks, recorder.fresh, self._lag = [], [], 0.0
        write_line(msgspec.json.encode(beat))


def write_line(data: bytes) -> None:
    view = memoryview(data + b"\n")
    while view:
        view = view[os.write(STDOUT, view) :]


async def run(spec: WorkerSpec, commands: Commands) -> None:
    """Run this worker's load to its end and write the records."""
    client = Client(spec)
    client.supply.prepare(PREPARE_S)
    gc.collect()
    gc.freeze()
    gc.disable()  # a load makes no cycles to speak of, and a full collection stops the loop for tens of ms
    write_line(b'"ready"')
    started = float(commands.read_line().removeprefix("go "))
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    # The one command left is "stop", and an end of the stream means the same.
    loop.add_reader(STDIN, ended.set)
    client.begin(started)
    pulse = Pulse(client, ended)
    await ended.wait()
    loop.remove_reader(STDIN)
    raw = client.stop()
    records.save(raw, Path(spec.raw_path), compress=False)
    pulse.beat(time.monotonic(), finished=True)


def die_with_parent() -> None:
    """Linux: SIGKILL this process when its parent dies (prctl(2)); elsewhere the end of stdin must do."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the driver says when to stop
    die_with_parent()
    commands = Commands()
    try:
        spec = msgspec.json.decode(commands.read_line(), type=WorkerSpec)
        uvloop.run(run(spec, commands))
    except (EOFError, BrokenPipeError):
        os._exit(1)
    except NightStopped as error:
        with contextlib.suppress(OSError):
            write_line(msgspec.json.encode(str(error)))
        sys.exit(error.exit_code)
    except (OSError, InputError) as error:
        sys.exit(f"load worker: {error}")


if __name__ == "__main__":
    main()
