"""A short round of every target; `python -m benchmarks.fuzz` runs the long one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_no_traceback(name: str) -> None:
    """Damaged text of this kind is read or refused with an error that a person can read."""
    check, strategies = TARGETS[name]

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.tuples(*strategies))
    def run(case: tuple[Any, ...]) -> None:
        check(*case)

    run()
