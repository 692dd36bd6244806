"""``python -m benchmarks.live``: one study with live values and without, on a real server; starts to a good answer.

Both arms run the same study in turn, once for each seed. After every start each arm recommends a configuration; what
that is worth is judged by all starts of all nights together (a posterior mean of fresh starts, live values left out).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from autotune import night as nights
from autotune.brief import Brief, read_brief
from autotune.choosing import Judge
from autotune.events import Event, Note, TrialSettled
from autotune.guidance import Guide
from autotune.night import open_night
from autotune.search.samplers import OWN
from autotune.server.cancel import Waiting
from autotune.study.folder import StudyFolder
from autotune.study.record import Records, write_record
from autotune.trial import Ticket, run_trial
from autotune.tune import BASELINE, tune
from autotune.values import Config, Measured, TrialResult, Value
from benchmarks.live.report import ARMS, Arm, Record, table
from tests.nights import WIDE

HERE = Path(__file__).parent
STUDY = HERE / "cpu.toml"
GENEROUS = "24h"


class Plan(Value, frozen=True, kw_only=True):
    """``tpot_at``: the limit on the time per token is what the server shows at this running limit, 0: as the study
    says. ``folder`` takes the nights.
    """

    study: Path
    folder: Path
    seeds: tuple[int, ...]
    trials: int
    tpot_at: int


def say(event: Event) -> None:
    """Progress on standard error."""
    match event:
        case TrialSettled(outcome=Measured(score=score, live=live)):
            lives = " ".join(f"{one.limit}:{one.score.value:,.0f}" for one in live)
            print(f"  trial {event.number} {event.config.params} {score.value:,.0f} [{lives}]", file=sys.stderr)
        case TrialSettled():
            print(f"  trial {event.number} {event.config.params} {type(event.outcome).__name__}", file=sys.stderr)
        case Note(level="warning", text=text):
            print(f"  note {text}", file=sys.stderr)


def brief_of(plan: Plan, name: str, live: Literal["on", "off"]) -> Brief:
    """The study under another name, in the folder of the benchmark. Both arms make the same starts, and no others."""
    brief = read_brief(plan.study)
    search = msgspec.structs.replace(brief.study.search, sampler=OWN, early_stop=0.0, least_gain=0.0, live=live)
    budget = msgspec.structs.replace(
        brief.study.budget, trials=plan.trials, wall_clock=GENEROUS, confirm_starts=0, baseline_every=0
    )
    study = msgspec.structs.replace(brief.study, name=name, search=search, budget=budget)
    brief = msgspec.structs.replace(brief, study=study, folder=StudyFolder(plan.folder / name))
    if live == "on" and (reason := brief.why_no_live()):
        sys.exit(f"{plan.study}: live values cannot be: {reason}")
    return brief


def with_limit(brief: Brief, tpot_s: float | None) -> Brief:
    """The study with a limit on the median time per token."""
    if tpot_s is None:
        return brief
    constraints = {**brief.study.objective.constraints, "tpot_p50_s": tpot_s}
    objective = msgspec.structs.replace(brief.study.objective, constraints=constraints)
    return msgspec.structs.replace(brief, study=msgspec.structs.replace(brief.study, objective=objective))


def calibrated(plan: Plan) -> float | None:
    """Seconds per token at one running limit, measured live on one start of the server's defaults."""
    if not plan.tpot_at:
        return None
    brief = brief_of(plan, "calibration", live="on")

    def once(measured: Measured) -> int | None:
        return None if measured.live else plan.tpot_at

    with open_night(brief, say, Waiting()) as night:
        number = night.records.next_number()
        night.records.trial(number).root.mkdir()
        params = {brief.engine.live_parameter: night.brief.study.workload.concurrency}
        ticket = Ticket(number=number, config=Config(params=params))
        outcome = run_trial(night.rig, ticket, Guide(next_limit=once)).outcome
    if not isinstance(outcome, Measured) or not outcome.live:
        sys.exit(f"the calibration has no live load: {outcome}")
    return outcome.live[0].steady["tpot_p50_s"]


def night_of(plan: Plan, arm: str, seed: int, tpot_s: float | None) -> Records:
    """One night of an arm; what is settled already is kept."""
    brief = with_limit(brief_of(plan, f"{arm}-{seed}", live="on" if arm == "live" else "off"), tpot_s)
    brief = msgspec.structs.replace(brief, study=msgspec.structs.replace(brief.study, seed=seed))
    print(f"night {brief.study.name}", file=sys.stderr)
    with open_night(brief, say, Waiting()) as night:
        tune(night)
        return night.records


def bare(result: TrialResult) -> TrialResult:
    """Without live values: what a start of its own has measured."""
    if not isinstance(result.outcome, Measured):
        return result
    return msgspec.structs.replace(result, outcome=msgspec.structs.replace(result.outcome, live=()))


def joined(nights_: Sequence[Records]) -> Iterator[TrialResult]:
    """The starts of several nights as one history."""
    everything = (bare(result) for records in nights_ for result in records.results())
    yield from (msgspec.structs.replace(r, number=n, repeat_of=None) for n, r in enumerate(everything))


def recommendations(records: Records, judge: Judge) -> list[Config]:
    """What a night would have recommended after each of its starts."""
    results = records.results()
    found = [judge.best(results[: count + 1]) for count in range(len(results))]
    return [best.config if best else BASELINE for best in found]


def judged(plan: Plan, tpot_s: float | None) -> Record:
    """Both arms by what is known in the end."""
    any_brief = with_limit(brief_of(plan, f"live-{plan.seeds[0]}", live="on"), tpot_s)
    study, judge = any_brief.study, Judge.of(any_brief)
    kept = {(arm, seed): Records(StudyFolder(plan.folder / f"{arm}-{seed}")) for arm in ARMS for seed in plan.seeds}
    history = list(joined(list(kept.values())))
    by_number = {r.number: r for r in history}
    ranked = judge.ranking(history)
    values = {by_number[one.number].config.key(): one for one in ranked}
    best = ranked[0]
    arms = []
    for (arm, seed), records in kept.items():
        path = [values.get(config.key()) for config in recommendations(records, judge)]
        arms.append(Arm.of(arm, seed, records.results(), [one.value / best.value if one else 0.0 for one in path]))
    outlook = judge.outlook(history)
    return Record(
        study=plan.study.name,
        engine=f"{study.engine.kind} {any_brief.version}",
        tpot_limit_s=tpot_s,
        tpot_at=plan.tpot_at,
        best=by_number[best.number].config.params,
        best_value=best.value,
        noise=outlook.noise if outlook else 0.0,
        load_average=os.getloadavg()[2],
        arms=tuple(arms),
    )


def main() -> int:
    """Runs what is missing, then judges, prints, and writes the record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live", description=__doc__)
    parser.add_argument("--study", type=Path, default=STUDY)
    parser.add_argument("--folder", type=Path, default=Path(".night/live"), help="takes the nights; goes on in it")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--trials", type=int, default=7)
    parser.add_argument("--tpot-at", type=int, default=24, help="running limit that sets the limit; 0: the study's own")
    parser.add_argument("--record", type=Path, default=HERE / "record.json")
    asked = parser.parse_args()
    plan = Plan(
        study=asked.study.absolute(),
        folder=asked.folder.absolute(),
        seeds=tuple(range(1, asked.seeds + 1)),
        trials=asked.trials,
        tpot_at=asked.tpot_at,
    )
    plan.folder.mkdir(parents=True, exist_ok=True)
    nights.GATES = WIDE
    remembered = plan.folder / "tpot-limit"
    tpot_s = float(remembered.read_text()) if remembered.exists() else calibrated(plan)
    if tpot_s is not None:
        remembered.write_text(repr(tpot_s))
    for seed in plan.seeds:
        # In turn, so that a machine that changes its pace changes it for both.
        for arm in ARMS if seed % 2 else reversed(ARMS):
            night_of(plan, arm, seed, tpot_s)
    record = judged(plan, tpot_s)
    write_record(asked.record, record)
    print(table(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
