"""Reading the Prometheus text that servers publish under /metrics."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from autotune.values import Value

_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
MOST = 2.0**63


class Sample(Value, frozen=True, kw_only=True):
    """One line of the page."""

    name: str
    labels: dict[str, str]
    value: float


def parse(text: str) -> tuple[Sample, ...]:
    """Every well-formed sample with a finite value; lines that are none are passed over."""
    return tuple(_samples(text))


def _samples(text: str) -> Iterator[Sample]:
    for line in text.splitlines():
        match = _LINE.match(line)
        value = _number(match[3]) if match else None
        if match and value is not None:
            yield Sample(name=match[1], labels=dict(_LABEL.findall(match[2] or "")), value=value)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def total(samples: tuple[Sample, ...], name: str, where: Mapping[str, str] | None = None) -> int | None:
    """The sum over all label sets of ``name`` that have the labels ``where``; None when there is none, or it is beyond
    what a counter holds.
    """
    wanted = (where or {}).items()
    values = [s.value for s in samples if s.name == name and wanted <= s.labels.items()]
    added = sum(values)
    return round(added) if values and abs(added) < MOST else None
