"""Tests of what the doctor says of the load generator."""

from pathlib import Path

import msgspec
import pytest

from autotune.brief import Brief, read_brief
from autotune.doctor import ASSUMED_TOK_S, Check, examine, look
from autotune.errors import NightStopped
from autotune.load.selftest import Headroom
from autotune.study.file import Workload
from autotune.study.record import Records, write_record
from autotune.values import Config, Effective, Estimate, Measured, Measurement, Timings, TrialResult
from tests.nights import Night

ROOM = Headroom(
    workers=1,
    asked_tok_s=100.0,
    seen_tok_s=99.0,
    cpu_share=0.1,
    lag_typical_s=0.001,
    lag_max_s=0.01,
    capacity_tok_s=900.0,
    headroom=9.0,
    ttft_error_s=None,
    itl_error_s=None,
)


def generator(brief: Brief, headroom: float, asked: list[float]) -> Check:
    """The doctor's word on a generator with this head-room; ``asked`` receives the rate."""

    def carry(_: Workload, rate_tok_s: float) -> Headroom:
        asked.append(rate_tok_s)
        return msgspec.structs.replace(ROOM, headroom=headroom)

    return next(check for check in examine(brief, carry).checks if check.name == "load generator")


def measured(brief: Brief, rate: float) -> None:
    """A settled trial with this throughput."""
    measurement = Measurement(
        whole={},
        steady={"output_throughput_tok_s": rate},
        estimates={},
        requests_completed=9,
        requests_failed=0,
        warmup_s=1.0,
        window_s=1.0,
        duration_s=2.0,
    )
    outcome = Measured(
        score=Estimate(value=rate, stderr=1.0, batches=4), measurement=measurement, effective=Effective(source="none")
    )
    brief.folder.create()
    write_record(brief.folder.manifest, {})
    result = TrialResult(
        number=0, config=Config(params={}), outcome=outcome, timings=Timings(), started_at="", finished_at=""
    )
    Records(brief.folder).settle(result)


def test_before_anything_is_measured_the_rate_is_assumed(tmp_path: Path) -> None:
    """Without a measurement the rate per stream is an assumption, and the check says so."""
    asked: list[float] = []
    brief = read_brief(Night().write(tmp_path))
    check = generator(brief, 9.0, asked)
    assert asked == [160 * ASSUMED_TOK_S]
    assert check.ok
    assert "9.0 times the study's rate: enough" in check.text
    assert "assumed" in check.text


def test_an_earlier_measurement_is_the_rate(tmp_path: Path) -> None:
    """The fastest that was measured is what the client must carry."""
    asked: list[float] = []
    brief = read_brief(Night().write(tmp_path))
    measured(brief, 5432.0)
    assert "the fastest measured so far" in generator(brief, 9.0, asked).text
    assert asked == [5432.0]


def test_an_open_loop_tells_its_rate(tmp_path: Path) -> None:
    """Requests per second times their mean length need no assumption."""
    asked: list[float] = []
    brief = read_brief(Night().write(tmp_path))
    workload = msgspec.structs.replace(brief.study.workload, arrival="open", request_rate=10.0)
    study = msgspec.structs.replace(brief.study, workload=workload)
    assert generator(msgspec.structs.replace(brief, study=study), 9.0, asked).ok
    assert asked == [80.0]


def test_too_little_room_is_a_thing_to_fix(tmp_path: Path) -> None:
    """A client near its end is marked, with the remedy."""
    check = generator(read_brief(Night().write(tmp_path)), 1.1, [])
    assert not check.ok
    assert "raise workload.workers" in check.text


def test_a_double_that_does_not_start_is_told(tmp_path: Path) -> None:
    """The doctor reports a broken double instead of ending with its error."""

    def broken(_: Workload, __: float) -> Headroom:
        raise NightStopped("the double does not start")

    found = examine(read_brief(Night().write(tmp_path)), broken)
    assert [c.text for c in found.checks if not c.ok] == ["the double does not start"]


@pytest.mark.parametrize("stream", [True, False])
def test_the_real_generator_is_driven(tmp_path: Path, stream: bool) -> None:
    """By default the study's own load runs on the built-in double."""
    brief = read_brief(Night().write(tmp_path))
    workload = msgspec.structs.replace(brief.study.workload, concurrency=4, stream=stream)
    found = examine(msgspec.structs.replace(brief, study=msgspec.structs.replace(brief.study, workload=workload)))
    check = next(check for check in found.checks if check.name == "load generator")
    assert "worker(s) carried" in check.text


def test_a_missing_program_and_a_missing_model_are_things_to_fix(tmp_path: Path) -> None:
    """What would stop the night at its first start is told before it."""
    brief = read_brief(Night().write(tmp_path))
    engine = msgspec.structs.replace(brief.study.engine, command=["no-such-server", "serve"])
    model = msgspec.structs.replace(brief.study.model, path=str(tmp_path / "no-such-model"))
    study = msgspec.structs.replace(brief.study, engine=engine, model=model)
    found = examine(msgspec.structs.replace(brief, study=study), lambda *_: ROOM)
    texts = {check.name: check.text for check in found.checks if not check.ok}
    assert set(texts) == {"program", "model"}
    assert "correct engine.command" in texts["program"]
    assert "correct model.path" in texts["model"]


def test_a_model_that_is_a_name_may_be_downloaded(tmp_path: Path) -> None:
    """Only a path can be missing."""
    brief = read_brief(Night().write(tmp_path))
    model = msgspec.structs.replace(brief.study.model, path="owner/model")
    study = msgspec.structs.replace(brief.study, model=model)
    found = examine(msgspec.structs.replace(brief, study=study), lambda *_: ROOM)
    assert "model" not in {check.name for check in found.checks}


def test_tokens_that_nothing_checks_are_a_thing_to_fix(tmp_path: Path) -> None:
    """On the OpenAI routes SGLang's counters exist only with --enable-metrics; /generate tells them itself."""
    brief = read_brief(Night().write(tmp_path))
    engine, workload = brief.study.engine, msgspec.structs.replace(brief.study.workload, route="completions")
    seen = {}
    for name, command, load in (
        ("generate", engine.command, brief.study.workload),
        ("blind", engine.command, workload),
        ("counted", [*engine.command, "--enable-metrics"], workload),
    ):
        changed = msgspec.structs.replace(engine, command=command)
        study = msgspec.structs.replace(brief.study, engine=changed, workload=load)
        checks = examine(msgspec.structs.replace(brief, study=study), lambda *_: ROOM).checks
        seen[name] = [check.text for check in checks if check.name == "token counters" and not check.ok]
    assert seen["generate"] == seen["counted"] == []
    assert "add --enable-metrics to engine.command" in seen["blind"][0]


@pytest.mark.parametrize("writable", [True, False])
def test_whether_compiled_kernels_can_be_kept(tmp_path: Path, writable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that the engine would write, also where it does not exist yet; the remedy names the variable."""
    home = tmp_path / "home"
    home.mkdir()
    study = Night().write(tmp_path)
    study.write_text(
        study.read_text().replace("[model]", f'env = {{ SGLANG_CACHE_DIR = "{home}/sglang" }}\n[model]', 1)
    )
    monkeypatch.setattr("os.access", lambda path, how: writable and Path(path) == home)
    found = next(check for check in look(read_brief(study)) if check.name == "compile cache")
    assert found.ok is writable
    assert "kept between starts" in found.text if found.ok else "engine.env.SGLANG_CACHE_DIR" in found.text
