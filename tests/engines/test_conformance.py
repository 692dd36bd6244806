"""The suite against real servers that are not ours: llama.cpp's, vLLM and SGLang on a CPU."""

from __future__ import annotations

import pytest

from tests.conformance.subjects import Subject
from tests.conformance.suite import Conformance
from tests.engines.real_subjects import SUBJECTS

pytestmark = pytest.mark.engine


class TestReal(Conformance):
    """Every engine that has a recipe."""

    @pytest.fixture(scope="class", params=SUBJECTS, ids=lambda subject: subject.name)
    @classmethod
    def subject(cls, request: pytest.FixtureRequest) -> Subject:
        found: Subject = request.param
        return found
