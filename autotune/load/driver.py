"""Runs a load: starts worker processes, watches their heartbeats, decides when it ends, and gathers the records."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import msgspec

from autotune.errors import InputError, NightStopped
from autotune.load import records
from autotune.load.monitor import Monitor
from autotune.load.records import Meta, RawRun
from autotune.load.sharing import sharing
from autotune.load.spec import Heartbeat, LoadSpec, Progress, WorkerSpec, stored_dataset
from autotune.study.atomic import make_private_folder
from autotune.study.file import Workload

STREAMS_PER_WORKER = 512
START_S = 60.0
GATHER_S = 60.0
END_S = 2.0
POLL_S = 0.25

# numpy's libraries start a thread per core in every process, which a worker pays for and never uses.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

READY = "ready"
Message = tuple[int, Heartbeat | str | None]
"""Worker, and what it said; another text than READY is why the night cannot go on, None the end of all it says."""


class WorkerLost(NightStopped):
    """A load worker ended, or could not be started, by no fault of the server: it may go well the next time."""


def worker_count(workload: Workload, cores: int) -> int:
    """Enough processes for the streams in flight, never more than cores; ``workload.workers`` above 0 decides, but one
    without a place would send nothing, or where there is a rate know no ceiling.
    """
    if workload.workers > 0:
        return min(workload.workers, workload.concurrency or workload.workers)
    places = workload.concurrency or 1
    wanted = -(-places // STREAMS_PER_WORKER) if workload.stream else -(-places // (4 * STREAMS_PER_WORKER))
    return max(1, min(wanted, cores, places))


def check_workload(workload: Workload) -> None:
    """Raises InputError when the load would send nothing."""
    if workload.closed and workload.concurrency <= 0:
        raise InputError("study: workload.concurrency is 0; write how many requests to keep in flight")
    if workload.kind != "trace" and not workload.closed and workload.request_rate <= 0:
        raise InputError("study: workload.request_rate is 0; write how many requests to send per second")


def run_load(
    spec: LoadSpec,
    on_progress: Callable[[Progress], None] = lambda _: None,
    should_stop: Callable[[], str | None] = lambda: None,
) -> RawRun:
    """Drive the load to its end and save its records as ``raw-<level>.npz`` in ``spec.folder``.

    ``should_stop`` is asked every quarter of a second; its reason ends the load at once and becomes ``meta.ended``.
    Raises InputError when the load would send nothing, WorkerLost when a worker process cannot run, NightStopped when
    its records cannot be written.
    """
    return LoadRun(spec).run(on_progress, should_stop)


class LoadRun:
    """One load, from the first worker to the saved records."""

    def __init__(self, spec: LoadSpec) -> None:
        check_workload(spec.workload)
        self.spec = spec
        self.dataset = stored_dataset(spec)
        if spec.workload.from_file and self.dataset is None:
            raise InputError(f"study: workload.dataset is missing for kind = {spec.workload.kind!r}; give a file")
        self.workers = worker_count(spec.workload, len(os.sched_getaffinity(0)))
        self.monitor = Monitor(spec, self.workers)
        self._folder = Path(spec.folder)
        self._messages: queue.Queue[Message] = queue.Queue()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ended: set[int] = set()
        self._begun = False

    def run(self, on_progress: Callable[[Progress], None], should_stop: Callable[[], str | None]) -> RawRun:
        make_private_folder(self._folder)
        try:
            if ended := self._start(should_stop) or self._ready(should_stop):
                return self._saved([], ended)
            ended = self._watch(self._go(), on_progress, should_stop)
            self._stop()
            return self._gather(ended)
        finally:
            self._kill()

    def _start(self, should_stop: Callable[[], str | None]) -> str:
        """Start the workers; a reason to end before that is done, else an empty text."""
        for worker in range(self.workers):
            if ended := should_stop():
                return ended
            process = _worker_process()
            self._processes.append(process)
            spec = WorkerSpec(load=self.spec, worker=worker, workers=self.workers, raw_path=str(self._part(worker)))
            self._tell(worker, msgspec.json.encode(spec))
            assert process.stdout is not None
            threading.Thread(target=self._read, args=(worker, process.stdout), daemon=True).start()
        return ""

    def _ready(self, should_stop: Callable[[], str | None]) -> str:
        """Wait until all workers are ready; a reason to end before that, else an empty text."""
        waiting = set(range(self.workers))
        deadline = time.monotonic() + START_S
        while waiting:
            if ended := should_stop():
                return ended
            try:
                worker, message = self._messages.get(timeout=POLL_S)
            except queue.Empty:
                if time.monotonic() > deadline:
                    raise self._silent() from None
                continue
            if message != READY:
                self._take(worker, message)
                raise self._broken(worker, "did not start")
            waiting.discard(worker)
        return ""

    def _go(self) -> float:
        """Give all workers one start time of the machine-wide monotonic clock."""
        started = time.monotonic()
        self._begun = True
        for worker in range(self.workers):
            self._tell(worker, f"go {started!r}".encode())
        return started

    def _watch(
        self, started: float, on_progress: Callable[[Progress], None], should_stop: Callable[[], str | None]
    ) -> str:
        said = 0.0
        while True:
            self._drain()
            now = time.monotonic() - started
            if now - said >= POLL_S:
                said = now
                on_progress(self.monitor.progress(now))
            ended = should_stop() or self.monitor.ended(now)
            if ended:
                return ended

    def _drain(self) -> None:
        """Take what the workers said within the next poll interval."""
        deadline = time.monotonic() + POLL_S
        while (left := deadline - time.monotonic()) > 0:
            try:
                worker, message = self._messages.get(timeout=left)
            except queue.Empty:
                return
            self._take(worker, message)

    def _take(self, worker: int, message: Heartbeat | str | None) -> None:
        if isinstance(message, Heartbeat):
            self.monitor.take(worker, message)
        elif message is not None:
            raise NightStopped(message)
        else:
            self._ended.add(worker)
            if not self.monitor.finished(worker):
                raise self._broken(worker, "died")

    def _stop(self) -> None:
        for worker in range(self.workers):
            with contextlib.suppress(WorkerLost):
                self._tell(worker, b"stop")

    def _gather(self, ended: str) -> RawRun:
        deadline = time.monotonic() + GATHER_S
        while len(self._ended) < self.workers:
            self._take(*self._next(deadline - time.monotonic()))
        return self._saved([self._load_part(worker) for worker in range(self.workers)], ended)

    def _saved(self, parts: Sequence[RawRun], ended: str) -> RawRun:
        workload = self.spec.workload
        meta = Meta(
            level=self.spec.level,
            stream=workload.stream,
            concurrency=workload.concurrency,
            ended=ended,
            duration_s=self.monitor.now,
            client=self.monitor.health(),
        )
        raw = self._with_sharing(records.merge(parts, meta))
        records.save(raw, raw_path(self._folder, self.spec.level))
        return raw

    def _with_sharing(self, raw: RawRun) -> RawRun:
        asked = sharing(self.spec.workload, self.spec.seed[0], self.dataset, raw.requests["index"].tolist())
        return msgspec.structs.replace(raw, meta=msgspec.structs.replace(raw.meta, sharing=asked))

    def _load_part(self, worker: int) -> RawRun:
        if not self._part(worker).exists():
            raise self._broken(worker, "left no records")
        return records.load(self._part(worker))

    def _kill(self) -> None:
        for process in self._processes:
            with contextlib.suppress(OSError):
                if process.stdin is not None:
                    process.stdin.close()
        # One that has not begun has nothing to lose, and may be busy with prompts.
        deadline = time.monotonic() + (END_S if self._begun else 0.0)
        for process in self._processes:
            try:
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
        for process in self._processes:
            process.wait()
        for worker in range(self.workers):
            self._part(worker).unlink(missing_ok=True)

    def _next(self, timeout_s: float) -> Message:
        try:
            return self._messages.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            raise self._silent() from None

    def _silent(self) -> WorkerLost:
        return WorkerLost(
            f"the load generator's workers do not answer: is this machine out of memory or overloaded, or are "
            f"{self.workers} too many? Set workload.workers"
        )

    def _read(self, worker: int, pipe: IO[bytes]) -> None:
        with pipe:
            for line in pipe:
                self._messages.put((worker, msgspec.json.decode(line, type=Heartbeat | str)))
        self._messages.put((worker, None))

    def _tell(self, worker: int, line: bytes) -> None:
        pipe = self._processes[worker].stdin
        assert pipe is not None
        try:
            pipe.write(line + b"\n")
            pipe.flush()
        except OSError:
            raise self._broken(worker, "is gone") from None

    def _part(self, worker: int) -> Path:
        return self._folder / f"raw-{self.spec.level}-worker{worker}.part.npz"

    def _broken(self, worker: int, what: str) -> WorkerLost:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._processes[worker].wait(timeout=1.0)
        code = self._processes[worker].poll()
        why = "killed: see the kernel log for the OOM killer" if code == -9 else "see its message on stderr"
        return WorkerLost(f"load worker {worker} {what} (exit code {code}; {why}); try workload.workers = 1")


def _worker_process() -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "autotune.load.worker"]
    try:
        return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **ONE_THREAD})
    except OSError as error:
        raise WorkerLost(
            f"load: no worker could be started ({error.strerror}); raise ulimit -u or ulimit -n, or free memory"
        ) from error


def raw_path(folder: Path, level: str) -> Path:
    return folder / f"raw-{level}.npz"
