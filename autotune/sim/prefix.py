"""A radix cache reduced to what a tuner can see: how many tokens of a prompt were served before."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

BLOCK_TOKENS = 8


def prompt_blocks(ids: Sequence[int]) -> tuple[int, ...]:
    """One hash per full block of the prompt; each stands for the whole prefix up to its end."""
    blocks: list[int] = []
    prefix = 0
    for start in range(0, len(ids) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        prefix = hash((prefix, *ids[start : start + BLOCK_TOKENS]))
        blocks.append(prefix)
    return tuple(blocks)


class PrefixCache:
    """Remembers the most recent blocks, as many as the KV pool holds."""

    def __init__(self, kv_tokens: int) -> None:
        self._room = max(1, kv_tokens // BLOCK_TOKENS)
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def match(self, blocks: tuple[int, ...], prompt_tokens: int) -> int:
        """Cached tokens at the start of a prompt; at least one token is always computed."""
        hits = 0
        for block in blocks:
            if block not in self._blocks:
                break
            self._blocks.move_to_end(block)
            hits += 1
        return min(hits * BLOCK_TOKENS, prompt_tokens - 1)

    def insert(self, blocks: tuple[int, ...]) -> None:
        for block in blocks:
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._room:
            self._blocks.popitem(last=False)

    def clear(self) -> None:
        self._blocks.clear()
