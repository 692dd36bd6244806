"""Outside data into a frozen struct, with unknown keys refused by name and the nearest known key proposed."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from autotune.errors import InputError

T = TypeVar("T")


def nearest(word: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` for a close known word, else the list of the known ones."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"


def convert(data: Any, kind: type[T], where: str) -> T:
    """``data`` (from TOML) as ``kind``. Raises InputError with ``where`` (the file) and the key."""
    _refuse_unknown(data, kind, where, "")
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {error}") from None


def _refuse_unknown(data: Any, kind: Any, where: str, path: str) -> None:
    if isinstance(data, list):
        members = [a for a in typing.get_args(kind) if a is not Ellipsis]
        for index, item in enumerate(data):
            _refuse_unknown(item, members[0] if len(members) == 1 else Any, where, f"{path}[{index}]")
    elif isinstance(data, Mapping):
        struct = _struct_of(kind, data, where, path)
        if struct is None:
            return
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
        tag = struct.__struct_config__.tag_field
        for key, value in data.items():
            if key == tag:
                continue
            if key not in fields:
                raise InputError(f"{where}: unknown key '{_join(path, key)}'; {nearest(key, fields)}")
            _refuse_unknown(value, fields[key], where, _join(path, key))


def _struct_of(kind: Any, data: Mapping[str, Any], where: str, path: str) -> type[msgspec.Struct] | None:
    """The struct that ``data`` is meant for: ``kind`` itself or a member of the union, by its tag."""
    members = [kind] if isinstance(kind, type) else list(typing.get_args(kind))
    structs = [m for m in members if isinstance(m, type) and issubclass(m, msgspec.Struct)]
    if len(structs) <= 1:
        return structs[0] if structs else None
    config = [s.__struct_config__ for s in structs]
    tag_field = str(config[0].tag_field)
    by_tag = {str(c.tag): s for c, s in zip(config, structs, strict=True)}
    tag = str(data.get(tag_field, ""))
    if tag not in by_tag:
        raise InputError(f"{where}: {_join(path, tag_field)} = {tag!r}; {nearest(tag, by_tag)}")
    return by_tag[tag]


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
