"""Compares load generators on one server double: ``python benchmarks/load/compare.py``.

Every client sends the same closed loop (streams at once, fixed lengths, a fixed number of requests) to the double,
whose schedule is known and which logs when it sent each token. An observer reads the CPU time of the client's whole
process tree. The table goes to benchmarks/load/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray
from scipy import stats

from autotune.load.selftest import double

HERE = Path(__file__).resolve().parent
PEERS = HERE.parents[1] / ".peers"
TOKENIZER = PEERS / "tokenizer"
PROMPTS = PEERS / "prompts.jsonl"
MARK = "<!-- table -->"
FIRST_S = 0.05
INPUT, OUTPUT = 128, 64
RUN_LIMIT_S = 240
SAMPLE_S = 0.1

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Level:
    """One load: the rate asked is ``streams / gap_s`` events per second."""

    streams: int
    gap_s: float
    requests: int


LEVELS = (Level(64, 0.010, 640), Level(512, 0.040, 1536), Level(2048, 0.160, 4096))


@dataclass
class Result:
    """What a client said, and what it cost."""

    ttft: Floats
    itl_mean: Floats
    gaps: Floats
    completed: int
    events_s: float = 0.0
    cpu_share: float = 0.0
    own: Result | None = None


@dataclass(frozen=True)
class Client:
    """``command`` gets (url, level, folder); ``read`` turns what it left in the folder into figures."""

    name: str
    command: Callable[[str, Level, Path], list[str]]
    read: Callable[[Path], Result]
    env: dict[str, str] = field(default_factory=dict)


def script(python: str, name: str, *more: str) -> Callable[[str, Level, Path], list[str]]:
    def command(url: str, level: Level, folder: Path) -> list[str]:
        sizes = [str(n) for n in (level.streams, level.requests, INPUT, OUTPUT)]
        return [python, str(HERE / "peers" / name), url, *sizes, str(folder / "result.json"), *more]

    return command


def guidellm(url: str, level: Level, folder: Path) -> list[str]:
    return [
        str(PEERS / "guidellm/bin/guidellm"),
        "run",
        "--disable-console",
        *("--backend", f"kind=openai_http,target={url},model=sim/demo,request_format=/v1/completions"),
        *("--profile", f"kind=concurrent,streams={level.streams}"),
        *("--constraint", f"kind=max_requests,count={level.requests}"),
        *("--tokenizer", f"kind=huggingface_auto,model={TOKENIZER}"),
        *("--data", f"kind=json_file,path={PROMPTS}"),
        *("--output", f"kind=json,path={folder}/guidellm.json"),
    ]


def aiperf(url: str, level: Level, folder: Path) -> list[str]:
    fixed = "--endpoint-type completions --streaming --use-server-token-count --ui none --export-level records"
    return [
        str(PEERS / "aiperf/bin/aiperf"),
        "profile",
        *fixed.split(),
        *("-m", "sim/demo", "-u", url, "--tokenizer", str(TOKENIZER), "--extra-inputs", "ignore_eos:true"),
        *("--concurrency", str(level.streams), "--request-count", str(level.requests)),
        *("--isl", str(INPUT), "--osl", str(OUTPUT), "--artifact-dir", str(folder / "aiperf")),
    ]


def read_json(folder: Path) -> Result:
    data = json.loads((folder / "result.json").read_text())
    return Result(np.array(data["ttft"]), np.array(data["itl_mean"]), np.array(data["gaps"]), data["completed"])


def read_guidellm(folder: Path) -> Result:
    """guidellm keeps no single gaps, only each request's mean."""
    done = json.loads((folder / "guidellm.json").read_text())["benchmarks"][0]["requests"]["successful"]
    ttft, itl = (np.array([r[k] for r in done]) / 1e3 for k in ("time_to_first_token_ms", "inter_token_latency_ms"))
    return Result(ttft, itl, np.empty(0), len(done))


def read_aiperf(folder: Path) -> Result:
    rows = [json.loads(line)["metrics"] for line in (folder / "aiperf/profile_export.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "time_to_first_token" in row]
    ttft, itl = (np.array([r[k]["value"] for r in rows]) / 1e3 for k in ("time_to_first_token", "inter_token_latency"))
    gaps = np.concatenate([np.array(row["inter_chunk_latency"]["value"]) for row in rows]) / 1e3
    return Result(ttft, itl, gaps, len(rows))


PEER_PYTHON = str(PEERS / "bench_serving/bin/python")
OWN = {"PYTHONPATH": str(HERE.parents[1])}
OFFLINE = {"HF_HUB_OFFLINE": "1"}
CLIENTS = (
    Client("autotune, /generate", script(sys.executable, "ours.py"), read_json, OWN),
    Client("autotune, /v1/completions", script(sys.executable, "ours.py", "completions"), read_json, OWN),
    Client("sglang.bench_serving, /generate", script(PEER_PYTHON, "bench_serving.py"), read_json),
    Client("sglang.bench_serving --rust-client, /generate", script(PEER_PYTHON, "bench_serving_rust.py"), read_json),
    Client("guidellm, /v1/completions", guidellm, read_guidellm, OFFLINE),
    Client("aiperf, /v1/completions", aiperf, read_aiperf),
)


class Observer(threading.Thread):
    """Samples the CPU seconds of a process and all its children, those that have ended included."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.samples: list[tuple[float, float]] = []
        self._root = psutil.Process(pid)
        self._latest: dict[int, float] = {}
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(SAMPLE_S):
            try:
                for process in [self._root, *self._root.children(recursive=True)]:
                    self._read(process)
            except psutil.NoSuchProcess:
                return
            self.samples.append((time.monotonic(), sum(self._latest.values())))

    def _read(self, process: psutil.Process) -> None:
        try:
            used = process.cpu_times()
        except psutil.NoSuchProcess:
            return
        self._latest[process.pid] = used.user + used.system

    def stop(self) -> tuple[Floats, Floats]:
        self._over.set()
        self.join()
        times, used = np.array(self.samples).T
        return times, used


def read_log(path: Path) -> tuple[Floats, Result]:
    """The double's own record: when it sent every token, and the same figures by its own clock."""
    rows = [np.array(row.split(",")[1:], float) for row in path.read_text().splitlines()]
    rows = [row for row in rows if len(row) == OUTPUT + 1]
    ttft = np.array([row[1] - row[0] for row in rows])
    gaps = np.concatenate([np.diff(row[1:]) for row in rows])
    means = np.array([(row[-1] - row[1]) / (OUTPUT - 1) for row in rows])
    return np.sort(np.concatenate([row[1:] for row in rows])), Result(ttft, means, gaps, len(rows))


def distances(result: Result, level: Level) -> dict[str, tuple[float, float]]:
    """Mean distance in seconds of a figure from the double's schedule, and from what the double really did.

    The second compares the distributions (Wasserstein distance), so that the double's own lateness is not charged to
    the client.
    """
    found = {}
    for name, planned in (("ttft", FIRST_S), ("gaps", level.gap_s), ("itl_mean", level.gap_s)):
        seen, sent = getattr(result, name), getattr(result.own, name)
        known = len(seen) > 0
        found[name] = (
            float(np.abs(seen - planned).mean()) if known else float("nan"),
            float(stats.wasserstein_distance(seen, sent)) if known else float("nan"),
        )
    return found


def wait(process: subprocess.Popen[bytes]) -> int:
    """The exit code; a client that takes too long is killed, and its run fails like any other."""
    try:
        return process.wait(timeout=RUN_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def run(client: Client, level: Level) -> Result:
    """One client at one level, on a fresh double. Cost and rate are taken from the middle of the run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "double.csv"
        with double(FIRST_S, level.gap_s, "--sim-schedule-log", str(log)) as url:
            command = client.command(url, level, folder)
            with (folder / "client.log").open("wb") as out:
                env = {**os.environ, **client.env}
                process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder, env=env)
                observer = Observer(process.pid)
                observer.start()
                code = wait(process)
            times, used = observer.stop()
        if code:
            raise RuntimeError(f"{client.name} ended with {code}:\n{(folder / 'client.log').read_text()[-3000:]}")
        result = client.read(folder)
        sent, result.own = read_log(log)
    low, high = np.quantile(sent, [0.15, 0.85])
    cpu = np.diff(np.interp([low, high], times, used))[0]
    result.events_s = float(((sent >= low) & (sent < high)).sum() / (high - low))
    result.cpu_share = float(cpu / (high - low))
    return result


def prepare() -> None:
    """Install each peer into a virtual environment of its own under .peers/ (ignored by git)."""
    PEERS.mkdir(exist_ok=True)
    light = "aiohttp orjson msgspec numpy requests tqdm tokenizers"
    for name, packages in (("guidellm", "guidellm"), ("aiperf", "aiperf"), ("bench_serving", light)):
        if not (PEERS / name / "ready").exists():
            subprocess.run([sys.executable, "-m", "venv", str(PEERS / name)], check=True)
            subprocess.run([str(PEERS / name / "bin/pip"), "install", "-q", *packages.split()], check=True)
            (PEERS / name / "ready").touch()
    if not (PEERS / "src/sglang/benchmark").exists():
        wheels = PEERS / "wheel"
        pip = str(PEERS / "bench_serving/bin/pip")
        subprocess.run([pip, "download", "-q", "sglang", "--no-deps", "-d", str(wheels)], check=True)
        shutil.unpack_archive(next(wheels.glob("sglang*.whl")), PEERS / "src", "zip")
    python = str(PEERS / "guidellm/bin/python")
    subprocess.run([python, str(HERE / "peers/make_tokenizer.py"), str(TOKENIZER)], check=True)
    rng = random.Random(0)
    lines = (" ".join(f"w{rng.randrange(4000)}" for _ in range(INPUT)) for _ in range(5000))
    rows = [{"prompt": line, "prompt_tokens_count": INPUT, "output_tokens_count": OUTPUT} for line in lines]
    PROMPTS.write_text("".join(json.dumps(row) + "\n" for row in rows))


def versions() -> str:
    def of(name: str, package: str) -> str:
        code = f"import importlib.metadata as m; print(m.version('{package}'))"
        out = subprocess.run([str(PEERS / name / "bin/python"), "-c", code], capture_output=True, text=True, check=True)
        return f"{package} {out.stdout.strip()}"

    wheel = next((PEERS / "wheel").glob("sglang*.whl")).name.split("-")[1]
    peers = [of("guidellm", "guidellm"), of("aiperf", "aiperf"), f"sglang {wheel}"]
    return f"{', '.join(peers)}; CPython {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}"


def line(client: Client, level: Level, results: list[Result]) -> str:
    """One row: medians over the repetitions that came to their end."""
    if not results:
        return f"| {level.streams:,} | {client.name} | none of its runs ended within {RUN_LIMIT_S} s |" + " |" * 5

    def middle(values: list[float]) -> float:
        return float(np.median(values))

    per_core = middle([r.events_s / r.cpu_share for r in results])
    seen = [distances(r, level) for r in results]
    cells = [f"{level.streams:,}", client.name, f"{middle([r.events_s for r in results]):,.0f}", f"{per_core:,.0f}"]
    for name in ("ttft", "gaps", "itl_mean"):
        planned, sent = middle([s[name][0] for s in seen]), middle([s[name][1] for s in seen])
        cells.append("–" if np.isnan(planned) else f"{sent * 1e3:.2f} ({planned * 1e3:.2f})")
    cells.append(f"{min(r.completed for r in results):,} of {level.requests:,}")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--streams", type=int, action="append", help="only these stream counts")
    parser.add_argument("--only", default="", help="only clients whose name contains this; the README is left alone")
    options = parser.parse_args()
    prepare()
    chosen = [client for client in CLIENTS if options.only in client.name]
    levels = [level for level in LEVELS if not options.streams or level.streams in options.streams]
    results: dict[tuple[str, int], list[Result]] = {}
    # Interleaved, so that a busy spell of the machine does not fall on one client.
    for level in levels:
        for _ in range(options.repeats):
            for client in chosen:
                mine = results.setdefault((client.name, level.streams), [])
                try:
                    mine.append(run(client, level))
                except RuntimeError as error:
                    print(f"{client.name} at {level.streams}: {error}", file=sys.stderr, flush=True)
                else:
                    print(line(client, level, mine[-1:]), flush=True)
    titles = "streams, client, events/s, events per CPU second, TTFT error, gap error, mean gap error, completed"
    head = "| " + titles.replace(", ", " | ") + " |"
    rows = [line(client, level, results[client.name, level.streams]) for level in levels for client in chosen]
    foot = f"{time.strftime('%Y-%m-%d')}: {versions()}. Medians of {options.repeats}; errors in ms."
    table = "\n".join([head, "| --- " * 8 + "|", *rows, "", foot])
    print(table)
    if not options.only and not options.streams:
        before, _, _ = (HERE / "README.md").read_text().partition(MARK)
        (HERE / "README.md").write_text(f"{before}{MARK}\n{table}\n")


if __name__ == "__main__":
    main()
