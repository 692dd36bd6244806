"""Reading Prometheus text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.engines.metrics import parse, total


def test_labels_with_quotes_and_braces() -> None:
    """Label values may hold anything, escaped."""
    (sample,) = parse('a:b_total{x="1,}",y="q\\"uote"} 2.5e1 1700000000\n')
    assert (sample.name, sample.labels, sample.value) == ("a:b_total", {"x": "1,}", "y": 'q\\"uote'}, 25.0)


def test_totals_select_by_labels() -> None:
    """Only the label sets that match are added, and an absent metric is None."""
    samples = parse('n{a="1"} 1\nn{a="2"} 2\n# n 9\nn_other 5\nn{a="1",b="x"} NaN\n')
    assert total(samples, "n") == 3
    assert total(samples, "n", {"a": "2"}) == 2
    assert total(samples, "absent") is None


@pytest.mark.parametrize("page", ['n{a="1"} 1e308\nn{a="2"} 1e308\n', "n 1e300\n", "n -1e19\n"])
def test_a_sum_beyond_every_counter_is_not_told(page: str) -> None:
    """It is no count, and no record could hold it."""
    assert total(parse(page), "n") is None


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text_can_be_parsed(text: str) -> None:
    """A page that is none yields what it yields, without an exception."""
    assert all(sample.name for sample in parse(text))
