"""Rounding to the nearest allowed value of a range. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from autotune.values import ParamValue, Value

_DIGITS = 9


class Window(Value, frozen=True, kw_only=True):
    """The allowed values of a number: multiples of ``step`` in [low, high], and the edges themselves.

    With a ``divisor`` every value is a multiple of it (edges too), of the step as well where the window has one.
    """

    low: float = -math.inf
    high: float = math.inf
    step: float = 0.0
    divisor: int = 1


def to_step(value: float, window: Window) -> float:
    """The allowed value nearest to ``value``. Applying it twice changes nothing."""
    inside = min(max(value, window.low), window.high)
    edges = [edge for edge in (window.low, window.high) if math.isfinite(edge) and edge % window.divisor == 0]
    if window.divisor == 1:
        allowed = [*_multiples(inside, window.step, window), *edges] if window.step else [inside]
    else:
        common = float(math.lcm(int(window.step) or 1, window.divisor))
        allowed = [*_multiples(inside, common, window), *edges] or _multiples(inside, float(window.divisor), window)
    return min(allowed or [inside], key=lambda c: (abs(c - inside), c))


def nearest_choice(value: ParamValue, choices: Iterable[ParamValue], window: Window) -> ParamValue:
    """The choice itself, else the numerically nearest one inside the window, else the first."""
    options = tuple(choices)
    allowed = tuple(c for c in options if _fits(c, window)) or options
    if value in allowed:
        return allowed[allowed.index(value)]
    if isinstance(value, str) or any(isinstance(c, str) for c in allowed):
        return allowed[0]
    return min(allowed, key=lambda c: (abs(float(c) - float(value)), float(c)))


def align(low: float, high: float, step: float) -> tuple[float, float]:
    """The part of [low, high] between its first and last multiple of ``step``; (low, low) where it has none."""
    first, last = math.ceil(low / step - 1e-9) * step, math.floor(high / step + 1e-9) * step
    return (round(first, _DIGITS), round(last, _DIGITS)) if first <= last + 1e-12 else (low, low)


def _multiples(value: float, step: float, window: Window) -> list[float]:
    """The multiples of ``step`` on both sides of ``value`` that lie inside the window."""
    base = math.floor(value / step)
    near = (round(k * step, _DIGITS) for k in (base - 1, base, base + 1, base + 2))
    return [multiple for multiple in near if window.low <= multiple <= window.high]


def _fits(choice: ParamValue, window: Window) -> bool:
    if isinstance(choice, str | bool):
        return True
    return window.low <= choice <= window.high and (window.divisor <= 1 or choice % window.divisor == 0)
