"""Values that a study tells where to find."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from autotune.brief import read_brief
from autotune.engines.command import Command
from autotune.engines.told import pointed
from autotune.errors import InputError
from autotune.study.file import EngineSpec, Study
from tests.engines_unit.recorded import LLAMA_METRICS, LLAMA_PROPS, answering

PAGES = {
    "/state": {"pools": [{"tokens": 512}, {"tokens": 256}], "a/b": {"~": 7}, "name": "x", "on": True},
    "/metrics": 'a:tokens{rank="0"} 3\na:tokens{rank="1"} 4\na:info{size="16",kind="k"} 1\n',
}
LOG = "pool of 1,024 tokens\npool of 2,048 tokens\n"


def told_by(**places: dict[str, str]) -> Command:
    """The engine of a study that names these places."""
    spec = msgspec.convert({"kind": "command", "command": ["s", "{port}"], **places}, EngineSpec)
    return Command().for_study(Study(name="s", engine=spec))


def read(text: str) -> object:
    """What one place tells, as the parameter ``x``."""
    return told_by(read_back={"x": text}).effective(answering(PAGES), LOG, ["x"]).values.get("x")


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("/state#/pools/1/tokens", 256),
        ("/state#/a~1b/~0", 7),
        ("/state#/name", "x"),
        ("/state#/on", True),
        ("/state#/pools/0/tokens * /state#/pools/1/tokens", 512 * 256),
        ("/metrics#a:tokens", 7),
        ("/metrics#a:info{size}", 16),
        ("/metrics#a:info{kind}", "k"),
        (r"log#pool of ([\d,]+) tokens", 2048),
        ("/state#/pools/9/tokens", None),
        ("/state#/pools", None),
        ("/state#/name * /state#/on", None),
        ("/absent#/x", None),
        ("/metrics#a:absent", None),
        ("/metrics#a:info{absent}", None),
        (r"log#never (\d+)", None),
    ],
)
def test_a_place_tells_its_value(place: str, expected: object) -> None:
    """Pointers, samples, labels, log lines and products; what is not there tells nothing."""
    assert read(place) == expected


@pytest.mark.parametrize("number", ["9" * 400, "-9223372036854775809", "1e300"])
@pytest.mark.parametrize("place", ["/n#/x", "/n#/x * /n#/half", "/m#a{size}", "/m#a{size} * /n#/half", r"log#n (\S+)"])
def test_a_number_beyond_every_record_is_not_told(place: str, number: str) -> None:
    """Wherever it stands, and multiplied too."""
    pages = {"/n": f'{{"x": {number}, "half": 0.5}}', "/m": f'a{{size="{number}"}} 1\n'}
    engine = told_by(read_back={"x": place})
    assert "x" not in engine.effective(answering(pages), f"n {number}\n", ["x"]).values


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("x", "total_slots", "names no place"),
        ("x", "props#/total_slots", "names no place"),
        ("x", "/props#", "names no place"),
        ("x", "/props#total slots", "neither a JSON pointer nor the name of a metric"),
        ("x", "log#n = [", "no regular expression"),
        ("x", "log#n = 3", "has 0 groups"),
    ],
)
def test_a_place_that_cannot_be_read_is_refused(key: str, text: str, message: str) -> None:
    """One line names the key and says what a place is."""
    with pytest.raises(InputError, match=rf"engine\.read_back\.{key}.*{message}"):
        told_by(read_back={key: text})


def test_figures_come_over_what_is_known() -> None:
    """The study's places win over llama.cpp's own answer, and leave the rest of it."""
    speaker = told_by(read_back={"running_limit": "log#pool of ([\\d,]+)", "n": "log#(p)"})
    seen = speaker.effective(answering({"/props": LLAMA_PROPS}), LOG, [])
    assert (seen.source, seen.version, seen.running_limit, seen.kv_tokens) == ("server_info", "b7000", 2048, 4096)
    assert seen.values == {"parallel": 4, "ctx_size": 4096, "n": "p"}


def test_counters_come_from_the_places_alone() -> None:
    """Where a study tells of counters nothing is guessed beside them."""
    speaker = told_by(counters={"generated_tokens": "/metrics#llamacpp:tokens_predicted_total"})
    seen = speaker.counters(answering({"/metrics": LLAMA_METRICS}))
    assert (seen.source, seen.generated_tokens, seen.prompt_tokens) == ("metrics", 570, None)
    assert speaker.counters(answering({})).source == "none"
    with pytest.raises(InputError, match=r"engine\.counters\.generated_token: .*did you mean generated_tokens"):
        told_by(counters={"generated_token": "/m#x"})


STUDY = """
name = "s"
[engine]
kind = "{kind}"
command = ["llama-server", "--port", "{{port}}", "--parallel", "{{parallel=4}}"]
[engine.read_back]
{name} = "/props#/total_slots"
[space]
file = "llamacpp"
[workload]
route = "completions"
concurrency = 4
"""


def test_names_are_held_against_the_search_space(tmp_path: Path) -> None:
    """A value that is no figure and no parameter is refused before anything starts; so are places for another kind."""
    path = tmp_path / "study.toml"
    path.write_text(STUDY.format(kind="command", name="parallel"))
    assert read_brief(path).engine.kind == "command"
    path.write_text(STUDY.format(kind="command", name="paralel"))
    with pytest.raises(InputError, match=r"engine\.read_back\.paralel: unknown name; did you mean parallel"):
        read_brief(path)
    path.write_text(STUDY.format(kind="vllm", name="parallel"))
    with pytest.raises(InputError, match=r"engine\.read_back: is not read with kind vllm"):
        read_brief(path)


def test_a_pointer_into_nothing_is_none() -> None:
    """Whatever the document is."""
    documents: tuple[object, ...] = (None, 3, "text", [], {})
    for document in documents:
        assert pointed(document, "/a/0") is None
