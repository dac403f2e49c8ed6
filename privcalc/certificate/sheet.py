"""The report as one sheet of paper: ``privcalc show CERT --report --html OUT.html``; print it, and it is one A4 page.

The sheet is the report's text. What is long is cut there, and says so: a certificate may have more than fits a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

from privcalc.certificate.consistency import wrong_form
from privcalc.certificate.frame import HEAD, clean
from privcalc.certificate.report import LAST, Part, reported
from privcalc.certificate.text import headline, plain, warnings

__all__ = ["sheet"]

LINES, ACROSS = 84, 118
"""What fits the page: lines, and characters in each of them, with room to spare for wide letters."""

CUTS = ((40, 600), (24, 360), (16, 240), (12, 118), (8, 118), (6, 118))
"""Most rows of a part, and most characters of a row; the first that fits."""

PRINT = """<style>
h1 { margin-bottom: .3em } h2 { margin: .7em 0 .1em } table { border-collapse: collapse; width: 100% }
th { font-weight: normal; color: #555; width: 9.5em; padding-right: .8em } td { padding-right: 0 }
@page { size: A4; margin: 12mm }
@media print {
  body { font-size: 8pt; line-height: 1.22; max-width: none; margin: 0; padding: 0 }
  h1 { font-size: 12pt; margin: 0 0 1mm } h2 { font-size: 9pt; margin: 1.4mm 0 0 } p { margin: .8mm 0 }
  .warning { padding: 0 1.5mm; border-width: 1.5pt } td, th { padding-top: 0; padding-bottom: 0 }
}
</style>
"""

TEMPLATE = Template(
    HEAD
    + PRINT
    + """<body>
<h1>$kind: $title</h1>
$warnings
$parts
<p>$last. The certificate's hash: $hash.</p>
</body>
</html>
"""
)


def sheet(document: Mapping[str, Any]) -> str:
    """The report as HTML.

    Args:
        document: of a certificate.
    """
    with wrong_form():
        parts = [Part("", [("", line) for line in warnings(document)]), *reported(document)]
    limits = next((each for each in CUTS if _height(parts, each) <= LINES), CUTS[-1])
    cut = [_cut(part, *limits) for part in parts]
    return TEMPLATE.substitute(
        kind="Privacy report",
        title=clean(headline(document)),
        warnings="\n".join(f'<p class="warning">{clean(text)}</p>' for _, text in cut[0].rows),
        parts="\n".join(_section(number, part) for number, part in enumerate(cut[1:], 1)),
        last=clean(LAST),
        hash=clean(document["hash"]),
    )


def _height(parts: Sequence[Part], limits: tuple[int, int]) -> int:
    """How many lines they take, cut so; titles, and the space above them, are two."""
    return sum(2 + sum(-(-len(text) // ACROSS) for _, text in _cut(part, *limits).rows) for part in parts)


def _cut(part: Part, most: int, longest: int) -> Part:
    """A part, of which the rest is only counted."""
    rows = [(name, _short(plain(text), longest)) for name, text in part.rows[:most]]
    left = len(part.rows) - most
    return Part(part.title, rows + [("", f"and {left} more: the certificate has all of them")] * (left > 0))


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 25].rstrip()} … (the certificate has all)"


def _section(number: int, part: Part) -> str:
    rows = "\n".join(f"<tr><th>{clean(name)}</th><td>{clean(text)}</td></tr>" for name, text in part.rows)
    return f"<h2>{number}. {part.title}</h2>\n<table>\n{rows}\n</table>"
