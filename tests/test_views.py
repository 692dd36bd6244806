"""Tests of ``autotune report`` and ``autotune watch`` on a study that was really tuned."""

import json
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from autotune.brief import Brief, read_brief
from autotune.cli.app import app
from autotune.cli.watching import follow, view
from autotune.errors import InputError
from autotune.events import NightEnded, Note, PhaseEntered, TrialSettled, TrialStarted
from autotune.overview import overview
from autotune.server.ports import fresh_port
from autotune.study.lock import Holder
from autotune.values import Config, Timings
from autotune.watching import Logged, assemble, look, read_events
from tests.nights import OOM, Night, autotune, records

HOLDER = Holder(pid=7, host="here", started_at="")
AT = datetime(2026, 11, 29, 20, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short night on the simulated server."""
    path = Night(trials=3).write(tmp_path_factory.mktemp("night"))
    ran = autotune("tune", path)
    assert ran.returncode == 0, ran.stderr
    return path


@pytest.fixture(scope="module")
def brief(study: Path) -> Brief:
    return read_brief(study)


def run(*arguments: object) -> str:
    ran = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if ran.exception and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def test_a_report_of_a_night(study: Path, tmp_path: Path) -> None:
    """The summary is printed, page and table are where they were asked for, and the log links lead somewhere."""
    page, table = tmp_path / "deep" / "night.html", tmp_path / "night.csv"
    told = run("report", study, "--html", page, "--csv", table)
    assert "Where the night went" in told
    assert str(page) in told
    assert 'data-plot="history"' in page.read_text()
    assert len(table.read_text().splitlines()) == 4
    link = page.read_text().split('href="')[-1].split('"')[0]
    assert (page.parent / link).resolve().is_file()


def test_the_page_goes_beside_the_records(study: Path) -> None:
    """Without a name the page is in the study's own folder."""
    run("report", study)
    assert (records(study).folder.root / "report" / "index.html").is_file()


def test_a_report_for_scripts(study: Path) -> None:
    """JSON has the verdict and every trial."""
    told = json.loads(run("report", study, "--json"))
    assert told["headline"]["title"]
    assert [r["number"] for r in told["facts"]["results"]] == [0, 1, 2]
    assert set(told["time_s"]) >= {"start", "measure"}


@pytest.mark.parametrize("command", ["report", "watch"])
def test_nothing_has_begun(tmp_path: Path, command: str) -> None:
    """A study without a night is told so, with the command that starts one."""
    with pytest.raises(InputError, match="autotune tune"):
        run(command, Night().write(tmp_path))


def test_watch_prints_once(study: Path) -> None:
    """Without a terminal the view is printed and the command ends."""
    told = run("watch", study)
    assert "3 of 3 trials" in told
    assert "baseline" in told
    assert "the night ended" in told


def test_what_runs_now_is_told_by_the_events(brief: Brief) -> None:
    """The last trial that began and has not settled runs, in its last phase, for as long as the clock says."""
    seen = overview(brief)
    running = msgspec.structs.replace(seen, running=HOLDER)
    events = [
        Logged(at=AT, event=TrialStarted(number=9, role="search", config=Config(params={"a": 1}))),
        Logged(at=AT + timedelta(seconds=5), event=PhaseEntered(number=9, phase="load")),
        *(Logged(at=AT, event=Note(text=f"note {n}")) for n in range(6)),
    ]
    now = AT + timedelta(seconds=20)
    found = assemble(running, events, now)
    [current] = found.now
    assert (current.trial, current.phase, current.trial_s, current.phase_s) == (9, "load", 20.0, 15.0)
    assert found.notes == ("note 2", "note 3", "note 4", "note 5")
    assert "now   trial 9 (search) a=1" in rendered(found)
    ended = assemble(running, [*events, Logged(at=now, event=NightEnded(reason="done", settled=3))], now)
    assert ended.now == ()
    assert ended.ended == "done"
    assert assemble(seen, events, now).now == ()


def test_trials_side_by_side_are_all_shown(brief: Brief) -> None:
    """Each with its place; one that has settled is gone, whichever began first."""
    running = msgspec.structs.replace(overview(brief), running=HOLDER)
    started = [
        Logged(at=AT, event=TrialStarted(number=n, role="search", config=Config(params={"a": n}), where=f"slot {n}"))
        for n in (3, 4, 5)
    ]
    gone = TrialSettled(number=4, config=Config(params={"a": 4}), outcome=OOM, timings=Timings())
    found = assemble(running, [*started, Logged(at=AT, event=gone)], AT)
    assert [current.trial for current in found.now] == [3, 5]
    assert "now   slot 5  trial 5 (search) a=5" in rendered(found)


def rendered(found: object) -> str:
    console = Console(width=140, record=True, file=open("/dev/null", "w"))  # noqa: SIM115 - a sink
    console.print(view(found))  # type: ignore[arg-type]
    console.file.close()
    return console.export_text()


def test_a_terminal_follows_until_the_night_ends(brief: Brief) -> None:
    """On a terminal the live view ends by itself when nobody works on the study."""
    console = Console(width=120, force_terminal=True, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    follow(brief, once=False, every_s=0.2, console=console)
    console.file.close()


def test_lines_of_others_are_left_out(brief: Brief, tmp_path: Path) -> None:
    """A line that is being written, and an event of another version, do not spoil the view."""
    good = read_events(brief.folder.events)
    path = tmp_path / "events.jsonl"
    path.write_bytes(brief.folder.events.read_bytes() + b'{"at":"2026-11-29T20:00:00+00:00","type":"new"}\n{"at":"20')
    assert read_events(path) == good
    assert read_events(tmp_path / "none") == []
    assert look(brief).seen.settled == 3


DASHBOARD = shutil.which("optuna-dashboard", path=str(Path(sys.executable).parent))


@pytest.fixture
def dashboard(study: Path) -> Iterator[str]:
    """optuna-dashboard on the study's own database."""
    port = fresh_port("127.0.0.1")
    storage = f"sqlite:///{records(study).folder.database}"
    command = [str(DASHBOARD), storage, "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait(timeout=20)


def fetch(url: str, limit_s: float = 60.0) -> bytes:
    """GET, until somebody answers."""
    end = time.monotonic() + limit_s
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        try:
            with opener.open(url, timeout=20) as answer:
                body: bytes = answer.read()
                return body
        except OSError:
            assert time.monotonic() < end, f"{url} does not answer"
            time.sleep(0.2)


@pytest.mark.skipif(DASHBOARD is None, reason="needs optuna-dashboard")
def test_optuna_dashboard_serves_the_study(dashboard: str) -> None:
    """The study's database is shown by optuna-dashboard as it is, with every trial and what is known of it."""
    (summary,) = json.loads(fetch(f"{dashboard}/api/studies"))["study_summaries"]
    assert summary["study_name"] == "short"
    detail = json.loads(fetch(f"{dashboard}/api/studies/{summary['study_id']}"))
    assert [trial["number"] for trial in detail["trials"]] == [0, 1, 2]
    assert detail["trials"][0]["state"] == "Complete"
    assert detail["trials"][0]["user_attrs"]
