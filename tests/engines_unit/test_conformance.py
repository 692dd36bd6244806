"""What every engine must do, run for each of them on recorded answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.engines import ENGINES, Engine, Fetch, Where, engine
from autotune.errors import InputError
from autotune.study.file import EngineSpec, ModelSpec
from autotune.values import Config, LaunchPlan, ParamValue
from tests.engines_unit.recorded import ABSENT, CASES, Case, answering

HERE = Where(host="127.0.0.1", port=30123)
each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind)


def always(page: tuple[int, bytes]) -> Fetch:
    """A fetch that gives the same answer to everything."""
    return lambda path: page


def plan_of(case: Case, *flags: tuple[str, ParamValue], **spec: Any) -> LaunchPlan:
    """The plan of a case's engine for its own command."""
    study = EngineSpec(kind=case.kind, command=case.command, **spec)
    return engine(case.kind).launch_plan(study, ModelSpec(), flags, HERE)


def test_every_engine_is_in_the_suite() -> None:
    """No engine ships without having been put through this suite."""
    assert {case.kind for case in CASES} == set(ENGINES)


def test_an_unknown_engine_names_the_nearest() -> None:
    """A typing mistake is answered with the name that was meant."""
    with pytest.raises(InputError, match=r"'sglagn'.*did you mean 'sglang'"):
        engine("sglagn")


@each
def test_the_searched_value_stands_once_in_the_command(case: Case) -> None:
    """The trial's value replaces that of the base command: no second one is left that could win."""
    argv = plan_of(case, (case.searched, 12)).argv
    named = [argument for argument in argv if argument.replace("_", "-").startswith(case.searched)]
    assert named == [case.searched]
    assert argv[argv.index(case.searched) + 1] == "12"


@each
def test_the_baseline_keeps_the_value_of_the_base_command(case: Case) -> None:
    """Without searched flags nothing of the user's command changes but host and port."""
    before = [argument for argument in case.command if "{" not in argument]
    assert [argument for argument in plan_of(case).argv if argument in before] == before


@each
def test_host_and_port_are_those_asked_for(case: Case) -> None:
    """The server listens where the tuner will look for it."""
    plan = plan_of(case, (case.searched, 12))
    assert plan.argv[plan.argv.index("--port") + 1] == "30123"
    assert plan.argv[plan.argv.index("--host") + 1] == "127.0.0.1"
    assert plan.base_url == "http://127.0.0.1:30123"


@each
def test_secrets_are_named_and_settings_are_kept(case: Case) -> None:
    """A plan carries literal settings, and of secrets only their names."""
    plan = plan_of(case, env={"OMP_NUM_THREADS": "1"}, pass_env=["HF_TOKEN", "HF_TOKEN"], api_key_env="KEY")
    assert (plan.env, plan.secret_env, plan.api_key_env) == ({"OMP_NUM_THREADS": "1"}, ("HF_TOKEN",), "KEY")


@each
@pytest.mark.parametrize("spec", [{"env": {"A B": "1"}}, {"pass_env": ["X=Y"]}], ids=["env", "pass_env"])
def test_impossible_environment_names_are_refused(case: Case, spec: dict[str, Any]) -> None:
    """A name that no environment can hold is an input error, not a broken script later."""
    with pytest.raises(InputError, match="engine"):
        plan_of(case, **spec)


@each
def test_an_empty_command_is_refused(case: Case) -> None:
    """There must be something to start."""
    with pytest.raises(InputError, match=r"engine\.command"):
        engine(case.kind).launch_plan(EngineSpec(kind=case.kind, command=[]), ModelSpec(), [], HERE)


@each
def test_the_probe_asks_for_a_generation_on_the_given_tokens(case: Case) -> None:
    """Readiness is a real generation, on prompts that no cache can know."""
    request = engine(case.kind).probe(plan_of(case), [11, 12, 13])
    body = json.loads(request.body)
    assert request.method == "POST"
    assert [11, 12, 13] in (body.get("input_ids"), body.get("prompt"))
    assert body["stream"] is False


@each
def test_generated_tokens_are_readiness(case: Case) -> None:
    """The engine recognises its own successful answer."""
    assert engine(case.kind).is_ready(200, json.dumps(case.ready).encode())


UNREADY: list[tuple[int, Any]] = [
    (503, {"choices": [{"text": "a"}]}),
    (200, {}),
    (200, {"error": {"message": "no"}}),
    (200, {"choices": []}),
    (200, {"choices": [{"text": "", "finish_reason": "stop"}], "usage": {"completion_tokens": 0}}),
    (200, {"choices": [{"text": "a", "finish_reason": "abort"}], "usage": {"completion_tokens": 4}}),
    (200, {"text": "", "meta_info": {"finish_reason": {"type": "abort"}, "completion_tokens": 1}}),
    (200, {"text": "", "meta_info": {"finish_reason": {"type": "length"}, "completion_tokens": 0}}),
    (200, [1, 2]),
    (0, None),
]


@each
@pytest.mark.parametrize(("status", "answer"), UNREADY, ids=[str(i) for i in range(len(UNREADY))])
def test_an_answer_without_tokens_is_no_readiness(case: Case, status: int, answer: object) -> None:
    """A healthy-looking answer of a dead scheduler (error, abort, nothing generated) does not count."""
    assert not engine(case.kind).is_ready(status, json.dumps(answer).encode())


@each
def test_the_values_in_force_are_read_back(case: Case) -> None:
    """The server's own figures, as totals over its ranks, not those that were asked for."""
    seen = engine(case.kind).effective(answering(case.pages), "", [case.name])
    assert (seen.source, seen.running_limit, seen.kv_tokens) == ("server_info", case.running_limit, case.kv_tokens)
    assert case.name in seen.values


@each
def test_the_log_stands_in_for_silent_routes(case: Case) -> None:
    """Without any route the start-up log tells capacity and running limit."""
    seen = engine(case.kind).effective(answering({}), case.log, [case.name])
    assert seen.source == "log"
    assert seen.kv_tokens
    assert seen.running_limit


@each
def test_nothing_known_is_said_so(case: Case) -> None:
    """A server that tells nothing yields no values and an empty key, so it is never taken for equal to another."""
    seen = engine(case.kind).effective(answering({}), "", [case.name])
    assert (seen.source, seen.values, seen.key()) == ("none", {}, "")


@each
def test_a_clamped_value_is_described(case: Case) -> None:
    """Asked and in-force values stand in one sentence."""
    one = engine(case.kind)
    seen = one.effective(answering(case.pages), "", [case.name])
    said = one.describe_clamps(Config(params={case.name: case.asked}), seen)
    assert len(said) == 1
    assert said[0].startswith(f"{case.name}: asked 4,096, runs {seen.values[case.name]:,}: ")


@each
def test_a_value_in_force_as_asked_is_not_described(case: Case) -> None:
    """Nothing is said of what came out as asked, nor of what could not be read."""
    one = engine(case.kind)
    seen = one.effective(answering(case.pages), "", [case.name])
    asked = {case.name: seen.values[case.name], "unheard_of": 3}
    assert one.describe_clamps(Config(params=asked), seen) == ()


@each
def test_counters_come_from_the_metrics(case: Case) -> None:
    """The server's own token counts are there to compare with the client's."""
    seen = engine(case.kind).counters(answering(case.pages))
    assert seen.source == "metrics"
    assert seen.generated_tokens
    assert seen.prompt_tokens


@each
def test_counters_of_a_silent_server_are_unknown(case: Case) -> None:
    """Unknown is None, never 0."""
    seen = engine(case.kind).counters(answering({}))
    assert (seen.source, seen.generated_tokens, seen.retractions) == ("none", None, None)


@each
def test_a_dead_server_takes_no_live_limit(case: Case) -> None:
    """Where the server does not answer, the search falls back to restarts."""
    one = engine(case.kind)
    assert one.live_limit(4, lambda path: (0, b"")) is None
    assert one.live_limit_in_force(lambda path: (0, b"")) is None
    assert not one.live_limit_accepted(500, b"")


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    "internal_states",
    "memory_usage",
    "token_capacity",
    "max_total_num_tokens",
    "cuda_graph_config",
    "decode",
    "bs",
)
OTHERS = ("vllm_config", "scheduler_config", "max_num_seqs", "parallel_config", "data_parallel_size", "total_slots")
shaped: st.SearchStrategy[Any] = st.recursive(
    json_values,
    lambda inner: st.dictionaries(st.sampled_from(FIELDS + OTHERS), inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=10,
)


@each
@settings(deadline=None, max_examples=60)
@given(answer=shaped, text=st.text(max_size=60))
def test_no_answer_breaks_the_read_back(case: Case, answer: object, text: str) -> None:
    """Whatever a server answers or logs, reading it never raises: the night goes on."""
    one: Engine = engine(case.kind)
    body = json.dumps(answer).encode()
    for page in ((200, body), (200, text.encode()), ABSENT):
        fetch = always(page)
        seen = one.effective(fetch, text, [case.name, "bs"])
        one.describe_clamps(Config(params={case.name: 3}), seen)
        one.counters(fetch, text)
        one.live_limit(5, fetch)
        one.live_limit_in_force(fetch)
        one.is_ready(*fetch("/"))
