"""Each format is accepted by the checker that its own people use."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from autotune.export import ExportBundle, render
from tests.export.bundles import HOSTILE, PROVENANCE, arguments, bundle
from tests.export.readers import documents
from tests.needed import needs, needs_module, program

NOT_EXPANDED = "--exclude=SC1003,SC2016"
"""Remarks that a single-quoted text is not expanded: that is why it is in single quotes."""
SECRET = ["--api-key", "sk", "--hf-token=sk"]
HOST = ["--host", "127.0.0.1", "--port", "30000"]
ODD = replace(PROVENANCE, study="\n---\nkind: x", model="a\nb: c $HOME `x`")
KINDS = {
    "plain": bundle(["prog", *HOST]),
    "hostile": replace(bundle(["prog", *HOSTILE], ["before", *HOSTILE], env={"T_X": "\n$(x)"}), provenance=ODD),
    "secret": bundle(["prog", *SECRET], ["before", *SECRET], env={"HF_TOKEN": "sk"}, secret_env=("OTHER",)),
    "full": replace(bundle(["/v/bin/python3.11", "-m", "x", *HOST]), gpus=4, image="a/b:1", mounts=("/m/a b",)),
    "chosen GPUs": replace(bundle(["prog"], env={"CUDA_VISIBLE_DEVICES": "1,2"}), gpus=2),
}
every_kind = pytest.mark.parametrize("exported", KINDS.values(), ids=KINDS.keys())


def checked(*command: str) -> None:
    """The checker ends well and has nothing to say."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs("shellcheck")
@pytest.mark.parametrize("fmt", ["bash", "args"])
@every_kind
def test_shellcheck_is_content(exported: ExportBundle, fmt: str, tmp_path: Path) -> None:
    """The linter of shell scripts finds nothing."""
    path = tmp_path / "launch.sh"
    path.write_text(render(fmt, exported))
    checked(program("shellcheck"), "--shell=bash", NOT_EXPANDED, str(path))


@needs("systemd-analyze")
@every_kind
def test_systemd_analyze_is_content(exported: ExportBundle, tmp_path: Path) -> None:
    """systemd's own checker accepts the unit without a warning."""
    verified(render("systemd", exported), tmp_path)


@needs("systemd-analyze")
@settings(deadline=None, max_examples=10)
@given(args=arguments)
def test_no_argument_makes_a_unit_invalid(args: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    """systemd reads hostile strings without a word."""
    unit = render("systemd", bundle(["prog", *args], ["before", *args]))
    verified(unit, tmp_path_factory.mktemp("unit"))


def verified(unit: str, folder: Path) -> None:
    """systemd's checker has nothing to say of the unit itself."""
    path = folder / "demo.service"
    path.write_text(unit)
    command = [program("systemd-analyze"), "verify", "--man=no", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if "demo.service" in line] == []


@needs("check-jsonschema")
@every_kind
def test_the_compose_schema_is_content(exported: ExportBundle, tmp_path: Path) -> None:
    """The file has the shape that the compose specification asks for."""
    path = tmp_path / "demo.compose.yaml"
    path.write_text(render("compose", exported))
    checked(program("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(path))


def valid(text: str) -> None:
    """Every document against the schemas of Kubernetes, unknown fields refused."""
    import kubernetes_validate

    for document in documents(text):
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


@needs_module("kubernetes_validate")
@every_kind
def test_the_kubernetes_schema_is_content(exported: ExportBundle) -> None:
    """Deployments and Service have the shape that the API asks for, and no field that it does not know."""
    valid(render("kubernetes", exported))


@needs_module("kubernetes_validate")
@settings(deadline=None, max_examples=10)
@given(args=arguments)
def test_no_argument_makes_a_manifest_invalid(args: list[str]) -> None:
    """Hostile strings stay strings."""
    valid(render("kubernetes", bundle(["prog", *args], ["before", *args])))
