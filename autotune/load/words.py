"""Plain words for prompts that must be text: each is one token, or close to it, in the vocabularies in use."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

WORDS = tuple(resources.files("autotune.load").joinpath("words.txt").read_text(encoding="utf-8").split())


def words_of(ids: Sequence[int]) -> str:
    """A text with a word for each token id: the same ids give the same words."""
    return " ".join([WORDS[number % len(WORDS)] for number in ids])
