"""One look inside: where the formula has the last word about running limits that nobody has seen.

By the formula more requests at once are never worse, so a search that trusts it ends at the top of the range, sure that
nothing better lies between. For a server of which that is not true the best lies there. One start tells.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from autotune.search.gp.belief import Belief

Array = NDArray[np.float64]
# A gap of two doublings and more has not been looked into, and how likely the start in it must be to be served.
GAP, LIKELY = 4.0, 0.7


def unseen_middle(belief: Belief) -> Array | None:
    """The best configuration at the running limit in the middle of the gap below its own (dims,), None: there is none.

    Loads at lowered limits have looked there too. Above the graphs nothing was seen of batches that have one.
    """
    physics, place, best = belief.views[0].physics, belief.chart.role("running"), belief.best()
    if physics is None or place is None or best is None:
        return None
    load = physics.load
    covered = load.running <= load.graph if belief.chart.role("graph") is not None else np.ones(len(load.running), bool)
    own = float(load.running[best])
    least = float(belief.chart.quantity(np.zeros((1, belief.chart.dims)), place)[0])
    low = max((float(r) for r, good in zip(load.running, covered, strict=True) if good and r < own), default=least)
    if own < GAP * low:
        return None
    middle = np.array([math.sqrt(low * own)])
    graph = np.minimum(middle, load.graph[best])
    point = belief.chart.lowered(np.array([belief.groups[best].point]), middle, graph)
    return np.asarray(point[0]) if belief.chances(point)[0] >= LIKELY else None
