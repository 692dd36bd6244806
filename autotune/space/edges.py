"""One end of a range: a number, the study's own, or a named rule worked out and said in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.errors import InputError
from autotune.space.experts import starvation_floor
from autotune.space.inputs import Bound, BoundInputs
from autotune.space.kv import KvCapacity, requests_that_fit
from autotune.space.parameters import NamedRule, Parameter
from autotune.values import Value


class Edge(Value, frozen=True, kw_only=True):
    """The value of one end, and where it comes from."""

    value: float
    text: str


def edge_of(p: Parameter, side: str, inputs: BoundInputs, found: Mapping[str, Bound]) -> Edge:
    """One end of the range: the study's, else the space's number or named rule."""
    stated = getattr(inputs.overrides.get(p.name), side, None)
    if stated is not None:
        if p.kind == "int" and stated != int(stated):
            raise InputError(f"{inputs.where}: space.override.{p.name}: {side} = {stated:g}; write a whole number")
        return Edge(value=stated, text=f"{stated:,g} (study file)")
    edge = p.low if side == "low" else p.high
    if not isinstance(edge, NamedRule):
        if edge is None:
            raise InputError(f"{inputs.where}: space.override.{p.name}: give low and high, or choices")
        return Edge(value=edge, text=f"{edge:,g} (search space)")
    if edge.rule == "kv":
        return _kv_edge(edge, inputs, found)
    if edge.rule == "experts":
        return _experts_edge(edge, inputs)
    return _parameter_edge(edge, side, found)


def _kv_edge(edge: NamedRule, inputs: BoundInputs, found: Mapping[str, Bound]) -> Edge:
    cap, kv = inputs.load.concurrency, inputs.kv
    fits = _otherwise(edge, "the KV capacity is unknown") if kv is None else _fit(edge, inputs, _largest(kv, found))
    if 0 < cap < fits.value:
        text = (
            f"{cap:,} = the client's concurrency: asking for more running requests is the same configuration "
            f"(without that, {fits.text})"
        )
        return Edge(value=cap, text=text)
    return fits


def _largest(kv: KvCapacity, found: Mapping[str, Bound]) -> tuple[int, str]:
    """The most tokens that the KV cache may hold in this search, in a number and in words."""
    said = f"{kv.tokens:,} KV tokens ({kv.source})"
    room, bound = kv.room, found.get(kv.room.parameter) if kv.room else None
    if room is None or bound is None:
        return kv.tokens, said
    top = bound.high if bound.high is not None else max(float(choice) for choice in bound.choices)
    tokens = kv.tokens_at(top)
    if tokens <= kv.tokens:
        return kv.tokens, said
    origin = f"{kv.source}: {kv.tokens:,} at {room.fraction:g}"
    return tokens, f"{tokens:,} KV tokens at the largest {room.parameter}, {top:g} ({origin})"


def _fit(edge: NamedRule, inputs: BoundInputs, capacity: tuple[int, str]) -> Edge:
    lengths, (most, tokens) = inputs.request_lengths(), capacity
    full = requests_that_fit(most, lengths.full_tokens)
    mean = requests_that_fit(most, lengths.mean_tokens)
    note = f" ({lengths.note})" if lengths.note else ""
    if edge.lengths == "full":
        text = (
            f"{full:,} = {tokens} / {lengths.full_tokens:,g} per request at full length{note} "
            f"(up to {mean:,} run at once)"
        )
        return Edge(value=max(1, full), text=text)
    text = (
        f"{mean:,} = {tokens} / {lengths.mean_tokens:,g} that a request in flight holds on average "
        f"(in + out/2){note}; {full:,} if every request were at full length, and above that the server throttles by "
        "itself"
    )
    return Edge(value=max(1, mean), text=text)


def _experts_edge(edge: NamedRule, inputs: BoundInputs) -> Edge:
    shape = inputs.shape
    if shape is None:
        return _otherwise(edge, "the model's config.json is unknown")
    if not shape.is_moe:
        return _otherwise(edge, "a dense model has no expert floor")
    floor = inputs.min_tokens_per_expert
    running = starvation_floor(shape, floor)
    per_expert = f"{floor:g} tokens per expert x {shape.experts} experts / top-{shape.top_k}"
    text = f"{running:,} = {per_expert}: below it experts starve"
    return Edge(value=running, text=text)


def _parameter_edge(edge: NamedRule, side: str, found: Mapping[str, Bound]) -> Edge:
    other = found.get(edge.parameter)
    value = getattr(other, side, None) if other else None
    if value is None:
        return _otherwise(edge, f"{edge.parameter} is not searched")
    return Edge(value=value, text=f"{value:,g} = the {'lower' if side == 'low' else 'upper'} bound of {edge.parameter}")


def _otherwise(edge: NamedRule, why: str) -> Edge:
    return Edge(value=edge.otherwise, text=f"{edge.otherwise:,g} (search space; {why})")
