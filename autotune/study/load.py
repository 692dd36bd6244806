"""From a TOML file to a frozen ``Study``, or to one error that says what to change.

Every problem of a study file, from a missing file to a number out of range, is an ``InputError`` of
the form ``FILE: KEY: problem; remedy``.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from autotune.errors import InputError
from autotune.study.file import Study
from autotune.study.problem import one_of
from autotune.study.rules import RULES, Known, Problem
from autotune.study.workload import KIND_ALIASES, Kind

SIZE_LIMIT_BYTES = 1_000_000
_CONVERT_ERROR = re.compile(r"^(?P<problem>.*?)(?: - at `(?P<where>[^`]*)`)?$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<field>[^`]*)`$")


def load_study(path: Path, known: Known | None = None) -> Study:
    """Read and check the study file at ``path``.

    ``known`` lists the names of samplers, metrics and engines that exist; a list that is empty is not checked.
    Raises ``InputError`` and nothing else.
    """
    try:
        return parse_study(read_text(path), known or Known())
    except Problem as problem:
        raise InputError(_one_line(f"{path}: {problem}")) from None


def parse_study(text: str, known: Known) -> Study:
    """The ``Study`` that ``text`` describes. Raises ``Problem`` with the key and the remedy."""
    return study_of(_parse_toml(text), known)


def study_of(data: dict[str, Any], known: Known) -> Study:
    """The ``Study`` of parsed TOML. Raises ``Problem`` with the key and the remedy."""
    _reject_unknown_keys(data, Study, "")
    _reject_unusable_values(data, "")
    study = _convert(_with_own_names(data))
    for rule in RULES:
        rule(study, known)
    return study


def read_text(path: Path) -> str:
    """The text of a study file. Raises ``Problem`` for anything that is not a small, readable UTF-8 file."""
    try:
        if not path.is_file():
            reason = "is a directory" if path.is_dir() else "no such file"
            raise Problem("", reason, "give the path of a study file, such as studies/demo.toml")
        if path.stat().st_size > SIZE_LIMIT_BYTES:
            raise Problem("", "is larger than 1 MB", "give a study file")
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise Problem("", f"is not UTF-8 (byte {error.start})", "save the file as UTF-8") from None
    except OSError as error:
        raise Problem("", f"cannot be read ({error.strerror})", "check the path and its permissions") from None
    except ValueError:  # a NUL byte in the path
        raise Problem("", "is not a valid path", "give the path of a study file") from None


def _parse_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Problem("", f"is not valid TOML: {error}", "correct the line") from None
    except (RecursionError, ValueError):  # very deep nesting; an integer of thousands of digits
        raise Problem("", "is not valid TOML: nested too deeply or a number too long", "simplify the file") from None


def _reject_unknown_keys(data: Mapping[str, Any], shape: type[Any], prefix: str) -> None:
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(shape)}
    for key, value in data.items():
        if key not in fields:
            raise Problem(prefix + key, "unknown key", _nearest(prefix, key, list(fields)))
        for inner_key, inner, inner_shape in _inner_tables(key, value, fields[key]):
            _reject_unknown_keys(inner, inner_shape, f"{prefix}{inner_key}.")


def _inner_tables(key: str, value: Any, kind: Any) -> Iterator[tuple[str, Mapping[str, Any], type[Any]]]:
    """The tables under ``value`` that must have the fields of a struct."""
    if not isinstance(value, dict):
        return
    if _is_struct(kind):
        yield key, value, kind
    elif get_origin(kind) is dict and _is_struct(shape := get_args(kind)[1]):
        yield from ((f"{key}.{name}", item, shape) for name, item in value.items() if isinstance(item, dict))


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _nearest(prefix: str, key: str, siblings: list[str]) -> str:
    """The remedy for an unknown key: the nearest key here, else the nearest in any section."""
    if close := difflib.get_close_matches(key, siblings, n=1, cutoff=0.6):
        return f"did you mean {prefix}{close[0]}?"
    everywhere = {path.rsplit(".", 1)[-1]: path for path in reversed(list(_all_keys(Study, "")))}
    if close := difflib.get_close_matches(key, list(everywhere), n=1, cutoff=0.75):
        return f"did you mean {everywhere[close[0]]}?"
    return f"known keys here: {', '.join(siblings)}"


def _all_keys(shape: type[Any], prefix: str) -> Iterator[str]:
    for field in msgspec.structs.fields(shape):
        yield prefix + field.encode_name
        if _is_struct(field.type):
            yield from _all_keys(field.type, f"{prefix}{field.encode_name}.")


def _reject_unusable_values(value: Any, key: str) -> None:
    """TOML allows inf, nan and NUL characters; no setting, path or argument can."""
    if isinstance(value, dict):
        for name, item in value.items():
            _reject_unusable_values(item, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _reject_unusable_values(item, f"{key}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise Problem(key, f"{value} is not a number that can be used", "give a finite number")
    elif isinstance(value, int) and abs(value) >= 2**63:
        raise Problem(key, "the number is too large", "give a number below 2**63")
    elif isinstance(value, str) and "\0" in value:
        raise Problem(key, "contains a NUL character", "remove it")


def _with_own_names(data: dict[str, Any]) -> dict[str, Any]:
    """The same with the workload's kind under the name that autotune has for it."""
    workload = data.get("workload")
    kind = workload.get("kind") if isinstance(workload, dict) else None
    if not isinstance(workload, dict) or not isinstance(kind, str):
        return data
    if kind not in KIND_ALIASES:
        one_of("workload.kind", kind, [*get_args(Kind), *KIND_ALIASES])
        return data
    return {**data, "workload": {**workload, "kind": KIND_ALIASES[kind]}}


def _convert(data: dict[str, Any]) -> Study:
    try:
        return msgspec.convert(data, Study)
    except msgspec.ValidationError as error:
        match = _CONVERT_ERROR.match(str(error))
        problem, where = (match["problem"], match["where"] or "") if match else (str(error), "")
    key = where.removeprefix("key` in `").removeprefix("$").removeprefix(".")
    if missing := _MISSING.match(problem):
        raise Problem(f"{key}.{missing['field']}".strip("."), "is missing", "add it")
    raise Problem(key, problem[:1].lower() + problem[1:].replace("`", ""), "correct the value")


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
