"""What a study took over from another one, and how far that is believed."""

from __future__ import annotations

from autotune.values import TrialResult, Value


class Transfer(Value, frozen=True, kw_only=True):
    """``transfer.json``: the other study's trials, written into this study's folder so that no later night needs it.

    ``results`` are its measured trials, scored by this study's objective and freed of drift, and those that ran out of
    memory; ``best`` is the number of the trial whose configuration it believes in, None where that is its defaults.
    ``request_tokens`` is what a request in flight held there on average (0: unknown), ``peak`` how many were in flight
    at most (0: no limit). ``source_began`` tells studies of one name apart.
    """

    source: str
    source_began: str
    taken_at: str
    engine_version: str = ""
    gpu: str = ""
    request_tokens: float = 0.0
    peak: int = 0
    best: int | None = None
    results: tuple[TrialResult, ...]


class Trust(Value, frozen=True, kw_only=True):
    """``trust.json``: ``weight`` is the probability that what was taken over tells something here, after ``trials``
    measured configurations of this study; ``dropped`` when it is no longer used.
    """

    source: str
    weight: float
    trials: int
    dropped: bool
    sentence: str = ""
