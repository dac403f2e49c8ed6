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
from privcalc.certificate.text import LAST, Fact, at_most, facts, headline, levels, plain, show, stated, unit, warnings
from privcalc.enclosure import downward
from privcalc.ledger.assumptions import kinds
from privcalc.relation import Relation
from privcalc.serial import enclosure
from privcalc.tables import profile_table, tradeoff_of_profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["clean", "embedded", "page", "sheet", "template"]

LINES, ACROSS = 84, 118
"""What fits the sheet: lines, and characters in each of them, with room to spare for wide letters."""

CUTS = ((40, 600), (24, 360), (16, 240), (12, 118), (8, 118), (6, 118))
"""Most rows of a part, and most characters of a row; the first that fits."""

NEIGHBOURS = {
    Relation.ADD_OR_REMOVE_ONE: "with it and without it; $number",
    Relation.REPLACE_ONE: "with it and with any other in its place; how many records there are is public",
    Relation.ZERO_OUT: "with what it adds and with zero in its place; how many records there are is public",
}


def page(certificate: Certificate) -> str:
    """The certificate as an HTML page; its form and hash are checked, no more.

    The curves are computed anew from its run.

    Args:
        certificate: any certificate.

    Raises:
        PrivcalcError: if it has not the form of a certificate, its run has no guarantee, or matplotlib is missing.

    Example:
        >>> import privcalc as pc
        >>> text = page(pc.certify(pc.Gaussian(noise_multiplier=20.0) * 206, delta=1e-5))
        >>> "<h1>Privacy certificate: ε ≤ 2.99298286328 at δ = 1e-05, add-or-remove-one</h1>" in text
        True
    """
    with wrong_form():
        return template("certificate").substitute(_fields(certificate))


def _fields(certificate: Certificate) -> dict[str, str]:
    from privcalc import pictures  # slow to import
    from privcalc.pictures.curves import ALPHAS, reach

    document, run, relation = certificate.document, certificate.run, certificate.relation
    claim, found = document["guarantee"], facts(document)
    # Numbers before they reach a picture, in which a text would be drawn.
    points = [(enclosure(p["epsilon"], relation).upper, float(p["delta"])) for p in [*document["curve"], claim]]
    betas = [(float(p["alpha"]), enclosure(p["beta"], relation).lower) for p in document["beta"]]

    # Trade-off curves take many answers each, and some runs seconds for one:
    # the profile's tangents are enough for a picture.
    profile = profile_table(run, reach(run, relation), relation=relation)
    tradeoff = tradeoff_of_profile(profile, ALPHAS)
    figures = (
        (
            pictures.profile(profile, relation=relation, points=points),
            "The privacy profile: the run is (ε, δ)-private for every point on or above the curve.",
        ),
        (
            pictures.tradeoff(tradeoff, relation=relation, points=betas),
            "The trade-off curve of that profile: no test whether the record was used has error "
            "rates in the coloured part.",
        ),
    )
    return {
        "kind": "Privacy certificate",
        "title": clean(headline(document)),
        "warnings": warned(warnings(document)),
        "unit": clean(unit(document)),
        "neighbours": Template(NEIGHBOURS[relation]).safe_substitute(number=clean(_number(document))),
        "curve": _rows((at_most(p["delta"]), stated("ε", p["epsilon"], document)) for p in [claim, *document["curve"]]),
        "beta": _rows((downward(p["alpha"], "g"), stated("β", p["beta"], document, "lower")) for p in document["beta"]),
        "advantage": clean(stated("advantage", document["advantage"], document)),
        "figures": "\n".join(embedded(*figure) for figure in figures),
        "claimed": _items(
            f"{each.label}: {each.text}" for each in found if each.level == "Algorithm" or each.label == "public"
        ),
        "steps": _items(_steps(certificate)),
        "seen": _listed("This was seen to:", (each.text for each in found if each.label == "seen to")),
        "assumed": _listed("And this is assumed:", (each.text for each in found if each.label == "assumed")),
        "unclaimed": _items(
            f"Declared by the caller as not accounted for: {text}" for text in document["not_accounted"]
        ),
        "commands": _text_lines(_commands(document)),
        "hash": clean(document["hash"]),
        "proofs": clean(", ".join(document["proofs"])),
        "text": escape(show(document)),
        # ASCII: what would pose as other text is written as escapes, which are the same JSON.
        "document": escape(json.dumps(document, indent=1)),
    }


def _number(document: Mapping[str, Any]) -> str:
    """What becomes of the number of records, where it is not the same for neighbours."""
    known = [part.get("public", {}).get("records") for part in (document, *document["parts"])]
    if all(each is None for each in known):
        return "how many records there are is protected, too"
    return "the number of records that is taken as public below is one and the same for both, and is not protected"


def _steps(certificate: Certificate) -> list[str]:
    """What each mechanism of the run does, once."""
    found = []
    for own in kinds(certificate.run):
        kind = next((each for each in own.__mro__ if each.__name__ == own.kind), own)  # the public one of its family
        found.append(f"{kind.__name__}: {(kind.__doc__ or '').partition(chr(10))[0]}".replace("``", ""))
    return list(dict.fromkeys(found))


def _commands(document: Mapping[str, Any]) -> list[str]:
    ledger = " LEDGER" * len(document["ledgers"])
    found = [
        f"privcalc verify CERTIFICATE{ledger}",
        "privcalc verify CERTIFICATE --rigorous    # a proof by interval arithmetic",
    ]
    if ledger:
        found[0] += f"    # hash of the ledger: {', '.join(entry['hash'] for entry in document['ledgers'])}"
    return found


def _text_lines(lines: Iterable[str]) -> str:
    return "\n".join(clean(line) for line in lines)


def _listed(title: str, lines: Iterable[str]) -> str:
    """A list under its title; without lines neither. What was not said stands out."""
    found = _items(lines).replace("NOT SAID", "<b>NOT SAID</b>")
    return f"<p>{title}</p>\n<ul>\n{found}\n</ul>" if found else ""


def _items(lines: Iterable[str]) -> str:
    return "\n".join(f"<li>{clean(line)}</li>" for line in lines)


def _rows(rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join("<tr>" + "".join(f"<td>{clean(cell)}</td>" for cell in row) + "</tr>" for row in rows)


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


@cache
def template(name: str) -> Template:
    """A page of ``pages/``, after the lines that all of them begin with, which ask for ``kind`` and ``title``."""
    folder = files(__package__) / "pages"
    return Template("".join((folder / f"{part}.html").read_text(encoding="utf-8") for part in ("head", name)))


def clean(value: object) -> str:
    """Words for a page, on one line."""
    return escape(plain(str(value)))


def warned(lines: Iterable[str]) -> str:
    """What must be read before anything else."""
    return "\n".join(f'<p class="warning">{clean(line)}</p>' for line in lines)
