"""What SGLang's own log tells when its HTTP routes do not.

Line formats as printed by 0.3.5 to 0.5.23.
"""

from __future__ import annotations

import re
import statistics

from autotune.values import ParamValue, Value

_SUMMARY = re.compile(r"max_total_num_tokens=(\d+),.*?max_running_requests=(\d+)")
_RANK = re.compile(r"\bDP(\d+)\b")
_CAPTURE = re.compile(
    r"Capture (?:target )?(?:decode )?cuda graph (?:begin\.|bs).*?\[(\d+(?:, *\d+)*)\]", re.IGNORECASE
)
_AVAILABLE = re.compile(r"available_gpu_mem=(\d+(?:\.\d+)?) GB")
_PREFILL = re.compile(r"Prefill batch.*?#new-token: (\d+).*?#cached-token: (\d+)")
_DECODE = re.compile(r"Decode batch.*?#running-req: (\d+)")
_RETRACTED = re.compile(r"#retracted_reqs: (\d+)")
_REDUCED = re.compile(
    r"max_running_requests (?:was reduced from the requested \d+ to|is capped to) \d+.*?(KV cache|mamba)"
)


class LogFacts(Value, frozen=True, kw_only=True):
    """``kv_tokens`` and ``running_limit`` are totals over the data-parallel ranks that print (or are implied)."""

    kv_tokens: int | None = None
    running_limit: int | None = None
    graph_max_batch: int | None = None
    available_gb: float | None = None
    ranks: int = 1


def read(log_text: str) -> LogFacts:
    """The start-up summary. Under data-parallel attention only the first rank prints it and stands for all."""
    by_rank: dict[str, tuple[int, int]] = {}
    for line in log_text.splitlines():
        if match := _SUMMARY.search(line):
            rank = _RANK.search(line[: match.start()])
            by_rank[rank[1] if rank else ""] = (int(match[1]), int(match[2]))
    available = _AVAILABLE.findall(log_text)
    if not by_rank:
        return LogFacts(graph_max_batch=captured(log_text))
    scale = max(len(by_rank), _ranks(log_text) if list(by_rank) == ["0"] else 1)
    return LogFacts(
        kv_tokens=sum(kv for kv, _ in by_rank.values()) * scale // len(by_rank),
        running_limit=sum(limit for _, limit in by_rank.values()) * scale // len(by_rank),
        graph_max_batch=captured(log_text),
        available_gb=float(available[-1]) if available else None,
        ranks=scale,
    )


def captured(log_text: str) -> int | None:
    """The largest decode batch that was captured as a graph; None when the log names no list."""
    lists = [match[1] for match in _CAPTURE.finditer(log_text) if "prefill" not in match[0].lower()]
    return max(int(size) for size in lists[-1].split(",")) if lists else None


def _ranks(log_text: str) -> int:
    echoed = echo(log_text, "dp_size")
    return echoed if isinstance(echoed, int) and echoed > 0 else 1


def echo(log_text: str, name: str) -> ParamValue | None:
    """A value of the start-up summary, else of the ``server_args=`` line: what was asked, defaults filled in."""
    named = rf"['( ]{re.escape(name)}(?:=|': )('[^']*'|[^,)}}\s]+)"
    match = re.search(rf"max_total_num_tokens=\d+,.*?{named}", log_text) or re.search(
        rf"server_args=.*?{named}", log_text
    )
    return _literal(match[1]) if match else None


def _literal(text: str) -> ParamValue | None:
    if text in ("None", "True", "False"):
        return {"True": True, "False": False}.get(text)
    if text.startswith("'"):
        return text.strip("'")
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def tokens(log_text: str) -> tuple[int, int] | None:
    """Prompt tokens computed and prompt tokens found in the cache, over all prefill lines; None without any."""
    pairs = [(int(new), int(cached)) for new, cached in _PREFILL.findall(log_text)]
    return (sum(new for new, _ in pairs), sum(cached for _, cached in pairs)) if pairs else None


def retractions(log_text: str) -> int:
    """Requests thrown out of a full KV pool, as the log counts them."""
    return sum(int(count) for count in _RETRACTED.findall(log_text))


def running(log_text: str) -> int | None:
    """The median of the requests in its decode batches."""
    seen = [int(count) for count in _DECODE.findall(log_text)]
    return int(statistics.median(seen)) if seen else None


def running_limit_reason(log_text: str) -> str:
    """What the server says reduced its running limit: ``KV capacity``, ``mamba state``, or nothing."""
    found = _REDUCED.search(log_text)
    if not found:
        return ""
    return "KV capacity" if found[1] == "KV cache" else "the capacity for mamba state"
