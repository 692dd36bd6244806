"""The life of one simulated server process: start, serve, stop, or fail in the way it was asked to."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec
import uvloop

from autotune.sim import http, info, log
from autotune.sim.dialects import Dialect
from autotune.sim.engine import Engine, Pace
from autotune.sim.faults import FaultPlan, parse_faults, with_random_fault
from autotune.sim.flags import SimOptions
from autotune.sim.gpufile import GpuMemory
from autotune.sim.jobs import ProbeJob
from autotune.sim.memory import resolve
from autotune.sim.profiles import profile
from autotune.sim.routes import App
from autotune.sim.schedule import Schedule
from autotune.sim.startup import Plan, Startup, fail, start_seed
from autotune.values import ParamValue

DRAIN_POLL_S = 0.1
CRASH_LINGER_S = 0.2


def run_server(
    args: dict[str, Any], options: SimOptions, given: dict[str, ParamValue], dialect: Dialect | None = None
) -> int:
    """Run until the process is told to end; returns the exit status of an orderly end."""
    _raise_descriptor_limit()
    dialect = dialect or Dialect()
    log.speak(dialect.line)
    seed = start_seed(options.seed, args)
    faults = with_random_fault(parse_faults(options.faults), options.fault_rate, random.Random(f"fault|{seed}"))
    if options.fault_rate:
        log.line(f"simulated faults of this start: {faults.active or 'none'}")
    return uvloop.run(_Server(args, options, Character(faults, seed, dialect)).run(given))


class Character(NamedTuple):
    """What goes wrong, by which chance, and in whose words."""

    faults: FaultPlan
    seed: str
    dialect: Dialect


class _Server:
    def __init__(self, args: dict[str, Any], options: SimOptions, character: Character) -> None:
        self.args = args
        self.options = options
        self.faults, self.seed, self.dialect = character
        self.stopping = asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()
        self.sock: socket.socket | None = None

    async def run(self, given: dict[str, ParamValue]) -> int:
        if "deaf" in self.faults:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        if self.options.schedule is not None:
            return await self._run_schedule(self.options.schedule)
        plan = self._plan(given)
        self._leave_child()
        gpu = GpuMemory(self.options.gpu_file, self.options.gpu_release_s, leak="gpu_leak" in self.faults)
        app, engine = self._app(plan)
        left_gb = max(0.0, plan.resolved.left_gb(plan.settings))
        engine.loaded = partial(gpu.use, plan.settings.gpu_total_gb - left_gb)
        if "lying_health" in self.faults:
            await self._open(app)
        await Startup(plan, self.args, gpu).run()
        if self.sock is None and not await self._open(app):
            return 1
        app.serving = True
        self._spawn(engine.run())
        if not await self._warm_up(app, engine):
            fail(self.dialect.failed_exit)
        app.ready = True
        log.line("The server is fired up and ready to roll!")
        self._spawn(self._watch_load(engine))
        await self._serve_until_told(engine)
        return 0

    def _plan(self, given: dict[str, ParamValue]) -> Plan:
        version = self.dialect.rules or self.options.version
        settings = profile(self.options.profile, version=version, tp_size=self.args["tp_size"])
        if self.args["context_length"]:
            settings = msgspec.structs.replace(settings, context_tokens=self.args["context_length"])
        if "ignored_flag" in self.faults:
            ignored = self.faults.text("ignored_flag").replace("-", "_")
            given = {name: value for name, value in given.items() if name != ignored}
        resolved = resolve(settings, given)
        return Plan(
            settings=settings,
            resolved=resolved,
            faults=self.faults,
            speed=self.options.speed,
            failed_exit=self.dialect.failed_exit,
        )

    def _app(self, plan: Plan) -> tuple[App, Engine]:
        engine = Engine(
            plan.settings,
            plan.resolved,
            self.faults,
            Pace(
                speed=self.options.speed,
                noise=self.options.noise,
                seed=self.seed,
                stream_interval=max(1, self.args["stream_interval"]),
                log_interval=max(1, self.args["decode_log_interval"]),
            ),
        )
        engine.crash = self._crash
        return App(self.args, engine, self.faults, self.dialect), engine

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        """A bug in the simulator must not look like a hang of the server."""
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "simulator bug", "exception": task.exception()}
            )
            os._exit(70)

    async def _open(self, app: App) -> bool:
        """Bind only now, as the real server does; False when the port is taken."""
        host, port = self.args["host"], self.args["port"]
        log.line(f"INFO:     Started server process [{os.getpid()}]")
        log.line("INFO:     Waiting for application startup.")
        log.line("INFO:     Application startup complete.")
        try:
            if "port_taken" in self.faults:
                raise OSError(98, "Address already in use")
            self.sock = http.bind(host, port)
        except OSError as error:
            reason = os.strerror(error.errno or 0).lower()
            log.line(
                f"ERROR:    [Errno {error.errno}] error while attempting to bind on address "
                f"('{host}', {port}): {reason}"
            )
            return False
        await http.serve(self.sock, app.handle)
        log.line(f"INFO:     Uvicorn running on http://{host}:{port} (Press CTRL+C to quit)")
        return True

    async def _warm_up(self, app: App, engine: Engine) -> bool:
        if "warmup_error" in self.faults:
            log.line(
                "Initialization failed. warmup error: Traceback (most recent call last):\n"
                "AssertionError: res=<Response [500]>"
            )
            return False
        if self.args["skip_server_warmup"] or "scheduler_dead" in self.faults:
            return True
        answered = asyncio.Event()
        engine.submit(ProbeJob(answered.set, prompt_tokens=3).request)
        await answered.wait()
        return True

    async def _serve_until_told(self, engine: Engine) -> None:
        loop = asyncio.get_running_loop()
        if "deaf" not in self.faults:
            loop.add_signal_handler(signal.SIGTERM, self.stopping.set)
            loop.add_signal_handler(signal.SIGINT, os._exit, 0)
        await self.stopping.wait()
        # As SGLang: running requests are drained first, so a hung server never ends here.
        while not engine.idle:
            log.line(f"Gracefully exiting... Remaining number of requests {engine.batcher.running_count}")
            await asyncio.sleep(DRAIN_POLL_S)
        log.line("Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[]")
        self._leave_socket()

    def _crash(self, report: Callable[[], None]) -> None:
        report()
        log.line(log.FAILED_RUNNING)
        linger_s = self.faults.number("linger")
        if linger_s:
            log.line(f"Waiting {linger_s} seconds for CUDA coredumps before exiting.")
        asyncio.get_running_loop().call_later(linger_s or CRASH_LINGER_S, fail, self.dialect.failed_exit)

    async def _watch_load(self, engine: Engine) -> None:
        """Faults that go by the clock of the load."""
        death_s, flood = self.faults.number("death_under_load"), self.faults.number("flood_log")
        live_s = self.faults.number("live_death")
        while death_s is not None or flood is not None or live_s is not None:
            await asyncio.sleep(0.05)
            load_s, told_s = engine.load_s(), engine.told_at_s
            limited = live_s is not None and told_s is not None and time.monotonic() - told_s >= live_s
            if limited or (death_s is not None and load_s >= death_s):
                os.kill(os.getpid(), signal.SIGKILL)
            if flood is not None and load_s >= 0:
                log.raw("\n".join(["WARNING: something happened " + "x" * 100] * int(flood * 400)) + "\n")

    def _leave_child(self) -> None:
        """A child in its own session that survives its parent and inherits its environment."""
        if "child_left" in self.faults:
            _sleeper(self.faults.number("child_left") or 0.0)

    def _leave_socket(self) -> None:
        if "stale_port" in self.faults and self.sock is not None:
            _sleeper(self.faults.number("stale_port") or 0.0, keep=self.sock.fileno())

    async def _run_schedule(self, schedule: tuple[float, float]) -> int:
        model = info.model_name(self.args)
        double = Schedule(*schedule, log_path=self.options.schedule_log, model=model)
        # The rest of the routes answer as the demo's server does.
        app, engine = self._app(self._plan({}))
        app.serving = app.ready = app.quiet = True
        app.route("/generate", lambda request, reply: double.generate("generate", request, reply))
        app.route("/v1/completions", lambda request, reply: double.generate("completions", request, reply))
        app.route("/v1/chat/completions", lambda request, reply: double.generate("chat", request, reply))
        if not await self._open(app):
            return 1
        self._spawn(double.run())
        self._spawn(engine.run())
        log.line("The server is fired up and ready to roll!")
        await self._serve_until_told(engine)
        return 0


def _sleeper(seconds: float, keep: int | None = None) -> None:
    code = f"import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep({seconds})"
    null = subprocess.DEVNULL
    subprocess.Popen(
        [sys.executable, "-S", "-c", code],
        start_new_session=True,
        pass_fds=() if keep is None else (keep,),
        stdin=null,
        stdout=null,
        stderr=null,
    )


def _raise_descriptor_limit() -> None:
    """Thousands of streams need as many descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
