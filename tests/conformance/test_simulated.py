"""The suite against the simulated server, which speaks each engine's dialect."""

from __future__ import annotations

import pytest

from autotune.engines import kinds
from tests.conformance.subjects import SIMULATED, Subject
from tests.conformance.suite import Conformance


class TestSimulated(Conformance):
    """Every engine, and the example that is added in one file."""

    @pytest.fixture(scope="class", params=SIMULATED, ids=lambda subject: subject.name)
    @classmethod
    def subject(cls, request: pytest.FixtureRequest) -> Subject:
        found: Subject = request.param
        return found

    def test_no_engine_is_left_out(self) -> None:
        """What a study may name has been put through the suite."""
        assert {subject.kind for subject in SIMULATED} == set(kinds())
