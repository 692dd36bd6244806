"""What makes two nights comparable. A study continues only under the manifest it began with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from autotune.study.file import EngineSpec, Study
from autotune.values import Value

# Settings of the tuner or of the way to the server; they change no measurement.
_FREE = {
    "engine.host",
    "engine.pass_env",
    "engine.api_key_env",
    "engine.admin_key_env",
    "workload.workers",
    # What is asked is held by found.dataset, wherever the files are.
    "workload.dataset",
    "workload.tokenizer",
}
_SECTIONS = ("engine", "model", "space", "workload", "objective")
_ABSENT = "(absent)"

Scalar = bool | int | float | str | None


class Manifest(Value, frozen=True, kw_only=True):
    """``manifest.json``: what the study began with.

    ``fingerprint`` maps dotted keys to values: the sections engine, model, space, workload and objective of
    the study file, and facts that were found (``found.engine_version``, the resolved space, ...).
    """

    study: str
    created_at: str
    autotune_version: str
    fingerprint: dict[str, Scalar]
    format: int = 1


def fingerprint(study: Study, found: Mapping[str, Any] | None = None) -> dict[str, Scalar]:
    """The settings that must stay, as dotted keys. ``found`` holds builtins, nested as one likes.

    Budget, timeouts, search, description, storage and seed may change between nights.
    """
    sections = {name: msgspec.to_builtins(getattr(study, name)) for name in _SECTIONS}
    flat = dict(flatten(sections))
    flat.update(flatten({"found": dict(found or {})}))
    return {key: value for key, value in sorted(flat.items()) if key.split("[")[0] not in _FREE}


def flatten(tree: Any, prefix: str = "") -> list[tuple[str, Scalar]]:
    """Leaves of nested builtins with dotted keys; an empty table or list has no leaves."""
    if isinstance(tree, Mapping):
        items = [(f"{prefix}.{key}" if prefix else str(key), value) for key, value in tree.items()]
    elif isinstance(tree, list | tuple):
        items = [(f"{prefix}[{index}]", value) for index, value in enumerate(tree)]
    else:
        return [(prefix, tree)]
    return [leaf for key, value in items for leaf in flatten(value, key)]


def differences(old: Mapping[str, Scalar], new: Mapping[str, Scalar]) -> list[str]:
    """What changed, one line a key: ``workload.output_tokens: 128 -> 256``. Empty: the study can go on.

    A fact that could not be found, on either side, is not a difference; nor is a setting at its default that one of
    the sides does not mention: a later version of autotune may have more settings.
    """
    old, new = {**_defaults(), **old}, {**_defaults(), **new}
    return [
        f"{key}: {_show(old, key)} -> {_show(new, key)}"
        for key in sorted(old.keys() | new.keys())
        if _show(old, key) != _show(new, key) and not _unknown_fact(key, old, new)
    ]


def _defaults() -> dict[str, Scalar]:
    """Every setting that has a default, as ``fingerprint`` writes it."""
    return fingerprint(Study(name="", engine=EngineSpec(command=[])))


def _unknown_fact(key: str, old: Mapping[str, Scalar], new: Mapping[str, Scalar]) -> bool:
    return key.startswith("found.") and not (old.get(key) not in (None, "") and new.get(key) not in (None, ""))


def _show(side: Mapping[str, Scalar], key: str) -> str:
    if key not in side:
        return _ABSENT
    value = side[key]
    # 8 and 8.0 are the same setting, whichever the file says.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return msgspec.json.encode(value).decode()
