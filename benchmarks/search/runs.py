"""What the tables are made of."""

from __future__ import annotations

from autotune.values import Value
from benchmarks.search.study import Curve

RANDOM = ("held out settings", "development settings")
MEASURED = ("H200 table", "H200 records")
PLAIN, LIVE = "autotune", "autotune, live values"


class Run(Value, frozen=True, kw_only=True):
    """The studies of one method on one surface at one noise. ``limited``: the objective has a limit;
    ``inside``: its best running limit lies below the top of the range.
    """

    method: str
    surface: str
    family: str
    limited: bool
    inside: bool
    dims: int
    noise: float
    curves: tuple[Curve, ...]
