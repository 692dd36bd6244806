"""Small pieces of HTML that all parts of the page share."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from autotune.values import ParamValue


def settings(params: dict[str, ParamValue]) -> str:
    """Name and value pairs as code."""
    pairs = (f"<code>{escape(name)}={escape(said(value))}</code>" for name, value in params.items())
    return " ".join(pairs) or "defaults"


def said(value: ParamValue) -> str:
    """A value without the digits that only its binary form has."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def sentence(text: str) -> str:
    """Text as a sentence: a capital first, a stop last."""
    return f"{text[:1].upper()}{text[1:]}."


def plot(name: str, svg: str, title: str) -> str:
    """A picture that a reader's software can name, and a test can find; nothing without one."""
    if not svg:
        return ""
    return f'<div class="plot" role="img" aria-label="{escape(title)}" data-plot="{escape(name)}">{svg}</div>'


def figure(name: str, svg: str, title: str, caption: str = "", *, wide: bool = False) -> str:
    """A picture with its caption; the caption alone where there is nothing to draw."""
    if not svg and not caption:
        return ""
    text = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    extra = ' class="wide"' if wide else ""
    return f"<figure{extra}><h3>{escape(title)}</h3>{plot(name, svg, title)}{text}</figure>"


def grid(body: str) -> str:
    """Figures side by side as the width allows."""
    return f'<div class="grid">{body}</div>' if body else ""


def rows(heads: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """A plain table; cells are HTML already."""
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in line)}</tr>" for line in lines)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
