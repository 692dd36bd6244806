"""Small dataset files, and a tokenizer that counts words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers

from autotune.load.dataset.read import read_dataset
from autotune.load.dataset.stored import Dataset
from autotune.study.file import Workload


def lines(folder: Path, entries: Sequence[Any], name: str = "data.jsonl") -> Path:
    """A file with one JSON value a line."""
    path = folder / name
    path.write_text("\n".join(json.dumps(entry) for entry in entries))
    return path


def conversations(folder: Path, *pairs: tuple[str, ...]) -> Path:
    """A file in ShareGPT's shape: the turns of each conversation."""
    entries = [
        {"id": str(n), "conversations": [{"from": "human", "value": turn} for turn in turns]}
        for n, turns in enumerate(pairs)
    ]
    path = folder / "sharegpt.json"
    path.write_text(json.dumps(entries))
    return path


def word_tokenizer(folder: Path) -> Path:
    """A token for each word."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def read(path: Path, **keys: Any) -> Dataset:
    """The dataset at ``path`` as a workload with these keys reads it."""
    kind = {"kind": "jsonl", "route": "completions", **keys}
    found = read_dataset(Workload(dataset=str(path), **kind), path.parent / "study.toml")
    assert found is not None
    return found
