"""Numbers in other people's files. Pure."""

from __future__ import annotations

import math
from typing import Any


def number(value: Any) -> float | None:
    """A number, also where a command line or a sweep has it as text; None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isnan(found) else found


def whole(value: Any) -> int | None:
    """A whole number of at least 1; None for anything else."""
    found = number(value)
    return int(found) if found is not None and math.isfinite(found) and found >= 1 else None
