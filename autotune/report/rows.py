"""The table of all trials as HTML."""

from __future__ import annotations

from html import escape

import pandas as pd

from autotune.report.facts import Facts
from autotune.report.table import trials

COLUMNS = {
    "output_throughput_tok_s": "output tok/s",
    "ttft_p50_s": "TTFT p50, s",
    "tpot_p50_s": "TPOT p50, s",
    "e2e_p50_s": "E2E p50, s",
    "total_s": "took, s",
}


def table(facts: Facts) -> str:
    """A sortable table, a row per trial, with links to the logs."""
    frame = trials(facts)
    if frame.empty:
        return ""
    names = facts.names()
    shown = [name for name in COLUMNS if name != facts.objective.metric]
    figures = [name for name in shown if pd.to_numeric(frame[name]).fillna(0.0).gt(0.0).any()]
    raw = ["as measured"] if facts.drift.corrected else []
    heads = ["trial", "state", "log", facts.metric.unit, "±", *raw, *names, *(COLUMNS[n] for n in figures), "remarks"]
    rows = "".join(_row(facts, row, figures) for _, row in frame.iterrows())
    head = "".join(f'<th scope="col"><button type="button">{escape(h)}</button></th>' for h in heads)
    return f'<div class="scroll"><table id="trials"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _row(facts: Facts, row: pd.Series, figures: list[str]) -> str:
    number = int(row["trial"])
    mark = " ".join(n for n in ("baseline", "chosen") if number == getattr(facts, n))
    state = str(row["state"])
    cells = [
        _cell(number),
        f'<td class="state {"ok" if state == "measured" else "bad"}">{escape(state)} <b>{mark}</b></td>',
        _link(facts.logs.get(number, "")),
        _cell(row["score"]),
        _cell(row["stderr"]),
        *([_cell(row["measured_score"])] if facts.drift.corrected else []),
        *(_asked(row[f"asked_{name}"], row[f"runs_{name}"]) for name in facts.names()),
        *(_cell(row[name]) for name in figures),
        f'<td class="why">{escape(str(row["reason"]))}</td>',
    ]
    return f'<tr class="{mark}">{"".join(cells)}</tr>'


def _cell(value: object) -> str:
    if not isinstance(value, int | float) or pd.isna(value):
        return '<td data-value=""></td>'
    digits = 0 if isinstance(value, int) or abs(value) >= 999.5 else 1 if abs(value) >= 10 else 3
    return f'<td class="n" data-value="{float(value)}">{value:,.{digits}f}</td>'


def _asked(asked: object, runs: object) -> str:
    """The value asked, with the one in force where it differs; a default in brackets."""
    has_asked, has_runs = not _missing(asked), not _missing(runs)
    if not has_asked:
        return f'<td class="n" data-value="{_plain(runs)}">{f"({_plain(runs)})" if has_runs else ""}</td>'
    shown = _plain(asked)
    if has_runs and _plain(runs) != shown:
        return f'<td class="n clamped" data-value="{_plain(runs)}">{shown} runs {_plain(runs)}</td>'
    return f'<td class="n" data-value="{shown}">{shown}</td>'


def _missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and pd.isna(value))


def _plain(value: object) -> str:
    if _missing(value):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return escape(str(value))


def _link(target: str) -> str:
    return f'<td><a href="{escape(target)}">log</a></td>' if target else "<td></td>"
