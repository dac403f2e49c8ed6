"""A certificate as one self-contained web page: ``privcalc show CERT --html OUT.html``. Needs the extra ``pictures``.

What a certificate says may come from a stranger: all of it is escaped, pictures are data and hold none of its words,
and the page forbids itself scripts and everything from elsewhere (``Content-Security-Policy``).
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterable, Mapping
from html import escape
from string import Template
from typing import TYPE_CHECKING, Any

from privcalc import pictures
from privcalc.certificate.certificate import Certificate
from privcalc.certificate.consistency import wrong_form
from privcalc.certificate.facts import facts
from privcalc.certificate.frame import clean, template, warned
from privcalc.certificate.report import show
from privcalc.certificate.text import at_most, headline, stated, warnings
from privcalc.pictures.curves import ALPHAS, reach
from privcalc.relation import Relation
from privcalc.rounding import downward
from privcalc.run import Mechanism
from privcalc.serial import enclosure, parts
from privcalc.tables import profile_table, tradeoff_of_profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["page"]

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
        "unit": clean(document["unit"]),
        "neighbours": Template(NEIGHBOURS[relation]).safe_substitute(number=clean(_number(document))),
        "curve": _rows((at_most(p["delta"]), stated("ε", p["epsilon"], document)) for p in [claim, *document["curve"]]),
        "beta": _rows((downward(p["alpha"], "g"), stated("β", p["beta"], document, "lower")) for p in document["beta"]),
        "advantage": clean(stated("advantage", document["advantage"], document)),
        "figures": "\n".join(embedded(*figure) for figure in figures),
        "claimed": _items(
            f"{each.label}: {each.text}" for each in found if each.level == "Algorithm" or each.label == "public"
        ),
        "steps": _items(_steps(certificate)),
        "seen": _items(each.text for each in found if each.label == "seen to"),
        "assumed": _items(each.text for each in found if each.label == "assumed").replace(
            "NOT SAID", "<b>not said</b>"
        ),
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

    def of(mechanism: Mechanism) -> Iterable[str]:
        own = type(mechanism)
        kind = next(
            (each for each in own.__mro__ if each.__name__ == own.kind), own
        )  # the public one of those of its family
        yield f"{kind.__name__}: {(kind.__doc__ or '').partition(chr(10))[0]}"
        for part in parts(mechanism):
            yield from of(part)

    found = dict.fromkeys(line for mechanism, _ in certificate.run.entries for line in of(mechanism))
    return [line.replace("``", "") for line in found]


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
