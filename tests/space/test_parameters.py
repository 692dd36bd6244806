"""Search-space files."""

from __future__ import annotations

import pytest

from autotune.errors import InputError
from autotune.space.files import load_space
from autotune.space.parameters import Follows, parse_space, with_defaults

GOOD = """
engine = "sglang"
[parameters.a]
kind = "int"
flags = [{ flag = "--a" }]
low = 1
high = 8
[parameters.b]
kind = "int"
flags = [{ flag = "--old-b", versions = "<2" }, { flag = "--b", versions = ">=2" }]
low = 1
high = { rule = "parameter", parameter = "a", otherwise = 4 }
[[rules]]
kind = "follows"
parameter = "b"
leader = "a"
shares = [0.5, 1.0]
"""


def test_parses() -> None:
    """A good file becomes a space with parameters, rules and an order that settles leaders first."""
    space = parse_space(GOOD, "x.toml")
    assert space.names() == ("a", "b")
    assert space.rules == (Follows(parameter="b", leader="a", shares=(0.5, 1.0)),)
    assert space.order().index("a") < space.order().index("b")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('engine = "sglang"', 'engin = "sglang"', r"x\.toml: unknown key 'engin'; did you mean 'engine'\?"),
        ("high = 8", "hihg = 8", r"x\.toml: parameters\.a: unknown key 'hihg'; did you mean 'high'\?"),
        ('flag = "--a"', 'falg = "--a"', r"unknown key 'flags\[0\]\.falg'; did you mean 'flag'\?"),
        ("otherwise = 4", "otherwize = 4", r"unknown key 'high\.otherwize'; did you mean 'otherwise'\?"),
        ("shares =", "share =", r"unknown key 'rules\[0\]\.share'; did you mean 'shares'\?"),
        ('kind = "follows"', 'kind = "follow"', r"rules\[0\]\.kind = 'follow'; did you mean 'follows'\?"),
        ('leader = "a"', 'leader = "aa"', r"no parameter 'aa'; did you mean 'a'\?"),
        ('parameter = "a", otherwise', 'parameter = "z", otherwise', r"rule 'parameter': .*no parameter 'z'"),
        ("low = 1\nhigh = 8", "low = 9\nhigh = 8", "low is greater than high"),
        ("low = 1\nhigh = 8", "low = 0\nhigh = 8\nlog = true", "log scale needs low > 0"),
        ("low = 1\nhigh = 8", "low = 1", "needs low and high"),
        ("high = 8", "high = 8\nstep = 0", "step must be greater than 0"),
        ('kind = "int"', 'kind = "integer"', r"parameters\.a: Invalid enum value 'integer'"),
        ('versions = "<2"', 'versions = "2"', "version range '2'"),
        ("shares = [0.5, 1.0]", "shares = [1.0, 0.5]", "must be ascending"),
        ("shares = [0.5, 1.0]", "shares = [0.5, 1.5]", r"must lie in \(0, 1\]"),
        ('[{ flag = "--a" }]', "[]", "flags is empty"),
        ("[parameters.a]", "[parameters.a", "not TOML"),
    ],
)
def test_bad_files(old: str, new: str, message: str) -> None:
    """Whatever is wrong in a file is one InputError that names the file, the key and the remedy."""
    text = GOOD.replace(old, new, 1)
    assert text != GOOD
    with pytest.raises(InputError, match=message) as caught:
        parse_space(text, "x.toml")
    assert "\n" not in str(caught.value)


def test_circular_rules() -> None:
    """Rules that go round in a circle are refused."""
    circle = '[[rules]]\nkind = "at_most"\nparameter = "a"\nlimit = "b"\n'
    with pytest.raises(InputError, match="circle"):
        parse_space(GOOD + circle, "x.toml")


@pytest.mark.parametrize(
    ("version", "flag"),
    [
        ("0.4.6", "--cuda-graph-max-bs"),
        ("0.5.12", "--cuda-graph-max-bs"),
        ("0.5.14", "--cuda-graph-max-bs-decode"),
        ("0.5.23", "--cuda-graph-max-bs-decode"),
        ("", "--cuda-graph-max-bs-decode"),
    ],
)
def test_graph_flag_by_version(version: str, flag: str) -> None:
    """The graph ceiling is spelled as the version takes it, and as the newest one for an unknown version."""
    assert load_space("sglang").flags({"cuda_graph_max_bs": 8}, version) == ((flag, 8),)


@pytest.mark.parametrize(("version", "read"), [("0.3.5", True), ("0.3.6", False), ("0.5.14", False), ("", True)])
def test_decode_steps_are_dead_since_036(version: str, read: bool) -> None:
    """num_continuous_decode_steps is read up to 0.3.5; of an unknown version nothing is claimed."""
    assert load_space("sglang").get("num_continuous_decode_steps").is_read_by(version) is read


def test_sglang_defaults() -> None:
    """Running limit, decode steps and graph ceiling are on by default, the others by naming them."""
    on = {p.name for p in load_space("sglang").parameters if p.on_by_default}
    assert on == {"max_running_requests", "num_continuous_decode_steps", "cuda_graph_max_bs"}


def test_vllm_ships() -> None:
    """vLLM's space loads and knows that batched tokens cover the sequences."""
    space = load_space("vllm")
    assert [type(rule).__name__ for rule in space.rules_of("max_num_batched_tokens")] == ["AtLeast"]


def test_with_defaults() -> None:
    """What the base command sets becomes the default; unknown names are ignored."""
    space = with_defaults(load_space("sglang"), {"page_size": 64, "nothing": 1})
    assert space.get("page_size").default == 64
