"""vLLM, 0.15 to 0.33.

vLLM refuses what it cannot run more often than it clamps; /server_info answers only under
VLLM_SERVER_DEV_MODE=1, so the KV size comes from /metrics and the rest from the log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from autotune.engines import metrics
from autotune.engines.answers import generated, get_json, get_text, scalar, whole
from autotune.engines.argv import flag_name, with_flags
from autotune.engines.base import Counters, Fetch, Request, Where
from autotune.engines.plans import FixedLimit, base_command, changed, finish, model_name, said
from autotune.study.file import EngineSpec, ModelSpec
from autotune.values import Config, Effective, LaunchPlan, ParamValue

ALIASES = (
    frozenset({"-tp", "--tensor-parallel-size"}),
    frozenset({"-pp", "--pipeline-parallel-size"}),
    frozenset({"-dp", "--data-parallel-size"}),
    frozenset({"-ep", "--enable-expert-parallel"}),
)
RUNNING = "max_num_seqs"
GRAPH = "max_cudagraph_capture_size"
API_KEY = "VLLM_API_KEY"
PROBE_TOKENS = 4
_SECTIONS = ("scheduler_config", "cache_config", "compilation_config", "parallel_config", "model_config")

_KV_SIZE = re.compile(r"(?:EngineCore(_DP\d+)?[^\n]*?)?[GC]PU KV cache size: ([\d,]+) tokens")
# Of one worker: a GPU of several has the same.
_MEMORY = {
    "weight": re.compile(r"Model loading took ([\d.]+) Gi?B"),
    "kvcache": re.compile(r"Available KV cache memory: ([\d.]+) Gi?B"),
}
_VERSION = re.compile(r"LLM engine \(v([^)\s]+)\)")
_BATCHED = re.compile(r"max_num_batched_tokens=(\d+)")
_CAPTURE = re.compile(r"max_cudagraph_capture_size['\"]?[:=] ?(\d+)")
_EAGER = re.compile(r"enforce_eager['\"]?[:=] ?True")


class VLLM(FixedLimit):
    """The engine ``vllm``."""

    kind = "vllm"

    def launch_plan(
        self, spec: EngineSpec, model: ModelSpec, flags: Sequence[tuple[str, ParamValue]], where: Where
    ) -> LaunchPlan:
        """See ``Engine.launch_plan``. Every switch of vLLM has a ``--no-`` form."""
        argv = with_flags(base_command(spec, model), flags, ALIASES, negate=_negated)
        argv = with_flags(argv, [("--host", where.bind), ("--port", where.port)])
        secrets = [API_KEY] if spec.api_key_env == API_KEY else []
        return finish(spec, argv, where, model_name(argv, model, "--model"), secrets)

    def probe(self, plan: LaunchPlan, token_ids: Sequence[int]) -> Request:
        """See ``Engine.probe``."""
        return completion(plan.model_name, token_ids, ignore_eos=True)

    def is_ready(self, status: int, body: bytes) -> bool:
        """See ``Engine.is_ready``."""
        return generated(status, body)

    def effective(self, fetch: Fetch, log_text: str, names: Sequence[str]) -> Effective:
        """See ``Engine.effective``: /server_info where it answers, /metrics for the KV size, else the log."""
        config = get_json(fetch, "/server_info?config_format=json").get("vllm_config")
        config = config if isinstance(config, dict) else {}
        samples = metrics.parse(get_text(fetch, "/metrics"))
        kv_tokens = _metric_kv_tokens(samples) or _config_kv_tokens(config) or log_kv_tokens(log_text)
        version = str(get_json(fetch, "/version").get("version") or "")
        values = {name: _value(name, config, log_text) for name in names}
        return Effective(
            source=_source(config, samples, log_text),
            version=version or next(iter(_VERSION.findall(log_text)), ""),
            kv_tokens=kv_tokens,
            running_limit=_running(config, log_text),
            graph_max_batch=_graph(config, log_text),
            values={name: value for name, value in values.items() if value is not None},
            gpu_memory_gb=_memory(log_text),
        )

    def describe_clamps(self, config: Config, effective: Effective, log_text: str = "") -> tuple[str, ...]:
        """See ``Engine.describe_clamps``."""
        return tuple(
            f"{name}: asked {said(asked)}, runs {said(runs)}: {_reason(name)}"
            for name, asked, runs in changed(config, effective.values)
        )

    def counters(self, fetch: Fetch, log_text: str = "") -> Counters:
        """See ``Engine.counters``."""
        return vllm_counters(metrics.parse(get_text(fetch, "/metrics")))


def completion(name: str, token_ids: Sequence[int], ignore_eos: bool) -> Request:
    """A small generation by the OpenAI route. ``ignore_eos`` is not of that API: some servers refuse it."""
    body: dict[str, Any] = {"model": name, "prompt": list(token_ids), "max_tokens": PROBE_TOKENS, "temperature": 0.0}
    body |= {"stream": False} | ({"ignore_eos": True} if ignore_eos else {})
    return Request(method="POST", path="/v1/completions", body=json.dumps(body))


def vllm_counters(samples: tuple[metrics.Sample, ...]) -> Counters:
    """The counters of vLLM's /metrics; ``source`` none where they are not there."""
    decoded = metrics.total(samples, "vllm:generation_tokens_total")
    if decoded is None:
        return Counters(source="none")
    cached = metrics.total(samples, "vllm:prompt_tokens_cached_total")
    return Counters(
        source="metrics",
        prompt_tokens=metrics.total(samples, "vllm:prompt_tokens_total"),
        generated_tokens=decoded,
        cached_tokens=metrics.total(samples, "vllm:prefix_cache_hits_total") if cached is None else cached,
        retractions=metrics.total(samples, "vllm:num_preemptions_total"),
        running=metrics.total(samples, "vllm:num_requests_running"),
        queued=metrics.total(samples, "vllm:num_requests_waiting"),
    )


def log_kv_tokens(log_text: str) -> int | None:
    """The KV tokens that the log names, summed over the data-parallel engine cores."""
    by_core = {core: int(tokens.replace(",", "")) for core, tokens in _KV_SIZE.findall(log_text)}
    return sum(by_core.values()) or None


def _memory(log_text: str) -> dict[str, float]:
    found = {part: pattern.findall(log_text) for part, pattern in _MEMORY.items()}
    return {part: float(sizes[-1]) for part, sizes in found.items() if sizes}


def _negated(flag: str) -> str:
    name = flag_name(flag).removeprefix("--")
    return f"--{name.removeprefix('no-')}" if name.startswith("no-") else f"--no-{name}"


def _metric_kv_tokens(samples: tuple[metrics.Sample, ...]) -> int | None:
    """One cache_config_info per engine core; older ones name blocks and their size instead of tokens."""
    tokens = 0
    for labels in (sample.labels for sample in samples if sample.name == "vllm:cache_config_info"):
        blocks, size = (_count(labels.get(key, "")) for key in ("num_gpu_blocks", "block_size"))
        tokens += _count(labels.get("kv_cache_size_tokens", "")) or blocks * size
    return tokens or None


def _count(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _config_kv_tokens(config: dict[str, Any]) -> int | None:
    tokens = whole(_section(config, "cache_config").get("kv_cache_size_tokens"))
    return tokens * _ranks(config) if tokens else None


def _section(config: dict[str, Any], name: str) -> dict[str, Any]:
    section = config.get(name)
    return section if isinstance(section, dict) else {}


def _ranks(config: dict[str, Any]) -> int:
    return max(1, whole(_section(config, "parallel_config").get("data_parallel_size")) or 1)


def _running(config: dict[str, Any], log_text: str) -> int | None:
    """max_num_seqs is per rank. Without development mode only a value that was asked for is known."""
    limit = whole(_section(config, "scheduler_config").get(RUNNING))
    if limit is not None:
        return limit * _ranks(config)
    asked, ranks = _asked(log_text, RUNNING), _asked(log_text, "data_parallel_size")
    return asked * (ranks if isinstance(ranks, int) else 1) if isinstance(asked, int) else None


def _graph(config: dict[str, Any], log_text: str) -> int | None:
    if _section(config, "model_config").get("enforce_eager") is True or _EAGER.search(log_text):
        return 0
    planned = whole(_section(config, "compilation_config").get(GRAPH))
    logged = _CAPTURE.findall(log_text)
    return planned if planned is not None else int(logged[-1]) if logged else None


def _value(name: str, config: dict[str, Any], log_text: str) -> ParamValue | None:
    if name == GRAPH:
        return _graph(config, log_text)
    for section in _SECTIONS:
        if (value := scalar(_section(config, section).get(name))) is not None:
            return value
    if name == "max_num_batched_tokens" and (told := _BATCHED.findall(log_text)):
        return int(told[-1])
    return _asked(log_text, name)


def _asked(log_text: str, name: str) -> ParamValue | None:
    """An argument of the log's ``non-default args`` line; vLLM runs what it was asked or refuses to start."""
    match = re.search(rf"non-default args: .*?'{re.escape(name)}': ([^,}}]+)", log_text)
    if not match:
        return None
    text = match[1].strip()
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip("'\"")


def _source(config: dict[str, Any], samples: tuple[metrics.Sample, ...], log_text: str) -> str:
    if config:
        return "server_info"
    if _metric_kv_tokens(samples):
        return "metrics"
    return "log" if log_kv_tokens(log_text) else "none"


def _reason(name: str) -> str:
    return "the largest size that is captured" if name == GRAPH else "changed by the server"
