"""The search: samplers, and the mirror of the records in an Optuna storage. The only importer of Optuna."""

from autotune.search.region import Direction, Point, Region
from autotune.search.samplers import SAMPLERS
from autotune.search.searcher import Searcher, Suggestion, repair_storage
from autotune.search.suggest import Strategy

__all__ = [
    "SAMPLERS",
    "Direction",
    "Point",
    "Region",
    "Searcher",
    "Strategy",
    "Suggestion",
    "repair_storage",
]
