"""The confirmation: its schedule, cut and resumed, what ends it, and what its verdict changes."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from autotune.confirm import Ask, confirm, reserve_s
from autotune.confirmation import Confirmation, ConfirmationPlan, latest_folder, read_confirmation
from autotune.errors import InputError
from autotune.overview import overview
from autotune.study.folder import StudyFolder
from autotune.study.record import Records, read_record
from autotune.trial import Ticket
from autotune.tune import tune
from autotune.values import Config, Interrupted, Outcome
from tests.cli.conftest import Run
from tests.cli.conftest import run as run  # the fixture of the command line
from tests.nights import OOM, Night, put, score

from .played import TRIAL_S, Killed, Stage, killed_at, linear, without_numbers

FAST, SLOW = 160, 64
SHORT_S = 10.0
"""What the searched trials took."""


def params(limit: int) -> dict[str, bool | int | float | str]:
    """A configuration of the short study."""
    return {"max_running_requests": limit, "cuda_graph_max_bs": limit}


def searched(folder: Path, confirm: int = 0) -> Path:
    """A study whose search is over: the baseline and two configurations."""
    path = Night(confirm=confirm).write(folder)
    for number, values in enumerate(({}, params(FAST), params(SLOW))):
        limit = values.get("max_running_requests", 24)
        put(path, number, dict(values), score(1000.0 + float(limit)))
    return path


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Starts of a study whose search is over, played."""
    return Stage(searched(tmp_path), monkeypatch)


def confirmed(stage: Stage, blocks: int = 3, finalists: int = 1, *, anew: bool = False) -> Confirmation | None:
    """Run the confirmation to its end, or until somebody wants to end it."""
    with stage.night() as night:
        return confirm(night, Ask(blocks=blocks, finalists=finalists, anew=anew))


def plan_in(stage: Stage) -> ConfirmationPlan:
    """The plan of the confirmation that was begun last."""
    plan = read_record(latest_of(stage).root / "plan.json", ConfirmationPlan)
    assert plan is not None
    return plan


def test_starts_follow_the_schedule_and_end_in_a_sentence(stage: Stage) -> None:
    """Interleaved as planned, recorded as repeats of the trials they come from; the verdict is said and written."""
    found = confirmed(stage)
    assert found is not None
    plan = plan_in(stage)
    assert [plan.arms[slot.arm].config for slot in plan.schedule.slots] == [t.config for _, t in stage.asked]
    assert [arm.trial for arm in plan.arms] == [0, 1]
    assert {(folder, t.role, t.repeat_of) for folder, t in stage.asked} == {
        ("confirm", "confirm", 0),
        ("confirm", "confirm", 1),
    }
    assert found.sentence.startswith("reliable gain of 13.")
    assert f"confirmation: {found.sentence}" in stage.notes
    with stage.night() as night:
        assert read_confirmation(night.folder) == found
        assert [r.number for r in night.records.results()] == [0, 1, 2]


def test_two_finalists_are_compared_with_one_baseline(stage: Stage) -> None:
    """Both are in every block; the better one wins."""
    found = confirmed(stage, finalists=2)
    assert found is not None
    assert [arm.trial for arm in found.plan.arms] == [0, 1, 2]
    assert found.judgement is not None
    assert {v.arm for v in found.judgement.verdicts} == {1, 2}
    assert found.chosen == 1


@pytest.mark.parametrize("count", [1, 2, 5])
def test_killed_and_resumed_it_makes_the_same_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The slot that was cut is made again under a new number, all others once, in the planned order."""
    whole, cut = (Stage(searched(made(tmp_path / name)), monkeypatch) for name in ("whole", "cut"))
    monkeypatch.setattr("autotune.fleet.crew.run_trial", whole.run_trial)
    expected = confirmed(whole)
    monkeypatch.setattr("autotune.fleet.crew.run_trial", cut.run_trial)
    cut.play = killed_at(linear, count)
    with pytest.raises(Killed):
        confirmed(cut)
    cut.play = linear
    assert confirmed(cut) == expected
    found = Records(latest_of(cut)).results()
    lost = [r.number for r in found if isinstance(r.outcome, Interrupted)]
    assert lost == [count - 1]
    kept = [r for r in found if not isinstance(r.outcome, Interrupted)]
    assert without_numbers(kept) == without_numbers(Records(latest_of(whole)).results())


def made(folder: Path) -> Path:
    """The folder, created."""
    folder.mkdir()
    return folder


def latest_of(stage: Stage) -> StudyFolder:
    """The folder of the latest confirmation."""
    found = latest_folder(StudyFolder.beside(stage.study, "short"))
    assert found is not None
    return found


def test_a_wish_to_end_leaves_it_unfinished(stage: Stage) -> None:
    """No verdict from half of the starts; the same command goes on."""

    def enough(ticket: Ticket, now_s: float) -> Outcome:
        if now_s >= 2 * TRIAL_S:
            stage.cancel.cancel("enough")
            return Interrupted(reason="enough")
        return linear(ticket, now_s)

    stage.play = enough
    assert confirmed(stage) is None
    with stage.night() as night:
        assert read_confirmation(night.folder) is None
    assert len(stage.asked) == 3


def test_a_finalist_out_of_memory_is_started_once_and_dropped(stage: Stage) -> None:
    """The remaining starts go on without it; the other finalist wins."""

    def play(ticket: Ticket, now_s: float) -> Outcome:
        return OOM if ticket.repeat_of == 1 else linear(ticket, now_s)

    stage.play = play
    found = confirmed(stage, finalists=2)
    assert found is not None
    assert sum(ticket.repeat_of == 1 for _, ticket in stage.asked) == 1
    assert found.dropped == {"1": "oom_runtime in the confirmation"}
    assert (found.chosen, found.unfit) == (2, (1,))
    assert "trial 1 is dropped" in found.sentence


def test_a_finished_one_is_repeated_only_on_request(stage: Stage) -> None:
    """Asked again it says the same; --anew makes fresh starts beside it."""
    first = confirmed(stage)
    count = len(stage.asked)
    assert confirmed(stage) == first
    assert len(stage.asked) == count
    assert confirmed(stage, anew=True) is not None
    assert {folder for folder, _ in stage.asked[count:]} == {"confirm-2"}
    assert (stage.study.parent / "short/confirm/confirmation.json").exists()


def test_another_number_of_starts_of_a_finished_one_is_not_ignored_silently(stage: Stage) -> None:
    """It stands with the starts it has; how to make more is said."""
    confirmed(stage, blocks=3)
    said, count = len(stage.notes), len(stage.asked)
    confirmed(stage, blocks=3)
    assert not any("--anew" in note for note in stage.notes[said:])
    confirmed(stage, blocks=5)
    assert any("finished with 3 starts a side" in note and "--anew --starts 5" in note for note in stage.notes[said:])
    assert len(stage.asked) == count


def test_other_finalists_make_it_stale(stage: Stage) -> None:
    """After more of a search it is about another configuration: a new one is begun, the old one stays."""
    confirmed(stage)
    count = len(stage.asked)
    put(stage.study, 3, params(320), score(5000.0))
    found = confirmed(stage)
    assert found is not None
    assert found.plan.arms[1] == msgspec.structs.replace(found.plan.arms[1], trial=3, config=Config(params=params(320)))
    assert {folder for folder, _ in stage.asked[count:]} == {"confirm-2"}


def test_without_a_baseline_there_is_nothing_to_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the command to run first."""
    study = Night().write(tmp_path)
    put(study, 0, {}, OOM)
    with pytest.raises(InputError, match="run `autotune tune` first"):
        confirmed(Stage(study, monkeypatch))


def test_a_baseline_alone_is_not_confirmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A note says so, and no folder is made."""
    study = Night().write(tmp_path)
    put(study, 0, {}, score(1000.0))
    stage = Stage(study, monkeypatch)
    assert confirmed(stage) is None
    assert "no configuration beside the baseline" in stage.notes[-1]
    assert not (tmp_path / "short/confirm").exists()


def test_the_night_keeps_time_for_its_confirmation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Search and confirmation together stay inside the wall clock."""
    study = Night(trials=99, confirm=2).write(tmp_path)
    study.write_text(study.read_text().replace('wall_clock = "30m"', 'wall_clock = "1550s"'))
    stage = Stage(study, monkeypatch)
    with stage.night() as night:
        ended = tune(night)
        assert reserve_s(night) == 600.0
    assert ended.confirmed
    assert stage.asked_of("confirm") == list(range(6))
    assert len(stage.asked) * TRIAL_S <= 1550.0
    assert "a trial takes about 100 s" in ended.reason


@pytest.mark.parametrize(
    ("left_s", "arms"),
    [
        (9e9, [0] * 7 + [1] * 5),
        (10 * TRIAL_S, [0] * 6 + [1] * 4),
        (6 * TRIAL_S, [0] * 4 + [1] * 2),
        (4 * TRIAL_S, [0] * 2 + [1] * 2),
    ],
)
def test_a_confirmation_is_as_long_as_there_is_time(stage: Stage, left_s: float, arms: list[int]) -> None:
    """Fewer blocks where less time is left, the baseline's further starts go first."""
    with stage.night() as night:
        confirm(night, Ask(blocks=5, left_s=left_s * SHORT_S / TRIAL_S))
    assert sorted(ticket.repeat_of or 0 for _, ticket in stage.asked) == arms


def test_without_time_for_two_starts_a_side_nothing_is_begun(stage: Stage) -> None:
    """A warning names the command that makes up for it."""
    with stage.night() as night:
        assert confirm(night, Ask(blocks=5, left_s=3 * SHORT_S)) is None
    assert stage.asked == []
    assert "run `autotune confirm study.toml`" in stage.notes[-1]


def test_a_short_night_keeps_most_of_its_time_for_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more than 40 % are kept back; without a confirmation nothing is."""
    for confirm_starts, kept_s in ((9, 0.4 * 1800), (99, 0.4 * 1800), (0, 0.0)):
        folder = made(tmp_path / str(confirm_starts))
        with Stage(searched(folder, confirm=confirm_starts), monkeypatch).night() as night:
            needed_s = (2 * confirm_starts + 2) * SHORT_S if confirm_starts else 0.0
            assert reserve_s(night) == min(kept_s, needed_s)


def test_the_command_prints_the_verdict_and_everything_carries_it(stage: Stage, run: Run) -> None:
    """`confirm`, `status`, the launch script and its JSON say the same sentence."""
    code, out, _ = run("confirm", stage.study, "--starts", "3")
    assert code == 0
    with stage.night() as night:
        found = read_confirmation(night.folder)
        seen = overview(night.brief)
    assert found is not None
    assert found.sentence.startswith("reliable gain of")
    assert f"verdict: {found.sentence}" in out
    assert json.loads(run("status", stage.study, "--json").out)["confirmed"] == found.sentence
    assert (seen.confirmed, seen.best_number) == (found.sentence, 1)
    script = Path(run("export", stage.study).out.strip()).read_text()
    assert found.sentence in script
    again = json.loads(run("confirm", stage.study, "--starts", "3", "--json").out)
    assert again["sentence"] == found.sentence
    assert len(stage.asked) == 8


def test_where_the_finalist_is_worse_the_defaults_are_exported(stage: Stage, run: Run) -> None:
    """What looked best in the search loses on fresh starts: the script starts the defaults and says why."""

    def play(ticket: Ticket, now_s: float) -> Outcome:
        return score(800.0 if ticket.config.params else 1000.0)

    stage.play = play
    assert run("confirm", stage.study, "--starts", "5").code == 0
    assert json.loads(run("status", stage.study, "--json").out)["best_number"] == 0
    script = Path(run("export", stage.study).out.strip()).read_text()
    assert "worse by" in script
    assert "--max-running-requests" not in script
