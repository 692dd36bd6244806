"""Optuna's own tests for samplers, run on ours."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    RelativeSamplerTestCase,
    SingleOnlySamplerTestCase,
)

from autotune.search.gp.sampler import AutotuneSampler


class TestConformance(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    """As Optuna's documentation asks of a third-party sampler for one objective."""

    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        """A plain optimiser: no hint of what the axes mean."""
        return lambda: AutotuneSampler(seed=1)
