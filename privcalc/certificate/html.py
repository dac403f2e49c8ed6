"""A certificate as web pages that load nothing: with curves, or its report as one sheet of paper.

``privcalc show CERT --html OUT.html`` needs the extra ``pictures``; with ``--report`` it writes the sheet: printed, it
is one A4 page. What is long is cut there, and says so: a certificate may have more than fits a page.

What a certificate says may come from a stranger: all of it is escaped, pictures are data and hold none of its words,
and the page forbids itself scripts and everything from elsewhere (``Content-Security-Policy``).
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

from privcalc.certificate.certificate import Certificate
from privcalc.certificate.consistency import wrong_form
from privcalc.certificate.text import Fact, box, headline, levels, plain, warnings
from privcalc.serial import enclosure
from privcalc.tables import profile_table, tradeoff_of_profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["clean", "embedded", "page", "sheet", "template"]

LINES, BOX, ACROSS = 84, 9, 118
"""What fits the sheet: lines, those of them that the box takes, and characters in each, with room for wide letters."""

CUTS = ((40, 600), (24, 360), (16, 240), (12, 118), (8, 118), (6, 118))
"""Most rows of a part, and most characters of a row; the first that fits."""


def page(certificate: Certificate, *, revoked: Sequence[str] = ()) -> str:
    """The certificate as an HTML page; its form and hash are checked, no more.

    The curves are computed anew from its run.

    Args:
        certificate: any certificate.
        revoked: who revoked it, and why.

    Raises:
        PrivcalcError: if it has not the form of a certificate, its run has no guarantee, or matplotlib is missing.

    Example:
        >>> import privcalc as pc
        >>> text = page(pc.certify(pc.Gaussian(noise_multiplier=20.0) * 206, delta=1e-5))
        >>> "<h1>Privacy certificate: ε ≤ 3 at δ = 1e-05, add-or-remove-one</h1>" in text
        True
    """
    with wrong_form():
        document = certificate.document
        return template("certificate").substitute(
            kind="Privacy certificate",
            **_head(document, revoked),
            figures="\n".join(embedded(*figure) for figure in _figures(certificate)),
            parts=_sections(levels(document)),
            # ASCII: what would pose as other text is written as escapes, which are the same JSON.
            document=escape(json.dumps(document, indent=1)),
        )


def _head(document: Mapping[str, Any], revoked: Sequence[str]) -> dict[str, str]:
    """What page and sheet begin with, and the hash."""
    return {
        "title": clean(headline(document, digits=3)),
        "warnings": "\n".join(f'<p class="warning">{clean(line)}</p>' for line in warnings(document, revoked)),
        "box": "\n".join(map(_row, box(document, revoked))),
        "hash": clean(document["hash"]),
    }


def _figures(certificate: Certificate) -> Iterable[tuple[Figure, str]]:
    from privcalc import pictures  # slow to import
    from privcalc.pictures.curves import ALPHAS, reach

    document, run, relation = certificate.document, certificate.run, certificate.relation
    claim = document["guarantee"]
    # Numbers before they reach a picture, in which a text would be drawn.
    points = [(enclosure(p["epsilon"], relation).upper, float(p["delta"])) for p in [*document["curve"], claim]]
    betas = [(float(p["alpha"]), enclosure(p["beta"], relation).lower) for p in document["beta"]]

    # Trade-off curves take many answers each, and some runs seconds for one:
    # the profile's tangents are enough for a picture.
    profile = profile_table(run, reach(run, relation), relation=relation)
    tradeoff = tradeoff_of_profile(profile, ALPHAS)
    yield (
        pictures.profile(profile, relation=relation, points=points),
        "The privacy profile: the run is (ε, δ)-private for every point on or above the curve.",
    )
    yield (
        pictures.tradeoff(tradeoff, relation=relation, points=betas),
        "The trade-off curve of that profile: no test whether the record was used has error rates in the coloured "
        "part.",
    )


def embedded(figure: Figure, caption: str) -> str:
    """As an image of its own, in which nothing runs; the same figure always gives the same text."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "privcalc"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    data = base64.b64encode(buffer.getvalue()).decode()
    words = clean(caption)
    picture = f'<img alt="{words}" src="data:image/svg+xml;base64,{data}">'
    return f"<figure>{picture}<figcaption>{words}</figcaption></figure>"


def sheet(document: Mapping[str, Any], *, revoked: Sequence[str] = ()) -> str:
    """The report as HTML, for one sheet of paper.

    Args:
        document: of a certificate.
        revoked: who revoked it, and why.
    """
    with wrong_form():
        head, parts = _head(document, revoked), levels(document)
        first = [Fact("", "", line) for line in warnings(document, revoked)]
    room = LINES - BOX - 2 * len(first)
    limits = next((each for each in CUTS if _height(parts, each) + _height({"": first}, each) <= room), CUTS[-1])
    cut = {title: _cut(rows, *limits) for title, rows in parts.items()}
    head["warnings"] = "\n".join(f'<p class="warning">{clean(row.text)}</p>' for row in _cut(first, *limits))
    return template("sheet").substitute(kind="Privacy report", **head, parts=_sections(cut))


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


def _sections(parts: Mapping[str, Sequence[Fact]]) -> str:
    return "\n".join(
        f"<h2>{number}. {title}</h2>\n<table>\n{chr(10).join(map(_row, rows))}\n</table>"
        for number, (title, rows) in enumerate(parts.items(), 1)
    )


def _row(fact: Fact) -> str:
    """A line; what nobody said stands out."""
    text = clean(fact.text)
    for word in ("NOT SAID", "NOBODY"):
        text = text.replace(word, f"<strong>{word}</strong>") if fact.by == "nobody" else text
    return f"<tr><th>{clean(fact.label)}</th><td>{text}</td></tr>"


@cache
def template(name: str) -> Template:
    """A page of ``pages/``, after the lines that all of them begin with, which ask for ``kind`` and ``title``."""
    folder = files(__package__) / "pages"
    return Template("".join((folder / f"{part}.html").read_text(encoding="utf-8") for part in ("head", name)))


def clean(value: object) -> str:
    """Words for a page, on one line."""
    return escape(plain(str(value)))
