"""Any server behind a command line with an OpenAI-compatible route: llama.cpp, a container, a wrapper.

The command is a template. ``{host}`` and ``{port}`` are where to listen, ``{model}`` is the model's
path, ``{python}`` the running interpreter, and ``{name}`` or ``{name=default}`` the value of a
parameter, known by its flag ``--name``. An argument whose parameter has no value is left out, and
the flag before it too. Parameters without a placeholder are appended as flags.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Sequence
from typing import Any

from autotune.engines import metrics, sglang
from autotune.engines.answers import generated, get_json, get_text, whole
from autotune.engines.argv import PLACEHOLDER, flag_name, render, require_command, with_flags
from autotune.engines.base import Counters, Fetch, Request, Where
from autotune.engines.plans import FixedLimit, changed, finish, model_name, said
from autotune.engines.told import Told, told, told_counters, with_told
from autotune.engines.vllm import PROBE_TOKENS, VLLM, completion, vllm_counters
from autotune.errors import InputError
from autotune.study.file import EngineSpec, ModelSpec, Study
from autotune.study.workload import Route
from autotune.values import Config, Effective, LaunchPlan, ParamValue

_SLOTS = re.compile(r"n_slots = (\d+)(?:, n_ctx_slot = (\d+))?")


class Command(FixedLimit):
    """The engine ``command``. It asks for its first tokens by the route that the load will take, and reads back what
    SGLang, vLLM and llama.cpp publish, where it finds that, and from the places that a study names.
    """

    kind = "command"

    def __init__(self, said: Told | None = None, route: Route = "completions") -> None:
        self._told = said or Told()
        self._route = route

    def for_study(self, study: Study) -> Command:
        """See ``Engine.for_study``. Raises InputError for places that cannot be read."""
        return Command(told(study.engine), study.workload.route)

    def launch_plan(
        self, spec: EngineSpec, model: ModelSpec, flags: Sequence[tuple[str, ParamValue]], where: Where
    ) -> LaunchPlan:
        """See ``Engine.launch_plan``. Raises InputError for a template without ``{port}`` or with an unknown name."""
        require_command(spec.command)
        words = {"python": sys.executable, "host": where.bind, "port": str(where.port)}
        words |= {"model": model.path} if model.path else {}
        values = {word_of(flag): render(value) for flag, value in flags}
        named = {match[1] for argument in spec.command for match in PLACEHOLDER.finditer(argument)}
        _require_port(named)
        argv = fill(spec.command, {**values, **words})
        argv = with_flags(argv, [(flag, value) for flag, value in flags if word_of(flag) not in named])
        return finish(spec, argv, where, model_name(argv, model, "--alias", "--model", "--model-path"))

    def probe(self, plan: LaunchPlan, token_ids: Sequence[int]) -> Request:
        """See ``Engine.probe``."""
        match self._route:
            case "generate":
                return sglang.SGLang().probe(plan, token_ids)
            case "completions":
                return completion(plan.model_name, token_ids, ignore_eos=False)
            case "chat":
                return _chat(plan.model_name, token_ids)

    def is_ready(self, status: int, body: bytes) -> bool:
        """See ``Engine.is_ready``."""
        return generated(status, body)

    def effective(self, fetch: Fetch, log_text: str, names: Sequence[str]) -> Effective:
        """See ``Engine.effective``: whichever known self-description the server gives, then the study's places."""
        return with_told(_known_effective(fetch, log_text, names), self._told, fetch, log_text)

    def describe_clamps(self, config: Config, effective: Effective, log_text: str = "") -> tuple[str, ...]:
        """See ``Engine.describe_clamps``."""
        return tuple(
            f"{name}: asked {said(asked)}, runs {said(runs)}: changed by the server"
            for name, asked, runs in changed(config, effective.values)
        )

    def counters(self, fetch: Fetch, log_text: str = "") -> Counters:
        """See ``Engine.counters``: from the study's places, else those of vLLM, llama.cpp or SGLang."""
        if self._told.counts:
            return told_counters(self._told, fetch, log_text)
        samples = metrics.parse(get_text(fetch, "/metrics"))
        found = vllm_counters(samples)
        if found.source == "none":
            found = _llama_counters(samples)
        return found if found.source != "none" else sglang.SGLang().counters(fetch, log_text)


def _known_effective(fetch: Fetch, log_text: str, names: Sequence[str]) -> Effective:
    """By the self-description of SGLang, llama.cpp or vLLM, whichever the server gives."""
    info = sglang.server_info(fetch)
    if info.get("internal_states") is not None:
        return sglang.read_back(info, log_text, names)
    props = get_json(fetch, "/props")
    if "total_slots" in props:
        return _llama(props)
    found = VLLM().effective(fetch, log_text, names)
    return found if found.source != "none" else _llama_log(log_text)


def _chat(name: str, token_ids: Sequence[int]) -> Request:
    """A small generation by the chat route, which takes no token ids: their digits are a fresh text."""
    message = {"role": "user", "content": " ".join(map(str, token_ids))}
    body = {"model": name, "messages": [message], "max_tokens": PROBE_TOKENS, "temperature": 0.0, "stream": False}
    return Request(method="POST", path="/v1/chat/completions", body=json.dumps(body))


def word_of(flag: str) -> str:
    """The placeholder that stands for a flag: ``--max-num-seqs`` is ``{max_num_seqs}``."""
    return flag_name(flag).lstrip("-").replace("-", "_")


def fill(command: Sequence[str], words: dict[str, str]) -> list[str]:
    """The template with its words put in; arguments without a value leave together with their flag."""
    argv: list[str] = []
    for argument in command:
        if any(match[1] not in words and match[2] is None for match in PLACEHOLDER.finditer(argument)):
            if PLACEHOLDER.fullmatch(argument) and argv and flag_name(argv[-1]) and "=" not in argv[-1]:
                argv.pop()
            continue
        argv.append(PLACEHOLDER.sub(lambda match: words.get(match[1], match[2] or ""), argument))
    return argv


def _require_port(named: set[str]) -> None:
    if "port" not in named:
        near = difflib.get_close_matches("port", named, n=1)
        hint = f" ({{{near[0]}}} is not it)" if near else ""
        raise InputError(f"study file: engine.command has no {{port}}{hint}; write it where the server takes its port")


def _llama(props: dict[str, Any]) -> Effective:
    """llama.cpp's /props. It splits its context over the slots, so the pool is their product."""
    slots = whole(props.get("total_slots"))
    settings = props.get("default_generation_settings")
    per_slot = whole(settings.get("n_ctx")) if isinstance(settings, dict) else None
    return _slots(slots, per_slot, "server_info", str(props.get("build_info") or ""))


def _llama_log(log_text: str) -> Effective:
    found = _SLOTS.search(log_text)
    if not found:
        return Effective(source="none")
    return _slots(int(found[1]), int(found[2]) if found[2] else None, "log", "")


def _slots(slots: int | None, per_slot: int | None, source: str, version: str) -> Effective:
    values: dict[str, ParamValue] = {}
    if slots is not None:
        values["parallel"] = slots
    if slots is not None and per_slot is not None:
        values["ctx_size"] = slots * per_slot
    return Effective(
        source=source,
        version=version,
        kv_tokens=slots * per_slot if slots and per_slot else None,
        running_limit=slots,
        values=values,
    )


def _llama_counters(samples: tuple[metrics.Sample, ...]) -> Counters:
    decoded = metrics.total(samples, "llamacpp:tokens_predicted_total")
    if decoded is None:
        return Counters(source="none")
    return Counters(
        source="metrics",
        prompt_tokens=metrics.total(samples, "llamacpp:prompt_tokens_total"),
        generated_tokens=decoded,
        cached_tokens=metrics.total(samples, "llamacpp:prompt_tokens_cached_total"),
        running=metrics.total(samples, "llamacpp:requests_processing"),
        queued=metrics.total(samples, "llamacpp:requests_deferred"),
    )
