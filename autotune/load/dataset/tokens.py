"""Counting tokens of texts: the one place that needs a tokenizer, and says how to get one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from autotune.errors import InputError

Count = Callable[[Sequence[str]], list[int]]
AT_ONCE = 1000


def token_counter(path: Path) -> Count:
    """Counts tokens without special ones by the tokenizer.json at ``path`` (the file or its folder).

    Raises InputError where the file or the library is missing.
    """
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise InputError(f"workload.tokenizer: {file}: no such file; give a tokenizer.json or a folder with one")
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise InputError(
            "workload.tokenizer: the library that reads it is not installed; pip install 'autotune[text]'"
        ) from None
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain Exception
        raise InputError(f"workload.tokenizer: {file}: not a tokenizer ({error}); give a tokenizer.json") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def count(texts: Sequence[str]) -> list[int]:
        counts: list[int] = []
        for start in range(0, len(texts), AT_ONCE):
            part = list(texts[start : start + AT_ONCE])
            counts.extend(len(encoding.ids) for encoding in tokenizer.encode_batch(part, add_special_tokens=False))
        return counts

    return count
