"""What tests of shared studies have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fleet.database import Database, database, installed
from tests.needed import REQUIRED


@pytest.fixture(scope="module")
def postgres() -> Iterator[Database]:
    """A real PostgreSQL; skipped where it is not installed and not required."""
    if installed() is None and not REQUIRED:
        pytest.skip("PostgreSQL is not installed here (Debian's package postgresql)")
    with database() as server:
        yield server
