"""What every engine must do with a server of its own, from start to export."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from autotune.load.records import OK
from autotune.rig import EngineProbe, fetcher
from autotune.server.readiness import Died, Ready
from autotune.trial import Ticket, run_trial
from autotune.values import Config, Infeasible, LaunchPlan, Measured, TrialResult
from tests.conformance.serving import LIMIT_S, TOKEN_IDS, Live, serving, tuning
from tests.conformance.subjects import PLUGIN, Subject
from tests.nights import BRAND, autotune, events, left, records, result, rig, wait_for

REQUESTS = 48


class Conformance:
    """The suite. A class of its own gives ``subject``, once for each engine."""

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _plugin(cls) -> Iterator[None]:
        """The example engine is an installed package to this process and to all that it starts."""
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(PLUGIN)
            patch.setenv("PYTHONPATH", str(PLUGIN))
            yield

    @pytest.fixture(scope="class")
    @classmethod
    def live(cls, subject: Subject, tmp_path_factory: pytest.TempPathFactory, _plugin: None) -> Iterator[Live]:
        """A server that is ready for many requests at once."""
        folder = tmp_path_factory.mktemp(f"live-{subject.name}")
        shared = rig(subject.write(folder))
        plan = shared.plan(Config(params=subject.flags(subject.many)))
        with serving(shared, plan, folder / "server.log") as server:
            assert isinstance(server.start, Ready), (server.start, (folder / "server.log").read_text()[-3000:])
            live = Live(shared, server)
            wait_for(live.healthy)
            yield live
        assert server.teardown is not None
        assert server.teardown.problem() is None
        assert server.teardown.port_free

    def test_values_in_force_are_read_back(self, subject: Subject, live: Live) -> None:
        """Running limit, capacity and version are the server's own, by its routes and as far as it goes by its log."""
        seen = live.effective()
        assert (seen.source, seen.version) == (subject.source, subject.version)
        assert seen.running_limit == subject.many
        assert seen.values[subject.parameter] == subject.many
        assert seen.kv_tokens
        assert subject.kv_tokens in (None, seen.kv_tokens)
        assert live.rig.engine.describe_clamps(Config(params=subject.flags(subject.many)), seen, live.log()) == ()
        if subject.log_tells:
            blind = live.rig.engine.effective(lambda _: (0, b""), live.log(), [subject.parameter])
            assert (blind.source, blind.running_limit) == ("log", subject.many)

    @pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
    def test_both_sides_count_the_same_tokens(self, subject: Subject, live: Live, tmp_path: Path, stream: bool) -> None:
        """Every request succeeds with its length, and the server's counters moved by what the client saw."""
        raw, around = live.load(tmp_path, requests=REQUESTS, concurrency=16, stream=stream)
        table, load = raw.requests, live.rig.study.workload
        assert (table["state"] == OK).all(), raw.meta.reasons
        assert (table["output_tokens"] == load.output_tokens).all()
        assert (table["prompt_tokens"] == load.input_tokens).all()
        assert around.before is not None
        assert around.after is not None
        assert (around.before.source, around.after.source) == ("metrics", "metrics")
        made = (around.after.generated_tokens or 0) - (around.before.generated_tokens or 0)
        read = (around.after.prompt_tokens or 0) - (around.before.prompt_tokens or 0)
        assert made == load.output_tokens * REQUESTS
        assert read == load.input_tokens * REQUESTS

    def test_a_prompt_that_cannot_fit_is_a_failure(self, subject: Subject, live: Live, tmp_path: Path) -> None:
        """No request beyond the server's context counts as a fast one, and the reason is kept."""
        raw, _ = live.load(tmp_path, requests=4, input_tokens=subject.too_long, concurrency=4)
        assert (raw.requests["state"] != OK).all()
        assert (raw.requests["output_tokens"] == 0).all()
        assert any(str(subject.too_long) in reason for reason in raw.meta.reasons), raw.meta.reasons

    def test_a_port_in_use_is_left_alone(self, live: Live, tmp_path: Path) -> None:
        """A server that answers there but is not ours is not taken for ours, and goes on serving."""
        plan = live.rig.plan(Config(params={}), port=live.server.plan.port)
        with serving(live.rig, plan, tmp_path / "server.log") as second:
            assert not isinstance(second.start, Died)
            assert second.process is None
        assert "is taken by" in getattr(second.start, "reason", "")
        assert live.healthy()

    def test_a_flag_that_does_not_exist_stops_the_night(self, subject: Subject, tmp_path: Path) -> None:
        """Nothing can be compared with a base command that is refused; the line that says so is shown."""
        wrong = subject.refusals[0]
        study = subject.write(tmp_path, wrong.flags)
        done = autotune("tune", study, limit_s=LIMIT_S)
        assert done.returncode == 3, done.stderr
        assert wrong.kind in done.stderr
        assert wrong.words in done.stderr
        assert left(study) == []

    def test_a_start_that_cannot_be_is_explained(self, subject: Subject, tmp_path: Path) -> None:
        """Values that the server refuses or that do not fit are pruned by its own words."""
        for index, refusal in enumerate(subject.refusals[1:]):
            shared = rig(subject.write(tmp_path / str(index), refusal.flags))
            shared.records.trial(0).root.mkdir()
            done = run_trial(shared, Ticket(number=0, config=Config(params=subject.flags(subject.many))))
            assert isinstance(done.outcome, Infeasible), done.outcome
            found = done.outcome.diagnosis
            assert (found.kind, found.action) == (refusal.kind, refusal.action)
            assert any(refusal.words in line for line in found.evidence), found.evidence

    def test_a_killed_server_makes_room_for_the_next(self, subject: Subject, tmp_path: Path) -> None:
        """After SIGKILL of the server nothing of it is left, and another serves on the same port."""
        shared = rig(subject.write(tmp_path))
        plan = shared.plan(Config(params={}))
        with serving(shared, plan, tmp_path / "first.log") as first:
            assert isinstance(first.start, Ready)
            assert first.process is not None
            os.kill(first.process.pid, signal.SIGKILL)
            wait_for(lambda: first.poll() is not None)
        assert first.teardown is not None
        assert first.teardown.problem() is None
        with serving(shared, plan, tmp_path / "second.log") as second:
            assert isinstance(second.start, Ready), second.start

    def test_a_night_with_a_server_killed_under_load(self, subject: Subject, tmp_path: Path) -> None:
        """The trial is tried again, all are measured, many at once beat few, and the exported script serves."""
        study = subject.write(tmp_path)
        with tuning(study) as tuner:
            os.kill(tuner.wait_for_load(0).pid, signal.SIGKILL)
            _, told = tuner.process.communicate(timeout=LIMIT_S)
        assert tuner.process.returncode == 0, told
        assert any("trying again" in event["text"] for event in events(study, "note")), told
        results = [result(study, number) for number in range(3)]
        scores = [check_measured(subject, each) for each in results]
        assert max(scores) > subject.margin * scores[0], scores
        assert left(study) == []
        check_export(subject, study)
        assert left(study) == []


def check_measured(subject: Subject, result: TrialResult) -> float:
    """What was asked is in force and every request was good; the score."""
    assert isinstance(result.outcome, Measured), result.outcome
    limit = result.config.params.get(subject.parameter, subject.few)
    assert result.outcome.effective.running_limit == limit
    assert result.outcome.measurement.requests_failed == 0
    assert result.outcome.measurement.refused == ()
    return score_of(result)


def score_of(result: TrialResult) -> float:
    """The score of a trial that was measured, whatever its gates."""
    assert isinstance(result.outcome, Measured), result.outcome
    return result.outcome.score.value


def check_export(subject: Subject, study: Path) -> None:
    """The script starts the best configuration, which serves with the values that were measured; then it ends."""
    script, log = study.parent / "launch.sh", study.parent / "exported.log"
    told = autotune("export", study, "--output", script)
    assert told.returncode == 0, told.stderr
    shared = rig(study)
    best = max(records(study).results(), key=score_of)
    plan = records(study).plan(best.number)
    assert plan is not None
    # Several starts of one configuration are one answer, and the script has the port of the first of them.
    ports = re.findall(r"--port\W+(\d+)", script.read_text())
    plan = msgspec.structs.replace(plan, port=int(ports[0]))
    with log.open("wb") as out:
        server = subprocess.Popen([script], env={**os.environ, BRAND: str(study.parent)}, stdout=out, stderr=out)
    try:
        wait_for(lambda: generates(server, plan, EngineProbe(shared.engine, plan, TOKEN_IDS)), LIMIT_S)
        with httpx.Client(base_url=plan.base_url, trust_env=False) as client:
            seen = shared.engine.effective(fetcher(client), log.read_text(errors="replace"), shared.space.names())
        assert seen.running_limit == best.config.params[subject.parameter]
    finally:
        server.terminate()
        try:
            server.wait(timeout=60)
        finally:
            server.kill()
    wait_for(lambda: not left(study))


def generates(server: subprocess.Popen[bytes], plan: LaunchPlan, probe: EngineProbe) -> bool:
    """Whether the exported server makes tokens; fails when it is dead."""
    assert server.poll() is None, f"the exported script ended with {server.returncode}"
    path, body = probe.request()
    try:
        answer = httpx.post(plan.base_url + path, content=body, timeout=60, trust_env=False)
    except httpx.HTTPError:
        return False
    return probe.is_ready(answer.status_code, answer.content)
