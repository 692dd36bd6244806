"""One server process: started in its own session, marked, its output pumped into a private file."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from msgspec.structs import replace

from autotune.errors import InputError, NightStopped
from autotune.server.asking import Inside
from autotune.server.log import REDACTED, CappedLog, LogReader, Pump
from autotune.server.proctable import (
    MARK_NAME,
    ProcessRow,
    boot_id,
    descendants,
    family,
    marked,
    own_line,
    read_row,
    read_table,
)
from autotune.study.atomic import writing
from autotune.study.environment import looks_secret
from autotune.values import LaunchPlan, Value, Wrapper
from autotune.wrappers import LOCAL, SERVER_ENV, SERVICE_ENV, Launch, name_of, shares_files, wrapping

_SHORTEST_SECRET = 4


class StartFailed(NightStopped):
    """The machine could not start a process just now (process table, memory): it may later."""


class ServerIdentity(Value, frozen=True, kw_only=True):
    """What a study records, before it waits for anything, to find this server again after the tuner was killed.

    ``start_ticks`` is the leader's start in clock ticks since boot, so a pid reused by somebody else is told apart.
    The same of the tuner that started it, 0 where an older version wrote the record.
    """

    pid: int
    start_ticks: int
    mark: str
    port: int
    boot_id: str
    tuner_pid: int = 0
    tuner_start_ticks: int = 0

    def has_other_tuner(self) -> bool:
        """Whether the tuner that started it lives and is not this process: then the server is not an orphan."""
        if self.tuner_pid in (0, os.getpid()) or self.boot_id != boot_id():
            return False
        row = read_row(self.tuner_pid)
        return row is not None and row.start_ticks == self.tuner_start_ticks


def new_mark(study_id: str, trial: int) -> str:
    """A mark that no other start carries: ``<study id>/<trial>/<nonce>``."""
    return f"{study_id}/{trial}/{secrets.token_hex(8)}"


def child_environment(plan: LaunchPlan, base: Mapping[str, str], mark: str) -> dict[str, str]:
    """The tuner's ordinary variables, without credentials that the plan does not name, then the plan's, then the mark,
    and for a script the name that a wrapper makes of it.

    Raises InputError when the plan's API key variable is not set.
    """
    named = {*plan.secret_env, *([plan.api_key_env] if plan.api_key_env else [])}
    if plan.api_key_env and not base.get(plan.api_key_env):
        raise InputError(f"environment: {plan.api_key_env} (engine.api_key_env) is not set; export it and start again")
    env = {name: value for name, value in base.items() if name in named or not looks_secret(name, value)}
    named_too = {SERVICE_ENV: name_of(mark)} if plan.scripted else {}
    return env | SERVER_ENV | plan.env | {MARK_NAME: mark} | named_too


def secret_values(plan: LaunchPlan, env: Mapping[str, str]) -> tuple[str, ...]:
    """Values to redact from everything the server prints: its API key and the credentials it was given."""
    names = {name for name in env if looks_secret(name, env[name])} | {plan.api_key_env or ""}
    values = {env.get(name, "") for name in names}
    return tuple(sorted(value for value in values if len(value) >= _SHORTEST_SECRET))


def environment_record(plan: LaunchPlan, env: Mapping[str, str]) -> dict[str, str]:
    """The child's environment for the record: values that the plan writes literally, all others by name only."""
    return {name: plan.env.get(name, REDACTED) for name in sorted(env)}


class ServerProcess:
    """A started server. It owns the log file and the pipe; ``close`` gives them back after the stop."""

    def __init__(self, popen: subprocess.Popen[bytes], plan: LaunchPlan, mark: str, log: CappedLog) -> None:
        self.plan = plan
        self.mark = mark
        self.log = log
        self._first_position = log.end
        self._popen = popen
        self._protected = own_line()
        row = read_row(popen.pid, zombie=True)
        self.start_ticks = row.start_ticks if row else 0
        self._known: dict[int, int] = {popen.pid: self.start_ticks}
        self._pump: Pump | None = None
        there = wrapping(plan.wrapper)
        self._inside = Inside(there, mark)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def log_bytes(self) -> int:
        """All bytes the server has written so far, whether kept or not."""
        return self._pump.seen_bytes if self._pump else 0

    def poll(self) -> int | None:
        """The leader's exit code (negative: the signal that killed it); None while it lives."""
        return self._popen.poll()

    @property
    def ever_pids(self) -> frozenset[int]:
        """All processes that were ever seen to belong to this server."""
        return frozenset(self._known)

    @property
    def started_s(self) -> float:
        """Seconds from boot to the start of the leader."""
        return self.start_ticks / os.sysconf("SC_CLK_TCK")

    def identity(self) -> ServerIdentity:
        tuner = read_row(os.getpid())
        return ServerIdentity(
            pid=self.pid,
            start_ticks=self.start_ticks,
            mark=self.mark,
            port=self.plan.port,
            boot_id=boot_id(),
            tuner_pid=tuner.pid if tuner else 0,
            tuner_start_ticks=tuner.start_ticks if tuner else 0,
        )

    def members(self) -> tuple[ProcessRow, ...]:
        """The live processes of this server: its session, marked strays, and all who ever were that."""
        rows = read_table()
        candidates = [row for row in rows if row.start_ticks >= self.start_ticks]
        seeds = {row.pid for row in candidates if self._known.get(row.pid) == row.start_ticks}
        roots = [self._inside.root] if self._inside.root else []
        seeds |= marked(candidates, self.mark) | descendants(candidates, roots)
        found = family(candidates, seeds, self._protected)
        members = tuple(row for row in candidates if row.pid in found)
        self._known.update(row.identity for row in members)
        return members

    @property
    def contained(self) -> bool:
        """Whether a container holds the server, whose processes may be another user's."""
        return self._inside.asks

    def look_inside(self) -> None:
        """Ask a container's runtime which process of this machine is its first, as long as that is not known."""
        self._inside.ask()

    def reader(self) -> LogReader:
        """Reads what this start wrote, from its beginning."""
        return LogReader(self.log, self._first_position)

    def pump_from(self, source: IO[bytes], secrets: tuple[str, ...]) -> None:
        self._pump = Pump(source, self.log, secrets)
        self._pump.start()

    def close(self) -> None:
        """Drain the output and close pipe and file. Idempotent; what was written can still be read afterwards."""
        if self._popen.stdin:
            self._popen.stdin.close()
        if self._pump:
            self._pump.close()
        self.log.close()


def start(plan: LaunchPlan, log_path: Path, mark: str, base_env: Mapping[str, str] | None = None) -> ServerProcess:
    """Start the plan's argv, behind its wrapper where it has one, without a shell, as the leader of a new session.

    Raises NightStopped when the program cannot be run at all, StartFailed when no process can be started now,
    InputError when its API key is not set.
    """
    base_env = os.environ if base_env is None else base_env
    env = child_environment(plan, base_env, mark)
    there = wrapping(plan.wrapper)
    launch = there.launch(plan, mark) if there and not plan.scripted else Launch(argv=plan.argv)
    fed = _feed(launch, env)
    # A client is no server: what the plan sets for the one could break the other.
    own = env if shares_files(plan.wrapper) else child_environment(replace(plan, env={}), base_env, mark)
    with writing(log_path):
        log = CappedLog(log_path)
    try:
        popen = _popen(launch, plan.wrapper, own)
    except BaseException:
        log.close()
        raise
    try:
        process = ServerProcess(popen, plan, mark, log)
        assert popen.stdout is not None
        process.pump_from(popen.stdout, secret_values(plan, env))
        if popen.stdin is not None:
            with contextlib.suppress(OSError):  # a client that has ended already says why in its log
                popen.stdin.write(fed)
    except BaseException:
        os.killpg(popen.pid, signal.SIGKILL)
        popen.wait()
        raise
    return process


def _feed(launch: Launch, env: Mapping[str, str]) -> bytes:
    """The variables for a client's standard input, a line each, and the empty line that ends them."""
    lines = [f"{name}={env[name]}" for name in launch.fed or () if name in env]
    if broken := next((line for line in lines if "\n" in line), None):
        raise InputError(
            f"study file: the value of {broken.partition('=')[0]} has a line break, which cannot be handed to another "
            "host; set it there"
        )
    return "".join(f"{line}\n" for line in (*lines, "")).encode()


def _popen(launch: Launch, wrapper: Wrapper, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            launch.argv,
            stdin=subprocess.DEVNULL if launch.fed is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            env=env,
            start_new_session=True,
        )
    except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
        key = "engine.command" if wrapper.kind == LOCAL else "engine.wrapper.program"
        raise NightStopped(
            f"server: {launch.argv[0]} cannot be run ({error.strerror}); correct {key} in the study file"
        ) from error
    except OSError as error:
        raise StartFailed(
            f"server: no process could be started ({error.strerror}); free memory or raise ulimit -u, then start again"
        ) from error
