"""What a study file must satisfy beyond its types. Each rule raises one ``Problem`` or accepts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from autotune.study.environment import is_name, looks_secret
from autotune.study.file import ParameterOverride, Study
from autotune.study.problem import Known as Known
from autotune.study.problem import Problem as Problem
from autotune.study.problem import Rule, one_of
from autotune.study.workload_rules import WORKLOAD_RULES
from autotune.study.wrapper_rules import wrapper_rules
from autotune.values import Value

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhd])")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_STREAMED = ("ttft_", "tpot_", "itl_")
_STORAGE = re.compile(r"[a-z][a-z0-9+_]*://.*", re.DOTALL)


def parse_duration(text: str) -> float:
    """Seconds of ``90s``, ``45m``, ``8h``, ``1d`` or a sum of these such as ``1h30m``. Raises ``ValueError``."""
    compact = text.replace(" ", "")
    parts = _DURATION.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise ValueError(f"{text!r} is not a duration; write it as 90s, 45m, 8h or 1d")
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts)


def _name(study: Study, known: Known) -> None:
    if not _NAME.fullmatch(study.name):
        raise Problem(
            "name",
            f"{study.name!r} cannot name a folder",
            "use 1 to 64 letters, digits, '.', '_' or '-', and begin with a letter or digit",
        )


def _seed_and_storage(study: Study, known: Known) -> None:
    if not 0 <= study.seed < 2**32:
        raise Problem("seed", f"{study.seed} is out of range", "give a number from 0 to 4294967295")
    if study.storage and not _STORAGE.fullmatch(study.storage):
        raise Problem(
            "storage",
            "is not a database URL",
            "leave it empty for SQLite in the study's folder, or write postgresql://user@host/database",
        )


def _engine(study: Study, known: Known) -> None:
    engine = study.engine
    one_of("engine.kind", engine.kind, known.engines)
    if not engine.command or not engine.command[0].strip():
        raise Problem("engine.command", "is empty", 'give the base command line, such as ["{python}", "-m", "..."]')
    for key in ("read_back", "counters"):
        if engine.kind in ("sglang", "vllm") and getattr(engine, key):
            raise Problem(f"engine.{key}", f"is not read with kind {engine.kind}, which knows the places", "remove it")
    _host(engine.host)
    _no_literal_keys(engine.command)
    for name, value in engine.env.items():
        _env_name(f"engine.env.{name}", name)
        if value and looks_secret(name, value):
            raise Problem(
                f"engine.env.{name}",
                "looks like a secret, and the values of env are stored",
                f'set it in the environment and write pass_env = ["{name}"]',
            )
    for index, name in enumerate(engine.pass_env):
        _env_name(f"engine.pass_env[{index}]", name)
    for key, name in (("api_key_env", engine.api_key_env), ("admin_key_env", engine.admin_key_env)):
        if name:
            _env_name(f"engine.{key}", name)


def _host(host: str) -> None:
    if not host.strip():
        raise Problem("engine.host", "is empty", "give an address, such as 127.0.0.1")
    try:
        named = bool(host.encode("idna")) and not re.search(r"\s", host)
    except UnicodeError:  # a part is empty, or longer than 63 characters
        named = False
    if not named:
        raise Problem("engine.host", f"{host!r} names no host", "give an address, such as 127.0.0.1")


_KEY_FLAG = re.compile(r"(--(?:admin-)?api-key)(=.*)?", re.DOTALL)


def _no_literal_keys(command: Sequence[str]) -> None:
    """A command line is stored and shown; a key in it would be too."""
    for index, argument in enumerate(command):
        if match := _KEY_FLAG.fullmatch(argument):
            raise Problem(
                f"engine.command[{index}]",
                f"{match[1]} puts a key into every record",
                "leave it out for the night (the server listens on loopback), or give it in a file of the engine "
                "(--config) and name a variable that holds it in engine.api_key_env",
            )


def _env_name(key: str, name: str) -> None:
    if not is_name(name):
        raise Problem(key, f"{name!r} is not the name of an environment variable", "use letters, digits and '_'")


def _overrides(study: Study, known: Known) -> None:
    for name, override in study.space.override.items():
        _override(f"space.override.{name}", override)


def _override(key: str, override: ParameterOverride) -> None:
    if override.low is not None and override.high is not None and override.low > override.high:
        raise Problem(f"{key}.low", f"{override.low:g} is above high ({override.high:g})", "exchange them")
    if override.step is not None and override.step <= 0:
        raise Problem(f"{key}.step", f"{override.step:g} is not positive", "give a positive step")
    if override.choices is not None and not override.choices:
        raise Problem(f"{key}.choices", "is empty", "list at least one value")


def _objective(study: Study, known: Known) -> None:
    one_of("objective.metric", study.objective.metric, known.metrics)
    for name, limit in study.objective.constraints.items():
        one_of(f"objective.constraints.{name}", name, known.metrics)
        if limit <= 0:
            raise Problem(f"objective.constraints.{name}", f"{limit:g} is not positive", "give the largest value")
    for key, name in (
        ("metric", study.objective.metric),
        *((f"constraints.{n}", n) for n in study.objective.constraints),
    ):
        if name.startswith(_STREAMED) and not study.workload.stream:
            raise Problem(
                f"objective.{key}", f"{name} cannot be seen without streaming", "write workload.stream = true"
            )


def _notify(study: Study, known: Known) -> None:
    if study.notify.command and not study.notify.command[0].strip():
        raise Problem("notify.command", "begins with an empty word", 'give a command, such as ["notify-send", "night"]')


def _sampler(study: Study, known: Known) -> None:
    one_of("search.sampler", study.search.sampler, known.samplers)


def _wall_clock(study: Study, known: Known) -> None:
    try:
        seconds = parse_duration(study.budget.wall_clock)
    except ValueError as error:
        problem, remedy = str(error).split("; ")
        raise Problem("budget.wall_clock", problem, remedy) from None
    if seconds <= 0:
        raise Problem("budget.wall_clock", "is zero", "give a duration such as 8h")


class Span(Value, frozen=True, kw_only=True):
    """The numbers that one key may have."""

    key: str
    low: float
    high: float
    above_low: bool = False
    below_high: bool = False

    def check(self, study: Study) -> None:
        value: object = study
        for part in self.key.split("."):
            value = getattr(value, part)
        if isinstance(value, int | float) and not self._holds(value):
            raise Problem(self.key, f"{value:g} is out of range", f"give a number {self}")

    def _holds(self, value: float) -> bool:
        over = value > self.low if self.above_low else value >= self.low
        return over and (value < self.high if self.below_high else value <= self.high)

    def __str__(self) -> str:
        low = f"above {self.low:g}" if self.above_low else f"of at least {self.low:g}"
        return f"{low} and {'below' if self.below_high else 'at most'} {self.high:,.12g}"


YEAR_S = 31_536_000
MOST_GB = 1_000_000
MOST_TOKENS = 1_000_000_000_000
HIGHEST_ID = 2**31 - 1

SPANS = (
    Span(key="model.kv_tokens", low=1, high=MOST_TOKENS),
    Span(key="model.gpu_memory_gb", low=0, high=MOST_GB, above_low=True),
    Span(key="model.weight_gb", low=0, high=MOST_GB, above_low=True),
    Span(key="space.min_tokens_per_expert", low=0, high=1_000_000, above_low=True),
    Span(key="workload.input_tokens", low=1, high=100_000_000),
    Span(key="workload.output_tokens", low=1, high=100_000_000),
    Span(key="workload.range_ratio", low=0, high=1, above_low=True),
    Span(key="workload.context_tokens", low=0, high=100_000_000),
    Span(key="workload.prefix_tokens", low=1, high=100_000_000),
    Span(key="workload.prefix_groups", low=1, high=1_000_000),
    Span(key="workload.prompts_per_group", low=0, high=1_000_000_000),
    Span(key="workload.trace_speed", low=0, high=1_000_000, above_low=True),
    Span(key="workload.cached_limit", low=0, high=1),
    Span(key="workload.concurrency", low=0, high=1_000_000),
    Span(key="workload.request_rate", low=0, high=1_000_000),
    Span(key="workload.min_s", low=0, high=YEAR_S),
    Span(key="workload.max_s", low=0, high=YEAR_S, above_low=True),
    Span(key="workload.warmup_max_s", low=0, high=YEAR_S),
    Span(key="workload.precision", low=0, high=1, above_low=True, below_high=True),
    Span(key="workload.host_busy_limit", low=0, high=1),
    Span(key="workload.failed_limit", low=0, high=1, below_high=True),
    Span(key="workload.token_id_low", low=0, high=HIGHEST_ID),
    Span(key="workload.token_id_high", low=1, high=HIGHEST_ID),
    Span(key="workload.workers", low=0, high=1024),
    Span(key="budget.trials", low=1, high=1_000_000),
    Span(key="budget.infeasible_in_a_row", low=1, high=1_000_000),
    Span(key="budget.confirm_starts", low=0, high=1000),
    Span(key="budget.baseline_every", low=0, high=1_000_000),
    Span(key="resources.gpus_per_trial", low=0, high=1024),
    Span(key="resources.slots", low=0, high=1024),
    Span(key="resources.alone_starts", low=1, high=100),
    Span(key="resources.lease_s", low=1, high=86_400),
    Span(key="resources.cpus_per_trial", low=0, high=100_000),
    Span(key="timeouts.start_s", low=0, high=YEAR_S, above_low=True),
    Span(key="timeouts.start_silence_s", low=0, high=YEAR_S, above_low=True),
    Span(key="timeouts.stop_s", low=0, high=YEAR_S, above_low=True),
    Span(key="timeouts.gpu_release_s", low=0, high=YEAR_S, above_low=True),
    Span(key="timeouts.load_stall_s", low=0, high=YEAR_S, above_low=True),
    Span(key="timeouts.request_s", low=0, high=YEAR_S, above_low=True),
    Span(key="search.startup_trials", low=1, high=1_000_000),
    Span(key="search.live_loads", low=1, high=1000),
    Span(key="search.early_stop", low=0, high=1, below_high=True),
    Span(key="search.least_gain", low=0, high=1),
    Span(key="notify.timeout_s", low=0, high=600, above_low=True),
)


def _spans(study: Study, known: Known) -> None:
    for span in SPANS:
        span.check(study)


RULES: tuple[Rule, ...] = (
    _name,
    _seed_and_storage,
    _engine,
    wrapper_rules,
    _spans,
    _overrides,
    *WORKLOAD_RULES,
    _objective,
    _sampler,
    _notify,
    _wall_clock,
)
