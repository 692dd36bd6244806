"""``autotune bench``: one load on a server that is already running, measured as a trial measures."""

from __future__ import annotations

import math
import re
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path

import httpx
import msgspec

from autotune.engines import engine, kinds
from autotune.engines.base import Fetch
from autotune.errors import InputError
from autotune.load.dataset.read import read_dataset
from autotune.load.dataset.stored import store
from autotune.load.driver import WorkerLost, run_load
from autotune.load.gates import GateLimits, Surroundings
from autotune.load.http import parse_target
from autotune.load.records import RawRun
from autotune.load.reduce import reduce
from autotune.load.row import RowValue, bench_serving_row
from autotune.load.spec import LoadSpec, Progress
from autotune.rig import FETCH_S, fetcher
from autotune.server.cancel import Waiting
from autotune.study.file import EngineSpec, Objective, Study, Workload
from autotune.study.rules import RULES, Known, Problem
from autotune.values import Measurement, Value
from autotune.verdict.objective import METRICS

CONCURRENCY = 64
"""Requests in flight where neither a number nor a rate is asked for."""
STALL_S = 60.0
"""A stream without a token for so long is given up; without streaming a request's own time limit decides."""
GATES = GateLimits()
"""What a load must keep to be a measurement; tests on a busy machine put laxer limits here."""


class BenchAsk(Value, frozen=True, kw_only=True):
    """What is to be measured. ``requests`` 0: until the interval of ``metric`` is narrow enough or the time is over.

    ``api_key`` is never part of a result. ``seed`` None: fresh prompts, which no earlier bench has sent.
    """

    url: str
    workload: Workload
    engine: str = "sglang"
    model: str = ""
    api_key: str = ""
    metric: str = Objective().metric
    requests: int = 0
    tag: str = ""
    seed: int | None = None


class Benched(Value, frozen=True, kw_only=True):
    """``row`` has the field names of sglang.bench_serving; ``ended`` is why the load ended."""

    row: dict[str, RowValue]
    measurement: Measurement
    ended: str


def bench(
    ask: BenchAsk,
    on_progress: Callable[[Progress], None] = lambda _: None,
    should_stop: Callable[[], str | None] = lambda: None,
) -> Benched:
    """Measure once. Raises InputError for a workload that makes no sense or a server that does not answer."""
    check(ask)
    parse_target(ask.url)
    dataset = read_dataset(ask.workload, Path("bench"))
    watch = _Watch(on_progress, should_stop, STALL_S if ask.workload.stream else math.inf)
    wish = _Wish(should_stop)
    with _control(ask) as client, tempfile.TemporaryDirectory(prefix="autotune-bench-") as folder:
        fetch = fetcher(client, Waiting(cancel=wish))
        spec = _spec(ask, _model(ask, fetch, wish), Path(folder))
        if dataset is not None:
            store(dataset, Path(folder) / "dataset")
            spec = msgspec.structs.replace(spec, dataset=str(Path(folder) / "dataset"))
        counters = engine(ask.engine).counters
        before = counters(fetch)
        raw = _load(spec, watch)
        around = Surroundings(before=before, after=counters(fetch))
    measurement = _told(reduce(raw, ask.workload, Objective(metric=ask.metric), around, GATES))
    return Benched(
        row=bench_serving_row(measurement, raw, ask.workload, ask.tag), measurement=measurement, ended=raw.meta.ended
    )


def check(ask: BenchAsk) -> None:
    """The rules of a study file, told in the words of the command line. Raises InputError."""
    spec = EngineSpec(kind=ask.engine, command=["server"])
    study = Study(name="bench", engine=spec, workload=ask.workload, objective=Objective(metric=ask.metric))
    try:
        for rule in RULES:
            rule(study, Known(metrics=tuple(METRICS), engines=kinds()))
    except Problem as problem:
        text = str(problem).removeprefix(f"{problem.key}: ")
        raise InputError(f"bench: {_option(problem.key)}: {text}") from None


def _load(spec: LoadSpec, watch: _Watch) -> RawRun:
    try:
        return run_load(spec, watch.hear, watch.why_stop)
    except WorkerLost as error:
        raise WorkerLost(_in_options(str(error))) from error


def _told(measurement: Measurement) -> Measurement:
    """The same with findings that name options."""
    told = (msgspec.structs.replace(one, message=_in_options(one.message)) for one in measurement.findings)
    return msgspec.structs.replace(measurement, findings=tuple(told))


def _in_options(text: str) -> str:
    """A text with the options of the command line where it names keys of a study's workload."""
    return re.sub(r"\b(workload\.\w+)( = )?", lambda key: f"{_option(key[1])}{' ' if key[2] else ''}", text)


def _option(key: str) -> str:
    """The option that stands for a key of a study file."""
    return "--engine" if key == "engine.kind" else f"--{key.rpartition('.')[2].replace('_', '-')}"


class _Wish:
    """The caller's reason to stop, as a wait hears it."""

    def __init__(self, should_stop: Callable[[], str | None]) -> None:
        self._should_stop = should_stop

    def reason(self) -> str | None:
        return self._should_stop()

    def urgent(self) -> bool:
        return False


class _Watch:
    """Ends a load that the server has stopped answering."""

    def __init__(
        self, on_progress: Callable[[Progress], None], should_stop: Callable[[], str | None], stall_s: float
    ) -> None:
        self._on_progress = on_progress
        self._stall_s = stall_s
        self._should_stop = should_stop
        self._silent_s = 0.0

    def hear(self, progress: Progress) -> None:
        self._silent_s = progress.silent_s if progress.in_flight else 0.0
        self._on_progress(progress)

    def why_stop(self) -> str | None:
        stalled = f"no token came for {self._silent_s:.0f} s" if self._silent_s > self._stall_s else None
        return self._should_stop() or stalled


def _control(ask: BenchAsk) -> httpx.Client:
    headers = {"authorization": f"Bearer {ask.api_key}"} if ask.api_key else {}
    try:
        return httpx.Client(base_url=ask.url.rstrip("/"), headers=headers, timeout=FETCH_S, trust_env=False)
    except httpx.InvalidURL as error:
        raise InputError(f"--url {ask.url!r}: {error}; write it as http://HOST:PORT") from None


def _spec(ask: BenchAsk, model: str, folder: Path) -> LoadSpec:
    return LoadSpec(
        base_url=ask.url.rstrip("/"),
        workload=ask.workload,
        seed=(secrets.randbits(31) if ask.seed is None else ask.seed,),
        folder=str(folder),
        api_key=ask.api_key,
        model=model,
        metric=ask.metric,
        requests=ask.requests,
    )


def _model(ask: BenchAsk, fetch: Fetch, wish: _Wish) -> str:
    """The model asked for, else the first that the server names. Raises InputError where nothing answers."""
    status, body = fetch("/v1/models")
    if not status and not wish.reason():
        why = body.decode(errors="replace")
        raise InputError(f"--url {ask.url}: no server answers ({why}); start it, or correct the address")
    if ask.model:
        return ask.model
    try:
        return msgspec.json.decode(body, type=_Models).data[0].id
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, IndexError):
        return "default"


class _Named(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Named]
