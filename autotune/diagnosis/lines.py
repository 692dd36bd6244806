"""A server log as plain messages: colours, progress bars, wrappers, loggers' prefixes and JSON taken off.

The same failure reaches a file in many coats: SGLang's ``[2025-04-11 09:14:02 DP7 TP7] ...``, vLLM's
``(EngineCore_DP0 pid=2094) ERROR 02-08 19:40:21 [core.py:946] ...`` on every line of a traceback, JSON
records with the traceback inside one field, container and journal stamps in front of all of these.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

MAX_CHARS = 4096
"""Longer lines are cut: no signature needs more, and the echo of all server arguments is over 20,000."""
MAX_JSON_CHARS = 1 << 20

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_BAR = re.compile(r"\d+/(?:\d+|\?) \[\d+:\d\d(?::\d\d)?[<,][^\]]{0,60}\]")
_DATE = re.compile(r"(?:\d{4}[-/])?(\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_GLOG = re.compile(r"\[?([EWIF])(\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d+))? +(?:\d+ +)?[\w./<>-]+:\d+\] ?")
_LEVELS = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"
_LETTER = {"E": "ERROR", "W": "WARNING", "I": "INFO", "F": "CRITICAL", "D": "DEBUG"}


class Line(msgspec.Struct, frozen=True):
    """One message. ``index`` counts the lines of the log from 0; JSON and progress bars may give several.

    ``time_s`` orders lines within one year (month, day and time of day as seconds). ``rank`` is the rank or
    process that speaks, as far as a prefix says so, ``raw`` the text as it was, without colours. ``owned``: the writer
    itself put a prefix on it, ``clocked``: with its own stamp; that of a container or journal is on every line, and
    often in another time zone.
    """

    index: int
    raw: str
    message: str
    time_s: float | None = None
    rank: str = ""
    level: str = ""
    progress: bool = False
    owned: bool = False
    clocked: bool = False


class _Coat:
    """What the prefixes taken off so far have told."""

    def __init__(self) -> None:
        self.time_s: float | None = None
        self.rank = ""
        self.level = ""
        self.owned = False
        self.clocked = False


def _seconds(month: str, day: str, clock: tuple[str, str, str], fraction: str | None) -> float:
    hour, minute, second = (int(part) for part in clock)
    return (int(month) * 31 + int(day)) * 86400.0 + hour * 3600 + minute * 60 + second + float(f"0.{fraction or 0}")


def _stamp(coat: _Coat, text: str) -> None:
    found = _DATE.search(text)
    if found:
        month, day, hour, minute, second, fraction = found.groups()
        coat.time_s = _seconds(month, day, (hour, minute, second), fraction)


def _take_clock(coat: _Coat, found: re.Match[str]) -> None:
    _stamp(coat, found.group(0))
    coat.clocked = True


def _take_stamp(coat: _Coat, found: re.Match[str]) -> None:
    _stamp(coat, found.group(0))


def _take_sglang(coat: _Coat, found: re.Match[str]) -> None:
    _stamp(coat, found.group(1))
    coat.clocked = True
    coat.rank = found.group(2).strip() or coat.rank


def _take_tag(coat: _Coat, found: re.Match[str]) -> None:
    coat.rank = re.sub(r",? ?(?:pid|ip)=[^ ,)]+", "", found.group(1)).strip() or found.group(1)


def _take_rank(coat: _Coat, found: re.Match[str]) -> None:
    coat.rank = "rank" + found.group(1)


def _take_plain_rank(coat: _Coat, found: re.Match[str]) -> None:
    coat.rank = found.group(1)


def _take_level(coat: _Coat, found: re.Match[str]) -> None:
    word = found.group(1)
    word = _LETTER.get(word, word)
    coat.level = {"WARN": "WARNING", "FATAL": "CRITICAL"}.get(word, word)


def _take_glog(coat: _Coat, found: re.Match[str]) -> None:
    letter, month, day, hour, minute, second, fraction = found.groups()
    coat.level = _LETTER[letter]
    coat.clocked = True
    coat.time_s = _seconds(month, day, (hour, minute, second), fraction)


def _take_nothing(coat: _Coat, found: re.Match[str]) -> None:
    del coat, found


Taker = Callable[[_Coat, "re.Match[str]"], None]
_OUTER: tuple[Taker, ...] = (_take_nothing, _take_stamp)


def _coats(*pairs: tuple[str, Taker]) -> tuple[tuple[re.Pattern[str], Taker], ...]:
    return tuple((re.compile(pattern), take) for pattern, take in pairs)


_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_COMPOSE = (r"[A-Za-z0-9][\w.-]{0,80} *\| ?(?!\s*\d+/)", _take_nothing)
_BRACKET = _coats(
    (rf"\[(\d{{4}}-\d\d-\d\d[ T]{_CLOCK})Z?((?: [A-Z_]+\d+)*)\] ?", _take_sglang),
    (rf"\[(?:\d\d-\d\d )?{_CLOCK}\] ?", _take_clock),
    (r"\[rank(\d+)\]:? ?", _take_rank),
    (r"\[((?:[A-Z_]+\d+)(?: [A-Z_]+\d+)*)\] ?", _take_plain_rank),
    (r"\[[\w.-]{1,80}\] *\| ?", _take_nothing),
    (r"\[(\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d)\] ?", _take_nothing),
    (r"\[pod/[^\]]{1,200}\] ", _take_nothing),
    (r"\[\d+,\d+\]<std(?:out|err)>: ?", _take_nothing),
    (r"\[(?:TensorRT-LLM|TRT-LLM|TRT)\] ?", _take_nothing),
    (rf"\[({_LEVELS}|[EWIFD])\] ?", _take_level),
    (r"\[ *\d+\.\d+\] ", _take_nothing),
    (r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d \d{4}\] ", _take_nothing),
)
_PAREN = _coats((r"\(([A-Za-z][^()]{0,80}?[= ]?pid=\d+[^()]{0,40})\) ?", _take_tag), (r"\((pid=\d+)\) ?", _take_tag))
_DIGIT = _coats(
    (rf"\d{{4}}-\d\d-\d\d[T ]{_CLOCK}(?:Z|[+-]\d\d:?\d\d)?(?: (?:stdout|stderr) [FP])?(?: -)? ?", _take_stamp),
    (rf"\d\d-\d\d {_CLOCK} (?:\[?[\w./<>-]+:\d+\])? ?", _take_clock),
    (r"\d+\.\d\d\.\d{3}\.\d{3} (?:([EWID]) )", _take_level),
    (r"\d{1,3}: (?=\[|\(|[A-Z])", _take_nothing),
    _COMPOSE,
)
_ALPHA = _coats(
    (rf"({_LEVELS})\b(?: -|:)?\s+(?=\S)", _take_level),
    (r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]+ [\w.@/-]+(?:\[\d+\])?: ", _take_nothing),
    (r"[\w./-]+\.(?:py|cc|cpp|rs|go):\d+\]? ?(?:-|:|\]) (?!UserWarning|\w+Warning)", _take_nothing),
    _COMPOSE,
)
_PIPE = _coats(
    (rf"\| *({_LEVELS}) *\| *[\w.<>]+:[\w<>.]+:\d+ - ", _take_level),
)
_ANY = _coats((_GLOG.pattern, _take_glog))


def _choices(text: str) -> tuple[tuple[re.Pattern[str], Taker], ...]:
    first = text[:1]
    if first == "[":
        return _BRACKET + _ANY
    if first == "(":
        return _PAREN
    if first == "|":
        return _PIPE
    if first.isdigit():
        return _DIGIT
    if first in "EWIF" and text[1:2].isdigit():
        return _ANY
    return _ALPHA if first.isalpha() else ()


def _strip(text: str) -> tuple[str, _Coat]:
    """Take off every known prefix: the message, and what the prefixes said (time of the innermost stamp)."""
    coat = _Coat()
    for _ in range(8):
        for pattern, take in _choices(text):
            found = pattern.match(text)
            if found and found.end() > 0:
                take(coat, found)
                coat.owned = coat.owned or take not in _OUTER
                text = text[found.end() :]
                break
        else:
            break
    return text, coat


def _pieces(text: str) -> Iterator[str]:
    """Split at carriage returns, and after a progress bar on whose line another writer went on."""
    for piece in text.split("\r"):
        start = 0
        for bar in _BAR.finditer(piece) if "/" in piece else ():
            if bar.end() < len(piece) and not piece[bar.end()].isspace():
                yield piece[start : bar.end()]
                start = bar.end()
        if piece[start:].strip():
            yield piece[start:]


_MESSAGE_KEYS = ("msg", "message", "log", "event", "text", "body")
_LEVEL_KEYS = ("level", "levelname", "severity", "lvl")
_TIME_KEYS = ("ts", "time", "timestamp", "asctime", "@timestamp")
_TRACE_KEYS = ("exc_info", "exception", "traceback", "stack", "stack_trace", "error")


def _json_record(text: str) -> dict[str, Any] | None:
    if not text.startswith("{") or not text.rstrip().endswith("}") or len(text) > MAX_JSON_CHARS:
        return None
    try:
        record = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    if isinstance(record, dict) and any(isinstance(record.get(key), str) for key in (*_MESSAGE_KEYS, *_TRACE_KEYS)):
        return record
    return None


def _first_text(record: dict[str, Any], keys: Iterable[str]) -> str:
    return next((value for key in keys if isinstance(value := record.get(key), str)), "")


def _from_json(index: int, record: dict[str, Any]) -> Iterator[Line]:
    trace = _first_text(record, _TRACE_KEYS)
    body = "\n".join(filter(None, (_first_text(record, _MESSAGE_KEYS), trace)))
    outer = _Coat()
    _stamp(outer, _first_text(record, _TIME_KEYS))
    level = _first_text(record, _LEVEL_KEYS).upper()
    rank = str(record.get("rank", record.get("tp_rank", "")))
    for part in body.split("\n"):
        if part.strip():
            cut = part[:MAX_CHARS]
            message, coat = _strip(cut)
            time_s = coat.time_s if coat.time_s is not None else outer.time_s
            owned = coat.owned or bool(rank)
            said = coat.level or level
            yield Line(index, cut, message, time_s, coat.rank or rank, said, owned=owned, clocked=coat.clocked)


def _clean(text: str) -> str:
    text = text.rstrip("\n")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return _CONTROL.sub("", text) if not text.isprintable() else text


def parse_line(index: int, text: str) -> Iterator[Line]:
    """The messages of one line of a log (none for a blank one)."""
    text = _clean(text)
    start = text.find("{") if '":' in text[:400] or "':" not in text[:400] else -1
    if 0 <= start <= 200 and '"' in text[start : start + 3]:
        record = _json_record(text[start:])
        if record is not None:
            yield from _from_json(index, record)
            return
    for piece in _pieces(text):
        cut = piece[:MAX_CHARS]
        message, coat = _strip(cut)
        bar = bool("/" in message and _BAR.search(message))
        yield Line(index, cut, message, coat.time_s, coat.rank, coat.level, bar, coat.owned, coat.clocked)


def _texts(log: str | bytes | Iterable[str] | Iterable[bytes]) -> Iterator[str]:
    if isinstance(log, bytes):
        log = log.decode(errors="replace")
    source: Iterable[str] | Iterable[bytes] = io.StringIO(log, newline="\n") if isinstance(log, str) else log
    for text in source:
        yield text.decode(errors="replace") if isinstance(text, bytes) else text


def read_lines(log: str | bytes | Iterable[str] | Iterable[bytes]) -> Iterator[Line]:
    """Every message of a log, lazily and in constant memory; never raises on any content.

    A line without a prefix of its own continues the one before it, and so takes over its time and rank.
    """
    time_s: float | None = None
    rank = ""
    clocked = False
    for index, text in enumerate(_texts(log)):
        for line in parse_line(index, text):
            if line.owned:
                rank = line.rank
            if line.time_s is not None and (line.clocked or not clocked):
                time_s, clocked = line.time_s, clocked or line.clocked
            if line.rank == rank and line.time_s == time_s:
                yield line
            else:
                yield msgspec.structs.replace(line, time_s=time_s, rank=rank)
