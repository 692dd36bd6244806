"""Where a study says that a server tells its values: ``[engine.read_back]`` and ``[engine.counters]``.

A place is a route (or ``log``), ``#``, and what to take there:

- ``/props#/total_slots``: a JSON pointer (RFC 6901) into the answer,
- ``/metrics#llamacpp:tokens_predicted_total``: a sample of a Prometheus page, added over its label sets,
- ``/metrics#vllm:cache_config_info{block_size}``: a label of such a sample,
- ``log#n_slots = (\\d+)``: what the group of a regular expression matches last in the server's log.

``PLACE * PLACE`` is the product of numbers.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from autotune.engines import metrics
from autotune.engines.answers import json_value, scalar, whole
from autotune.engines.base import Counters, Fetch
from autotune.errors import InputError
from autotune.study.file import EngineSpec
from autotune.values import Effective, ParamValue, Value

LOG = "log"
FIGURES = ("kv_tokens", "running_limit", "graph_max_batch", "version")
COUNTS = ("prompt_tokens", "generated_tokens", "cached_tokens", "retractions", "running", "queued")
FORMS = "write a route, # and a JSON pointer or the name of a metric (/props#/total_slots), or log# and a pattern"
_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(\w+)\})?")


class Place(Value, frozen=True, kw_only=True):
    """One place. ``source`` is a route or ``log``, ``what`` the part behind the ``#``."""

    source: str
    what: str


class Told(Value, frozen=True, kw_only=True):
    """All that a study tells: names and the places whose values are multiplied."""

    values: dict[str, tuple[Place, ...]] = {}
    counts: dict[str, tuple[Place, ...]] = {}


def told(spec: EngineSpec) -> Told:
    """What this study tells. Raises InputError for a place that cannot be read, or a count that does not exist."""
    for name in spec.counters:
        _require_one_of("engine.counters", name, COUNTS)
    return Told(
        values={name: _places(f"engine.read_back.{name}", text) for name, text in spec.read_back.items()},
        counts={name: _places(f"engine.counters.{name}", text) for name, text in spec.counters.items()},
    )


def require_names(spec: EngineSpec, parameters: Iterable[str]) -> None:
    """Raise InputError for a value in ``read_back`` that is no figure and no parameter of the search space."""
    known = (*FIGURES, *parameters)
    for name in spec.read_back:
        _require_one_of("engine.read_back", name, known)


def with_told(found: Effective, said: Told, fetch: Fetch, log_text: str) -> Effective:
    """``found``, and over it what the study's own places tell. Never raises."""
    look = _looker(fetch, log_text)
    read = {name: value for name, places in said.values.items() if (value := _value(places, look)) is not None}
    if not read:
        return found
    figures: dict[str, Any] = {name: whole(read.get(name)) for name in FIGURES if name != "version"}
    log_only = all(place.source == LOG for name in read for place in said.values[name])
    return Effective(
        source=found.source if found.source != "none" else LOG if log_only else "server_info",
        version=str(read.get("version", found.version)),
        values={**found.values, **{name: value for name, value in read.items() if name not in FIGURES}},
        gpu_memory_gb=found.gpu_memory_gb,
        **{name: getattr(found, name) if value is None else value for name, value in figures.items()},
    )


def told_counters(said: Told, fetch: Fetch, log_text: str) -> Counters:
    """The counts that the study's own places tell; ``source`` none where there are none."""
    look = _looker(fetch, log_text)
    counts = {name: whole(_value(places, look)) for name, places in said.counts.items()}
    read = {name: count for name, count in counts.items() if count is not None}
    if not read:
        return Counters(source="none")
    log_only = all(place.source == LOG for name in read for place in said.counts[name])
    return Counters(source="log" if log_only else "metrics", **read)


def _places(key: str, text: str) -> tuple[Place, ...]:
    return tuple(_place(key, part.strip()) for part in text.split(" * "))


def _place(key: str, text: str) -> Place:
    source, found, what = text.partition("#")
    if not found or not what or not (source == LOG or source.startswith("/")):
        raise InputError(f"study file: {key}: {text!r} names no place; {FORMS}")
    if source == LOG:
        try:
            groups = re.compile(what).groups
        except re.error as error:
            raise InputError(f"study file: {key}: {what!r} is no regular expression ({error}); correct it") from None
        if groups != 1:
            raise InputError(f"study file: {key}: {what!r} has {groups} groups; mark the value with one ( )")
    elif not what.startswith("/") and not _SAMPLE.fullmatch(what):
        raise InputError(f"study file: {key}: {what!r} is neither a JSON pointer nor the name of a metric; {FORMS}")
    return Place(source=source, what=what)


def _require_one_of(key: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(known)}"
        raise InputError(f"study file: {key}.{name}: unknown name; {hint}")


Look = Callable[[Place], ParamValue | None]


def _looker(fetch: Fetch, log_text: str) -> Look:
    """Reads places; each route is asked once."""
    pages: dict[str, bytes] = {}

    def look(place: Place) -> ParamValue | None:
        if place.source == LOG:
            return _number(next(reversed(re.findall(place.what, log_text)), None))
        if place.source not in pages:
            status, body = fetch(place.source)
            pages[place.source] = body if status == 200 else b""
        body = pages[place.source]
        return (
            scalar(pointed(json_value(body), place.what)) if place.what.startswith("/") else _sample(body, place.what)
        )

    return look


def _value(places: tuple[Place, ...], look: Look) -> ParamValue | None:
    found = [look(place) for place in places]
    if len(found) == 1:
        return found[0]
    product: float = 1
    for factor in found:
        if isinstance(factor, bool | str) or factor is None:
            return None
        product *= factor
    return scalar(product)


def pointed(document: Any, pointer: str) -> Any:
    """What a JSON pointer leads to (RFC 6901), or None."""
    for word in pointer.split("/")[1:]:
        step = word.replace("~1", "/").replace("~0", "~")
        if isinstance(document, Mapping):
            document = document.get(step)
        elif isinstance(document, list) and step.isdecimal() and int(step) < len(document):
            document = document[int(step)]
        else:
            return None
    return document


def _sample(body: bytes, what: str) -> ParamValue | None:
    match = _SAMPLE.fullmatch(what)
    samples = metrics.parse(body.decode("utf-8", "replace"))
    if match is None or not match[2]:
        return metrics.total(samples, what)
    labels = (s.labels[match[2]] for s in samples if s.name == match[1] and match[2] in s.labels)
    return _number(next(labels, None))


def _number(text: str | None) -> ParamValue | None:
    """A text as the number that it spells; commas between thousands are left out."""
    if text is None:
        return None
    for kind in (int, float):
        try:
            return scalar(kind(text.replace(",", "")))
        except ValueError:
            continue
    return text
