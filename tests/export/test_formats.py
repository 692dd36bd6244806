"""systemd, compose, Kubernetes, args and JSON: parsed back by readers that follow their rules."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from autotune.errors import InputError
from autotune.export import FORMATS, ExportBundle, render
from tests.export.bundles import HOSTILE, PROVENANCE, arguments, bundle, settings_

yaml: Any = pytest.importorskip("yaml")


def unit(text: str) -> dict[str, list[str]]:
    """The settings of a unit file: comments skipped, continued lines joined with a space (systemd.syntax)."""
    found: dict[str, list[str]] = {}
    lines = [line for line in text.split("\n") if not line.startswith(("#", ";"))]
    for line in "\n".join(lines).replace("\\\n", " ").split("\n"):
        key, equals, value = line.partition("=")
        if equals:
            found.setdefault(key, []).append(value)
    return found


C_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|.)")
LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"\\": b"\\", b'"': b'"'}


def unquoted(value: str) -> list[str]:
    """The double-quoted words of a setting, C escapes and ``%%`` resolved."""
    words = re.findall(r'"((?:[^"\\]|\\.)*)"', value)

    def resolve(match: re.Match[bytes]) -> bytes:
        return bytes([int(match[1][1:], 16)]) if match[1].startswith(b"x") else LETTERS[match[1]]

    return [C_ESCAPE.sub(resolve, word.encode()).decode().replace("%%", "%") for word in words]


def exec_start(text: str) -> list[str]:
    """The argv that systemd would hand to env(1)."""
    (value,) = unit(text)["ExecStart"]
    assert value.startswith("/usr/bin/env -- ")
    return [word.replace("$$", "$") for word in unquoted(value)]


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


def test_systemd_refuses_a_program_that_env_would_take_for_a_setting() -> None:
    """``env -- a=b`` sets a variable instead of starting ``a=b``."""
    with pytest.raises(InputError, match="'='"):
        render("systemd", bundle(["a=b"]))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_analyze_is_content(tmp_path: Path) -> None:
    """systemd's own checker accepts the unit."""
    path = tmp_path / "demo.service"
    path.write_text(render("systemd", bundle(["prog", *HOSTILE])))
    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@settings(deadline=None)
@given(args=arguments, env=settings_)
def test_compose_reads_back_what_was_written(args: list[str], env: dict[str, str]) -> None:
    """YAML and the interpolation of compose give the same words back, for both services."""
    services = yaml.safe_load(render("compose", bundle(["prog", *args], ["before", *args], env=env)))["services"]
    for role, program in (("tuned", "prog"), ("baseline", "before")):
        words = [word.replace("$$", "$") for word in services[role]["entrypoint"] + services[role].get("command", [])]
        assert words == [program, *args]
    read = dict(item.replace("$$", "$").split("=", 1) for item in services["tuned"].get("environment", []))
    assert read == env


def test_compose_keeps_the_baseline_aside() -> None:
    """Only the tuned service starts by itself; secrets are passed on by name, GPUs are reserved."""
    text = render("compose", replace(bundle(["prog", "--api-key", "sk"], secret_env=("HF",)), gpus=2))
    services = yaml.safe_load(text)["services"]
    assert services["baseline"]["profiles"] == ["baseline"]
    assert "profiles" not in services["tuned"]
    assert services["tuned"]["environment"] == ["HF", "API_KEY"]
    assert services["tuned"]["command"] == ["--api-key", "${API_KEY:?is not set}"]
    assert services["tuned"]["deploy"]["resources"]["reservations"]["devices"][0]["count"] == 2


@settings(deadline=None)
@given(args=arguments, env=settings_)
def test_kubernetes_reads_back_what_was_written(args: list[str], env: dict[str, str]) -> None:
    """YAML and the variable syntax of Kubernetes give the same words back."""
    tuned, baseline, service = yaml.safe_load_all(render("kubernetes", bundle(["prog", *args], env=env)))
    (container,) = tuned["spec"]["template"]["spec"]["containers"]
    assert [word.replace("$$", "$") for word in container["command"]] == ["prog", *args]
    assert {item["name"]: item["value"].replace("$$", "$") for item in container["env"]} == env
    assert (tuned["spec"]["replicas"], baseline["spec"]["replicas"]) == (1, 0)
    assert service["spec"]["ports"] == [{"port": 30000, "targetPort": 30000}]


@pytest.mark.parametrize("study", ["demo", "Qwen3 30B/A3B!", "9-lives", "", "x" * 90, "\n---\nkind: Secret"])
def test_kubernetes_names_are_dns_labels(study: str) -> None:
    """Whatever a study is called, and without room for another document."""
    named = replace(bundle(), provenance=replace(PROVENANCE, study=study))
    documents = list(yaml.safe_load_all(render("kubernetes", named)))
    assert [document["kind"] for document in documents] == ["Deployment", "Deployment", "Service"]
    for document in documents:
        assert re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", document["metadata"]["name"])


def test_kubernetes_takes_secrets_by_reference() -> None:
    """A secret is a reference in the environment and an expansion on the command line."""
    tuned = next(yaml.safe_load_all(render("kubernetes", bundle(["prog", "--api-key=sk"]))))
    (container,) = tuned["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["prog", "--api-key=$(API_KEY)"]
    assert container["env"] == [
        {"name": "API_KEY", "valueFrom": {"secretKeyRef": {"name": "demo-secrets", "key": "API_KEY"}}}
    ]


@settings(deadline=None)
@given(args=arguments)
def test_args_is_one_command_a_shell_reads_back(args: list[str]) -> None:
    """Comments first, then the words, for pasting."""
    text = render("args", bundle(["prog", *args]))
    while text.startswith("#"):
        text = text.partition("\n")[2]
    assert shlex.split(text) == ["prog", *args]


@settings(deadline=None)
@given(args=arguments, env=settings_)
def test_json_holds_plan_baseline_and_provenance(args: list[str], env: dict[str, str]) -> None:
    """For scripts: the same words, untouched."""
    document = json.loads(render("json", bundle(["prog", *args], ["before"], env=env)))
    assert document["plan"]["argv"] == ["prog", *args]
    assert document["plan"]["env"] == env
    assert document["baseline"]["argv"] == ["before"]
    assert document["provenance"]["score"] == PROVENANCE.score


@pytest.mark.parametrize("fmt", FORMATS)
def test_every_format_carries_provenance(fmt: str) -> None:
    """Each of them says where its numbers come from."""
    text = render(fmt, bundle())
    for _, fact in PROVENANCE.lines():
        assert fact in text


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
