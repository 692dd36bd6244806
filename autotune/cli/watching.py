"""The live view of a night in a terminal."""

from __future__ import annotations

import time

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from autotune.brief import Brief
from autotune.cli.text import claim_text, params_text, span
from autotune.errors import InputError
from autotune.overview import Overview, TrialLine
from autotune.watching import Current, Watched, look

ROWS = 14


def follow(brief: Brief, *, once: bool, every_s: float, console: Console | None = None) -> None:
    """Redraw until the night has ended; once where asked or where there is no terminal. Ctrl-C ends the view."""
    console = console or Console()
    seen = look(brief)
    if once or not console.is_terminal:
        console.print(view(seen))
        return
    try:
        with Live(view(seen), console=console, auto_refresh=False) as live:
            while seen.seen.running is not None or seen.seen.claims:
                time.sleep(every_s)
                seen = _again(brief, seen)
                live.update(view(seen), refresh=True)
    except KeyboardInterrupt:
        return


def _again(brief: Brief, before: Watched) -> Watched:
    """A record that is being written this very moment is read at the next look."""
    try:
        return look(brief)
    except InputError:
        return before


def view(seen: Watched) -> RenderableType:
    """Progress, what runs now, best against baseline, the last trials and notes."""
    parts: list[RenderableType] = [_progress(seen.seen), _now(seen), _standing(seen.seen), _trials(seen.seen)]
    if seen.seen.changed:
        parts.append(Text(seen.seen.changed, style="yellow"))
    parts += [Text(claim_text(claim), style="cyan") for claim in seen.seen.claims]
    parts += [Text(f"note  {note}", style="dim", overflow="ellipsis", no_wrap=True) for note in seen.notes]
    return Panel(Group(*parts), title=Text(seen.seen.study, style="bold"), border_style="blue")


def _progress(seen: Overview) -> RenderableType:
    left = f", about {span(seen.eta_s)} to go" if seen.eta_s else ""
    text = f"{seen.settled} of {seen.trials} trials, {span(seen.spent_s)} of {span(seen.budget_s)} spent{left}"
    grid = Table.grid(padding=(0, 2))
    grid.add_row(ProgressBar(total=seen.trials, completed=min(seen.settled, seen.trials), width=30), text)
    return grid


def _now(seen: Watched) -> Text:
    if not seen.now:
        if seen.seen.running is None:
            return Text(f"not running{f'; the night ended: {seen.ended}' if seen.ended else ''}", style="yellow")
        return Text("between two trials", style="dim")
    return Text("\n".join(map(_current, seen.now)), style="bold")


def _current(now: Current) -> str:
    what = params_text(now.config) if now.config.params else ""
    where = f"{now.where}  " if now.where else ""
    took = f"{now.phase} {span(now.phase_s)}, {span(now.trial_s)} in all"
    return f"now   {where}trial {now.trial} ({now.role}) {what}  {took}"


def _standing(seen: Overview) -> Text:
    if seen.baseline is None:
        return Text("no baseline yet", style="dim")
    text = f"baseline {seen.baseline:,.1f}  {seen.metric}"
    if seen.best is not None and seen.gain is not None:
        text += f"\nbest     {seen.best:,.1f}  (trial {seen.best_number}) {100 * seen.gain:+.1f} % as searched"
    if seen.confirmed:
        text += f"\nconfirmed: {seen.confirmed}"
    return Text(text, style="green")


def _trials(seen: Overview) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name, justify in (("trial", "right"), ("score", "right"), ("took", "right"), ("parameters", "left")):
        table.add_column(name, justify="right" if justify == "right" else "left", overflow="fold")
    for line in seen.lines[-ROWS:]:
        table.add_row(*_cells(line), style=_style(line, seen))
    return table


def _cells(line: TrialLine) -> tuple[str, str, str, str]:
    score = line.state if line.score is None else f"{line.score:,.1f} ± {line.stderr or 0.0:,.1f}"
    return str(line.number), score, span(line.total_s), params_text(line.params)


def _style(line: TrialLine, seen: Overview) -> str:
    if line.number == seen.best_number:
        return "green"
    if line.state in ("running", "cut off"):
        return "dim"
    return "" if line.score is not None else "red"
