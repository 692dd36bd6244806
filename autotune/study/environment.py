"""Names of environment variables: what can be one, and which hold a credential. One rule for all who write them."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_NAME = re.compile(
    r"(^|_)(API|AUTH|ACCESS)?(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|PAT|COOKIE)(_ID)?$",
    re.IGNORECASE,
)
_SECRET_URL = re.compile(r"://[^/@\s]*:[^/@\s]+@")


def is_name(text: str) -> bool:
    """Whether a variable can have this name."""
    return _NAME.fullmatch(text) is not None


def looks_secret(name: str, value: str = "") -> bool:
    """Whether a variable is a credential by its name, or by a password inside a URL."""
    return bool(_SECRET_NAME.search(name) or _SECRET_URL.search(value))
