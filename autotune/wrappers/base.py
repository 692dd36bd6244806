"""What the tuner needs to know of a program that starts servers elsewhere, and nothing else.

A wrapper is pure: it turns plans and marks into command lines, and what those print into names of what is still there.
``server.outside`` runs them. A server is known by the mark of its start, ``<study id>/<trial>/<nonce>``, or all servers
of a study by ``<study id>/``; as the name of a container or a job it has dashes for slashes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, Protocol

from autotune.values import LaunchPlan, Value

Argv = tuple[str, ...]
Listens = Literal["here", "published", "apart"]
"""Whose socket the server's port is on this machine. ``here``: the server's own; ``published``: that of whoever
forwards it, or nobody's where the kernel rewrites addresses; ``apart``: it is on another machine."""

NAME_PREFIX = "autotune-"
ANY_ADDRESS = "0.0.0.0"
LOOPBACK = "127.0.0.1"
MARK_NAME = "AUTOTUNE_TRIAL"
"""The variable that carries the mark."""
SERVICE_ENV = "AUTOTUNE_NAME"
"""The variable that names the container or job of an exported script; where it is not set, that has its own name."""
SERVER_ENV = {"PYTHONUNBUFFERED": "1", "SPT_NOENV": "1"}
"""Last words must reach the pipe before a SIGKILL, and setproctitle must leave /proc/PID/environ (the mark) alone."""


class Launch(Value, frozen=True, kw_only=True):
    """A wrapped command line. ``fed`` names variables that are written to its standard input, which then stays open
    until the stop; None: it reads nothing.
    """

    argv: Argv
    fed: tuple[str, ...] | None = None


class Inquiry(Value, frozen=True, kw_only=True):
    """A cheap command that succeeds where a server can be started: ``good`` says so, ``remedy`` what to do if not."""

    argv: Argv
    good: str
    remedy: str


class Wrapping(Protocol):
    """One kind of wrapper, with the settings of one study."""

    @property
    def listens(self) -> Listens: ...

    def inquiries(self) -> tuple[Inquiry, ...]:
        """What can be asked before the first start, each only where those before it went well."""
        ...

    def launch(self, plan: LaunchPlan, mark: str) -> Launch:
        """How the plan's server is started in the foreground. Raises InputError for what it cannot carry."""
        ...

    def served(self, plan: LaunchPlan, name: str) -> LaunchPlan:
        """The plan of a service of this name, for an export: the same server, with no tuner that watches it.

        Settings that are on its command line are no longer in its ``env``.
        """
        ...

    def find(self, mark: str) -> tuple[Argv, ...]:
        """Commands whose output names what is left of the marked servers."""
        ...

    def left(self, output: str, mark: str) -> tuple[str, ...]:
        """The names in that output."""
        ...

    def stop(self, left: Sequence[str], mark: str, term_s: float) -> tuple[Argv, ...]:
        """Commands that ask what is left to end."""
        ...

    def kill(self, left: Sequence[str], mark: str) -> tuple[Argv, ...]:
        """Commands that end it without asking."""
        ...

    def inside(self, mark: str) -> Argv | None:
        """A command that prints the first process of the marked server, by its number on this machine, and what names
        its control group; None where the mark in the environment is enough, or there is no such process here.
        """
        ...

    def own_failure(self, exit_code: int | None, log: str) -> str:
        """Why the wrapper, not the server, failed; empty: it did not."""
        ...

    def describe(self, name: str) -> str:
        """What ``name``, as found, is: for a sentence."""
        ...


def name_of(mark: str) -> str:
    """The name of a marked server, or the beginning of the names of a study's."""
    return NAME_PREFIX + mark.replace("/", "-")


def belongs(name: str, mark: str) -> bool:
    """Whether a name is that of the marked server, or of one of the study's and of no other whose id begins alike."""
    rest = r"\d+-[0-9a-f]{16}" if mark.endswith("/") else ""
    return re.fullmatch(re.escape(name_of(mark)) + rest, name) is not None


def first_line(log: str, *beginnings: str) -> str:
    """The first line of a log that begins with one of these words; empty where none does."""
    lines = (line.strip() for line in log.splitlines())
    return next((line for line in lines if line.startswith(beginnings)), "")
