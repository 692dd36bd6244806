"""What is fuzzed: for each kind of outside text a strategy of cases, and what must not raise."""

from __future__ import annotations

import contextlib
import json
import random
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st

from autotune.brief import known_names
from autotune.diagnosis import PHASES
from autotune.diagnosis.case import Facts, Phase
from autotune.diagnosis.diagnose import diagnose
from autotune.drafting import gather, make
from autotune.engines import engine
from autotune.errors import InputError
from autotune.intake.draft import Seen, Wish
from autotune.load import records as raw_records
from autotune.load.records import Meta, RawRun
from autotune.load.stream import EventReader, new_reply
from autotune.search.region import Region
from autotune.server.process import ServerIdentity
from autotune.space.model_config import model_shape
from autotune.space.parameters import parse_space
from autotune.study.load import parse_study, study_of
from autotune.study.manifest import Manifest
from autotune.study.record import Begun, read_record
from autotune.study.rules import Problem
from autotune.values import Config, LaunchPlan, TrialResult

ROOT = Path(__file__).parents[2]
STUDIES = [path.read_text() for path in sorted((ROOT / "studies").glob("*.toml"))]
SPACES = [path.read_text() for path in sorted((ROOT / "search_spaces").glob("*.toml"))]
LOGS = [path.read_text(errors="replace")[-4_000:] for path in sorted((ROOT / "tests/diagnosis/logs").glob("*.log"))]
NAMES = ("max_running_requests", "cuda_graph_max_bs", "mem_fraction_static", "chunked_prefill_size")
SCRAPS = (
    "",
    "\0",
    "\ufeff",
    "nan",
    "-1",
    "1e999",
    "9" * 400,
    "[[",
    "]]",
    "{",
    "}",
    '"',
    "'''",
    "\r",
    "\x1b[31m",
    "true",
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


class Mutation(msgspec.Struct, frozen=True):
    """Which text, and the seed of what is done to it; small, so that a failing case is easy to repeat."""

    index: int
    seed: int


mutations = st.builds(Mutation, st.integers(0, 1000), st.integers(0, 2**32))


def mutated(texts: list[str], how: Mutation) -> str:
    """One of the texts with one to six places cut, doubled, exchanged or replaced."""
    rng = random.Random(how.seed)
    text = texts[how.index % len(texts)]
    for _ in range(rng.randint(1, 6)):
        low = rng.randint(0, len(text))
        high = min(len(text), low + rng.choice((0, 1, 3, 20, 200)))
        piece = text[low:high]
        number = str(rng.choice((0, -1, 2**31, 2**63, 2**70, 0.5, -0.0, 1e308)))
        new = rng.choice((piece * 2, rng.choice(SCRAPS), number, chr(rng.randint(0, 0xD7FF)), piece[::-1], ""))
        text = text[:low] + new + text[high:]
    return text


def refusing(*errors: type[BaseException]) -> contextlib.suppress:
    """What a person can read is no finding."""
    return contextlib.suppress(*errors)


def study_text(how: Mutation) -> None:
    with refusing(Problem):
        parse_study(mutated(STUDIES, how), known_names())


TREES = [tomllib.loads(text) for text in STUDIES]
SECTIONS = sorted({key for tree in TREES for key in tree})


def study_tree(section: str, key: str, value: Any) -> None:
    tree = json.loads(json.dumps(TREES[0]))
    place = tree.get(section)
    if isinstance(place, dict) and key:
        place[key if key in place or len(key) > 6 else sorted(place)[len(key) % len(place)]] = value
    else:
        tree[section] = value
    with refusing(Problem):
        study_of(tree, known_names())


def space_text(how: Mutation) -> None:
    with refusing(InputError):
        parse_space(mutated(SPACES, how), "fuzz.toml")


def server_log(how: Mutation, phase: Phase, alive: bool, code: int | None) -> None:
    text = mutated(LOGS, how)
    found = diagnose(text, Facts(engine="sglang", phase=phase, alive=alive, exit_code=code))
    assert found.kind


INFO_KEYS = (
    "max_total_num_tokens", "max_req_input_len", "internal_states", "effective_max_running_requests_per_dp",
    "max_running_requests", "cuda_graph_max_bs", "cuda_graph_max_bs_decode", "cuda_graph_bs", "memory_usage", "version",
    "kvcache", "weight", "graph", "token_capacity", "dp_size", "tp_size", "chunked_prefill_size", "server_args",
    "last_gen_throughput", "cuda_graph_config", "decode", "bs", "max_bs",
)  # fmt: skip
info_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(INFO_KEYS), inner, max_size=6),
    max_leaves=20,
)
METRICS = [
    'sglang:prompt_tokens_total 12\nsglang:generation_tokens_total{model="x"} 3.0\nsglang:num_retracted_reqs_total 1\n',
    'vllm:prompt_tokens_total{engine="0"} 1e3\nvllm:generation_tokens_total NaN\nvllm:num_preemptions_total +Inf\n',
]


def server_info(kind: str, info: Any, how: Mutation, status: int) -> None:
    body = json.dumps(info).encode()
    text = mutated([body.decode()], how).encode(errors="replace") if how.seed % 4 == 0 else body

    def fetch(path: str) -> tuple[int, bytes]:
        return status, mutated(METRICS, how).encode(errors="replace") if "metrics" in path else text

    speaker, log = engine(kind), mutated(LOGS, how)[:2000] if how.seed % 8 == 1 else ""
    effective = speaker.effective(fetch, log, NAMES)
    msgspec.json.decode(msgspec.json.encode(effective))
    speaker.describe_clamps(Config(params={"max_running_requests": 64}), effective, log)
    speaker.counters(fetch, log)
    speaker.is_ready(status, text)


EVENTS = [
    'data: {"text":"a","output_ids":[1,2],"meta_info":{"id":"x","prompt_tokens":3,"completion_tokens":2,'
    '"cached_tokens":0,"finish_reason":{"type":"length","length":2}}}\n\ndata: [DONE]\n\n',
    'data: {"id":"c","choices":[{"index":0,"text":"ab","finish_reason":null}],"usage":null}\n\n'
    'data: {"id":"c","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}\n\n'
    "data: [DONE]\n\n",
    'data: {"error":{"message":"m","type":"t","code":500}}\r\n\r\n: ping\n\nevent: x\ndata: {}\n\n',
]  # fmt: skip


def event_stream(route: str, how: Mutation, stream: bool, status: int, cut: int) -> None:
    body = mutated(EVENTS, how).encode(errors="replace")
    reply = new_reply(route, 8, stream)
    reply.status = status
    for low in range(0, len(body), cut):
        reply.feed(body[low : low + cut], 1.0 + low)
    reason = reply.finish(2.0)
    assert "\n" not in reason
    EventReader().feed(body)


RECORDS: tuple[tuple[Any, str], ...] = (
    (TrialResult, '{"number":3,"config":{"params":{"a":1,"b":"x"}},"outcome":{"type":"measured","score":{"value":1.5,'
     '"stderr":0.1,"batches":8},"measurement":{"whole":{"x":1.0},"steady":{},"estimates":{},"requests_completed":1,'
     '"requests_failed":0,"warmup_s":1,"window_s":2,"duration_s":3,"findings":[]},"effective":{"source":"log",'
     '"values":{"a":1}},"stopped_early":false},"timings":{"total_s":4.0},"started_at":"x","finished_at":"y"}'),
    (TrialResult, '{"number":4,"config":{"params":{}},"outcome":{"type":"infeasible","diagnosis":{"class":"oom_kv",'
     '"action":"prune","evidence":["a"],"advice":"b","stage":"kv_pool"}},"timings":{},"started_at":"","finished_at":""}'),
    (Begun, '{"number":1,"config":{"params":{"a":true}},"started_at":"2026","repeat_of":null}'),
    (LaunchPlan, '{"engine":"sglang","argv":["a","b"],"host":"127.0.0.1","port":3,"env":{"A":"b"},"secret_env":["T"]}'),
    (Manifest, '{"study":"s","created_at":"x","autotune_version":"1","fingerprint":{"a.b":1,"c":null},"format":1}'),
    (ServerIdentity, '{"pid":1,"start_ticks":2,"mark":"a/1/b","port":3,"boot_id":"c"}'),
    (Region, '{"space":{"engine":"sglang","parameters":[]},"bounds":[]}'),
)  # fmt: skip
_SCRATCH = Path(tempfile.gettempdir()) / "autotune-fuzz-record"


def stored_record(how: Mutation) -> None:
    shape, text = RECORDS[how.index % len(RECORDS)]
    path = _SCRATCH.with_name(f"{_SCRATCH.name}-{id(RECORDS)}.json")
    path.write_bytes(mutated([text], how).encode("utf-8", errors="surrogatepass"))
    try:
        with refusing(InputError):
            read_record(path, shape)
    finally:
        path.unlink()


def raw_record(how: Mutation) -> None:
    path = _SCRATCH.with_name(f"{_SCRATCH.name}-{id(RECORDS)}.npz")
    empty = np.empty(0)
    run = RawRun(
        requests=np.zeros(3, raw_records.REQUESTS),
        chunk_times=empty,
        chunk_totals=np.empty(0, np.int64),
        meta=Meta(),
    )
    raw_records.save(run, path)
    data, rng = bytearray(path.read_bytes()), random.Random(how.seed)
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(bytes(data[: rng.choice((len(data), rng.randrange(len(data))))]))
    try:
        with refusing(InputError):
            raw_records.load(path)
    finally:
        path.unlink()


CONFIGS = [path.read_text() for path in sorted((ROOT / "studies/models").glob("*.json"))]


def model_config(how: Mutation, key: str, value: Any) -> None:
    """Damaged text, or sound text with one value exchanged."""
    if how.seed % 2:
        data = json.loads(CONFIGS[how.index % len(CONFIGS)])
        data[key if len(key) % 2 else sorted(data)[len(key) % len(data)]] = value
    else:
        try:
            data = json.loads(mutated(CONFIGS, how))
        except (RecursionError, ValueError):
            return
    if isinstance(data, dict):
        with refusing(InputError):
            model_shape(data, "config.json")


SCRIPTS = [
    '#!/bin/bash\nset -e\nexport A=1 B=\'x y\'\nM=${M:-/m}\nARGS=(--tp 2 "$A")\ncd "$(dirname "$0")"\n'
    'if [ -n "$B" ]; then ARGS+=(--x); fi\nexec python3 -m sglang.launch_server --model-path "$M" "${ARGS[@]}" \\\n'
    "  --port 30000 --api-key $KEY > log 2>&1 &\n",
    'f() { docker run -d -e A=b -p 1:1 image:1 bash -c "vllm serve m --x y"; }\ncase "$1" in a) f ;; *) f ;; esac\n',
    'set -- --tp 2\ng() { tmux new -d -s x -c /d "sudo -E vllm serve $1 ${@:2} > l --x"; shift; }\ng m "$@"\n'
    "tmux send-keys -t x 'eval \"$A\"' C-m\nscreen -S y -X stuff 'srun -n1 vllm serve m\\n'\n",
    "for c in 1 2; do vllm bench serve --max-concurrency $c --random-input-len 8; done\ncat <<E\n$X\nE\n",
]
ROWS = [
    '{"backend": "sglang", "random_input_len": 8, "random_output_len": 8, "random_range_ratio": 0.5, "duration": 1, '
    '"completed": 9, "total_output_tokens": 9, "request_rate": Infinity, "max_concurrency": 4}\n' * 2,
    '[{"max_num_seqs": 8, "enforce-eager": true}, {"max_num_seqs": 16, "compilation_config": {"level": 3}}]',
    '{"a": {"max_concurrency": 4, "request_rate": "inf"}, "b": {"random_input_len": 8}}',
]


def outside_file(how: Mutation, rows: bool) -> None:
    """A launch script, or results and parameters of load generators."""
    with tempfile.TemporaryDirectory() as folder, refusing(InputError):
        path = Path(folder) / "file"
        path.write_text(mutated(ROWS if rows else SCRIPTS, how), encoding="utf-8", errors="replace")
        gathered = gather([path], {"HOME": "/home/somebody"})
        make(Wish(engine="vllm", model="m", workload={"concurrency": 1}), gathered, Seen())


codes = st.none() | st.integers(-64, 255)
statuses = st.sampled_from([200, 200, 200, 0, 404, 500])
TARGETS: dict[str, tuple[Callable[..., None], tuple[st.SearchStrategy[Any], ...]]] = {
    "study file, text": (study_text, (mutations,)),
    "study file, values": (study_tree, (st.sampled_from([*SECTIONS, "x"]), st.text(max_size=20), json_values)),
    "search space": (space_text, (mutations,)),
    "server log": (server_log, (mutations, st.sampled_from(PHASES), st.booleans(), codes)),
    "server_info, SGLang": (server_info, (st.just("sglang"), info_values, mutations, statuses)),
    "server_info, vLLM": (server_info, (st.just("vllm"), info_values, mutations, statuses)),
    "server_info, command": (server_info, (st.just("command"), info_values, mutations, statuses)),
    "event stream, native": (
        event_stream, (st.just("generate"), mutations, st.booleans(), statuses, st.integers(1, 200)),
    ),
    "event stream, completions": (
        event_stream, (st.just("completions"), mutations, st.booleans(), statuses, st.integers(1, 200)),
    ),
    "stored record": (stored_record, (mutations,)),
    "raw load record": (raw_record, (mutations,)),
    "launch script": (outside_file, (mutations, st.just(False))),
    "results and sweeps": (outside_file, (mutations, st.just(True))),
    "model config": (model_config, (mutations, st.text(max_size=20), json_values)),
}  # fmt: skip
