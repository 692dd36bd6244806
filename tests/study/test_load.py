"""Study files: accepted, or refused in one line with the key and the remedy."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import InputError
from autotune.study.file import Study
from autotune.study.load import load_study, parse_study, study_of
from autotune.study.rules import SPANS, Known, Problem, Span, parse_duration

MINIMAL = """
name = "night"
[engine]
command = ["{python}", "-m", "server"]
[workload]
concurrency = 64
"""
KNOWN = Known(
    samplers=("autotune", "tpe", "random"),
    metrics=("output_throughput_tok_s", "ttft_p99_s"),
    engines=("sglang", "vllm", "command"),
)


def base() -> dict[str, Any]:
    """The minimal study as parsed TOML."""
    return {
        "name": "night",
        "engine": {"command": ["{python}", "-m", "server"]},
        "workload": {"concurrency": 64},
    }


def with_key(key: str, value: Any) -> dict[str, Any]:
    """The minimal study with one more key."""
    data = base()
    *sections, last = key.split(".")
    place = data
    for section in sections:
        place = place.setdefault(section, {})
    place[last] = value
    return data


def refusal(data: dict[str, Any]) -> str:
    """The message with which a study is refused."""
    with pytest.raises(Problem) as problem:
        study_of(data, KNOWN)
    return str(problem.value)


def problem_of(build: Callable[[], object]) -> Problem | None:
    """The problem that a study has, None when it is accepted; any other exception passes."""
    try:
        build()
    except Problem as problem:
        return problem
    return None


def test_a_minimal_study_takes_every_default_from_the_struct(tmp_path: Path) -> None:
    """Name, command and concurrency are all that a study must say."""
    path = tmp_path / "night.toml"
    path.write_text(MINIMAL)
    study = load_study(path, KNOWN)
    assert study.name == "night"
    assert study.workload.concurrency == 64
    assert study.budget.trials == 20
    assert study.engine.kind == "sglang"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("workload.concurency", 3, "workload.concurency: unknown key; did you mean workload.concurrency?"),
        ("concurrency", 3, "concurrency: unknown key; did you mean workload.concurrency?"),
        ("budget.trails", 3, "did you mean budget.trials?"),
        ("xyzzy", 3, "known keys here: name, description, seed"),
        ("space.override.limit.hihg", 3, "space.override.limit.hihg: unknown key; did you mean"),
        ("budget.trials", "twenty", "budget.trials: expected int, got str"),
        ("workload", 3, "workload: expected object, got int"),
        ("engine.command", "sglang serve", "engine.command: expected array, got str"),
        ("engine.command", ["a", 3], "engine.command[1]: expected str, got int"),
        ("workload.arrival", "poisson", "workload.arrival: invalid enum value 'poisson'"),
        ("workload.precision", float("nan"), "workload.precision: nan is not a number"),
        ("engine.command", ["a\0b"], "engine.command[0]: contains a NUL character"),
        ("budget.trials", 2**70, "budget.trials: the number is too large"),
    ],
)
def test_wrong_keys_and_types_are_named(key: str, value: Any, words: str) -> None:
    """The message begins with the dotted key and ends with what to do."""
    assert words in refusal(with_key(key, value))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("name", "../up", "name: '../up' cannot name a folder"),
        ("name", "", "cannot name a folder"),
        ("seed", -1, "seed: -1 is out of range"),
        ("storage", "study.db", "storage: is not a database URL"),
        ("engine.kind", "sglan", "engine.kind: 'sglan' is not known; did you mean sglang?"),
        ("engine.command", [], "engine.command: is empty"),
        ("engine.env", {"GH_PAT": "abc"}, "engine.env.GH_PAT: looks like a secret, and the values of env"),
        ("engine.env", {"DB": "postgres://me:pw@h/d"}, "engine.env.DB: looks like a secret, and the values of env"),
        ("engine.env", {"HF_TOKEN": "hf_abc"}, "engine.env.HF_TOKEN: looks like a secret, and the values of env"),
        ("engine.env", {"A=B": "1"}, "engine.env.A=B: 'A=B' is not the name of an environment variable"),
        ("engine.pass_env", ["OK", "no way"], "engine.pass_env[1]"),
        ("engine.api_key_env", "a-b", "engine.api_key_env"),
        ("engine.command", ["x", "--api-key", "sk"], "engine.command[1]: --api-key puts a key into every record"),
        ("engine.command", ["x", "--admin-api-key=sk"], "engine.command[1]: --admin-api-key puts a key"),
        ("notify.command", ["", "x"], "notify.command: begins with an empty word"),
        ("notify.timeout_s", 0, "notify.timeout_s: 0 is out of range"),
        ("engine.host", " ", "engine.host: is empty"),
        ("engine.host", "a..b", "engine.host: 'a..b' names no host; give an address, such as 127.0.0.1"),
        ("engine.host", "a" * 300, "names no host"),
        ("engine.host", "127.0.0.1\n", "names no host"),
        ("workload.concurrency", 0, 'workload.concurrency: is missing; arrival = "closed" needs'),
        ("workload.arrival", "open", "workload.request_rate: is missing"),
        ("workload.request_rate", 4.0, "workload.request_rate: is not used by a closed loop"),
        ("workload.levels", [16, 32], "workload.levels: lacks workload.concurrency; add 64, or set"),
        ("workload.levels", [64, 64], "workload.levels: are not distinct numbers"),
        ("workload.levels", [64, 0], "workload.levels: are not distinct numbers"),
        (
            "workload",
            {"arrival": "open", "request_rate": 8, "levels": [64]},
            "workload.levels: are numbers of requests",
        ),
        ("workload.range_ratio", 0.0, "workload.range_ratio: 0 is out of range; give a number above 0 and at most 1"),
        ("workload.range_ratio", 1.5, "workload.range_ratio: 1.5 is out of range"),
        ("workload.precision", 1.0, "above 0 and below 1"),
        ("workload.input_tokens", 0, "workload.input_tokens: 0 is out of range"),
        ("workload.min_s", 100.0, "workload.min_s: 100 is above max_s (60)"),
        ("workload.token_id_low", 40_000, "workload.token_id_low: 40000 is not below token_id_high"),
        ("objective.metric", "throughput_tok_s", "did you mean output_throughput_tok_s?"),
        ("objective.constraints", {"ttft_p9_s": 1.0}, "objective.constraints.ttft_p9_s"),
        ("objective.constraints", {"ttft_p99_s": 0.0}, "is not positive"),
        ("search.sampler", "gp", "search.sampler: 'gp' is not known; use one of autotune, tpe, random"),
        ("budget.wall_clock", "8 hours", "budget.wall_clock: '8 hours' is not a duration; write it as 90s, 45m"),
        ("budget.wall_clock", "0s", "budget.wall_clock: is zero"),
        ("budget.baseline_every", -1, "budget.baseline_every: -1 is out of range"),
        ("budget.trials", 0, "budget.trials: 0 is out of range"),
        ("timeouts.start_s", 0.0, "timeouts.start_s: 0 is out of range"),
        ("space.override", {"limit": {"low": 9.0, "high": 3.0}}, "space.override.limit.low: 9 is above high (3)"),
        ("space.override", {"limit": {"step": 0.0}}, "space.override.limit.step"),
        ("space.override", {"limit": {"choices": []}}, "space.override.limit.choices: is empty"),
    ],
)
def test_values_that_make_no_night_are_refused(key: str, value: Any, words: str) -> None:
    """Each semantic rule names its key and its remedy."""
    assert words in refusal(with_key(key, value))


@pytest.mark.parametrize(("section", "key"), [("", "name"), ("", "engine"), ("engine", "command")])
def test_missing_keys_are_named(section: str, key: str) -> None:
    """A key without a default must be there."""
    data = base()
    del (data[section] if section else data)[key]
    assert refusal(data) == f"{f'{section}.{key}'.strip('.')}: is missing; add it"


def test_harmless_names_are_not_taken_for_secrets() -> None:
    """TOKENIZERS_PARALLELISM has no token in it."""
    env = {"TOKENIZERS_PARALLELISM": "false", "MONKEY": "1", "API_KEY": ""}
    assert study_of(with_key("engine.env", env), KNOWN).engine.env == env


def test_latencies_of_tokens_need_streaming() -> None:
    """As an objective and as a limit; the time to the end of a request does not."""
    for key, value in (("metric", "ttft_p99_s"), ("constraints", {"ttft_p99_s": 1.0})):
        data = with_key("workload.stream", False) | {"objective": {key: value}}
        assert "ttft_p99_s cannot be seen without streaming; write workload.stream = true" in refusal(data)
    data = with_key("workload.stream", False) | {"objective": {"metric": "e2e_p99_s"}}
    assert study_of(data, Known()).objective.metric == "e2e_p99_s"


def test_the_levels_of_one_start_are_loads_from_light_to_heavy() -> None:
    """Each is a workload of its own with that concurrency; without levels there is one."""
    workload = study_of(with_key("workload.levels", [256, 16, 64]), KNOWN).workload
    assert [load.concurrency for load in workload.loads()] == [16, 64, 256]
    assert all(load.levels == [] for load in workload.loads())
    assert workload.peak == 256
    single = study_of(base(), KNOWN).workload
    assert (single.loads(), single.peak) == ((single,), 64)


def test_an_open_loop_needs_no_concurrency() -> None:
    """It may have one, as a ceiling."""
    data = base() | {"workload": {"arrival": "open", "request_rate": 8}}
    assert study_of(data, KNOWN).workload.request_rate == 8.0


def test_every_span_names_a_number_of_the_study() -> None:
    """A key that is renamed in the file's shape is renamed here."""
    study = study_of(base(), Known())
    for span in SPANS:
        value: Any = study
        for part in span.key.split("."):
            value = getattr(value, part)
        assert value is None or isinstance(value, int | float)
        assert span.low < span.high < math.inf


def numbers(value: Any, place: str = "") -> Iterator[str]:
    """The keys of all numbers below a value."""
    for field in value.__struct_fields__:
        inner = getattr(value, field)
        if isinstance(inner, msgspec.Struct):
            yield from numbers(inner, f"{place}{field}.")
        elif isinstance(inner, int | float) and not isinstance(inner, bool):
            yield f"{place}{field}"


def test_every_number_of_the_study_has_a_span() -> None:
    """None is too large or too small for what is done with it later; the seed has a rule of its own."""
    assert set(numbers(study_of(base(), Known()))) - {span.key for span in SPANS} == {"seed"}


@pytest.mark.parametrize("span", SPANS, ids=lambda span: span.key)
def test_a_number_without_measure_is_refused(span: Span) -> None:
    """One clear error names the key and the span."""
    for value in (1e300, -1e300):
        with pytest.raises(Problem, match=rf"^{span.key}: .* is out of range; give a number "):
            span.check(study_with(span.key, value))


def study_with(key: str, value: float) -> Study:
    """A study with this value in this place, whatever its type."""
    section, name = key.split(".")
    study = study_of(base(), Known())
    part = msgspec.structs.replace(getattr(study, section), **{name: value})
    return msgspec.structs.replace(study, **{section: part})


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("45m", 2700), ("8h", 28800), ("1d", 86400), ("1h30m", 5400), ("0.5h", 1800)]
)
def test_durations(text: str, seconds: float) -> None:
    """Seconds, minutes, hours and days, and sums of them."""
    assert parse_duration(text) == seconds


@given(st.text(max_size=12))
@settings(deadline=None)
def test_no_text_is_half_a_duration(text: str) -> None:
    """A text is a duration as a whole or a ValueError."""
    with contextlib.suppress(ValueError):
        assert parse_duration(text) >= 0


BAD_FILES: dict[str, bytes] = {
    "not TOML": b"name = ",
    "not UTF-8": b'name = "\xff\xfe"',
    "NUL": b'name = "a\x00b"',
    "empty": b"",
    "deep": b"a = " + b"[" * 100_000,
    "huge number": b"seed = " + b"9" * 10_000,
    "huge": b"#" * 1_000_001,
    "utf-16": 'name = "x"'.encode("utf-16"),
    "duplicate": b'name = "a"\nname = "b"',
}


@pytest.mark.parametrize("data", BAD_FILES.values(), ids=BAD_FILES.keys())
def test_files_that_are_no_study_are_input_errors(tmp_path: Path, data: bytes) -> None:
    """Whatever is in the file, the message is one line that begins with its name."""
    path = tmp_path / "bad.toml"
    path.write_bytes(data)
    with pytest.raises(InputError) as error:
        load_study(path, KNOWN)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_paths_that_are_no_file_are_input_errors(tmp_path: Path) -> None:
    """Missing, a directory, a pipe, too long, with a NUL: the same kind of error."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "no.toml", tmp_path, tmp_path / "pipe", tmp_path / ("x" * 5000), tmp_path / "a\0b"):
        with pytest.raises(InputError):
            load_study(path, KNOWN)


LEAF = st.one_of(
    st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.dates(), st.lists(st.integers(), max_size=2)
)
KEYS = [
    f.encode_name
    for s in (Study, *(f.type for f in msgspec.structs.fields(Study) if isinstance(f.type, type)))
    if issubclass(s, msgspec.Struct)
    for f in msgspec.structs.fields(s)
]
TABLE = st.recursive(
    LEAF, lambda inner: st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), inner, max_size=5), max_leaves=12
)


@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), TABLE, max_size=6))
@settings(deadline=None, max_examples=300)
def test_any_table_is_a_study_or_a_problem(data: dict[str, Any]) -> None:
    """Nothing but a Problem comes out of a table of the wrong shape."""
    problem = problem_of(lambda: study_of(base() | data, KNOWN))
    assert problem is None or "; " in str(problem)


@given(st.sampled_from(sorted(span.key for span in SPANS)), LEAF)
@settings(deadline=None, max_examples=300)
def test_any_value_of_a_number_is_taken_or_refused(key: str, value: Any) -> None:
    """A refused value is refused under its own key, or that of a rule between keys."""
    problem = problem_of(lambda: study_of(with_key(key, value), KNOWN))
    assert problem is None or problem.key.split(".")[0] == key.split(".")[0]


@given(st.text(alphabet='[]="{}\n\t\\0123456789.abnme_#-\r\x00é', max_size=60))
@settings(deadline=None, max_examples=500)
def test_any_text_is_a_study_or_a_problem(text: str) -> None:
    """No text makes a traceback."""
    assert problem_of(lambda: parse_study(text, KNOWN)) is not None
    problem = problem_of(lambda: parse_study(MINIMAL + text, KNOWN))
    assert problem is None or "; " in str(problem)


def test_a_study_survives_a_round_trip() -> None:
    """What was read can be written down and read again."""
    study = study_of(base(), KNOWN)
    assert msgspec.convert(msgspec.to_builtins(study), Study) == study
