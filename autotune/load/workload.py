"""What each request of a load asks: a prompt, fresh or from a dataset, and the length of its reply. Pure."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from autotune.load.dataset.lengths import length_bounds
from autotune.load.dataset.stored import BLOCKS, FRESH, MESSAGES, TEXT, Dataset
from autotune.study.file import Workload
from autotune.values import Value

BLOCK_TOKENS = 512
"""Tokens behind one hash of a trace (Mooncake's trace format)."""
ORDER, PREFIX, BLOCK = 2**32 - 2, 2**32 - 3, 2**32 - 4
"""Words that keep these draws apart from those of single requests, whose last word is an index."""


class Request(Value, frozen=True, kw_only=True):
    """One request. Its prompt is ``input_ids``, or the JSON value ``encoded`` of a text or, with ``messages``, of a
    chat; ``output_tokens`` is how many tokens it must produce.
    """

    index: int
    output_tokens: int
    input_ids: list[int] = []
    encoded: bytes = b""
    messages: bool = False


def plan_request(workload: Workload, seed: Sequence[int], index: int, dataset: Dataset | None = None) -> Request:
    """The request with this index. It depends on the seed words and the index only, not on how many workers share a
    load.

    Each request has a generator of its own, so a prompt that is made here repeats neither inside a load nor in another
    trial or repeat. Prompts of a dataset come in an order that the first seed word decides, so that each server is
    asked the same; after the last one they begin again in another order.
    """
    if dataset is not None:
        return _from_dataset(workload, seed, index, dataset)
    rng = np.random.default_rng([*seed, index])
    low_in, high_in = length_bounds(workload.input_tokens, workload.range_ratio)
    low_out, high_out = length_bounds(workload.output_tokens, workload.range_ratio)
    input_tokens = high_in if low_in == high_in else int(rng.integers(low_in, high_in + 1))
    output_tokens = high_out if low_out == high_out else int(rng.integers(low_out, high_out + 1))
    ids = _ids(workload, rng, input_tokens)
    if workload.kind == "shared_prefix":
        shape = (workload.token_id_low, workload.token_id_high, workload.prefix_tokens)
        ids = [*_prefix(shape, (*seed, PREFIX), prefix_of(workload, seed[0], index)), *ids]
    return Request(index=index, input_ids=ids, output_tokens=output_tokens)


def prefix_of(workload: Workload, seed: int, index: int) -> tuple[int, int]:
    """Which prefix a request has: its place among those in use, and how often that place has been renewed.

    Every round of ``prefix_groups`` requests uses each place once, in random order, and the places are renewed one
    after the other rather than all at once: the share that a cache can answer does not swing.
    """
    groups, uses = workload.prefix_groups, workload.prompts_per_group
    turn, at = divmod(index, groups)
    place = int(_order(seed, turn, groups)[at])
    return place, (turn + place * uses // groups) // uses if uses else 0


def row_of(workload: Workload, seed: int, index: int, rows: int) -> int:
    """Which row of the dataset a request is; a trace keeps the order of its times."""
    turn, at = divmod(index, rows)
    return at if workload.kind == "trace" else int(_order(seed, turn, rows)[at])


def _from_dataset(workload: Workload, seed: Sequence[int], index: int, dataset: Dataset) -> Request:
    row = row_of(workload, seed[0], index, len(dataset))
    form, output_tokens = int(dataset.table["form"][row]), int(dataset.table["output"][row])
    piece = dataset.piece(row)
    if form in (TEXT, MESSAGES):
        return Request(index=index, output_tokens=output_tokens, encoded=piece, messages=form == MESSAGES)
    if form not in (FRESH, BLOCKS):
        return Request(index=index, output_tokens=output_tokens, input_ids=msgspec.json.decode(piece, type=list[int]))
    rng = np.random.default_rng([*seed, index])
    length = int(dataset.table["input"][row])
    shared: list[int] = []
    if form == BLOCKS:
        renewed = index // len(dataset)
        shape = (workload.token_id_low, workload.token_id_high, BLOCK_TOKENS)
        for number in msgspec.json.decode(piece, type=list[int])[: -(-length // BLOCK_TOKENS)]:
            shared += _prefix(shape, (*seed, BLOCK), (renewed, number))
    return Request(
        index=index,
        output_tokens=output_tokens,
        input_ids=[*shared[:length], *_ids(workload, rng, max(0, length - len(shared)))],
    )


def _ids(workload: Workload, rng: np.random.Generator, count: int) -> list[int]:
    ids: list[int] = rng.integers(workload.token_id_low, workload.token_id_high, size=count).tolist()
    return ids


@functools.lru_cache(maxsize=4)
def _order(seed: int, turn: int, count: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, ORDER, turn]).permutation(count)


@functools.lru_cache(maxsize=4096)
def _prefix(shape: tuple[int, int, int], seed: tuple[int, ...], which: tuple[int, int]) -> list[int]:
    """A piece that several prompts share; ``shape`` is (lowest id, upper end of ids, tokens)."""
    low, high, tokens = shape
    ids: list[int] = np.random.default_rng([*seed, *which]).integers(low, high, size=tokens).tolist()
    return ids
