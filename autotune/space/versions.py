"""Engine versions and ranges of them, as far as choosing a flag needs it (``>=0.5.14``, ``<0.3.6``, ``>=0.4,<0.5``)."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

from autotune.errors import InputError

Release = tuple[int, ...]

_COMPARE: dict[str, Callable[[Release, Release], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_CLAUSE = re.compile(r"^(>=|<=|==|>|<)\s*v?(\d+(?:\.\d+)*)$")
_RELEASE = re.compile(r"^v?(\d+(?:\.\d+)*)")


def release(version: str) -> Release:
    """The numbers of a version without trailing zeros; suffixes (``.post1``, ``rc0``, ``+cu130``) are dropped.

    ``()`` where the text does not begin with a number.
    """
    match = _RELEASE.match(version.strip())
    numbers = [int(part) for part in match.group(1).split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def parse_range(text: str) -> tuple[tuple[str, Release], ...]:
    """The clauses of a range; the empty text has none. Raises InputError on anything else."""
    clauses = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = _CLAUSE.match(part)
        if match is None:
            raise InputError(f"version range {text!r}: cannot read {part!r}; write it like '>=0.5.14' or '>=0.4,<0.5'")
        clauses.append((match.group(1), release(match.group(2))))
    return tuple(clauses)


def in_range(version: str, text: str) -> bool:
    """Whether ``version`` satisfies every clause of ``text``; an empty range holds every version."""
    seen = release(version)
    return all(_COMPARE[sign](seen, bound) for sign, bound in parse_range(text))
