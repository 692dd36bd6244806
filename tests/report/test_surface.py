"""Tests of the map of two parameters."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure

from autotune.report.surface import FAR, _distance, _risk, draw


def unit(*spots: tuple[float, float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array(spots, dtype=float)


def test_a_region_is_out_of_memory_where_the_nearest_trials_were() -> None:
    """Around failures the risk is high, around measurements low, and where nobody was nothing is claimed."""
    risk = _risk(unit((0.9, 0.9), (0.85, 0.92), (0.1, 0.1), (0.9, 0.1)), unit((0.9, 0.9)), unit((0.1, 0.1), (0.5, 0.5)))
    assert (risk[0] > 0.9, risk[1] > 0.9) == (True, True)
    assert list(risk[2:]) == [0.0, 0.0]


def test_distance_is_to_the_next_point() -> None:
    """In units of the map."""
    assert np.allclose(_distance(unit((0.0, 0.0), (0.3, 0.4)), unit((0.0, 0.0), (1.0, 1.0))), [0.0, 0.5])


def test_colours_end_where_nothing_was_measured() -> None:
    """The corner that no trial came near has no colour; the map still covers all trials."""
    axes = Figure().add_subplot()
    scored = [(0.1, 0.1, 1.0), (0.2, 0.1, 2.0), (0.1, 0.2, 3.0)]
    draw(axes, scored, [(1.0, 1.0)], (False, False))
    filled = axes.collections[0]
    reach = max(path.get_extents().x1 for path in filled.get_paths() if np.size(path.vertices))
    width = axes.get_xlim()[1] - axes.get_xlim()[0]
    assert reach < 0.2 + 1.1 * FAR * width
    assert axes.get_xlim()[1] > 1.0


def test_logarithmic_axes_keep_their_order() -> None:
    """Marks are where they were put, whatever the scale."""
    axes = Figure().add_subplot()
    scored = [(8.0, 1.0, 1.0), (64.0, 2.0, 2.0), (512.0, 3.0, 3.0), (64.0, 1.0, 2.0)]
    draw(axes, scored, [], (True, False))
    (marks,) = [line for line in axes.lines if line.get_label() == "measured"]
    assert list(np.asarray(marks.get_xdata())) == [8.0, 64.0, 512.0, 64.0]
    assert all(a < b for a, b in pairwise((axes.get_xlim()[0], 8.0, 512.0, axes.get_xlim()[1])))
