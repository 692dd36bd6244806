"""The suite against real servers that are not ours: llama.cpp's, vLLM and SGLang on a CPU."""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet

from tests.conformance.subjects import Subject
from tests.conformance.suite import Conformance
from tests.engines.real_subjects import SUBJECTS

pytestmark = pytest.mark.engine


def grouped(subject: Subject) -> ParameterSet:
    """SGLang has most tests of its own, and a worker to itself; the others share one."""
    group = "sglang" if subject.kind == "sglang" else "others"
    return pytest.param(subject, id=subject.name, marks=pytest.mark.xdist_group(group))


class TestReal(Conformance):
    """Every engine that has a recipe."""

    @pytest.fixture(scope="class", params=[grouped(each) for each in SUBJECTS])
    @classmethod
    def subject(cls, request: pytest.FixtureRequest) -> Subject:
        found: Subject = request.param
        return found
