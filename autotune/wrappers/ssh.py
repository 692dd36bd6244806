"""Another host by ssh. The server there is known by its mark; its life hangs on ssh's standard input."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from msgspec.structs import replace

from autotune.values import LaunchPlan, Wrapper
from autotune.wrappers.base import ANY_ADDRESS, LOOPBACK, SERVER_ENV, Argv, Inquiry, Launch, Listens, first_line
from autotune.wrappers.container import passed
from autotune.wrappers.script import FIND_OR_SIGNAL, IN_USE, TETHERED, guarded

KIND = "ssh"
_CONNECTION_FAILED = 255
# A connection of its own: one that is shared with other sessions would keep the forwarded port after the end.
_OPTIONS = ("-S", "none", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20")
_ALIVE = ("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=8", "-o", "ExitOnForwardFailure=yes")


class Ssh:
    """See ``Wrapping``."""

    def __init__(self, wrapper: Wrapper) -> None:
        self._wrapper = wrapper

    @property
    def listens(self) -> Listens:
        # The forwarded port is ssh's own, or ssh has ended (ExitOnForwardFailure).
        return "apart" if self._wrapper.address else "published"

    def inquiries(self) -> tuple[Inquiry, ...]:
        there = self._wrapper.destination
        return (
            Inquiry(
                argv=self._ssh((), ("-T",), "true"),
                good=f"{there} lets us in",
                remedy=f"see that `ssh -o BatchMode=yes {there} true` works without a question, "
                "or correct engine.wrapper",
            ),
            Inquiry(
                argv=self._ssh((), ("-T",), _shell("command -v setsid && cat /proc/self/stat")),
                good=f"{there} has sh, setsid and /proc",
                remedy=f"install setsid (util-linux) on {there}: a server there is ended through sh, setsid and /proc",
            ),
        )

    def launch(self, plan: LaunchPlan, mark: str) -> Launch:
        """See ``Wrapping.launch``. Variables go through the standard input: a command line can be read by others."""
        guard = guarded(ANY_ADDRESS if self._wrapper.address else LOOPBACK, plan.port)
        argv = self._ssh(_ALIVE, ("-T", *self._forward(plan)), _shell(TETHERED, mark, *guard, *plan.argv))
        return Launch(argv=argv, fed=(*SERVER_ENV, *plan.env, *passed(plan)))

    def served(self, plan: LaunchPlan, name: str) -> LaunchPlan:
        """See ``Wrapping.served``. A terminal of its own, since its end is what tells the server to end."""
        settings = (f"{key}={value}" for key, value in {**SERVER_ENV, **plan.env}.items())
        sent = (word for key in passed(plan) for word in ("-o", f"SendEnv={key}"))
        command = f"exec {shlex.join(['env', *settings, *plan.argv])}"
        return replace(plan, argv=self._ssh(_ALIVE, ("-tt", *self._forward(plan), *sent), command), env={})

    def find(self, mark: str) -> tuple[Argv, ...]:
        return (self._ssh((), ("-T",), _shell(FIND_OR_SIGNAL, "FIND", mark)),)

    def left(self, output: str, mark: str) -> tuple[str, ...]:
        return tuple(line for line in output.split() if line.isdecimal())

    def stop(self, left: Sequence[str], mark: str, term_s: float) -> tuple[Argv, ...]:
        return (self._ssh((), ("-T",), _shell(FIND_OR_SIGNAL, "TERM", mark)),)

    def kill(self, left: Sequence[str], mark: str) -> tuple[Argv, ...]:
        return (self._ssh((), ("-T",), _shell(FIND_OR_SIGNAL, "KILL", mark)),)

    def inside(self, mark: str) -> Argv | None:
        return None

    def own_failure(self, exit_code: int | None, log: str) -> str:
        if exit_code != _CONNECTION_FAILED or IN_USE in log:
            return ""
        told = first_line(log, "ssh:", "Host key", "Permission denied", "Connection", "Timeout", "client_loop", "bind")
        return f"the connection to {self._wrapper.destination} failed or was lost: {told or f'exit code {exit_code}'}"

    def describe(self, name: str) -> str:
        return f"process {name} on {self._wrapper.destination}"

    def _ssh(self, alive: Argv, more: Sequence[str], command: str) -> Argv:
        wrapper = self._wrapper
        program = wrapper.program or KIND
        return (program, *_OPTIONS, *alive, *more, *wrapper.options, wrapper.destination, command)

    def _forward(self, plan: LaunchPlan) -> Argv:
        if self._wrapper.address:
            return ()
        host = f"[{plan.host}]" if ":" in plan.host else plan.host
        return ("-L", f"{host}:{plan.port}:{LOOPBACK}:{plan.port}")


def _shell(script: str, *arguments: str) -> str:
    """A command line for the login shell at the other end, which need not be a POSIX one for more than quotes."""
    return f"exec {shlex.join(['sh', '-c', script, 'autotune', *arguments])}"
