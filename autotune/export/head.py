"""The head of an exported file, read back: labels and their texts."""

from __future__ import annotations

import re

_FACT = re.compile(r"# (?P<label>[A-Za-z][A-Za-z ]*):\s+(?P<text>\S.*)")
_STUDY = re.compile(r"(?P<name>\S+) \((?P<file>.+)\)")


def read_head(text: str) -> dict[str, str]:
    """Label and text of each fact in the comments at the top; the first of a label counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        if match := _FACT.fullmatch(line.rstrip()):
            found.setdefault(match["label"], match["text"])
    return found


def study_in(head: dict[str, str]) -> tuple[str, str] | None:
    """Name and file name of the study that a head tells of; None where it does not."""
    match = _STUDY.fullmatch(head.get("study", ""))
    return (match["name"], match["file"]) if match else None
