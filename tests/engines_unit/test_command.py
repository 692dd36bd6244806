"""Any server behind a command template."""

from __future__ import annotations

import json
import sys

import pytest

from autotune.engines import Where
from autotune.engines.command import Command
from autotune.errors import InputError
from autotune.study.file import EngineSpec, ModelSpec, Study
from autotune.study.workload import Route, Workload
from autotune.values import ParamValue
from tests.engines_unit.recorded import LLAMA_METRICS, LLAMA_PROPS, SGLANG_INFO, VLLM_METRICS, answering

ENGINE = Command()


def argv(command: list[str], *flags: tuple[str, ParamValue]) -> tuple[str, ...]:
    """The command line for a template."""
    spec, model = EngineSpec(kind="command", command=command), ModelSpec(path="m.gguf")
    return ENGINE.launch_plan(spec, model, flags, Where(host="127.0.0.1", port=5)).argv


def test_words_and_parameters_are_filled_in() -> None:
    """Place, model, interpreter and parameters stand where the template has them."""
    command = ["{python}", "run", "--at={host}:{port}", "-m", "{model}", "-np", "{parallel}"]
    expected = (sys.executable, "run", "--at=127.0.0.1:5", "-m", "m.gguf", "-np", "8")
    assert argv(command, ("--parallel", 8)) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (["--parallel", "{parallel}"], ()),
        (["--parallel={parallel}"], ()),
        (["--parallel", "{parallel=4}"], ("--parallel", "4")),
        (["sub", "{parallel}"], ("sub",)),
        (["--x", "{parallel}-{parallel}"], ("--x",)),
    ],
)
def test_a_parameter_without_a_value_leaves_with_its_flag(template: list[str], expected: tuple[str, ...]) -> None:
    """The baseline leaves a parameter to the engine, or to the default in the template."""
    assert argv(["s", "{port}", *template]) == ("s", "5", *expected)


def test_parameters_without_a_placeholder_are_appended() -> None:
    """So a template need not name all that is searched; a flag already there is replaced."""
    assert argv(["s", "{port}", "--slots=2"], ("--slots", 4), ("--fast", True)) == ("s", "5", "--slots", "4", "--fast")


def test_json_in_an_argument_is_left_alone() -> None:
    """Its braces are no placeholders."""
    assert argv(["s", "{port}", '{"a": {"b": 1}}'])[2] == '{"a": {"b": 1}}'


def test_a_template_without_a_port_is_refused() -> None:
    """Two trials must not meet on one port; the message shows the near miss."""
    with pytest.raises(InputError, match=r"no \{port\} \(\{prt\} is not it\)"):
        argv(["s", "--port", "{prt}"])


def test_llama_cpp_reads_back() -> None:
    """Slots are its running limit, and the context of all slots its capacity."""
    seen = ENGINE.effective(answering({"/props": LLAMA_PROPS}), "", ["parallel"])
    assert (seen.version, seen.running_limit, seen.kv_tokens) == ("b7000", 4, 4096)
    assert seen.values == {"parallel": 4, "ctx_size": 4096}


def test_known_servers_behind_a_wrapper_read_back() -> None:
    """SGLang in a container is still SGLang, and vLLM is vLLM."""
    seen = ENGINE.effective(answering({"/server_info": SGLANG_INFO}), "", ["max_running_requests"])
    assert (seen.version, seen.values["max_running_requests"]) == ("0.5.23", 2048)
    assert ENGINE.effective(answering({"/metrics": VLLM_METRICS}), "", []).kv_tokens == 8192


def test_llama_cpp_counts() -> None:
    """Its metrics tell tokens; retractions it does not know."""
    seen = ENGINE.counters(answering({"/metrics": LLAMA_METRICS}))
    assert (seen.prompt_tokens, seen.generated_tokens, seen.retractions) == (576, 570, None)


def test_the_probe_asks_nothing_beyond_the_api() -> None:
    """Strict servers answer 422 to fields that they do not know."""
    plan = ENGINE.launch_plan(
        EngineSpec(kind="command", command=["s", "{port}"]), ModelSpec(), [], Where(host="h", port=1)
    )
    assert "ignore_eos" not in ENGINE.probe(plan, [1]).body


@pytest.mark.parametrize(
    ("route", "path", "asked"),
    [
        ("generate", "/generate", {"input_ids": [7, 9]}),
        ("completions", "/v1/completions", {"prompt": [7, 9]}),
        ("chat", "/v1/chat/completions", {"messages": [{"role": "user", "content": "7 9"}]}),
    ],
)
def test_the_probe_takes_the_route_of_the_load(route: Route, path: str, asked: dict[str, object]) -> None:
    """A server need not have more than the route that it is measured by."""
    spec = EngineSpec(kind="command", command=["s", "{port}"])
    speaker = ENGINE.for_study(Study(name="s", engine=spec, workload=Workload(route=route)))
    plan = speaker.launch_plan(spec, ModelSpec(), [], Where(host="h", port=1))
    request = speaker.probe(plan, [7, 9])
    assert request.path == path
    assert asked.items() <= json.loads(request.body).items()


def test_a_message_is_a_generation() -> None:
    """Chats of servers that count no tokens; an empty message is none."""
    for content, ready in (("a", True), ("", False), (None, False)):
        answer = {"choices": [{"message": {"role": "assistant", "content": content}}]}
        assert ENGINE.is_ready(200, json.dumps(answer).encode()) is ready
