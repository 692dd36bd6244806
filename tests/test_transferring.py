"""A study that starts from another one's results: what is taken over, when, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from autotune.brief import read_brief
from autotune.errors import InputError
from autotune.sameness import resolve
from autotune.study.record import Records, read_record, write_record
from autotune.study.transfer import Transfer, Trust
from autotune.transferring import source_folder, taken_over
from autotune.trial import Ticket
from autotune.tune import tune
from autotune.values import Effective, Finding, Interrupted, Measured, Outcome, Refused
from tests.nights import OOM, Night, put, records, score
from tests.played import Stage

BEST = {"max_running_requests": 128, "cuda_graph_max_bs": 128}


def elder(folder: Path) -> Path:
    """A study with a baseline, a better trial, one out of memory, and one that was cut off."""
    folder.mkdir()
    path = Night(name="elder").write(folder)
    put(path, 0, {}, told(1000.0))
    put(path, 1, dict(BEST), told(2000.0, **BEST))
    put(path, 2, {"max_running_requests": 160, "cuda_graph_max_bs": 160}, OOM)
    put(path, 3, {"max_running_requests": 64, "cuda_graph_max_bs": 64}, None)
    return path


def told(value: float, **values: int) -> Measured:
    """A score from a server that says what is in force."""
    effective = Effective(
        source="server_info",
        kv_tokens=12190,
        values={"max_running_requests": 24, "cuda_graph_max_bs": 24, **values},
    )
    return msgspec.structs.replace(score(value), effective=effective)


def grows(ticket: Ticket, _: float) -> Outcome:
    """More running requests, more tokens, as far as the graphs reach."""
    params = ticket.config.params
    values = {name: int(params.get(name, 24)) for name in ("max_running_requests", "cuda_graph_max_bs")}
    return told(400.0 + 5.0 * min(values.values()), **values)


def falls(ticket: Ticket, _: float) -> Outcome:
    """More running requests, far fewer tokens."""
    limit = int(ticket.config.params.get("max_running_requests", 24))
    graphs = int(ticket.config.params.get("cuda_graph_max_bs", 24))
    return told(1e6 / limit**2, max_running_requests=limit, cuda_graph_max_bs=graphs)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study that has not begun, searched by the sampler that borrows."""
    folder = tmp_path / "new"
    folder.mkdir()
    path = Night(trials=6).write(folder)
    path.write_text(path.read_text().replace('sampler = "tpe"', 'sampler = "autotune"'))
    return path


def night(stage: Stage, source: Path | None) -> None:
    with stage.night(source) as opened:
        tune(opened)


def test_the_baseline_then_the_old_best_then_the_search(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The night says what was taken over and what the old best is worth here, and writes both down."""
    stage = Stage(study, monkeypatch, grows)
    night(stage, elder(tmp_path / "old"))
    asked = [ticket.config.params for _, ticket in stage.asked]
    assert asked[:2] == [{}, BEST]
    assert len(asked) > 2
    kept = read_record(records(study).folder.transfer, Transfer)
    assert kept is not None
    assert (kept.source, kept.best, len(kept.results), kept.peak) == ("elder", 1, 3, 160)
    assert [n for n in stage.notes if n.startswith("took over 2 measured trials and 1 that ran out of memory")]
    assert "the best of elder is +100.0% over the baseline here, +100.0% there (one start each)" in stage.notes
    trust = read_record(records(study).folder.trust, Trust)
    assert trust is not None
    assert not trust.dropped


def test_the_night_says_when_it_is_dropped(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, and it is on record."""
    stage = Stage(study, monkeypatch, falls)
    night(stage, elder(tmp_path / "old"))
    assert len([n for n in stage.notes if "what was taken over from elder no longer counts" in n]) == 1
    trust = read_record(records(study).folder.trust, Trust)
    assert trust is not None
    assert trust.dropped


def test_a_resumed_study_needs_the_other_no_more(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut off after two trials and gone on without the other study, it asks for the same as in one piece."""
    old = elder(tmp_path / "old")
    whole = Stage(study, monkeypatch, grows)
    night(whole, old)
    shutil.rmtree(records(study).folder.root)

    text = study.read_text()
    study.write_text(text.replace("trials = 6", "trials = 2"))
    first = Stage(study, monkeypatch, grows)
    night(first, old)
    shutil.rmtree(old.parent)
    study.write_text(text)
    second = Stage(study, monkeypatch, grows)
    night(second, old)
    configs = [ticket.config for stage in (first, second) for _, ticket in stage.asked]
    assert configs == [ticket.config for _, ticket in whole.asked]


def test_another_study_cannot_be_taken_over_on_top(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Naming the first one again changes nothing; a second one is refused with the remedy."""
    old = elder(tmp_path / "old")
    stage = Stage(study, monkeypatch, grows)
    night(stage, old)
    known = taken_over(old, read_brief(study))
    assert known == read_record(records(study).folder.transfer, Transfer)
    other = elder(tmp_path / "other")
    manifest = records(other, "elder").folder.manifest
    manifest.write_text(manifest.read_text().replace('"study": "elder"', '"study": "other"'))
    with pytest.raises(InputError, match=r"short has taken over elder .* leave out --from, or add --force"):
        taken_over(manifest.parent, read_brief(study))


def test_after_an_engine_upgrade_the_same_file_is_both(tmp_path: Path) -> None:
    """Refused without --force, with the way to go on; with it the first folder is what the second starts from."""
    old = elder(tmp_path / "old")
    old.write_text(old.read_text().replace('version = "0.5.14"', 'version = "0.5.15"'))
    with pytest.raises(InputError, match=r"engine\.version.*--force.*--from"):
        resolve(read_brief(old))
    again = resolve(read_brief(old), force=True)
    assert again.study.name == "elder-2"
    found = taken_over(old, again)
    assert found is not None
    assert (found.source, found.best) == ("elder", 1)


def test_a_folder_or_a_file_names_the_results(study: Path, tmp_path: Path) -> None:
    """Both lead to the same folder."""
    old, own = elder(tmp_path / "old"), read_brief(study).folder
    assert source_folder(old, own) == source_folder(old.parent / "elder", own)


def test_what_cannot_be_taken_over_is_said_with_the_remedy(study: Path, tmp_path: Path) -> None:
    """No results, one's own results, another engine, other figures: one sentence each, and nothing is written."""
    brief, old = read_brief(study), elder(tmp_path / "old")
    folder = old.parent / "elder"
    with pytest.raises(InputError, match=r"--from .*new: no results of a study"):
        taken_over(study.parent, brief)
    with pytest.raises(InputError, match="it has no results yet"):
        taken_over(study, brief)
    with pytest.raises(InputError, match="these are the study's own results"):
        taken_over(folder, read_brief(old))
    slow = msgspec.structs.replace(brief.study.objective, metric="ttft_p99_s")
    latency = msgspec.structs.replace(brief, study=msgspec.structs.replace(brief.study, objective=slow))
    with pytest.raises(InputError, match=r"none of its trials was measured with ttft_p99_s"):
        taken_over(folder, latency)
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"engine.kind": "sglang"', '"engine.kind": "vllm"'))
    with pytest.raises(InputError, match="it tuned vllm, this study tunes sglang: their parameters differ"):
        taken_over(folder, brief)
    assert not brief.folder.root.exists()


def test_a_study_whose_manifest_is_lost_is_taken_over(study: Path, tmp_path: Path) -> None:
    """As its trials keep it; where they keep none, the error says what is missing."""
    brief, old = read_brief(study), elder(tmp_path / "old")
    found = Records(read_brief(old).folder)
    began = found.manifest()
    found.folder.manifest.unlink()
    taken = taken_over(old, brief)
    assert taken is not None
    assert began is not None
    assert taken.source_began == began.created_at
    for number in found.numbers():
        begun = found.begun(number)
        assert begun is not None
        write_record(found.trial(number).config, msgspec.structs.replace(begun, manifest=None))
    for path in (old, found.folder.root):
        with pytest.raises(InputError, match=r"--from .*elder: manifest\.json is gone.*put it back"):
            taken_over(path, brief)


def test_scores_are_those_of_this_objective(study: Path, tmp_path: Path) -> None:
    """A study that had another objective is read by the figures that it measured."""
    old = elder(tmp_path / "old")
    old.write_text(old.read_text().replace("[budget]", '[objective]\nmetric = "request_throughput_req_s"\n[budget]'))
    shutil.rmtree(old.parent / "elder")
    for number, params in enumerate(({}, dict(BEST))):
        seen = told(10.0 + number, **params)
        both = {"output_throughput_tok_s": 700.0 + number, "request_throughput_req_s": 10.0 + number}
        figures = msgspec.structs.replace(seen.measurement, steady=both)
        put(old, number, {**params}, msgspec.structs.replace(seen, measurement=figures))
    found = taken_over(old, read_brief(study))
    assert found is not None
    assert [r.outcome.score.value for r in found.results if isinstance(r.outcome, Measured)] == [700.0, 701.0]


def test_an_interrupted_start_says_nothing_of_the_old_best(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither Ctrl-C nor a refused measurement means that it cannot be served; what runs out of memory does."""
    old = elder(tmp_path / "old")
    outcomes: tuple[Outcome, ...] = (
        Interrupted(reason="ended by SIGINT"),
        Refused(findings=(Finding(gate="lag", message="busy", fatal=True),)),
        OOM,
    )
    said = "the best of elder cannot be served here"
    for outcome, expected in zip(outcomes, (False, False, True), strict=True):
        shutil.rmtree(records(study).folder.root, ignore_errors=True)
        stage = Stage(study, monkeypatch, grows)

        def play(ticket: Ticket, now_s: float, stage: Stage = stage, outcome: Outcome = outcome) -> Outcome:
            if ticket.config.params != BEST:
                return grows(ticket, now_s)
            stage.cancel.cancel("ended by SIGINT")
            return outcome

        stage.play = play
        night(stage, old)
        assert [ticket.config.params for _, ticket in stage.asked] == [{}, BEST]
        assert (said in stage.notes) is expected
