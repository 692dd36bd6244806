"""What of a study goes into an export."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from autotune.brief import read_brief
from autotune.errors import InputError
from autotune.exporting import best_bundle, export_best
from autotune.reporting import gather
from autotune.study.manifest import Manifest
from autotune.study.record import read_record, write_record
from tests.nights import Night, put, records, score


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A baseline and one better configuration."""
    path = Night(flags=("--tp", "2", "--model-path", "/models/x")).write(tmp_path)
    put(path, 0, {}, score(1000.0))
    put(path, 1, {"max_running_requests": 128}, score(2000.0), at_s=60.0)
    return path


def test_gpus_are_those_of_the_command_line(study: Path) -> None:
    """Asked for where the study was measured on a GPU, and not where it was measured without one."""
    brief = read_brief(study)
    bundle = best_bundle(brief)
    assert bundle is not None
    assert bundle.gpus == 0
    manifest = read_record(brief.folder.manifest, Manifest)
    assert manifest is not None
    found = {**manifest.fingerprint, "found.gpu": "H200"}
    write_record(brief.folder.manifest, msgspec.structs.replace(manifest, fingerprint=found))
    again = best_bundle(brief)
    assert again is not None
    assert again.gpus == 2
    assert again.provenance.gpu == "H200"


def test_how_near_to_the_edge_of_memory_it_is_goes_along(study: Path) -> None:
    """Whoever serves with it wants to know; where no driver told, nothing is said."""
    bundle = best_bundle(read_brief(study))
    assert bundle is not None
    assert "GPU memory" not in dict(bundle.provenance.lines())
    found = score(3000.0)
    measurement = msgspec.structs.replace(found.measurement, gpu_free_share=0.0123)
    put(study, 2, {"max_running_requests": 64}, msgspec.structs.replace(found, measurement=measurement), at_s=120.0)
    bundle = best_bundle(read_brief(study))
    assert bundle is not None
    assert dict(bundle.provenance.lines())["GPU memory"].startswith("1.2 % of a GPU")


def test_the_model_and_the_patience_of_the_study_go_along(study: Path) -> None:
    """A container gets the model's folder and as much time to start as a trial had."""
    brief = read_brief(study)
    bundle = best_bundle(brief, image="mine:1")
    assert bundle is not None
    assert bundle.mounts == ("/models/x",)
    assert bundle.start_limit_s == brief.study.timeouts.start_s
    assert bundle.image == "mine:1"


def test_a_relative_path_keeps_its_folder(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script with a path that means something in one folder alone starts there; any other starts anywhere."""
    brief = read_brief(study)
    plan_file = brief.folder.trial(1).plan
    monkeypatch.chdir(tmp_path)
    bundle = best_bundle(brief)
    assert bundle is not None
    assert bundle.folder == ""
    (tmp_path / "chat").mkdir()
    (tmp_path / "chat" / "t.jinja").touch()
    argv = (*bundle.plan.argv, "--chat-template=chat/t.jinja")
    write_record(plan_file, msgspec.structs.replace(bundle.plan, argv=argv))
    moved = best_bundle(brief)
    assert moved is not None
    assert moved.folder == str(tmp_path)


@pytest.mark.parametrize("target", ["study.toml", "short/launch-best.sh", "short/manifest.json", "short"])
def test_a_night_replaces_a_link_in_the_place_of_its_script(study: Path, tmp_path: Path, target: str) -> None:
    """It follows none, so that none can end the night; what it led to stays."""
    brief, text = read_brief(study), study.read_text()
    brief.folder.launch_script.symlink_to(tmp_path / target)
    assert export_best(brief) == brief.folder.launch_script
    assert not brief.folder.launch_script.is_symlink()
    assert brief.folder.launch_script.read_text().startswith("#!")
    assert study.read_text() == text


def test_a_folder_in_the_place_of_the_script_is_told(study: Path) -> None:
    """It may hold anything, and is not replaced."""
    brief = read_brief(study)
    brief.folder.launch_script.mkdir()
    with pytest.raises(InputError, match=r"launch-best\.sh: a folder is in the place of this file"):
        export_best(brief)


@pytest.mark.parametrize(
    ("old", "new", "left_out"),
    [
        ("output_tokens = 8", "output_tokens = 4000", {"workload", "promise", "baseline"}),
        ("[budget]", '[objective]\nmetric = "e2e_p99_s"\n[budget]', {"workload", "promise", "baseline", "score"}),
        ("/models/x", "/models/y", {"model"}),
        ('version = "0.5.14"', 'version = "0.5.15"', set()),
    ],
)
def test_no_line_says_of_a_changed_file_what_was_measured_before(
    study: Path, old: str, new: str, left_out: set[str]
) -> None:
    """What would be false is left out, and the note says in what the file has changed."""
    before = _head(study)
    text = study.read_text()
    assert old in text
    study.write_text(text.replace(old, new))
    after = _head(study)
    assert before.keys() - after.keys() == left_out
    assert "has changed since this was measured" in after["note"]
    assert ("what was promised then is left out" in after["note"]) == ("promise" in left_out)


def test_the_way_back_is_the_baseline_that_was_measured(study: Path) -> None:
    """Not the one of a command line that was changed since."""
    before = best_bundle(read_brief(study))
    study.write_text(study.read_text().replace('"--tp", "2"', '"--tp", "4"'))
    after = best_bundle(read_brief(study))
    assert before is not None
    assert after is not None
    assert after.baseline.argv == before.baseline.argv


def test_the_gpu_is_known_without_the_manifest(study: Path) -> None:
    """The trials keep a copy."""
    _measured_on(study, "H200")
    bundle = best_bundle(read_brief(study))
    assert bundle is not None
    assert (bundle.provenance.gpu, bundle.gpus) == ("H200", 2)
    assert gather(read_brief(study)).gpu == "H200"


def _head(study: Path) -> dict[str, str]:
    bundle = best_bundle(read_brief(study))
    assert bundle is not None
    return dict(bundle.provenance.lines())


def _measured_on(study: Path, gpu: str) -> None:
    """The manifest is lost, and the first trial's copy names a GPU."""
    found = records(study)
    begun = found.begun(0)
    assert begun is not None
    assert begun.manifest is not None
    kept = msgspec.structs.replace(begun.manifest, fingerprint={**begun.manifest.fingerprint, "found.gpu": gpu})
    write_record(found.trial(0).config, msgspec.structs.replace(begun, manifest=kept))
    found.folder.manifest.unlink()
