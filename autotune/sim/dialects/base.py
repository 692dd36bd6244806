"""What a dialect translates, and SGLang's, which translates nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autotune.sim import wire
from autotune.sim.engine import Engine
from autotune.sim.http import Reply, Request
from autotune.sim.log import native

Routes = dict[str, Callable[[Request, Reply], None]]


class Dialect:
    """One engine's way to speak. Made once per server, before its arguments are read.

    ``rules`` is the SGLang version whose arithmetic of limits is nearest; empty: the version asked for.
    ``failed_exit`` is the exit status after a failure; None: it kills itself, as SGLang's parent does.
    """

    rules = ""
    failed_exit: int | None = None

    def arguments(self, argv: Sequence[str], version: str) -> list[str]:
        """The same command line in SGLang's words. Ends the process where the engine refuses its arguments."""
        return list(argv)

    def line(self, message: str) -> str | None:
        """A line of SGLang's log as this engine writes it, with its line ends; None: it says nothing of it."""
        return native(message)

    def routes(self, own: Routes, args: dict[str, Any], engine: Engine) -> Routes:
        """All routes; ``own`` are SGLang's."""
        return own

    def refusal(self, refused: wire.BadRequest) -> Any:
        """The body of an answer with status 400."""
        return wire.error_body(str(refused), 400)


class Sglang(Dialect):
    """The simulator's mother tongue."""
