"""The output of a load generator: whether its numbers may be believed.

sglang.bench_serving prints no failed count and counts an empty stream as a success with time to first token 0;
both generators repeat their prompts for a fixed seed, so that a second run on one server is served from its cache.
"""

from __future__ import annotations

import re

import msgspec

from autotune.diagnosis.lines import Line

FAILED_SHARE = 0.01
"""As the default ``failed_limit`` of a workload: more failed requests than this make a measurement invalid."""
CACHED_SHARE = 0.2
"""Prompts drawn at random share a few per cent at most (templates, the warm-up request)."""
REAL_SHARE = 0.7
"""Re-tokenising random text gives a few per cent more or fewer tokens; far fewer are answers that never came."""
RERUN_RATIO = 1.4
"""Repeats of one measurement on one server agree within about 20 %; cached or cold runs differ twofold and more."""

_FIGURE = re.compile(r"^(?:run \d+: ?)?#? ?([A-Z][\w /().%-]{3,60}?):\s+(-?[\d,.]+|nan|inf)\b")
_THROUGHPUT = re.compile(r"Output token throughput \(tok/s\):\s+(\d+(?:\.\d+)?)")
_EXPECTED = re.compile(r"\bnum[_-]prompts[=: ]+(\d{1,18})\b")
_HIT_RATE = re.compile(r"[Cc]ache hit rate: (\d+(?:\.\d+)?) ?%")
_CACHED = re.compile(r"#new-token: (\d{1,18}), #cached-token: (\d{1,18})\b")
_SHARED_ON_PURPOSE = re.compile(r"shared-prefix|prefix_repetition|multi-?turn|sharegpt|generated-shared", re.IGNORECASE)
_BROKEN = re.compile(
    r"All requests failed|Warmup failed|Initial test run failed|index -1 is out of bounds|Never received a valid chunk"
    r"|Cannot connect to host|ClientConnectorError|ServerDisconnectedError|ClientPayloadError|ClientOSError"
    r"|Connection refused|Benchmark (?:failed|aborted)|[Nn]o successful requests|ConnectionRefusedError"
    r"|TimeoutError: \w+ ?benchmark|RequestError|RequestFuncOutput\(.{0,200}success=False"
)


_ROW = re.compile(r'"(\w+)": (-?\d{1,18}(?:\.\d+)?)\b')
_ROW_NAMES = {
    "completed": "successful requests",
    "failed": "failed requests",
    "total_output_tokens": "total generated tokens",
    "total_output_tokens_retokenized": "total generated tokens (retokenized)",
    "mean_ttft_ms": "mean ttft (ms)",
    "median_ttft_ms": "median ttft (ms)",
}


class Tally(msgspec.Struct):
    """What the lines of a benchmark have said so far; ``figures`` holds the last value under each heading."""

    figures: dict[str, tuple[float, Line]] = msgspec.field(default_factory=dict)
    throughputs: list[tuple[str, float, Line]] = msgspec.field(default_factory=list)
    expected: int | None = None
    setting: str = ""
    broken: Line | None = None
    hit_rate: tuple[float, Line] | None = None
    new_tokens: int = 0
    cached_tokens: int = 0
    cached_line: Line | None = None
    shared_on_purpose: bool = False

    def feed(self, line: Line) -> None:
        """Take one message in."""
        text = line.message
        if ":" in text and (found := _FIGURE.match(text)):
            self._figure(found.group(1), found.group(2), line)
        if found := _THROUGHPUT.search(text):
            self.throughputs.append((self.setting, float(found.group(1)), line))
        if '"completed"' in text:
            self._row(line)
        if "prompts" in text and (found := _EXPECTED.search(text)):
            self.expected = int(found.group(1))
        if "hit rate" in text and (found := _HIT_RATE.search(text)):
            self.hit_rate = (float(found.group(1)) / 100, line)
        if "#cached-token" in text and (found := _CACHED.search(text)):
            self.new_tokens += int(found.group(1))
            self.cached_tokens += int(found.group(2))
            self.cached_line = line
        if self.broken is None and _BROKEN.search(text):
            self.broken = line
        self.shared_on_purpose = self.shared_on_purpose or bool(_SHARED_ON_PURPOSE.search(text))

    def _row(self, line: Line) -> None:
        """The result as one line of JSON, as both generators write it to a file."""
        for key, number in _ROW.findall(line.message):
            if key in _ROW_NAMES:
                self.figures[_ROW_NAMES[key]] = (float(number), line)
            elif key == "num_prompts":
                self.expected = int(float(number))

    def _figure(self, heading: str, number: str, line: Line) -> None:
        try:
            value = float(number.replace(",", "").rstrip("."))
        except ValueError:
            return
        self.figures[heading.strip().lower()] = (value, line)
        if heading.strip().lower() in (
            "maximum request concurrency",
            "max request concurrency",
            "traffic request rate",
        ):
            self.setting = f"{heading} {number}"


class Complaint(msgspec.Struct, frozen=True):
    """Why a benchmark's figures are not valid."""

    lines: tuple[Line, ...]
    advice: str


def _requests(tally: Tally) -> Complaint | None:
    done, done_line = tally.figures.get("successful requests", (None, None))
    failed, failed_line = tally.figures.get("failed requests", (0.0, None))
    if done is None or done_line is None:
        return None
    lines = tuple(line for line in (done_line, failed_line) if line is not None)
    if done == 0 or failed > FAILED_SHARE * (done + failed):
        return Complaint(
            lines, f"{failed:.0f} of {done + failed:.0f} requests failed: find out why in the server's log."
        )
    if tally.expected and done < (1 - FAILED_SHARE) * tally.expected:
        return Complaint(lines, f"Only {done:.0f} of {tally.expected} requests succeeded; the rest failed unreported.")
    return None


def _empty_answers(tally: Tally) -> Complaint | None:
    asked = tally.figures.get("total generated tokens")
    real = tally.figures.get("total generated tokens (retokenized)")
    if asked is not None and asked[0] == 0:
        return Complaint((asked[1],), "No token was generated: the answers were empty.")
    if asked and real and real[0] < REAL_SHARE * asked[0]:
        advice = "The answers hold far fewer tokens than counted: empty or aborted streams passed as successes."
        return Complaint((asked[1], real[1]), advice)
    for heading in ("mean ttft (ms)", "median ttft (ms)"):
        ttft = tally.figures.get(heading)
        if ttft is not None and ttft[0] == 0:
            return Complaint((ttft[1],), "Time to first token is 0: the streams carried no text.")
    return None


def _cached_prompts(tally: Tally) -> Complaint | None:
    if tally.shared_on_purpose:
        return None
    advice = "Prompts were served from the prefix cache: use fresh prompts (another seed), flush the cache, or restart."
    if tally.hit_rate is not None and tally.hit_rate[0] >= CACHED_SHARE:
        return Complaint((*(line for _, _, line in tally.throughputs[:2]), tally.hit_rate[1]), advice)
    total = tally.new_tokens + tally.cached_tokens
    if tally.cached_line is not None and tally.cached_tokens > CACHED_SHARE * total:
        return Complaint((tally.cached_line,), advice)
    return None


def _reruns(tally: Tally) -> Complaint | None:
    first: dict[str, tuple[float, Line]] = {}
    for setting, value, line in tally.throughputs:
        low, low_line = first.setdefault(setting, (value, line))
        if max(low, value) > RERUN_RATIO * min(low, value):
            advice = "Repeats on one server disagree (cold at first, or cached later): warm up, use fresh prompts."
            return Complaint((low_line, line), advice)
    return None


def _no_connection(tally: Tally) -> Complaint | None:
    if tally.broken is None:
        return None
    return Complaint(
        (tally.broken,),
        "The load generator could not get answers: check address, route, model name and that the server lives.",
    )


def complaint(tally: Tally) -> Complaint | None:
    """The first reason not to believe a benchmark, or None."""
    for judge in (_requests, _empty_answers, _no_connection, _cached_prompts, _reruns):
        found = judge(tally)
        if found is not None:
            return found
    return None
