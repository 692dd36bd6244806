"""What the tuner needs to know of an inference server, and nothing else.

An engine is pure: it turns values into a ``LaunchPlan``, into requests, and what a server answered
back into values. Whoever calls it does the I/O and hands in ``fetch``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from autotune.study.file import EngineSpec, ModelSpec, Study
from autotune.values import Config, Effective, LaunchPlan, ParamValue, Value

Fetch = Callable[[str], tuple[int, bytes]]
"""GET of a path of the server (with its key, where it has one): HTTP status and body.

Status 0 stands for "no answer"; a fetch never raises.
"""


class Where(Value, frozen=True, kw_only=True):
    """Where the server is reached; ``listen`` is the address that it binds where that is another one."""

    host: str
    port: int
    listen: str = ""

    @property
    def bind(self) -> str:
        """The address for the server's own command line."""
        return self.listen or self.host


class Request(Value, frozen=True, kw_only=True):
    """One HTTP request; ``body`` is JSON text, empty for none. ``admin``: use the admin key where there is one."""

    method: Literal["GET", "POST"]
    path: str
    body: str = ""
    admin: bool = False


class Counters(Value, frozen=True, kw_only=True):
    """Totals since the server started, over all ranks, as the server itself counts them; None: not told.

    ``retractions`` are requests thrown out of a full KV pool (preemptions in vLLM), ``cached_tokens``
    prompt tokens that a prefix cache answered. ``running`` and ``queued`` are requests at this moment.
    ``source`` is ``metrics``, ``log`` or ``none``; from a log only what its lines say is known.
    """

    source: Literal["metrics", "log", "none"]
    prompt_tokens: int | None = None
    generated_tokens: int | None = None
    cached_tokens: int | None = None
    retractions: int | None = None
    running: int | None = None
    queued: int | None = None


class Engine(Protocol):
    """One kind of inference server. Stateless: every method is a function of its arguments."""

    @property
    def kind(self) -> str:
        """The name that a study writes under ``[engine] kind``."""
        ...

    def for_study(self, study: Study) -> Engine:
        """The engine as this study describes it: itself, where a study can tell it nothing. Raises InputError."""
        ...

    def launch_plan(
        self, spec: EngineSpec, model: ModelSpec, flags: Sequence[tuple[str, ParamValue]], where: Where
    ) -> LaunchPlan:
        """The base command with ``flags`` (pairs of flag and value) put in place, then host and port.

        A flag replaces the same flag of the base command, by any alias and in either form. Raises
        InputError where the command cannot carry them.
        """
        ...

    def probe(self, plan: LaunchPlan, token_ids: Sequence[int]) -> Request:
        """A real, small generation on fresh ``token_ids``: the only proof that a server serves."""
        ...

    def is_ready(self, status: int, body: bytes) -> bool:
        """Whether the answer to ``probe`` holds generated tokens."""
        ...

    def effective(self, fetch: Fetch, log_text: str, names: Sequence[str]) -> Effective:
        """The values in force; ``names`` are the search space's parameters to look up. Never raises."""
        ...

    def describe_clamps(self, config: Config, effective: Effective, log_text: str = "") -> tuple[str, ...]:
        """One sentence for each parameter that runs at another value than asked, with the reason if known."""
        ...

    @property
    def live_parameter(self) -> str:
        """The parameter of the search space that ``live_limit`` moves; empty: it is fixed while the server runs."""
        ...

    def live_limit(self, limit: int, fetch: Fetch) -> Request | None:
        """The request that makes a running server hold at most ``limit`` requests, or None if it cannot."""
        ...

    def live_limit_accepted(self, status: int, body: bytes) -> bool:
        """Whether the answer to ``live_limit`` says that every rank took it."""
        ...

    def live_limit_in_force(self, fetch: Fetch) -> int | None:
        """The running limit that is in force at this moment, over all ranks; None: not told."""
        ...

    def running_logged(self, log_text: str) -> int | None:
        """How many requests the server typically ran at once, as its log tells; None: it does not."""
        ...

    def counters(self, fetch: Fetch, log_text: str = "") -> Counters:
        """The server's own counts, from /metrics, else from its log."""
        ...
