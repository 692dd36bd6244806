"""What the next start is worth: the expected rise of the best posterior mean among what will have been tried.

For a new configuration this is expected improvement on the incumbent's posterior mean, with noise; for one that was
tried it is the value of a replicate. Both are in one unit, so replication is chosen by its value.
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray

Array = NDArray[np.float64]
NODES = 24


def gain_of_new(mean: Array, gain_sd: Array, tried: Array, moves: Array) -> Array:
    """Expected rise of the best mean, (m,), when one of m new configurations is started once.

    ``mean`` (m,) are their posterior means, ``gain_sd`` (m,) how far one start may move each, ``tried`` (k,) the
    means of what may be recommended now, ``moves`` (k, m) how far the same start moves those.
    """
    nodes, weights = hermegauss(NODES)
    weights = weights / weights.sum()
    best = tried.max()
    rise = np.zeros_like(mean)
    for node, weight in zip(nodes, weights, strict=True):
        after = np.maximum((tried[:, None] + moves * node).max(axis=0), mean + gain_sd * node)
        rise += weight * after
    return np.asarray(np.maximum(rise - best, 0.0))


def gain_of_repeat(tried: Array, moves: Array) -> Array:
    """The same for one more start of what was tried: ``moves`` (k, k) column j is what a start of j does."""
    return gain_of_new(tried, np.diag(moves), tried, moves)
