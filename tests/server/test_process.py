"""Environment, identity and membership of a server."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from autotune.errors import InputError
from autotune.server.log import REDACTED
from autotune.server.process import (
    ServerIdentity,
    child_environment,
    environment_record,
    new_mark,
    secret_values,
    start,
)
from autotune.server.proctable import MARK_NAME, boot_id, mark_of, read_row
from autotune.server.stop import StopLimits, reap_orphans
from autotune.study.environment import looks_secret
from autotune.values import LaunchPlan

from .conftest import STUDY, Starter, double_plan, eventually

BASE = {"PATH": "/bin", "HF_TOKEN": "hf_aaaa", "MY_KEY": "kkkk", "OTHER_SECRET": "ssss", "AUTOTUNE_TRIAL": "outer"}


def plan(**changes: object) -> LaunchPlan:
    fields: dict[str, object] = {"engine": "x", "argv": ("x",), "host": "127.0.0.1", "port": 1}
    return LaunchPlan(**fields | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "PGPASSWORD_X_PASSWORD", "apikey"],
)
def test_credentials_are_known_by_name(name: str) -> None:
    """Names that end like a credential are credentials."""
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name", ["TOKENIZERS_PARALLELISM", "PATH", "VLLM_MAX_TOKENS", "SSH_AUTH_SOCK", "MONKEY", "COMPAT", "KEYBOARD"]
)
def test_ordinary_variables_are_not_credentials(name: str) -> None:
    """Names that only contain such a word are ordinary."""
    assert not looks_secret(name, "/some/path:1")


def test_a_password_in_a_url_is_a_credential() -> None:
    """A proxy with user and password is passed only when named."""
    assert looks_secret("https_proxy", "http://me:pw@proxy:3128")
    assert not looks_secret("https_proxy", "http://proxy:3128")


def test_only_named_secrets_reach_the_server() -> None:
    """The child gets ordinary variables, the plan's, the named secrets and its own mark."""
    env = child_environment(plan(env={"A": "1", "PATH": "/opt"}, secret_env=("HF_TOKEN",)), BASE, "s/1/n")
    assert env["HF_TOKEN"] == "hf_aaaa"
    assert (env["A"], env["PATH"], env[MARK_NAME]) == ("1", "/opt", "s/1/n")
    assert not {"MY_KEY", "OTHER_SECRET"} & set(env)


def test_all_starts_share_the_caches_of_the_engines() -> None:
    """Whatever says where compiled kernels lie reaches the server, the same in every start but for the mark."""
    caches = {
        "HOME": "/home/me",
        "XDG_CACHE_HOME": "/c",
        "SGLANG_CACHE_DIR": "/c/s",
        "TORCHINDUCTOR_CACHE_DIR": "/c/i",
        "TRITON_CACHE_DIR": "/c/t",
        "FLASHINFER_WORKSPACE_BASE": "/c/f",
        "VLLM_CACHE_ROOT": "/c/v",
    }
    one, other = (child_environment(plan(), caches, mark) for mark in ("s/1/n", "s/2/m"))
    assert caches.items() <= one.items()
    assert {name for name in one if one[name] != other[name]} == {MARK_NAME}


def test_an_unset_api_key_is_an_input_error() -> None:
    """A server without its key would be open to everybody, so it is not started."""
    with pytest.raises(InputError, match=r"MISSING .*is not set"):
        child_environment(plan(api_key_env="MISSING"), BASE, "m")


def test_the_record_of_the_environment_has_no_inherited_values() -> None:
    """Names are recorded, values only where the study wrote them itself."""
    env = child_environment(plan(env={"A": "1"}, secret_env=("HF_TOKEN",)), BASE, "m")
    record = environment_record(plan(env={"A": "1"}), env)
    assert record["A"] == "1"
    assert record["HF_TOKEN"] == record["PATH"] == REDACTED


def test_secrets_to_redact_are_the_given_credentials() -> None:
    """Key and credentials are redacted, ordinary inherited values are not, nor is anything too short."""
    env = {"HF_TOKEN": "hf_aaaa", "API": "the-key", "CUDA_HOME": "/usr/local/cuda", "X_KEY": "1"}
    assert secret_values(plan(api_key_env="API"), env) == ("hf_aaaa", "the-key")


def test_what_the_server_prints_is_redacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that echoes its key leaves none in its log."""
    monkeypatch.setenv("DOUBLE_KEY", "sesame-open-1")
    base = double_plan("--die", "0", "--echo-env", "DOUBLE_KEY")
    process = start(
        LaunchPlan(engine="x", argv=base.argv, host=base.host, port=base.port, api_key_env="DOUBLE_KEY"),
        tmp_path / "log",
        new_mark(STUDY, 0),
    )
    eventually(lambda: process.poll() is not None, "the double exits")
    process.close()
    assert (tmp_path / "log").read_text() == f"double starts {REDACTED}\n"


def test_marks_differ() -> None:
    """Two starts of one trial are told apart."""
    assert new_mark("s", 1) != new_mark("s", 1)
    assert new_mark("s", 1).startswith("s/1/")


def test_the_mark_is_inherited(starter: Starter) -> None:
    """Children, strays among them, carry the mark of their start."""
    process = starter("--child", "--stray")
    eventually(lambda: len(process.members()) == 3, "three members")
    assert {mark_of(row.pid) for row in process.members()} == {process.mark}


def test_the_identity_names_one_process_of_one_boot(starter: Starter) -> None:
    """Pid, start time and boot are those of the leader."""
    process = starter()
    identity = process.identity()
    row = read_row(process.pid)
    assert row is not None
    assert (identity.pid, identity.start_ticks) == row.identity
    assert identity.boot_id == boot_id()
    assert identity.port == process.plan.port
    own = read_row(os.getpid())
    assert own is not None
    assert (identity.tuner_pid, identity.tuner_start_ticks) == own.identity
    assert not identity.has_other_tuner()


def test_an_identity_without_a_tuner_is_readable() -> None:
    """Older versions wrote none: nobody vouches for such a server."""
    old = b'{"pid": 7, "start_ticks": 9, "mark": "s/1/x", "port": 1, "boot_id": "b"}'
    assert not msgspec.json.decode(old, type=ServerIdentity).has_other_tuner()


def test_a_second_start_appends_and_reads_only_its_own(tmp_path: Path) -> None:
    """The log of a repeated start keeps the first one's text; the reader begins at the second."""
    for round_ in range(2):
        process = start(double_plan("--die", "0"), tmp_path / "log", new_mark(STUDY, round_))
        eventually(lambda: process.poll() is not None, "the double exits")  # noqa: B023
        reader = process.reader()
        process.close()
        assert reader.last_words() == ["double starts"]
        reap_orphans([process.identity()], StopLimits())
    assert (tmp_path / "log").read_text().count("double starts") == 2
