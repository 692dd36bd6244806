"""The tables, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.search.pairs import live_tables
from benchmarks.search.runs import MEASURED, RANDOM, Run
from benchmarks.search.score import LOOKS, Line, line, shown
from benchmarks.search.study import Curve


def report(runs: Sequence[Run], budget: int) -> str:
    """All tables: live values, then a summary by group and noise, every surface at 5 %, the number of parameters."""
    parts = live_tables(runs, budget)
    runs = [r for r in runs if not r.limited]
    for title, chosen in _groups(runs):
        parts += [f"### {title}", "", *_summary(chosen, budget), ""]
    middle = [r for r in runs if r.noise == 0.05]
    parts += ["### Median starts to within 3 %, by surface, 5 % noise", "", *_matrix(middle, budget, _surface), ""]
    parts += ["### Mean regret after 20 starts, %, by surface, 5 % noise", "", *_regrets(middle), ""]
    held_out = [r for r in middle if r.family in RANDOM]
    if held_out:
        title = "### The same on random settings, by the number of parameters"
        parts += [title, "", *_matrix(held_out, budget, lambda r: f"{r.dims} parameters")]
    return "\n".join(parts)


def _surface(run: Run) -> str:
    return run.family


def _groups(runs: Sequence[Run]) -> Iterable[tuple[str, list[Run]]]:
    for noise in sorted({r.noise for r in runs}):
        for family in (*MEASURED, *RANDOM):
            if chosen := [r for r in runs if r.noise == noise and r.family == family]:
                yield f"{family}, {noise:.0%} noise", chosen
        others = [r for r in runs if r.noise == noise and r.family not in (*MEASURED, *RANDOM)]
        if others:
            yield f"simulator families together, {noise:.0%} noise", others


def _summary(runs: Sequence[Run], budget: int) -> list[str]:
    looks = ", ".join(str(k) for k in LOOKS)
    head = [
        f"| method | starts to 3 % | hours to 3 % | regret after {looks} starts, % "
        f"| within 3 % after {looks}, % of studies | lost to OOM, % |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    return head + [_row(line(name, _curves(runs, name)), budget) for name in _methods(runs)]


def _row(found: Line, budget: int) -> str:
    regret = " · ".join(f"{100 * r:.1f}" for r in found.regret)
    within = " · ".join(f"{100 * w:.0f}" for w in found.within)
    hours = "–" if found.hours == float("inf") else f"{found.hours:.2f}"
    return (
        f"| {found.method} | {shown(found.starts, budget)} | {hours} | {regret} | {within} | {100 * found.lost:.0f} |"
    )


def _matrix(runs: Sequence[Run], budget: int, column: object) -> list[str]:
    assert callable(column)
    columns = (
        sorted({column(r): None for r in runs})
        if runs and "parameters" in column(runs[0])
        else list(dict.fromkeys(column(r) for r in runs))
    )
    lines = ["| method | " + " | ".join(columns) + " |", "| --- |" + " --- |" * len(columns)]
    for name in _methods(runs):
        cells = []
        for wanted in columns:
            found = line(name, _curves([r for r in runs if column(r) == wanted], name))
            cells.append(shown(found.starts, budget))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def _regrets(runs: Sequence[Run]) -> list[str]:
    """How far off a method is where it is off: medians hide it."""
    columns = list(dict.fromkeys(r.family for r in runs))
    lines = ["| method | " + " | ".join(columns) + " |", "| --- |" + " --- |" * len(columns)]
    for name in _methods(runs):
        found = [[c.regret[LOOKS[-1] - 1] for c in _curves([r for r in runs if r.family == f], name)] for f in columns]
        lines.append(f"| {name} | " + " | ".join(f"{100 * sum(x) / len(x):.1f}" for x in found) + " |")
    return lines


def _methods(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(r.method for r in runs))


def _curves(runs: Sequence[Run], method: str) -> list[Curve]:
    return [c for r in runs if r.method == method for c in r.curves]
