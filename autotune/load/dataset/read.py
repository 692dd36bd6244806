"""From a dataset file to what a load asks: found, read, counted, filtered, timed."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from autotune.errors import InputError
from autotune.load.dataset.asked import Asked, texts_of
from autotune.load.dataset.files import read_entries
from autotune.load.dataset.stored import BLOCKS, FRESH, IDS, MESSAGES, TABLE, TEXT, Dataset, Facts, open_stored
from autotune.load.dataset.times import arrivals
from autotune.load.dataset.tokens import token_counter
from autotune.study.file import Workload

BYTES_PER_TOKEN = 4
"""Of a text whose tokens nobody has counted: near the mean of English under the tokenizers in use."""
SHORTEST = 2
"""sglang.bench_serving leaves out what is shorter on either side; so do we, where texts are counted."""


def read_dataset(workload: Workload, study_file: Path, model: str = "", kept: Path | None = None) -> Dataset | None:
    """What the workload's file asks; None for a kind without one.

    ``model`` is a folder that may hold a tokenizer. ``kept`` is where an earlier night stored the same: it is used
    where the file has not changed since, or is not on this machine. Raises InputError.
    """
    if not workload.from_file:
        return None
    path = find_file(workload.dataset, study_file)
    tokenizer = find_tokenizer(workload, study_file, model)
    options, source = _options(workload, tokenizer), _stamp(path)
    known = open_stored(kept) if kept else None
    if known and known.facts.options == options and (not path.exists() or known.facts.source == source):
        return known
    entries = read_entries(path)
    if workload.kind == "trace":
        entries, at = arrivals(entries, workload, path)
    else:
        at = np.zeros(len(entries))
    return _dataset(_Counted(workload, path, entries, tokenizer), at, (options, source))


def find_file(name: str, study_file: Path) -> Path:
    """Beside the study file, else as the path says."""
    beside = study_file.absolute().parent / name
    return beside if beside.exists() else Path(name).absolute() if Path(name).exists() else beside


def find_tokenizer(workload: Workload, study_file: Path, model: str) -> Path | None:
    """The one that the study names, else the model's own; None where there is none."""
    if workload.tokenizer:
        return find_file(workload.tokenizer, study_file)
    own = Path(model) / "tokenizer.json"
    return own if model and own.is_file() else None


class _Counted:
    """The entries of a file with the tokens of their prompts and replies."""

    def __init__(self, workload: Workload, path: Path, entries: Sequence[Asked], tokenizer: Path | None) -> None:
        self.workload = workload
        self.path = path
        self.entries = entries
        self._count = token_counter(tokenizer) if tokenizer and self._wants_counts() else None
        self.counts_texts = self._count is not None
        self._require_lengths()
        self.inputs = self._inputs()
        self.outputs = self._outputs()

    def _wants_counts(self) -> bool:
        """A tokenizer that was found by chance is read only where a length hangs on it."""
        return bool(self.workload.tokenizer or self.workload.context_tokens) or self._answers_wanted()

    def _answers_wanted(self) -> bool:
        return self.workload.output_from == "dataset" and any(e.answer and e.output_tokens < 0 for e in self.entries)

    def _require_lengths(self) -> None:
        workload = self.workload
        texts = any(e.text or e.messages for e in self.entries)
        if self._count is None and workload.context_tokens and texts:
            raise InputError(
                f"{self.path}: workload.context_tokens wants the texts counted; name a tokenizer in workload.tokenizer"
            )
        if self._count is None and self._answers_wanted():
            raise InputError(
                f"{self.path}: the lengths of replies are those of texts; name a tokenizer in workload.tokenizer, or "
                'write output_from = "fixed"'
            )
        if workload.output_from == "dataset":
            silent = [e.where for e in self.entries if e.output_tokens < 0 and not e.answer]
            if silent and workload.kind != "sharegpt":
                raise InputError(
                    f"{self.path}: {silent[0]}: says no length of its reply; add output_tokens, or write "
                    'output_from = "fixed" in the study'
                )

    def _inputs(self) -> NDArray[np.int64]:
        texts = ["\n".join(texts_of(e)) for e in self.entries]
        if self._count is not None:
            counted = self._count(texts)
        else:
            counted = [-(-len(text.encode()) // BYTES_PER_TOKEN) for text in texts]
        stated = (len(e.ids) or (count if text else e.input_tokens) for e, text, count in self._with(texts, counted))
        return np.array(list(stated), dtype=np.int64)

    def _with(self, texts: list[str], counted: list[int]) -> zip[tuple[Asked, str, int]]:
        return zip(self.entries, texts, counted, strict=True)

    def _outputs(self) -> NDArray[np.int64]:
        if self.workload.output_from == "fixed":
            return np.full(len(self.entries), self.workload.output_tokens, dtype=np.int64)
        answers = self._count([e.answer for e in self.entries]) if self._count else [0] * len(self.entries)
        return np.array(
            [n if e.output_tokens < 0 else e.output_tokens for e, n in zip(self.entries, answers, strict=True)],
            dtype=np.int64,
        )

    def kept(self) -> NDArray[np.bool_]:
        """Which requests a load can ask: with a reply, not too long, and no text of a word or less."""
        keep = (self.outputs > 0) & (self.inputs > 0)
        if self.workload.kind == "sharegpt" and self._count is not None:
            keep &= (self.inputs >= SHORTEST) & (self.outputs >= SHORTEST)
        if limit := self.workload.context_tokens:
            keep &= self.inputs + self.outputs <= limit
        return keep


def _dataset(counted: _Counted, at: NDArray[np.float64], keys: tuple[str, str]) -> Dataset:
    keep = counted.kept()
    if not keep.any():
        raise InputError(
            f"{counted.path}: no request is left of {len(keep)}: none has a prompt and a reply within "
            "workload.context_tokens"
        )
    entries = [entry for entry, kept in zip(counted.entries, keep, strict=True) if kept]
    _require_route(entries, counted.workload, counted.path)
    pieces = [_piece(entry) for entry in entries]
    table = np.zeros(len(entries), dtype=TABLE)
    sizes = np.array([len(piece) for piece in pieces], dtype=np.int64)
    table["size"], table["offset"] = sizes, np.cumsum(sizes) - sizes
    table["form"] = [_form(entry) for entry in entries]
    table["input"], table["output"], table["at"] = counted.inputs[keep], counted.outputs[keep], at[keep]
    table["shared"] = shared_beginnings(pieces, table["form"])
    joined = b"".join(pieces)
    texts = bool(np.isin(table["form"], (TEXT, MESSAGES)).any())
    facts = Facts(
        name=counted.path.name,
        digest=hashlib.sha256(table.tobytes() + joined).hexdigest(),
        source=keys[1],
        options=keys[0],
        estimated=texts and not counted.counts_texts,
        left_out=int((~keep).sum()),
    )
    return Dataset(table=table, pieces=joined, facts=facts)


def _require_route(entries: Sequence[Asked], workload: Workload, path: Path) -> None:
    for entry in entries:
        if entry.messages and workload.route != "chat":
            raise InputError(f'{path}: {entry.where}: messages go by the chat route; write workload.route = "chat"')
        if entry.ids and workload.route == "chat":
            raise InputError(
                f'{path}: {entry.where}: the chat route takes no token ids; write workload.route = "completions"'
            )


def _form(entry: Asked) -> int:
    if entry.messages:
        return MESSAGES
    return TEXT if entry.text else IDS if entry.ids else BLOCKS if entry.blocks else FRESH


def _piece(entry: Asked) -> bytes:
    what = entry.messages or entry.text or entry.ids or entry.blocks
    return msgspec.json.encode(what) if what else b""


def shared_beginnings(pieces: Sequence[bytes], forms: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Of each prompt, the share that another one of the dataset begins with, too. Neighbours in order share most."""
    shares = np.zeros(len(pieces))
    fixed = [row for row, form in enumerate(forms) if form in (TEXT, IDS, MESSAGES)]
    order = sorted(fixed, key=pieces.__getitem__)
    for one, other in itertools.pairwise(order):
        common = _common(pieces[one], pieces[other])
        for row in (one, other):
            shares[row] = max(shares[row], common / len(pieces[row]))
    return shares


def _common(one: bytes, other: bytes) -> int:
    """Length of the beginning that two texts share."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _options(workload: Workload, tokenizer: Path | None) -> str:
    """What decides how a file is read."""
    read = (
        workload.kind,
        workload.route == "chat",
        workload.output_from,
        workload.output_tokens,
        workload.context_tokens,
        workload.timestamp_unit,
        _stamp(tokenizer) if tokenizer else "",
    )
    return hashlib.sha256(repr(read).encode()).hexdigest()


def _stamp(path: Path) -> str:
    """Tells a file that has changed from one that has not."""
    try:
        seen = path.stat()
    except OSError:
        return ""
    return f"{path}:{seen.st_size}:{seen.st_mtime_ns}"
