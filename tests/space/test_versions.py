"""Version ranges."""

from __future__ import annotations

import pytest

from autotune.errors import InputError
from autotune.space.versions import in_range, release


@pytest.mark.parametrize(
    ("version", "text", "expected"),
    [
        ("0.5.9", "<0.5.14", True),
        ("0.5.14", "<0.5.14", False),
        ("0.5.14.post1", ">=0.5.14", True),
        ("0.5.23rc0", ">0.5.9", True),
        ("v0.4.6", ">=0.4,<0.5", True),
        ("0.5", ">=0.4,<0.5", False),
        ("0.5.0", "==0.5", True),
        ("0.33.0+cu130", "<=0.33", True),
        ("anything", "", True),
    ],
)
def test_in_range(version: str, text: str, expected: bool) -> None:
    """Numbers are compared as numbers, suffixes and trailing zeros do not count."""
    assert in_range(version, text) is expected


def test_release_of_no_version() -> None:
    """Text without a number has no release."""
    assert release("main") == ()


@pytest.mark.parametrize("text", ["0.5", "~=0.5", ">=x", "> = 1"])
def test_bad_ranges(text: str) -> None:
    """A range that cannot be read is refused with an example of a good one."""
    with pytest.raises(InputError, match="write it like"):
        in_range("0.5", text)
