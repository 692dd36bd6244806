"""Reads a folder of labelled logs: a manifest of tab-separated columns beside the log files."""

from __future__ import annotations

import csv
from pathlib import Path

import msgspec

from autotune.diagnosis import Facts


class Case(msgspec.Struct, frozen=True):
    """One labelled log. ``accepted`` holds every class/action pair that is right."""

    path: Path
    facts: Facts
    accepted: frozenset[str]


def _facts(row: dict[str, str]) -> Facts:
    words = row["engine"].split()
    version = next((word for word in words[1:] if word[:1].isdigit()), "")
    return msgspec.convert(
        {
            "engine": words[0].split("-")[0],
            "version": version,
            "phase": row["phase"],
            "alive": row["process_alive"] == "yes",
            "exit_code": int(row["exit_code"]) if row["exit_code"] else None,
            "silent_seconds": float(row["silent_seconds"] or 0),
        },
        Facts,
    )


def labelled(folder: Path) -> list[Case]:
    """Every case of a folder; none when it has no manifest."""
    manifest = folder / "manifest.tsv"
    if not manifest.is_file():
        return []
    with manifest.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    found = []
    for row in rows:
        accepted = {f"{row['class']}/{row['action']}"}
        accepted |= {pair.strip() for pair in (row["also_acceptable"] or "").split(",") if pair.strip()}
        found.append(Case(folder / row["file"], _facts(row), frozenset(accepted)))
    return found
