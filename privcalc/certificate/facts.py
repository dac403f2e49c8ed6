"""What a certificate says, as one list of lines: text, report, sheet, page and record are printed from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from privcalc.attacks.replay.report import told
from privcalc.certificate.assumed import VOUCHED, in_words
from privcalc.certificate.schema import VERSION, fields_of
from privcalc.certificate.text import at_most, headline, stated
from privcalc.ledger import digests
from privcalc.rounding import downward, upward
from privcalc.serial import enclosure, relation_from_json, run_from_json

__all__ = ["LEVELS", "Fact", "facts"]

LEVELS = ("Parameter", "Unit", "Algorithm", "Implementation", "Trust", "Risk", "Outside", "Evidence")
"""The pyramid of NIST SP 800-226, from ε and the unit down to what is outside of any proof.

Attacks are in it because of EDPB Opinion 28/2024.
"""

BASES = {
    "plan": "the declared plan, which what was recorded stays within, wherever the run stopped, if what decided that "
    "is public or was released before",
    "cap": "the cap, a privacy filter, which holds although steps and their number may have depended on outputs, but "
    "on nothing private that was not released",
    "recorded": "what was recorded; the caller vouches that it, and the end, did not depend on any output",
    "declared": "a run that was described by hand; no ledger was kept",
    "composed": "the composition of several certified runs on the same records, "
    "none planned from the outputs of another",
}

RATES = (0.1, 0.01)
"""False positive rates at which attacks are asked for."""


class Fact(NamedTuple):
    """One line.

    Attributes:
        level: which of ``LEVELS`` it belongs to.
        label: what it is called.
        text: what it says, neither shortened nor made printable.
        weight: "both", or printed in the "text" of all that the certificate has only, or in the "report" only, which is
            one page.
        by: who saw to it or said so, where that is asked.
    """

    level: str
    label: str
    text: str
    weight: Literal["both", "text", "report"] = "both"
    by: str = ""


def facts(document: Mapping[str, Any]) -> list[Fact]:
    """All that a certificate says, but for what must be read first (``text.warnings``), in the order of its text."""
    return [
        Fact("Parameter", "", headline(document)),
        Fact("Unit", "one record is", document["unit"]),
        *_ran(document),
        *_numbers(document),
        *_missing(document),
        *_seen_to(document),
        *_tried(document),
        *_evidence(document),
    ]


def _ran(document: Mapping[str, Any]) -> Iterator[Fact]:
    """What the numbers are of."""
    name = "Algorithm"
    yield Fact(name, "it holds for", BASES[document["basis"]])
    yield Fact(name, "for the run", str(run_from_json(document["run"])))
    if document["recorded"] is not None and document["recorded"] != document["run"]:
        yield Fact(name, "recorded", str(run_from_json(document["recorded"])), "text")
    if document["declared"] and document["basis"] != "declared":
        outside = f"{run_from_json(document['declared'])} (drawn by other code, on the caller's word)"
        yield Fact(name, "declared only", outside, "text")
    if document["stopping"]:
        yield Fact(name, "stopping", f'the caller declared: "{document["stopping"]}"')
    drawn = document["releases"] if "releases" in document else document["basis"] != "composed"
    yield Fact("Implementation", "noise", str(document.get("noise", "real-valued")), "both" if drawn else "report")
    if document["target"]:
        yield Fact(name, "target", ", ".join(f"{key} = {value!r}" for key, value in document["target"].items()), "text")
    for part in document["parts"]:
        stopping = f', the end declared "{part["stopping"]}"' if part["stopping"] else ""
        ran = f"by its {part['basis']} run, {part['status']}{stopping}: {run_from_json(part['run'])}"
        yield Fact(name, "part", ran, "text")
        for text in digests.in_words(part.get("public", {})):
            yield Fact(name, "part's public", text, "text")


def _numbers(document: Mapping[str, Any]) -> Iterator[Fact]:
    """The other numbers; and what attacks can do (``proofs/risk.md``), each on its safe side."""
    gdp, name = document["gdp"], "Risk"
    curve = ", ".join(f"{stated('ε', p['epsilon'], document)} at δ = {at_most(p['delta'])}" for p in document["curve"])
    missed = ", ".join(
        f"{stated('false negative rate', p['beta'], document, 'lower')} at false positive rate "
        f"{downward(p['alpha'], 'g')}"
        for p in document["beta"]
    )
    yield Fact(name, "also", curve, "text")
    yield Fact(
        name, "", f"GDP of {stated('μ', gdp['mu'], document)} except with probability {at_most(gdp['delta'])}", "text"
    )
    yield Fact(name, "", stated("advantage (best TPR − FPR)", document["advantage"], document), "text")
    yield Fact(name, "", missed, "text")

    relation = relation_from_json(document["relation"])
    known = {point["alpha"]: point["beta"] for point in document["beta"]}
    yield Fact(name, "", "of any attack, whatever it knows of other records", "report")
    for rate in sorted(known.keys() & set(RATES), reverse=True):
        missed = stated("misses β", known[rate], document, "lower")
        yield Fact(name, "membership", f"at {rate:.0%} false positives it {missed} of those who are there", "report")
    error = downward(bayes_risk(enclosure(document["advantage"], relation).upper), ".6g")
    yield Fact(name, "Bayes risk", f"at prior 1/2 it errs with a probability of {error} or more", "report")
    for rate in sorted(known.keys() & set(RATES), reverse=True):
        most = upward(reconstructed(enclosure(known[rate], relation, "lower").lower), ".6g")
        text = f"where a blind guess is right with {rate:.0%}, it is right with {most} or less"
        yield Fact(name, "reconstruction", text, "report")


def _missing(document: Mapping[str, Any]) -> Iterator[Fact]:
    """What is taken as public, and what is outside."""
    if document["public"]:
        yield Fact("Unit", "public", ", ".join(digests.in_words(document["public"])), "text")
    missing = "; ".join(document["not_accounted"]) or "nothing declared; was anything tuned on private data?"
    yield Fact("Outside", "not accounted", missing)
    beyond = "collection, storage and access to the data, and what was released elsewhere: no proof covers them"
    yield Fact("Outside", "", beyond, "report")


def _seen_to(document: Mapping[str, Any]) -> Iterator[Fact]:
    """Who saw to what the proofs need: what was seen to, and what is assumed."""
    version = document["version"]
    for entry in document["assumptions"]["needed"]:
        label = "seen to" if entry["by"] in ("ledger", "code") else "assumed"
        by = "" if entry["by"] in ("always", "nobody") else f"{VOUCHED[entry['by']]}; "
        yield Fact("Trust", label, f"{in_words(entry)} ({by}{entry['page']})", by=entry["by"])
    unlisted = []
    if version == 2:
        unlisted.append("what version 2 does not list: rows, public records, first weights, other releases (NOT SAID)")
    if version in (2, 3) and document["basis"] != "composed":
        unlisted.append(f"what version {version} does not list: who clipped, and words of training (NOT SAID)")
    unlisted += document.get("idealised", []) if version < VERSION else []
    later = sorted(set(document) - {*fields_of(version), "replayed"})
    unlisted += [f"{name} = {str(document[name])[:200]}, which this version does not know" for name in later]
    for text in unlisted:
        yield Fact("Trust", "assumed", text, by="always")


def _tried(document: Mapping[str, Any]) -> Iterator[Fact]:
    """What was proved, and what was replayed."""
    for proof in document["confirmed"]:
        claim = f"ε ≤ {upward(proof['epsilon'], '.9g')} at δ = {at_most(proof['delta'])} by {proof['route']}, it says"
        yield Fact("Evidence", "proved", claim)
    if document["basis"] != "composed" and not document.get("replayed"):
        nothing = "nothing: no program was tried on neighbouring data (privcalc.attacks.replay)"
        yield Fact("Evidence", "replayed", nothing)
    for section in document.get("replayed", []):
        yield Fact("Evidence", "replayed", told(section))


def _evidence(document: Mapping[str, Any]) -> Iterator[Fact]:
    """What it can be checked with."""
    for ledger in document["ledgers"]:
        if "labels" in ledger:
            yield Fact("Evidence", "labels", "; ".join(ledger["labels"]), "text")
        yield Fact("Evidence", "ledger", f"{ledger['lines']} lines, hash {ledger['hash']}")
        if "budget" in ledger:
            yield Fact("Algorithm", "budget", spends(ledger["budget"]))
    yield Fact("Evidence", "proofs", ", ".join(document["proofs"]), "text")
    yield Fact("Evidence", "privcalc", document["privcalc"], "text")


def spends(budget: Mapping[str, Any]) -> str:
    """Of which budget a ledger spends."""
    return (
        f"that of the data set {budget['dataset']!r}, as reservation {budget['reservation']}; line {budget['lines']} "
        f"of its history has hash {budget['hash']}"
    )


def bayes_risk(advantage: float) -> float:
    """(1 − advantage)/2, rounded down.

    Example:
        >>> 0.24 < bayes_risk(0.5) <= 0.25
        True
    """
    return max(math.nextafter((1 - advantage) / 2, 0.0), 0.0)


def reconstructed(beta: float) -> float:
    """1 − β at the rate of the blind guess, rounded up.

    Example:
        >>> 0.25 <= reconstructed(0.75) < 0.2501
        True
    """
    return min(math.nextafter(1 - beta, 1.0), 1.0)
