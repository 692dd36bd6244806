"""Matern 5/2 with one length scale per axis, over numbers and categories. Pure."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_SQRT5 = math.sqrt(5.0)


def squares(left: Array, right: Array, categorical: tuple[bool, ...]) -> Array:
    """Squared distances per axis, (dims, n, m); two different categories are 1 apart."""
    gaps = left.T[:, :, None] - right.T[:, None, :]
    for i, is_category in enumerate(categorical):
        if is_category:
            gaps[i] = gaps[i] != 0
    return np.asarray(gaps * gaps)


def matern(distances: Array, lengths: Array) -> Array:
    """Correlations (n, m) for squared distances per axis (dims, n, m)."""
    r = _SQRT5 * np.sqrt(np.einsum("d,dnm->nm", 1.0 / lengths**2, distances))
    return np.asarray((1.0 + r + r * r / 3.0) * np.exp(-r))


def matern_by_log_length(distances: Array, lengths: Array) -> tuple[Array, Array]:
    """Correlations (n, m), and their derivatives by the logarithm of each length, (dims, n, m)."""
    scaled = distances / (lengths**2)[:, None, None]
    r = _SQRT5 * np.sqrt(scaled.sum(axis=0))
    decay = np.exp(-r)
    # d/dr (1 + r + r^2/3) e^-r = -(r/3)(1 + r) e^-r, and dr/dlog(l) = -5 s / r.
    return (1.0 + r + r * r / 3.0) * decay, (5.0 / 3.0) * scaled * ((1.0 + r) * decay)[None]
