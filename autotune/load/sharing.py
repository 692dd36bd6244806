"""How much of a load's prompts a prefix cache may answer because the workload is so, and how much by repetition.

Pure: from the plan of the requests that were sent, before anything of a server is known.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from autotune.load.dataset.lengths import mean_tokens
from autotune.load.dataset.stored import BLOCKS, FIXED, Dataset
from autotune.load.workload import BLOCK_TOKENS, prefix_of, row_of
from autotune.study.file import Workload
from autotune.values import Value


class Sharing(Value, frozen=True, kw_only=True):
    """Shares of the prompt tokens of a load. ``shared`` belongs to the workload (prefixes that requests have in
    common); ``repeated`` are whole prompts that the same server was asked before, since the dataset was used up.
    """

    shared: float = 0.0
    repeated: float = 0.0


def sharing(workload: Workload, seed: int, dataset: Dataset | None, indices: Sequence[int]) -> Sharing:
    """Of the requests with these indices, in the order in which they were sent."""
    if not len(indices):
        return Sharing()
    if dataset is not None:
        return _of_dataset(workload, seed, dataset, indices)
    return Sharing(shared=_of_prefixes(workload, seed, indices)) if workload.kind == "shared_prefix" else Sharing()


def _of_prefixes(workload: Workload, seed: int, indices: Sequence[int]) -> float:
    different = {prefix_of(workload, seed, index) for index in sorted(indices)}
    share = workload.prefix_tokens / mean_tokens(workload)[0]
    return share * (1 - len(different) / len(indices))


def _of_dataset(workload: Workload, seed: int, dataset: Dataset, indices: Sequence[int]) -> Sharing:
    ordered = sorted(indices)
    rows = np.array([row_of(workload, seed, index, len(dataset)) for index in ordered])
    table = dataset.table[rows]
    tokens = table["input"].astype(np.float64)
    fixed = np.isin(table["form"], FIXED)
    again = fixed & (np.array(ordered) >= len(dataset))
    shared = float((tokens * table["shared"])[fixed & ~again].sum()) + _of_blocks(dataset, ordered, rows)
    total = float(tokens.sum())
    return Sharing(shared=shared / total, repeated=float(tokens[again].sum()) / total)


def _of_blocks(dataset: Dataset, indices: Sequence[int], rows: NDArray[np.int64]) -> float:
    """Tokens in blocks that an earlier request of the same pass began with, too."""
    seen: set[tuple[int, int]] = set()
    tokens = 0
    for index, row in zip(indices, rows, strict=True):
        if dataset.table["form"][row] != BLOCKS:
            continue
        blocks = [(index // len(dataset), number) for number in msgspec.json.decode(dataset.piece(int(row)))]
        known = next((at for at, block in enumerate(blocks) if block not in seen), len(blocks))
        tokens += min(known * BLOCK_TOKENS, int(dataset.table["input"][row]))
        seen.update(blocks)
    return float(tokens)
