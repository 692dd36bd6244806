"""SGLang, 0.3.5 to 0.5.23, and whatever speaks its routes.

Fields of /server_info and their meaning per version: read in the published wheels.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from autotune.engines import metrics, sglang_log
from autotune.engines.answers import generated, get_json, get_text, json_value, real, scalar, whole
from autotune.engines.argv import with_flags
from autotune.engines.base import Counters, Fetch, Request, Where
from autotune.engines.plans import base_command, changed, finish, model_name, said
from autotune.study.file import EngineSpec, ModelSpec, Study
from autotune.values import Config, Effective, LaunchPlan, ParamValue

ALIASES = (
    frozenset({"--cuda-graph-max-bs", "--cuda-graph-max-bs-decode"}),
    frozenset({"--cuda-graph-bs", "--cuda-graph-bs-decode"}),
    frozenset({"--tp", "--tp-size", "--tensor-parallel-size"}),
    frozenset({"--dp", "--dp-size", "--data-parallel-size"}),
    frozenset({"--ep", "--ep-size", "--expert-parallel-size"}),
    frozenset({"--pp", "--pp-size", "--pipeline-parallel-size"}),
    frozenset({"--model", "--model-path"}),
)
RUNNING = "max_running_requests"
_PROBE_TOKENS = 4


class SGLang:
    """The engine ``sglang``."""

    kind = "sglang"
    live_parameter = RUNNING

    def for_study(self, study: Study) -> SGLang:
        """See ``Engine.for_study``: itself."""
        return self

    def launch_plan(
        self, spec: EngineSpec, model: ModelSpec, flags: Sequence[tuple[str, ParamValue]], where: Where
    ) -> LaunchPlan:
        """See ``Engine.launch_plan``."""
        argv = with_flags(base_command(spec, model), flags, ALIASES)
        argv = with_flags(argv, [("--host", where.bind), ("--port", where.port)])
        return finish(spec, argv, where, model_name(argv, model, "--model-path", "--model"))

    def probe(self, plan: LaunchPlan, token_ids: Sequence[int]) -> Request:
        """See ``Engine.probe``. Token ids need no tokenizer, and are no text that a cache may know."""
        sampling = {"max_new_tokens": _PROBE_TOKENS, "temperature": 0.0, "ignore_eos": True}
        body = {"input_ids": list(token_ids), "sampling_params": sampling, "stream": False}
        return Request(method="POST", path="/generate", body=json.dumps(body))

    def is_ready(self, status: int, body: bytes) -> bool:
        """See ``Engine.is_ready``."""
        return generated(status, body)

    def effective(self, fetch: Fetch, log_text: str, names: Sequence[str]) -> Effective:
        """See ``Engine.effective``: /server_info, else /get_server_info, else the log."""
        info = server_info(fetch)
        return read_back(info, log_text, names)

    def describe_clamps(self, config: Config, effective: Effective, log_text: str = "") -> tuple[str, ...]:
        """See ``Engine.describe_clamps``."""
        return tuple(
            f"{name}: asked {said(asked)}, runs {said(runs)}: {_reason(name, asked, runs, effective, log_text)}"
            for name, asked, runs in changed(config, effective.values)
        )

    def live_limit(self, limit: int, fetch: Fetch) -> Request | None:
        """See ``Engine.live_limit``. Each rank gets its share; the route takes 1 to what the server started with."""
        states = _states(server_info(fetch))
        shares = [_share(state) for state in states]
        per_rank = limit // (len(states) * _pipeline(states)) if states else 0
        if per_rank < 1 or any(share is None or per_rank > share for share in shares):
            return None
        body = {"server_args": {"pp_max_micro_batch_size": per_rank}}
        return Request(method="POST", path="/set_internal_state", body=json.dumps(body), admin=True)

    def live_limit_accepted(self, status: int, body: bytes) -> bool:
        """See ``Engine.live_limit_accepted``: a boolean, or ``updated``, per rank; a refusal is 200 too."""
        answer = json_value(body)
        items = answer if isinstance(answer, list) else [answer]
        taken = [item.get("updated") if isinstance(item, dict) else item for item in items]
        return status == 200 and bool(taken) and all(item is True for item in taken)

    def live_limit_in_force(self, fetch: Fetch) -> int | None:
        """See ``Engine.live_limit_in_force``."""
        states = _states(server_info(fetch))
        live = [_at_most(whole(state.get("pp_max_micro_batch_size")), _share(state)) for state in states]
        known = [limit for limit in live if limit is not None]
        return sum(known) * _pipeline(states) if known and len(known) == len(live) else None

    def running_logged(self, log_text: str) -> int | None:
        """See ``Engine.running_logged``: per rank, from the lines about decode batches."""
        return sglang_log.running(log_text)

    def counters(self, fetch: Fetch, log_text: str = "") -> Counters:
        """See ``Engine.counters``. /metrics exists only under --enable-metrics."""
        samples = tuple(s for s in metrics.parse(get_text(fetch, "/metrics")) if s.labels.get("tp_rank", "0") == "0")
        prompt = metrics.total(samples, "sglang:prompt_tokens_total")
        decoded = metrics.total(samples, "sglang:generation_tokens_total")
        if decoded is None and metrics.total(samples, "sglang:num_running_reqs") is None:
            return log_counters(log_text)
        return Counters(
            source="metrics",
            prompt_tokens=prompt or 0,
            generated_tokens=decoded or 0,
            cached_tokens=metrics.total(samples, "sglang:cached_tokens_total") or 0,
            retractions=_retractions(samples, log_text),
            running=metrics.total(samples, "sglang:num_running_reqs"),
            queued=metrics.total(samples, "sglang:num_queue_reqs"),
        )


def server_info(fetch: Fetch) -> dict[str, Any]:
    """The server's description of itself; empty when it gives none. Old versions have only the second path."""
    return get_json(fetch, "/server_info", "/get_server_info")


def read_back(info: dict[str, Any], log_text: str, names: Sequence[str]) -> Effective:
    """The values in force from /server_info, and from the log what it leaves out."""
    states = _states(info)
    log = sglang_log.read(log_text)
    running = _running(states) or log.running_limit
    graph = _graph(info, states, log_text)
    kv_tokens = _kv_tokens(info, states) or log.kv_tokens
    found = bool(info) or log.kv_tokens is not None
    effective = Effective(
        source="server_info" if info else "log" if found else "none",
        version=str(info.get("version") or ""),
        kv_tokens=kv_tokens,
        running_limit=running,
        graph_max_batch=graph,
        gpu_memory_gb=_memory(states, log.available_gb),
    )
    values = {name: _value(name, info, states, effective, log_text) for name in names if found}
    return replace(effective, values={name: value for name, value in values.items() if value is not None})


def _value(
    name: str, info: dict[str, Any], states: list[dict[str, Any]], effective: Effective, log_text: str
) -> ParamValue | None:
    """One parameter in force. The top level of /server_info repeats what was asked, so a rank's state comes first."""
    if name == RUNNING:
        return effective.running_limit
    if is_graph_ceiling(name):
        return effective.graph_max_batch
    if name == "max_total_tokens":
        return effective.kv_tokens // max(1, len(states)) if effective.kv_tokens is not None else None
    for source in (*states[:1], info):
        if (value := scalar(source.get(name))) is not None:
            return value
    return None if info else sglang_log.echo(log_text, name)


def is_graph_ceiling(name: str) -> bool:
    """Whether a parameter is the largest decode batch that runs as a CUDA graph, by any version's name."""
    return "graph_max" in name and "prefill" not in name


def _states(info: dict[str, Any]) -> list[dict[str, Any]]:
    """One object per data-parallel rank (0.4.6 has one merged object)."""
    states = info.get("internal_states")
    if isinstance(states, dict):
        return [states]
    return [state for state in states if isinstance(state, dict)] if isinstance(states, list) else []


def _running(states: list[dict[str, Any]]) -> int | None:
    shares = [whole(state.get("effective_max_running_requests_per_dp")) for state in states]
    known = [share for share in shares if share is not None]
    return sum(known) if known and len(known) == len(states) else None


def _share(state: dict[str, Any]) -> int | None:
    share = whole(state.get("effective_max_running_requests_per_dp"))
    return share // _pipeline([state]) if share is not None else None


def _pipeline(states: list[dict[str, Any]]) -> int:
    return max(1, whole(states[0].get("pp_size")) or 1) if states else 1


def _at_most(value: int | None, limit: int | None) -> int | None:
    known = [item for item in (value, limit) if item is not None]
    return min(known) if known else None


def _kv_tokens(info: dict[str, Any], states: list[dict[str, Any]]) -> int | None:
    usages = [state.get("memory_usage") for state in states]
    capacities = [whole(usage.get("token_capacity")) if isinstance(usage, dict) else None for usage in usages]
    known = [capacity for capacity in capacities if capacity]
    if known and len(known) == len(states):
        return sum(known)
    per_rank = whole(info.get("max_total_num_tokens"))
    return per_rank * max(1, len(states)) if per_rank else None


def _graph(info: dict[str, Any], states: list[dict[str, Any]], log_text: str) -> int | None:
    """The largest captured decode batch; 0 where decode graphs are off. What was captured beats what was planned."""
    source = {**info, **(states[0] if states else {})}
    config = source.get("cuda_graph_config")
    decode = config.get("decode") if isinstance(config, dict) else None
    decode = decode if isinstance(decode, dict) else {}
    if source.get("disable_cuda_graph") is True or decode.get("backend") == "disabled":
        return 0
    for sizes in (source.get("decode_cuda_graph_bs"), [sglang_log.captured(log_text)], decode.get("bs")):
        if largest := _largest(sizes):
            return largest
    asked = (decode.get("max_bs"), source.get("cuda_graph_max_bs_decode"), source.get("cuda_graph_max_bs"))
    return next((size for size in map(whole, asked) if size), None) or _largest(source.get("cuda_graph_bs"))


def _largest(sizes: object) -> int | None:
    known = [whole(size) or 0 for size in sizes] if isinstance(sizes, list) else []
    return max(known, default=0) or None


def _memory(states: list[dict[str, Any]], available_gb: float | None) -> dict[str, float]:
    """Where the memory of one GPU went, in GB: weight, kvcache, graph, and what is left."""
    usage = states[0].get("memory_usage") if states else None
    memory: dict[str, float] = {}
    for name, value in (usage if isinstance(usage, dict) else {}).items():
        parts = list(value.values()) if isinstance(value, dict) else [value]
        sizes = [size for size in map(real, parts) if size is not None]
        if sizes and "capacity" not in str(name):
            memory[str(name)] = sum(sizes)
    return memory if available_gb is None else {**memory, "available": available_gb}


def _reason(name: str, asked: ParamValue, runs: ParamValue, effective: Effective, log_text: str) -> str:
    if name == RUNNING:
        return _running_reason(runs, effective, log_text)
    if isinstance(runs, bool | str) or isinstance(asked, bool | str):
        return "changed by the server for this model"
    if is_graph_ceiling(name) and runs == 0:
        return "decode graphs are off"
    if is_graph_ceiling(name) and runs == effective.running_limit:
        return "limited by the running limit"
    if is_graph_ceiling(name) and runs < asked:
        return "the largest size that was captured"
    if name == "max_total_tokens" and runs < asked:
        return "limited by KV capacity"
    if name in ("chunked_prefill_size", "schedule_conservativeness") and runs < asked:
        return "scaled down for data-parallel attention"
    return "changed by the server"


def _running_reason(runs: ParamValue, effective: Effective, log_text: str) -> str:
    """0.5.15 and later cut at half the KV pool per rank and say so; 0.5.12 cuts silently inside [2048, 4096]."""
    told = sglang_log.running_limit_reason(log_text)
    half_pool = (effective.kv_tokens or 0) // 2
    if told or (half_pool and isinstance(runs, int) and abs(runs - half_pool) <= 8):
        return f"limited by {told or 'KV capacity'} ({said(effective.kv_tokens or 0)} tokens)"
    return "the server's own limit"


def _retractions(samples: tuple[metrics.Sample, ...], log_text: str) -> int | None:
    """The counter of 0.5.x (its gauge num_retracted_reqs only tells of the last step); before it, the log."""
    counted = metrics.total(samples, "sglang:num_retracted_requests_total")
    return counted if counted is not None else sglang_log.retractions(log_text)


def log_counters(log_text: str) -> Counters:
    """What the log's prefill and retraction lines add up to."""
    tokens = sglang_log.tokens(log_text)
    if tokens is None:
        return Counters(source="none")
    computed, cached = tokens
    return Counters(
        source="log",
        prompt_tokens=computed + cached,
        cached_tokens=cached,
        retractions=sglang_log.retractions(log_text),
    )
