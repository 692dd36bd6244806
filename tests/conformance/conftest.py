"""Which cases of the suite are in the fast tests."""

from __future__ import annotations

import pytest

NIGHT = "test_simulated.py::TestSimulated::test_a_night_with_a_server_killed_under_load["
FAST = ("sglang", "vllm")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A whole night takes half a minute: in the fast tests the two engines that most studies are of."""
    for item in items:
        if NIGHT in item.nodeid and not item.nodeid.endswith(tuple(f"[{name}]" for name in FAST)):
            item.add_marker(pytest.mark.slow)
