"""The report as one sheet of paper: ``privcalc show CERT --report --html OUT.html``; print it, and it is one A4 page.

The sheet is the report's text. What is long is cut there, and says so: a certificate may have more than fits a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from privcalc.certificate.consistency import wrong_form
from privcalc.certificate.facts import Fact
from privcalc.certificate.frame import clean, template, warned
from privcalc.certificate.report import LAST, levels
from privcalc.certificate.text import headline, plain, warnings

__all__ = ["sheet"]

LINES, ACROSS = 84, 118
"""What fits the page: lines, and characters in each of them, with room to spare for wide letters."""

CUTS = ((40, 600), (24, 360), (16, 240), (12, 118), (8, 118), (6, 118))
"""Most rows of a part, and most characters of a row; the first that fits."""


def sheet(document: Mapping[str, Any]) -> str:
    """The report as HTML.

    Args:
        document: of a certificate.
    """
    with wrong_form():
        parts = {"": [Fact("", "", line) for line in warnings(document)], **levels(document)}
    limits = next((each for each in CUTS if _height(parts, each) <= LINES), CUTS[-1])
    cut = {title: _cut(rows, *limits) for title, rows in parts.items()}
    return template("sheet").substitute(
        kind="Privacy report",
        title=clean(headline(document)),
        warnings=warned(fact.text for fact in cut.pop("")),
        parts="\n".join(_section(number, *part) for number, part in enumerate(cut.items(), 1)),
        last=clean(LAST),
        hash=clean(document["hash"]),
    )


def _height(parts: Mapping[str, Sequence[Fact]], limits: tuple[int, int]) -> int:
    """How many lines they take, cut so; titles, and the space above them, are two."""
    return sum(2 + sum(-(-len(row.text) // ACROSS) for row in _cut(rows, *limits)) for rows in parts.values())


def _cut(rows: Sequence[Fact], most: int, longest: int) -> list[Fact]:
    """Lines of a level, of which the rest is only counted."""
    kept = [row._replace(text=_short(plain(row.text), longest)) for row in rows[:most]]
    left = len(rows) - most
    return kept + [Fact("", "", f"and {left} more: the certificate has all of them")] * (left > 0)


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 25].rstrip()} … (the certificate has all)"


def _section(number: int, title: str, rows: Sequence[Fact]) -> str:
    lines = "\n".join(f"<tr><th>{clean(row.label)}</th><td>{clean(row.text)}</td></tr>" for row in rows)
    return f"<h2>{number}. {title}</h2>\n<table>\n{lines}\n</table>"
