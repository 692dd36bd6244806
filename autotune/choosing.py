"""Which configuration to believe in: one answer for the night, its script, the status, the report, the confirmation."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from autotune.brief import Brief
from autotune.confirmation import Confirmation
from autotune.drifting import steadied
from autotune.search.outlook import Outlook, Ranked, outlook, ranking
from autotune.search.region import Direction, Region
from autotune.search.samplers import OWN
from autotune.search.suggest import Strategy
from autotune.standing import baseline_of, best_of, ranked_trials, settled
from autotune.study.file import Objective
from autotune.study.record import read_record
from autotune.study.transfer import Transfer
from autotune.values import Measured, TrialResult
from autotune.verdict.objective import binding_limits, metric_of
from autotune.verdict.schedule import BASELINE


class Judge(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks the trials of one study. ``region`` is None before the bounds are known.

    The belief of the search has the first word: it knows a configuration's neighbours too. The trials of each
    configuration alone decide where that belief knows nothing, and whether any configuration is better than the
    baseline, which may lie outside the bounds.
    """

    objective: Objective
    region: Region | None
    strategy: Strategy = Strategy()

    @classmethod
    def of(cls, brief: Brief) -> Judge:
        """Raises InputError where the bounds on record are damaged."""
        region = read_record(brief.folder.bounds, Region)
        # Whatever sampler the study names, its trials are judged in one way.
        how = strategy(brief)
        how = msgspec.structs.replace(how, sampler=OWN, transfer=how.transfer if how.sampler == OWN else None)
        return cls(objective=brief.study.objective, region=region, strategy=how)

    def best(self, results: Sequence[TrialResult]) -> TrialResult | None:
        """The first trial of the configuration to believe in; None without a measured one within the limits."""
        direct = best_of(results, self.objective)
        if direct is None or not direct.config.params:
            return direct
        return next(iter(self._believed(results)), direct)

    def finalists(self, results: Sequence[TrialResult], count: int) -> list[TrialResult]:
        """The best ``count`` configurations that are not the baseline, the one to believe in first."""
        direct = [r for r in ranked_trials(results, self.objective) if r.config.params]
        kept: dict[str, TrialResult] = {}
        for result in (*self._believed(results), *direct):
            kept.setdefault(_in_force(result) or result.config.key(), result)
        return list(kept.values())[:count]

    def chosen(self, results: Sequence[TrialResult], confirmation: Confirmation | None) -> TrialResult | None:
        """The search's trial to use: the confirmed winner; the baseline where the finalists proved worse or unfit;
        else the best.

        A finalist without a reliable difference stays the best guess, and what is exported says so.
        """
        if confirmation is None:
            return self.best(results)
        if confirmation.chosen != BASELINE:
            wanted = confirmation.plan.arms[confirmation.chosen].trial
            return next((r for r in results if r.number == wanted), None)
        headline = confirmation.headline
        finalists = range(1, len(confirmation.plan.arms))
        if (headline and headline.kind == "worse") or all(arm in confirmation.unfit for arm in finalists):
            return baseline_of(results)
        return self.best(_fit(results, confirmation))

    def ranking(self, results: Sequence[TrialResult]) -> list[Ranked]:
        """All configurations that the search believes to know, the baseline among them where it lies in the bounds."""
        return ranking(self._seen(results), self.region, self.strategy) if self.region else []

    def outlook(self, results: Sequence[TrialResult]) -> Outlook | None:
        """What one more start is expected to bring; None before anything can be said."""
        return outlook(self._seen(results), self.region, self.strategy) if self.region else None

    def _believed(self, results: Sequence[TrialResult]) -> list[TrialResult]:
        """Whole trials with parameters, within the limits, by posterior mean."""
        by_number = {r.number: r for r in results}
        return [by_number[one.number] for one in self.ranking(results) if by_number[one.number].config.params]

    def _seen(self, results: Sequence[TrialResult]) -> tuple[TrialResult, ...]:
        return steadied(settled(results)).results


def strategy(brief: Brief) -> Strategy:
    """How the study is searched. Raises InputError where what was taken over from another one is damaged."""
    study = brief.study
    up = metric_of(study.objective.metric).direction == "maximise"
    direction: Direction = "maximize" if up else "minimize"
    return Strategy(
        sampler=study.search.sampler,
        seed=study.seed,
        startup_trials=study.search.startup_trials,
        direction=direction,
        limits=binding_limits(study.objective),
        request_tokens=brief.lengths().mean_tokens,
        transfer=read_record(brief.folder.transfer, Transfer),
    )


def _fit(results: Sequence[TrialResult], confirmation: Confirmation) -> list[TrialResult]:
    """Without the trials of configurations that proved unfit, and of those that were in force the same."""
    gone = {confirmation.plan.arms[arm].config.key() for arm in confirmation.unfit}
    same = {_in_force(r) for r in results if r.config.key() in gone} - {""}
    return [r for r in results if r.config.key() not in gone and _in_force(r) not in same]


def _in_force(result: TrialResult) -> str:
    return result.outcome.effective.key() if isinstance(result.outcome, Measured) else ""
