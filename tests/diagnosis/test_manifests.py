"""Every labelled log gets its class and action."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.diagnosis import Facts, diagnose, diagnose_file
from autotune.diagnosis.rules import table
from tests.diagnosis.cases import Case, labelled

OWN = Path(__file__).parent / "logs"
SHARED = Path(__file__).parents[3] / "shared" / "samples"


@pytest.mark.parametrize("case", labelled(OWN), ids=lambda case: case.path.stem)
def test_own_logs(case: Case) -> None:
    """The logs of this folder are diagnosed as labelled, with evidence out of the log and advice."""
    found = diagnose_file(case.path, case.facts)
    assert f"{found.kind}/{found.action}" in case.accepted, found
    assert found.advice
    assert len(found.evidence) <= 4
    assert all(len(text) <= 300 for text in found.evidence)


WRAPPERS = {
    "compose": lambda line: f"llm-1  | {line}",
    "kubernetes": lambda line: f"2026-02-19T15:08:29.114000001Z stderr F {line}",
    "journal": lambda line: f"Feb 19 15:08:27 node7 server[77]: {line}",
    "colour": lambda line: f"\x1b[32m{line}\x1b[0m",
    "windows": lambda line: f"{line}\r",
    "docker-json": lambda line: json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-02-19T15:08:29Z"}),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrapped_logs(wrapper: str) -> None:
    """Whatever collected the lines, the diagnosis is that of the bare log."""
    wrong = []
    for case in labelled(OWN):
        lines = case.path.read_text(encoding="utf-8").split("\n")
        text = "\n".join(WRAPPERS[wrapper](line) for line in lines if line.strip() and "\r" not in line)
        found = diagnose(text, case.facts)
        if f"{found.kind}/{found.action}" not in case.accepted:
            wrong.append((case.path.name, found.kind, found.action))
    assert not wrong


def test_every_class_is_covered() -> None:
    """The labelled logs have at least one case of every class and of every action."""
    pairs = {pair for case in labelled(OWN) for pair in case.accepted}
    assert {pair.split("/")[0] for pair in pairs} == set(table().action)
    assert {pair.split("/")[1] for pair in pairs} == {
        "prune",
        "retry",
        "stop",
        "discard",
        "score",
        "score_flag",
        "wait",
    }


@pytest.mark.skipif(not SHARED.is_dir(), reason="no shared samples beside the repository")
@pytest.mark.parametrize("case", labelled(SHARED / "server_logs"), ids=lambda case: case.path.stem)
def test_shared_samples(case: Case) -> None:
    """The shared samples are diagnosed as their manifest says."""
    found = diagnose_file(case.path, case.facts)
    assert f"{found.kind}/{found.action}" in case.accepted, found


MORE = [
    ("sglang-0.5.14-h200/oom_under_load_chunk_65536.log", Facts(engine="sglang", phase="load"), "oom_runtime/prune"),
    ("sglang-0.5.14-h200/oom_under_load_mem_fraction_0.985.log", Facts(phase="startup"), "oom_runtime/prune"),
    ("sglang-0.5.14-h200/ready.log", Facts(engine="sglang", phase="load", alive=True), "ok/score"),
    ("sglang-0.5.14-h200/ready_graph_2048.log", Facts(engine="sglang", phase="ready", alive=True), "ok/score"),
    ("cpu_engines/llama_server_fail_badflag.log", Facts(engine="llamacpp", exit_code=1), "invalid_config/stop"),
    ("cpu_engines/llama_server_start_ok.log", Facts(engine="llamacpp", phase="ready", alive=True), "ok/score"),
    ("cpu_engines/sglang_fail_badflag.log", Facts(engine="sglang", exit_code=2), "invalid_config/stop"),
    ("cpu_engines/sglang_fail_memhigh.log", Facts(engine="sglang", exit_code=1), "oom_host/stop"),
    ("cpu_engines/sglang_fail_memlow.log", Facts(engine="sglang", exit_code=-9), "oom_kv/prune"),
    ("cpu_engines/sglang_start_ok.log", Facts(engine="sglang", phase="ready", alive=True), "ok/score"),
    ("cpu_engines/vllm_fail_badcombo.log", Facts(engine="vllm", exit_code=1), "invalid_config/prune"),
    ("cpu_engines/vllm_fail_badflag.log", Facts(engine="vllm", exit_code=2), "invalid_config/stop"),
    ("cpu_engines/vllm_fail_kvbig.log", Facts(engine="vllm", exit_code=1), "oom_kv/prune"),
    ("cpu_engines/vllm_fail_kvsmall.log", Facts(engine="vllm", exit_code=1), "oom_kv/prune"),
    ("cpu_engines/vllm_small_kv.log", Facts(engine="vllm", phase="ready", alive=True), "ok/score"),
    ("cpu_engines/vllm_start_ok.log", Facts(engine="vllm", phase="stop", exit_code=0), "ok/score"),
]


@pytest.mark.parametrize(("name", "facts", "wanted"), MORE, ids=[name for name, _, _ in MORE])
def test_real_logs_without_a_manifest(name: str, facts: Facts, wanted: str) -> None:
    """Real logs of an H200 and of engines on a CPU are diagnosed as what they are."""
    if not (SHARED / name).is_file():
        pytest.skip("no shared samples beside the repository")
    found = diagnose_file(SHARED / name, facts)
    assert f"{found.kind}/{found.action}" == wanted
