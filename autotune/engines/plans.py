"""What the launch plans of all engines have in common."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Self

from autotune.engines.argv import require_command, substitute, value_of
from autotune.engines.base import Fetch, Request, Where
from autotune.errors import InputError
from autotune.study.environment import is_name
from autotune.study.file import EngineSpec, ModelSpec, Study
from autotune.values import Config, LaunchPlan, ParamValue


class FixedLimit:
    """The part of an engine whose running limit cannot be changed while it serves, and that a study tells nothing."""

    def for_study(self, study: Study) -> Self:
        """See ``Engine.for_study``: itself."""
        return self

    live_parameter = ""

    def live_limit(self, limit: int, fetch: Fetch) -> Request | None:
        """See ``Engine.live_limit``: not offered."""
        return None

    def live_limit_accepted(self, status: int, body: bytes) -> bool:
        """See ``Engine.live_limit_accepted``: not offered."""
        return False

    def live_limit_in_force(self, fetch: Fetch) -> int | None:
        """See ``Engine.live_limit_in_force``: not offered."""
        return None

    def running_logged(self, log_text: str) -> int | None:
        """See ``Engine.running_logged``: only of use with a limit that moves."""
        return None


def base_command(spec: EngineSpec, model: ModelSpec) -> list[str]:
    """The study's command with ``{python}`` and ``{model}`` filled in. Raises InputError if it cannot be run."""
    require_command(spec.command)
    return substitute(spec.command, {"model": model.path} if model.path else {})


def finish(
    spec: EngineSpec, argv: Sequence[str], where: Where, model_name: str, secrets: Iterable[str] = ()
) -> LaunchPlan:
    """The plan around a finished command line. Raises InputError for names that no environment can hold."""
    for key, names in (("env", spec.env), ("pass_env", spec.pass_env)):
        for name in names:
            if not is_name(name):
                raise InputError(f"study file: engine.{key} has the name {name!r}; use letters, digits and _")
    return LaunchPlan(
        engine=spec.kind,
        argv=tuple(argv),
        host=where.host,
        port=where.port,
        env=dict(spec.env),
        secret_env=tuple(dict.fromkeys([*spec.pass_env, *secrets])),
        api_key_env=spec.api_key_env or None,
        model_name=model_name,
        wrapper=spec.wrapper,
    )


def model_name(command: Sequence[str], model: ModelSpec, *path_flags: str) -> str:
    """The name under which the server knows its model: as served, else the path it was given."""
    return (
        value_of(command, "--served-model-name")
        or model.served_name
        or value_of(command, *path_flags)
        or _served(command)
        or model.path
        or "default"
    )


def _served(command: Sequence[str]) -> str:
    """The model of ``vllm serve MODEL`` and ``sglang serve MODEL``."""
    following = dict(itertools.pairwise(command)).get("serve", "")
    return "" if following.startswith("-") else following


def said(value: ParamValue) -> str:
    """A value as a sentence has it: 4,096."""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def differs(asked: ParamValue, runs: ParamValue) -> bool:
    """Whether two values differ; 1 and 1.0 do not, nor do floats that only rounding tells apart."""
    if isinstance(asked, int | float) and isinstance(runs, int | float):
        return abs(asked - runs) > 1e-9 * max(abs(asked), abs(runs))
    return asked != runs


def changed(config: Config, values: dict[str, ParamValue]) -> list[tuple[str, ParamValue, ParamValue]]:
    """Name, value asked and value in force of each parameter that runs at another value."""
    return [
        (name, asked, values[name])
        for name, asked in sorted(config.params.items())
        if name in values and differs(asked, values[name])
    ]
