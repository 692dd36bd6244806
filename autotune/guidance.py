"""What a night wants of one trial beyond its own load: when to end it early, which running limits to try after it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from autotune.values import Estimate, Measured


class Guide(msgspec.Struct, frozen=True, kw_only=True):
    """Asked while the trial's server runs.

    ``loses`` says why a load with that figure so far need not go on, None: it must. ``next_limit`` gives the next
    running limit to load the server at, from what this start has measured; None: enough. ``no_live`` hears why running
    limits cannot be changed while this server serves, and ``setback`` of a live load that brought nothing. ``keep``
    hears of all that is measured so far, each time that it has grown.
    """

    loses: Callable[[Estimate], str | None] = lambda _: None
    next_limit: Callable[[Measured], int | None] = lambda _: None
    no_live: Callable[[str], None] = lambda _: None
    setback: Callable[[str], None] = lambda _: None
    keep: Callable[[Measured], None] = lambda _: None


NO_GUIDE = Guide()
"""Measure, and no more: baseline, confirmation."""
