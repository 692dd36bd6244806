"""An engine in one file, as another package would add it: llama.cpp's server, spoken to without templates.

Its entry point stands in the dist-info folder beside it. ``docs/engines.md`` walks through it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from autotune.engines import metrics
from autotune.engines.answers import generated, get_json, get_text, whole
from autotune.engines.argv import with_flags
from autotune.engines.base import Counters, Fetch, Request, Where
from autotune.engines.plans import FixedLimit, base_command, changed, finish, model_name, said
from autotune.study.file import EngineSpec, ModelSpec
from autotune.values import Config, Effective, LaunchPlan, ParamValue


class Example(FixedLimit):
    """``kind = "example"``. Its running limit stays as started, so it is a ``FixedLimit``."""

    kind = "example"

    def launch_plan(
        self, spec: EngineSpec, model: ModelSpec, flags: Sequence[tuple[str, ParamValue]], where: Where
    ) -> LaunchPlan:
        """The base command, then the trial's flags, host and port; each replaces what stands there already."""
        short = (frozenset({"-np", "--parallel"}),)
        argv = with_flags(base_command(spec, model), flags, short)
        argv = with_flags(argv, [("--host", where.host), ("--port", where.port)])
        return finish(spec, argv, where, model_name(argv, model, "--alias", "--model"))

    def probe(self, plan: LaunchPlan, token_ids: Sequence[int]) -> Request:
        """A few tokens on a prompt that no cache can know."""
        body = {"model": plan.model_name, "prompt": list(token_ids), "max_tokens": 4, "stream": False}
        return Request(method="POST", path="/v1/completions", body=json.dumps(body))

    def is_ready(self, status: int, body: bytes) -> bool:
        """Whether tokens came; a 200 alone is not enough."""
        return generated(status, body)

    def effective(self, fetch: Fetch, log_text: str, names: Sequence[str]) -> Effective:
        """What /props says is in force; where it is silent nothing is claimed."""
        props = get_json(fetch, "/props")
        slots = whole(props.get("total_slots"))
        settings = props.get("default_generation_settings")
        each = whole(settings.get("n_ctx")) if isinstance(settings, dict) else None
        if slots is None:
            return _from_log(log_text)
        return Effective(
            source="server_info",
            version=str(props.get("build_info") or ""),
            running_limit=slots,
            kv_tokens=slots * each if each else None,
            values={"parallel": slots},
        )

    def describe_clamps(self, config: Config, effective: Effective, log_text: str = "") -> tuple[str, ...]:
        """Every difference, in words."""
        return tuple(
            f"{name}: asked {said(asked)}, runs {said(runs)}: changed by the server"
            for name, asked, runs in changed(config, effective.values)
        )

    def counters(self, fetch: Fetch, log_text: str = "") -> Counters:
        """What the server counted, to hold against what the client counted; None is "not told", never 0."""
        samples = metrics.parse(get_text(fetch, "/metrics"))
        made = metrics.total(samples, "llamacpp:tokens_predicted_total")
        if made is None:
            return Counters(source="none")
        prompt = metrics.total(samples, "llamacpp:prompt_tokens_total")
        return Counters(source="metrics", generated_tokens=made, prompt_tokens=prompt)


def _from_log(log_text: str) -> Effective:
    """``... n_slots = 4, n_ctx_slot = 1024, ...``: read without a pattern, to show that none is needed."""
    _, found, rest = log_text.partition("n_slots = ")
    slots, _, rest = rest.partition(", n_ctx_slot = ")
    each = rest.partition(",")[0]
    if not found or not slots.isdecimal() or not each.isdecimal():
        return Effective(source="none")
    return Effective(
        source="log", running_limit=int(slots), kv_tokens=int(slots) * int(each), values={"parallel": int(slots)}
    )
