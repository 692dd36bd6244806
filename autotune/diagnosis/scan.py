"""One pass over a log: which signatures matched, at which stage, and how far the server had come.

Nothing is decided here; ``diagnose`` weighs what was seen. Memory is constant: of each role only the first and
the last few hits are kept.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

import msgspec

from autotune.diagnosis.bench import Tally
from autotune.diagnosis.lines import Line
from autotune.diagnosis.rules import Compiled, Rule

KEPT = 400
_QUIET_LEVELS = frozenset({"DEBUG", "INFO", "WARNING", "TRACE"})
_FRAME = re.compile(r'^\s*File "([^"]{1,500})", line \d+(?:, in (\S+))?')
_EXCEPTION = re.compile(
    r"^((?:\w+\.)*\w*(?:Error|Exception|Failure|Timeout|Exit|Fault|Interrupt|Warning|Errors))(?::|$)"
)
_FATAL = re.compile(r"hit an exception|fatal error|failed to start|Initialization failed|Engine process failed")
_HARMLESS = re.compile(
    r"ASGI application|Task exception was never retrieved|Exception ignored in|Exception in callback|--- Logging error"
)
_POST = re.compile(r'"?POST (?:https?://[^/ ]+)?(/\S*)(?: "?HTTP/[\d.]+)?"? (\d{3})\b')
_WARNING = re.compile(r":\d+: \w*Warning: ")
_STALL = re.compile(r"generation throughput: 0\.0 tokens/s, Running: (\d+) reqs?, Waiting: (\d+) reqs?")
_HEADS = ("usage:", "options:", "positional arguments:", "optional arguments:", "show this help")


_NO_DIGITS = {ord(digit): None for digit in "0123456789"}


def _shortest(words: set[str]) -> tuple[str, ...]:
    """The words that contain no other: if one of the longer is in a line, so is one of these."""
    return tuple(word for word in sorted(words) if not any(other != word and other in word for other in words))


class Hit(msgspec.Struct, frozen=True):
    """A matched rule. ``stage``: of its rank by the log; ``frame``: by the traceback around it, or empty."""

    rule: Rule
    line: Line
    order: int
    stage: str
    frame: str = ""
    fatal: bool = False
    pool_seen: bool = False


class Raised(msgspec.Struct, frozen=True):
    """An exception that no rule knows. ``config``: argument-reading code is in its traceback."""

    line: Line
    order: int
    name: str
    stage: str
    config: bool
    harmless: bool


class _Trace(msgspec.Struct):
    """The traceback that one process is printing."""

    open: bool = False
    startup: str = ""
    load: bool = False
    config: bool = False
    fatal: bool = False
    harmless: bool = False

    @property
    def stage(self) -> str:
        return self.startup or ("load" if self.load else "")


class Scan(msgspec.Struct):
    """What a log holds. Orders count messages; -1 is never."""

    hits: dict[str, list[Hit]] = msgspec.field(default_factory=dict)
    raised: list[Raised] = msgspec.field(default_factory=list)
    markers: list[tuple[int, str, Line]] = msgspec.field(default_factory=list)
    stage: str = "launch"
    ready: int = -1
    progress: int = -1
    launches: list[tuple[int, Line]] = msgspec.field(default_factory=list)
    shutdown: int = -1
    slow: int = -1
    posts_ok: int = 0
    posts_bad: int = 0
    bad_post: Line | None = None
    stalled: int = 0
    stall_line: Line | None = None
    usage: bool = False
    tail: deque[Line] = msgspec.field(default_factory=lambda: deque(maxlen=3))
    messages: int = 0
    bench: Tally = msgspec.field(default_factory=Tally)

    def of(self, *roles: str) -> list[Hit]:
        """Hits of these roles in the order of the log."""
        return sorted((hit for role in roles for hit in self.hits.get(role, ())), key=lambda hit: hit.order)


class Scanner:
    """Feeds messages into a ``Scan``."""

    def __init__(self, table: Compiled, measuring: bool) -> None:
        self.seen = Scan()
        self._measuring = measuring
        self._table = table
        self._words = _shortest(
            {word for rule, _ in table.rules for word in rule.words}
            | {word for marker, _ in table.markers for word in marker.words}
        )
        self._dull: set[str] = set()
        self._traces: dict[str, _Trace] = {}
        self._stages: dict[str, str] = {}
        self._in_help = False

    def feed(self, line: Line) -> None:
        """Take one message in."""
        seen = self.seen
        seen.messages += 1
        seen.tail.append(line)
        text = line.message
        if self._help(text):
            return
        low = text.lower()
        telling = self._telling(low)
        if not line.progress and not self._batch(line, text):
            self._trace(line, text)
            if telling:
                self._rules(line, text, low)
            self._exception(line, text)
        if telling:
            self._markers(line, text, low)
        if self._measuring:
            seen.bench.feed(line)

    def _telling(self, low: str) -> bool:
        """Whether any rule or marker may match. Most lines of a log differ only in digits: no word has any."""
        shape = low.translate(_NO_DIGITS)
        if shape in self._dull:
            return False
        if any(word in low for word in self._words):
            return True
        if len(self._dull) < 20_000:
            self._dull.add(shape)
        return False

    def _help(self, text: str) -> bool:
        """Whether the line belongs to argparse's help, which speaks of everything."""
        if text.startswith(_HEADS):
            self._in_help = self.seen.usage = True
        elif self._in_help and not text.startswith((" ", "\t")):
            self._in_help = False
        return self._in_help or text.lstrip().startswith("[--")

    def _batch(self, line: Line, text: str) -> bool:
        """The lines that make up most of a log: batches and requests served."""
        if found := _POST.search(text):
            if found.group(2) == "200":
                self.seen.posts_ok += 1
            elif not found.group(1).startswith(("/flush_cache", "/health", "/reset", "/start_profile", "/abort")):
                self.seen.posts_bad += 1
                self.seen.bad_post = self.seen.bad_post or line
            return True
        if "generation throughput" in text:
            found = _STALL.search(text)
            stalled = bool(found and int(found.group(1)) + int(found.group(2)) and "prompt throughput: 0.0" in text)
            self.seen.stalled = self.seen.stalled + 1 if stalled else 0
            self.seen.stall_line = line if stalled else None
        return text.startswith(("Decode batch", "Prefill batch"))

    def _of_rank(self, rank: str) -> _Trace:
        if len(self._traces) > 4096:
            self._traces.clear()
        return self._traces.setdefault(rank, _Trace())

    def _trace(self, line: Line, text: str) -> None:
        trace = self._of_rank(line.rank)
        if "Traceback (most recent call last)" in text or _FATAL.search(text):
            again = trace.open and not _FATAL.search(text)
            self._traces[line.rank] = _Trace(
                open=True, fatal=bool(_FATAL.search(text)) or (again and trace.fatal), harmless=trace.harmless
            )
        elif _HARMLESS.search(text):
            self._traces[line.rank] = _Trace(harmless=True)
        elif trace.open and _FRAME.match(text):
            for frame, pattern in self._table.frames:
                if pattern.search(text):
                    self._place(trace, frame.stage)
                    break
        elif not text.startswith(" ") and "another exception occurred" not in text and "direct cause" not in text:
            trace.harmless = trace.harmless and line.message != line.raw

    @staticmethod
    def _place(trace: _Trace, stage: str) -> None:
        if stage == "config":
            trace.config = True
        elif stage == "load":
            trace.load = True
        else:
            trace.startup = stage

    def _rules(self, line: Line, text: str, low: str) -> None:
        quiet = line.level in _QUIET_LEVELS or bool(_WARNING.search(text))
        for rule, pattern in self._table.rules:
            if not any(word in low for word in rule.words) or not pattern.search(text):
                continue
            if rule.role == "benign":
                return
            if quiet and not rule.any_level:
                continue
            if rule.stages and self._stage(line.rank) not in rule.stages:
                continue
            self._keep(rule, line)
            return

    def _stage(self, rank: str) -> str:
        return "load" if self.seen.ready >= 0 else self._stages.get(rank, self.seen.stage)

    def _keep(self, rule: Rule, line: Line) -> None:
        kept = self.seen.hits.setdefault(rule.role, [])
        trace = self._of_rank(line.rank)
        hit = Hit(
            rule=rule,
            line=line,
            order=self.seen.messages,
            stage=self._stage(line.rank),
            frame=trace.stage,
            fatal=trace.fatal,
            pool_seen=any(stage in ("kv_pool", "graph_capture") for _, stage, _ in self.seen.markers),
        )
        if len(kept) < KEPT:
            kept.append(hit)

    def _exception(self, line: Line, text: str) -> None:
        trace = self._of_rank(line.rank)
        if not trace.open or text.startswith((" ", "\t")):
            return
        found = _EXCEPTION.match(text)
        if found is None:
            return
        quiet = line.level in _QUIET_LEVELS
        if len(self.seen.raised) < KEPT and not quiet:
            stage = trace.stage or self._stage(line.rank)
            raised = Raised(line, self.seen.messages, found.group(1), stage, trace.config, trace.harmless)
            self.seen.raised.append(raised)
        trace.open = False

    def _markers(self, line: Line, text: str, low: str) -> None:
        seen = self.seen
        for marker, pattern in self._table.markers:
            if not any(word in low for word in marker.words) or not pattern.search(text):
                continue
            if marker.sign == "progress":
                seen.progress = seen.messages
            elif marker.sign == "slow":
                seen.slow = seen.messages
            elif marker.sign == "shutdown":
                seen.shutdown = seen.messages
            else:
                self._advance(line, marker.stage, marker.sign)
            return

    def _advance(self, line: Line, stage: str, sign: str) -> None:
        seen = self.seen
        if sign == "launch":
            seen.launches.append((seen.messages, line))
            seen.ready = -1
            self._stages.clear()
            del seen.launches[:-8]
        elif sign == "ready":
            seen.ready = seen.messages
        self._stages[line.rank] = stage
        if stage != seen.stage or not seen.markers:
            seen.markers.append((seen.messages, stage, line))
            del seen.markers[:-KEPT]
        seen.stage = stage


def scan(lines: Iterable[Line], table: Compiled, measuring: bool = False) -> Scan:
    """Everything of a log that ``diagnose`` weighs; ``measuring``: the figures of a benchmark, too."""
    scanner = Scanner(table, measuring)
    for line in lines:
        scanner.feed(line)
    return scanner.seen
