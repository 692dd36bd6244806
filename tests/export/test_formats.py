"""systemd, compose, Kubernetes, args and JSON: parsed back by readers that follow their rules."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from autotune.errors import InputError
from autotune.export import FORMATS, ExportBundle, render
from tests.export.bundles import PROVENANCE, arguments, bundle, settings_
from tests.export.readers import (
    argv_of,
    container_of,
    documents,
    drop_in,
    exec_start,
    expanded,
    interpolated,
    service_argv,
    unit,
    unquoted,
)

SOME = {"T_A1X": "expanded", "HOME": "/root"}
"""An environment in which a hostile string would find something to expand."""


@settings(deadline=None)
@given(args=arguments, env=settings_)
def test_systemd_reads_back_what_was_written(args: list[str], env: dict[str, str]) -> None:
    """Arguments and settings survive systemd's quoting, specifiers and variables."""
    text = render("systemd", bundle(["prog", *args], env=env))
    assert exec_start(text) == ["prog", *args]
    settings_read = [unquoted(value)[0] for value in unit(text).get("Environment", [])]
    assert settings_read == [f"{name}={value}" for name, value in env.items()]


@settings(deadline=None)
@given(args=arguments)
def test_a_drop_in_goes_back_to_the_baseline(args: list[str]) -> None:
    """The comments hold the lines that start the command from before tuning, word for word."""
    empty, before = unit(drop_in(render("systemd", bundle(["prog"], ["before", *args]))))["ExecStart"]
    assert empty == ""
    assert argv_of(before) == ["before", *args]


@settings(deadline=None)
@given(args=arguments)
def test_a_unit_has_no_lines_but_its_own(args: list[str]) -> None:
    """No argument, name or path can add a setting to the unit."""
    keys = set(unit(render("systemd", bundle())))
    hostile = replace(PROVENANCE, study=f"x\nExecStartPre={args[0]}\n\\", model="\n[Service]\nUser=root")
    text = render("systemd", replace(bundle(["prog", *args], ["before", *args]), provenance=hostile))
    assert set(unit(text)) == keys


def test_systemd_expands_secrets_and_names_their_file() -> None:
    """Secrets come from a file that only root reads."""
    text = render("systemd", bundle(["prog", "--api-key", "sk"], env={"LOG": "1"}))
    assert exec_start(text) == ["prog", "--api-key", "${API_KEY}"]
    assert unit(text)["EnvironmentFile"] == ["/etc/autotune/demo.env"]


def test_a_unit_has_room_for_the_requests() -> None:
    """The default of 1,024 open files is fewer than requests in flight."""
    assert int(unit(render("systemd", bundle()))["LimitNOFILE"][0]) > 10_000


def test_systemd_refuses_a_program_that_env_would_take_for_a_setting() -> None:
    """``env -- a=b`` sets a variable instead of starting ``a=b``."""
    with pytest.raises(InputError, match="'='"):
        render("systemd", bundle(["a=b"]))


@settings(deadline=None)
@given(args=arguments, env=settings_)
def test_compose_reads_back_what_was_written(args: list[str], env: dict[str, str]) -> None:
    """YAML and the interpolation of compose give the same words back, for both services."""
    text = render("compose", bundle(["prog", *args], ["before", *args], env=env))
    services = documents(text)[0]["services"]
    for role, program in (("tuned", "prog"), ("baseline", "before")):
        assert service_argv(services[role], SOME) == [program, *args]
    read = dict(interpolated(item, SOME).split("=", 1) for item in services["tuned"].get("environment", []))
    assert read == env


def test_compose_keeps_the_baseline_aside() -> None:
    """Only the tuned service starts by itself; secrets are passed on by name, GPUs are reserved."""
    text = render("compose", replace(bundle(["prog", "--api-key", "sk"], secret_env=("HF",)), gpus=2))
    services = documents(text)[0]["services"]
    assert services["baseline"]["profiles"] == ["baseline"]
    assert "profiles" not in services["tuned"]
    assert services["tuned"]["environment"] == ["HF", "API_KEY"]
    assert services["tuned"]["command"] == ["--api-key", "${API_KEY:?is not set}"]
    assert services["tuned"]["deploy"]["resources"]["reservations"]["devices"][0]["count"] == 2


def test_compose_publishes_on_loopback_and_asks_after_health() -> None:
    """Inside it listens everywhere, outside only this machine reaches it until somebody says otherwise."""
    text = render("compose", replace(bundle(["prog", "--host", "127.0.0.1"]), start_limit_s=90.5))
    tuned = documents(text)[0]["services"]["tuned"]
    assert tuned["command"] == ["--host", "0.0.0.0"]
    assert tuned["ports"] == ["127.0.0.1:30000:30000"]
    assert "network_mode" not in tuned
    assert "http://127.0.0.1:30000/health" in tuned["healthcheck"]["test"][-1]
    assert tuned["healthcheck"]["start_period"] == "91s"


def test_compose_reserves_the_gpus_that_were_measured() -> None:
    """GPUs that the measured environment picked are picked again, and not by a variable that counts anew inside."""
    text = render("compose", replace(bundle(["prog"], env={"CUDA_VISIBLE_DEVICES": "4,5", "A": "1"}), gpus=2))
    tuned = documents(text)[0]["services"]["tuned"]
    (device,) = tuned["deploy"]["resources"]["reservations"]["devices"]
    assert (device["device_ids"], "count" in device) == (["4", "5"], False)
    assert tuned["environment"] == ["A=1"]


@settings(deadline=None)
@given(args=arguments, env=settings_)
def test_kubernetes_reads_back_what_was_written(args: list[str], env: dict[str, str]) -> None:
    """YAML and the variable syntax of Kubernetes give the same words back, for both Deployments."""
    tuned, baseline, service = documents(render("kubernetes", bundle(["prog", *args], ["before", *args], env=env)))
    for deployment, program in ((tuned, "prog"), (baseline, "before")):
        assert [expanded(word, SOME | env) for word in container_of(deployment)["command"]] == [program, *args]
    container = container_of(tuned)
    assert {item["name"]: expanded(item["value"], SOME) for item in container["env"]} == env
    assert (tuned["spec"]["replicas"], baseline["spec"]["replicas"]) == (1, 0)
    assert service["spec"]["ports"] == [{"port": 30000, "targetPort": 30000}]


@pytest.mark.parametrize("study", ["demo", "Qwen3 30B/A3B!", "9-lives", "", "x" * 90, "\n---\nkind: Secret"])
def test_kubernetes_names_are_dns_labels(study: str) -> None:
    """Whatever a study is called, and without room for another document."""
    found = documents(render("kubernetes", replace(bundle(), provenance=replace(PROVENANCE, study=study))))
    assert [document["kind"] for document in found] == ["Deployment", "Deployment", "Service"]
    for document in found:
        assert re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", document["metadata"]["name"])


def test_kubernetes_takes_secrets_by_reference() -> None:
    """A secret is a reference in the environment and an expansion on the command line; how to make it is said."""
    text = render("kubernetes", bundle(["prog", "--api-key=sk"]))
    container = container_of(documents(text)[0])
    assert container["command"] == ["prog", "--api-key=$(API_KEY)"]
    assert container["env"] == [
        {"name": "API_KEY", "valueFrom": {"secretKeyRef": {"name": "demo-secrets", "key": "API_KEY"}}}
    ]
    assert "kubectl create secret generic demo-secrets --from-literal=API_KEY=..." in text


def test_a_pod_has_what_a_server_needs() -> None:
    """GPUs, shared memory, the model's folder, and the address at which probes and the Service find it."""
    full = replace(bundle(["prog", "--host=127.0.0.1"]), gpus=8, mounts=("/models/a b",), start_limit_s=1200)
    text = render("kubernetes", full)
    pod = documents(text)[0]["spec"]["template"]["spec"]
    container = container_of(documents(text)[0])
    assert container["command"] == ["prog", "--host=0.0.0.0"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    volumes = {v["name"]: v for v in pod["volumes"]}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory"}
    assert volumes["model-0"]["hostPath"]["path"] == "/models/a b"
    assert {m["name"]: m["mountPath"] for m in container["volumeMounts"]} == {
        "shm": "/dev/shm",
        "model-0": "/models/a b",
    }
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": 30000}
    start = container["startupProbe"]
    assert start["failureThreshold"] * start["periodSeconds"] >= 1200


def test_a_server_of_another_kind_is_probed_by_its_port() -> None:
    """Which route tells the health of an unknown server is not guessed."""
    other = bundle(["prog"])
    other = replace(other, plan=replace(other.plan, engine="command"))
    assert container_of(documents(render("kubernetes", other))[0])["readinessProbe"]["tcpSocket"] == {"port": 30000}
    assert "healthcheck" not in documents(render("compose", other))[0]["services"]["tuned"]


@settings(deadline=None)
@given(args=arguments)
def test_args_is_one_command_a_shell_reads_back(args: list[str]) -> None:
    """Comments first, then the words, for pasting; the command from before tuning is the last comment."""
    lines = render("args", bundle(["prog", *args], ["before"])).split("\n")
    comments = [line for line in lines if line.startswith("#")]
    assert comments[-1] == "# before tuning:   before"
    assert shlex.split("\n".join(lines[len(comments) :])) == ["prog", *args]


@settings(deadline=None)
@given(args=arguments, env=settings_)
def test_json_has_both_plans(args: list[str], env: dict[str, str]) -> None:
    """A program gets the words, the settings and the way back."""
    found = json.loads(render("json", bundle(["prog", *args], ["before", *args], env=env)))
    assert (found["plan"]["argv"], found["plan"]["env"]) == (["prog", *args], env)
    assert found["baseline"]["argv"] == ["before", *args]


@pytest.mark.parametrize("fmt", FORMATS)
def test_provenance_is_in_every_format(fmt: str) -> None:
    """Whoever finds the file learns which study, trial, engine, model and verdict it rests on."""
    text = render(fmt, bundle())
    told = str(json.loads(text)) if fmt == "json" else text
    for _, fact in PROVENANCE.lines():
        assert fact in told


def test_provenance_is_in_the_cluster_and_on_the_container() -> None:
    """Comments are lost on the way; annotations and labels are not."""
    (tuned, *_) = documents(render("kubernetes", bundle()))
    assert tuned["metadata"]["annotations"]["autotune/confirmed-gain"] == PROVENANCE.confirmed_gain
    labels = documents(render("compose", bundle()))[0]["services"]["tuned"]["labels"]
    assert labels["autotune.trial"] == PROVENANCE.trial


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(
    "broken",
    [bundle([]), bundle([""]), bundle(["a\0b"]), bundle(env={"A B": "1"}), bundle(secret_env=("X\nY",))],
    ids=["empty", "no name", "NUL", "setting", "secret"],
)
def test_what_cannot_be_started_is_refused(fmt: str, broken: ExportBundle) -> None:
    """Better no script than one that starts something else."""
    with pytest.raises(InputError, match="export"):
        render(fmt, broken)


def test_an_unknown_format_names_the_nearest() -> None:
    """A typing mistake is answered with what was meant."""
    with pytest.raises(InputError, match="did you mean 'kubernetes'"):
        render("kubernets", bundle())
