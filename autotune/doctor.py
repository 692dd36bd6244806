"""``autotune doctor``: what can be known before a night: engine, flags, machine, folder, load generator."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from autotune.brief import Brief
from autotune.caveats import objective_caveat, version_caveat
from autotune.engines.argv import substitute
from autotune.errors import AutotuneError, advised
from autotune.load.dataset.lengths import mean_tokens
from autotune.load.dataset.times import span_s
from autotune.load.selftest import Headroom, self_test
from autotune.sameness import gpu_of
from autotune.server.asking import Unreachable, run
from autotune.server.clock import SystemClock
from autotune.server.host import free_bytes, process_headroom
from autotune.space.kv import GIB
from autotune.study.file import EngineSpec, Workload
from autotune.study.record import Records
from autotune.values import Measured, Value
from autotune.wrappers import LOCAL, shares_files, wrapping
from autotune.wrappers.container import mounted

DISK_BYTES = 2 << 30
PROCESSES = 512
ASSUMED_TOK_S = 25.0
"""Output tokens per second of one stream before anything is measured: a loaded H200 gave 17 to 25 to each."""
CACHES = {"sglang": ("SGLANG_CACHE_DIR", ".cache/sglang"), "vllm": ("VLLM_CACHE_ROOT", ".cache/vllm")}
"""Where an engine keeps what it has compiled: the variable that names it, and the place below the home folder."""
SelfTest = Callable[[Workload, float], Headroom]


class Check(Value, frozen=True, kw_only=True):
    """One thing that was looked at. ``ok`` False: the night would suffer, and ``text`` says what to do."""

    name: str
    ok: bool
    text: str


class Examination(Value, frozen=True, kw_only=True):
    """All checks of a study."""

    study: str
    checks: tuple[Check, ...]

    @property
    def sound(self) -> bool:
        return all(check.ok for check in self.checks)


def examine(brief: Brief, carry: SelfTest = self_test) -> Examination:
    """Look, start no inference server; ``carry`` drives the load generator against the built-in double.

    Raises InputError for a study that cannot be searched at all.
    """
    return Examination(study=brief.study.name, checks=(*look(brief), _generator(brief, carry)))


def look(brief: Brief) -> tuple[Check, ...]:
    """The checks that need no load and little time: also made at the start of a night."""
    return (
        _engine(brief),
        *_caveats(brief),
        *(_program(brief) or _wrapper(brief)),
        *_model(brief),
        *_caches(brief),
        *_flags(brief),
        *_secrets(brief),
        *_counters(brief),
        *_gpus(brief),
        _disk(brief),
        *_limits(brief),
    )


def _engine(brief: Brief) -> Check:
    found = brief.installed
    program = substitute(brief.study.engine.command, {})[0]
    told = f"{found.package} {found.version or 'of unknown version'}, started by {program}"
    if found.location:
        return Check(name="engine", ok=True, text=f"{told}, found in {found.location}")
    if found.interpreter:
        return Check(name="engine", ok=False, text=f"{found.reason}; install it there or correct engine.command")
    return Check(name="engine", ok=True, text=f"{told}; its package cannot be inspected: {found.reason}")


def _caveats(brief: Brief) -> list[Check]:
    """A version that nobody tells is easily written; which objective is wanted is for its owner to say."""
    version, objective = version_caveat(brief), objective_caveat(brief)
    checks = [Check(name="engine version", ok=False, text=version)] if version else []
    return [*checks, *([Check(name="objective", ok=True, text=objective)] if objective else [])]


def _program(brief: Brief) -> list[Check]:
    program = substitute(brief.study.engine.command, {})[0]
    key, wrapper = "engine.command", brief.study.engine.wrapper
    if wrapper.kind != LOCAL:
        key, program = "engine.wrapper", wrapper.program or wrapper.kind
    if "{" in program or shutil.which(program):
        return []
    return [Check(name="program", ok=False, text=f"{program} cannot be run; install it or correct {key}")]


def _model(brief: Brief) -> list[Check]:
    """A path that is not there; what is no path may be a name that the engine downloads."""
    path = brief.study.model.path
    elsewhere = not shares_files(brief.study.engine.wrapper)
    if elsewhere or not path.startswith(("/", ".", "~")) or Path(path).exists():
        return []
    return [Check(name="model", ok=False, text=f"{path} does not exist; download it or correct model.path")]


def _wrapper(brief: Brief) -> list[Check]:
    """Whether the program that starts the server elsewhere can do so now."""
    there = wrapping(brief.study.engine.wrapper)
    checks: list[Check] = []
    for inquiry in there.inquiries() if there else ():
        try:
            run(inquiry.argv, SystemClock())
        except Unreachable as error:
            return [*checks, Check(name="wrapper", ok=False, text=advised(str(error), inquiry.remedy))]
        checks.append(Check(name="wrapper", ok=True, text=inquiry.good))
    return checks


def _caches(brief: Brief) -> list[Check]:
    """Whether what the engine compiles can be kept from one start to the next."""
    engine = brief.study.engine
    variable, folder = CACHES.get(engine.kind, ("", ""))
    if variable and not shares_files(engine.wrapper):
        return [_cache_elsewhere(engine, variable, folder)]
    env = {**os.environ, **engine.env}
    if not variable or not (env.get(variable) or env.get("HOME")):
        return []
    place = Path(env.get(variable) or Path(env["HOME"], folder))
    there = next(path for path in (place, *place.absolute().parents) if path.exists())
    if os.access(there, os.W_OK | os.X_OK):
        return [Check(name="compile cache", ok=True, text=f"{place}, kept between starts")]
    remedy = f"every start compiles anew; name a folder that can be written in engine.env.{variable}"
    return [Check(name="compile cache", ok=False, text=f"{place} cannot be written: {remedy}")]


def _cache_elsewhere(engine: EngineSpec, variable: str, folder: str) -> Check:
    """That of a container ends with it unless it is mounted; that of another host cannot be seen."""
    wrapper, place = engine.wrapper, engine.env.get(variable, f"~/{folder}")
    if wrapper.destination:
        return Check(name="compile cache", ok=True, text=f"{place} on {wrapper.destination}, not looked at")
    if mount := next((mount for mount in mounted(wrapper) if _covers(mount, place)), ""):
        return Check(name="compile cache", ok=True, text=f"{place} in the container, where {mount} is mounted")
    text = (
        f"{place} ends with its container, so every start compiles anew; mount a folder there in "
        f"engine.wrapper.options (--volume HERE:/root/{folder}), or name a mounted one in engine.env.{variable}"
    )
    return Check(name="compile cache", ok=False, text=text)


def _covers(mount: str, place: str) -> bool:
    """Whether a container's folder lies on a mount; whose home it has is not known: root's, or one below /home."""
    if not place.startswith("~"):
        return Path(place).is_relative_to(mount)
    users = PurePosixPath(mount).parts[2:3] if mount.startswith("/home/") else ()
    homes = ("/root", *(f"/home/{user}" for user in users))
    return any(PurePosixPath(place.replace("~", home, 1)).is_relative_to(mount) for home in homes)


def _flags(brief: Brief) -> list[Check]:
    frozen = {entry.name: entry.reason for entry in brief.frozen()}
    found = []
    for name, fact in brief.facts.items():
        # A flag that does nothing is frozen: worth knowing, nothing to mend. One that is unknown refuses to start.
        text = f"{fact.reason}; {frozen[name]}" if name in frozen else fact.reason
        found.append(Check(name=f"flag {fact.flag}", ok=fact.known is not False, text=text))
    return found


def _secrets(brief: Brief) -> list[Check]:
    engine = brief.study.engine
    names = [name for name in (engine.api_key_env, engine.admin_key_env) if name]
    return [
        Check(
            name=f"variable {name}", ok=name in os.environ, text="set" if name in os.environ else "not set: export it"
        )
        for name in names
    ]


def _counters(brief: Brief) -> list[Check]:
    """On the OpenAI routes only a server's metrics check its word on its tokens; SGLang's are off by default."""
    engine, route = brief.study.engine, brief.study.workload.route
    if engine.kind != "sglang" or route == "generate" or "--enable-metrics" in engine.command:
        return []
    text = (
        f"workload.route {route} without --enable-metrics: nothing checks the server's count of its tokens; "
        "add --enable-metrics to engine.command"
    )
    return [Check(name="token counters", ok=False, text=text)]


def _gpus(brief: Brief) -> list[Check]:
    try:
        devices = gpu_of(brief.study).devices()
    except AutotuneError as error:
        return [Check(name="GPU", ok=False, text=str(error))]
    if not devices:
        return [Check(name="GPU", ok=True, text="none seen: memory is not watched")]
    return [
        Check(
            name=f"GPU {device.index}",
            ok=device.used_bytes < 0.05 * device.total_bytes or not device.total_bytes,
            text=f"{device.name}, {device.used_bytes / GIB:.1f} of {device.total_bytes / GIB:.1f} GiB in use",
        )
        for device in devices
    ]


def _disk(brief: Brief) -> Check:
    root = brief.folder.root
    place = root if root.exists() else root.parent
    free = free_bytes(place)
    return Check(name="disk", ok=free > DISK_BYTES, text=f"{free / GIB:.1f} GiB free in {place}, 2 GiB wanted")


def _limits(brief: Brief) -> list[Check]:
    need = brief.study.workload.peak + 256
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = hard in (resource.RLIM_INFINITY,) or hard >= need
    checks = [Check(name="open files", ok=enough, text=f"{need} needed, {hard} allowed")]
    room = process_headroom()
    if room is not None:
        checks.append(Check(name="processes", ok=room > PROCESSES, text=f"room for {room} more"))
    return checks


def _generator(brief: Brief, carry: SelfTest) -> Check:
    """How much more than the study's rate the client carries on this machine."""
    rate_tok_s, source = study_rate(brief)
    try:
        room = carry(brief.study.workload, rate_tok_s)
    except AutotuneError as error:
        return Check(name="load generator", ok=False, text=str(error))
    text = str(room).removeprefix("load generator: ")
    return Check(name="load generator", ok=room.enough, text=f"{text} ({rate_tok_s:,.0f} tok/s, {source})")


def study_rate(brief: Brief) -> tuple[float, str]:
    """Output tokens per second that the client must carry, and where the number is from."""
    results = Records(brief.folder).results() if brief.folder.exists else []
    measured = [r.outcome.measurement.steady for r in results if isinstance(r.outcome, Measured)]
    fastest = max((steady.get("output_throughput_tok_s", 0.0) for steady in measured), default=0.0)
    if fastest > 0:
        return fastest, "the fastest measured so far"
    workload = brief.study.workload
    if workload.kind == "trace" and brief.dataset is not None:
        table = brief.dataset.table
        return float(table["output"].sum()) / span_s(table["at"]) * workload.trace_speed, "by the trace"
    if not workload.closed:
        return workload.request_rate * mean_tokens(workload, brief.dataset)[1], "by the study's request rate"
    return workload.concurrency * ASSUMED_TOK_S, f"assumed: {ASSUMED_TOK_S:g} per stream, nothing is measured yet"
