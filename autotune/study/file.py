"""The study file: its shape and its defaults, each written once.

``load_study`` turns a TOML file into a frozen ``Study`` or raises one ``InputError`` that names the
file, the key and the remedy.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from autotune.study.workload import Workload as Workload
from autotune.values import ParamValue, Value, Wrapper


class EngineSpec(Value, frozen=True, kw_only=True):
    """The server: ``command`` is its base command line; the trial's flags, host and port are appended.

    ``{python}`` in an argument stands for the running interpreter. ``env`` is literal; ``pass_env``
    names variables (secrets among them) that the server inherits from the tuner's environment in
    addition to the ordinary ones, and whose values are never stored.
    ``read_back`` and ``counters`` say where a server of kind ``command`` tells its values, in the form of
    ``engines.told``. ``wrapper`` says where it runs.
    """

    kind: str = "sglang"
    command: list[str]
    env: dict[str, str] = {}
    pass_env: list[str] = []
    version: str = ""
    host: str = "127.0.0.1"
    api_key_env: str = ""
    admin_key_env: str = ""
    read_back: dict[str, str] = {}
    counters: dict[str, str] = {}
    wrapper: Wrapper = Wrapper()


class ModelSpec(Value, frozen=True, kw_only=True):
    """The model. ``config`` is a config.json to read when ``path`` has none on this machine.

    ``kv_tokens`` is a known KV capacity, ``gpu_memory_gb`` the memory per GPU (else asked of NVML),
    ``weight_gb`` the weights per GPU in GB (else computed from the files or the config).
    """

    path: str = ""
    config: str = ""
    served_name: str = ""
    kv_tokens: int | None = None
    gpu_memory_gb: float | None = None
    weight_gb: float | None = None


class ParameterOverride(Value, frozen=True, kw_only=True):
    """Changes to one parameter of the search space; ``force`` searches it although it does nothing."""

    low: float | None = None
    high: float | None = None
    step: float | None = None
    choices: list[ParamValue] | None = None
    force: bool = False


class SpaceSpec(Value, frozen=True, kw_only=True):
    """Which parameters are searched. ``file`` is a name in search_spaces/ or a path; empty: the engine's own.

    ``parameters`` empty: those the space switches on by default.
    """

    file: str = ""
    parameters: list[str] = []
    override: dict[str, ParameterOverride] = {}
    min_tokens_per_expert: float = 8.0


class Objective(Value, frozen=True, kw_only=True):
    """``metric`` names a figure of the steady window; throughputs are maximised, latencies minimised.

    ``constraints`` maps metric names to the largest value (of throughputs: the smallest) that the winner may have.
    ``goodput_req_s`` counts the requests that keep the constraints on TTFT, TPOT and E2E, each request by itself.
    """

    metric: str = "output_throughput_tok_s"
    constraints: dict[str, float] = {}


class Budget(Value, frozen=True, kw_only=True):
    """``wall_clock`` is written as 90s, 45m, 8h or 1d; a night ends at whichever comes first.

    ``confirm_starts`` are the fresh starts a side of the confirmation that ends the night, inside its time; 0: none.
    ``baseline_every`` settled trials the baseline is measured again, to see whether the machine drifts; 0: never. It
    takes time, and does not count as a trial.
    """

    trials: int = 20
    wall_clock: str = "8h"
    infeasible_in_a_row: int = 6
    confirm_starts: int = 3
    baseline_every: int = 6


class Timeouts(Value, frozen=True, kw_only=True):
    """Seconds. ``start_silence_s`` ends a start without any sign of progress, ``start_s`` is its hard cap."""

    start_s: float = 3600.0
    start_silence_s: float = 600.0
    stop_s: float = 30.0
    gpu_release_s: float = 60.0
    load_stall_s: float = 60.0
    request_s: float = 600.0


class SearchSpec(Value, frozen=True, kw_only=True):
    """``sampler`` is a name of ``search.SAMPLERS``.

    ``live``: measure smaller running limits on a server that is up, by at most ``live_loads`` further loads a start.
    "auto" does so where it can be done, "on" refuses a study in which it cannot.
    ``early_stop`` is the confidence with which a trial must be losing for its load to be ended; 0 loads to the end.
    ``least_gain`` is the relative gain for which another start is worth its time; 0 never ends the search for that.
    """

    sampler: str = "autotune"
    startup_trials: int = 4
    live: Literal["auto", "on", "off"] = "auto"
    live_loads: int = 3
    early_stop: float = 0.95
    least_gain: float = 0.002


class Notify(Value, frozen=True, kw_only=True):
    """A command of yours that hears of a night: an argument list, run without a shell.

    Its last argument is the event, its standard input one line of JSON. ``timeout_s`` ends it.
    """

    command: list[str] = []
    events: tuple[Literal["end", "stop", "new_best"], ...] = ("end", "stop", "new_best")
    timeout_s: float = 10.0


class Resources(Value, frozen=True, kw_only=True):
    """What of this host one trial gets; trials then run side by side.

    ``gpus_per_trial`` GPUs make a slot (0: all that are visible). ``slots`` is the most trials at once (0: as many as
    there are GPUs for). ``alone_starts`` starts of the baseline alone, and as many in every slot at once, tell what
    neighbours cost. ``confirm_alone`` makes the confirmation's starts one after the other.
    On a Ray cluster a trial is a task that asks for ``gpus_per_trial``, ``cpus_per_trial`` and ``ray_resources``
    (custom resources of the nodes); ``mixed_hardware`` lets hosts of different kinds work on one study.
    A worker that shares the study through a database and is not heard of for ``lease_s`` loses its trial to others.
    """

    gpus_per_trial: int = 0
    slots: int = 0
    alone_starts: int = 1
    confirm_alone: bool = True
    cpus_per_trial: float = 1.0
    ray_resources: dict[str, float] = {}
    mixed_hardware: bool = False
    lease_s: float = 120.0


class Study(Value, frozen=True, kw_only=True):
    """One study file. ``storage`` is an Optuna URL; empty: SQLite inside the study's folder."""

    name: str
    description: str = ""
    seed: int = 0
    storage: str = ""
    engine: EngineSpec
    model: ModelSpec = msgspec.field(default_factory=ModelSpec)
    space: SpaceSpec = msgspec.field(default_factory=SpaceSpec)
    workload: Workload = msgspec.field(default_factory=Workload)
    objective: Objective = msgspec.field(default_factory=Objective)
    budget: Budget = msgspec.field(default_factory=Budget)
    resources: Resources = msgspec.field(default_factory=Resources)
    timeouts: Timeouts = msgspec.field(default_factory=Timeouts)
    search: SearchSpec = msgspec.field(default_factory=SearchSpec)
    notify: Notify = msgspec.field(default_factory=Notify)
