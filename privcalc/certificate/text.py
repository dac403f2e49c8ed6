"""What a certificate says, in words: one list of lines, which text, report, sheet and record print whole.

Before them stand the warnings, which must be read first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from privcalc.attacks.replay.words import told
from privcalc.certificate.assumed import VOUCHED, in_words, private, words
from privcalc.certificate.consistency import wrong_form
from privcalc.certificate.schema import VERSION, changed, fields_of, public_in_words
from privcalc.enclosure import downward, upward
from privcalc.ledger.assumptions import every, kinds
from privcalc.relation import ADD_OR_REMOVE_ONE, Relation
from privcalc.run import Mechanism
from privcalc.serial import enclosure, relation_from_json, run_from_json

__all__ = ["LEVELS", "Fact", "box", "doubts", "facts", "headline", "levels", "plain", "show", "warnings"]

LEVELS = ("Parameter", "Unit", "Algorithm", "Implementation", "Trust", "Risk", "Outside", "Evidence")
"""The pyramid of NIST SP 800-226, from ε and the unit down to what is outside of any proof.

Attacks are in it because of EDPB Opinion 28/2024.
"""

RATES = (0.1, 0.01)
"""Rates of a blind guess at which reconstruction is asked for."""

FIRST = ("nobody", "caller", "always", "code", "ledger", "")
"""Whose word comes first in a report: the weakest."""

HIDDEN = {
    ADD_OR_REMOVE_ONE: "whether one record is in the data, and all that it says",
    Relation.REPLACE_ONE: "all that one record says; not how many records there are, which is public",
    Relation.ZERO_OUT: "what one record adds, against nothing; not how many records there are, which is public",
}
"""What one record's owner is protected from, by the relation."""

UNSAID = "one record"
"""A unit that nobody stated."""


class Fact(NamedTuple):
    """One line.

    Attributes:
        level: which of ``LEVELS`` it belongs to.
        label: what it is called.
        text: what it says, neither shortened nor made printable.
        by: who saw to it or said so, where that is asked.
    """

    level: str
    label: str
    text: str
    by: str = ""


def show(document: Mapping[str, Any], *, revoked: Sequence[str] = ()) -> str:
    """The text of ``privcalc show``: what must be read first, the box, and all lines, level by level.

    What a certificate says is never more than one line, so that it cannot pose as another.

    Args:
        document: of a certificate.
        revoked: who revoked it, and why.
    """
    with wrong_form():
        first, found = [*warnings(document, revoked)], levels(document)
        lines = [part for line in first for part in (line, "")]
        lines += [f"{fact.label:<18} {fact.text}" for fact in box(document, revoked)]
    for number, (title, rows) in enumerate(found.items(), 1):
        lines += ["", f"{number}. {title}", *(f"{fact.label:<15} {fact.text}".lstrip() for fact in rows)]
    return "\n".join(map(plain, lines))


def box(document: Mapping[str, Any], revoked: Sequence[str] = ()) -> list[Fact]:
    """What those who decide read: a verdict, ε in three digits, of whom, what is hidden, what nobody vouched for."""
    relation = relation_from_json(document["relation"])
    verdict = {
        "REVOKED: it no longer holds": revoked,
        "CHANGED: it is not what was made": changed(document),
        "NO PRIVACY CLAIM": document["seeded"],
        "NO GUARANTEE": private(document["assumptions"]),
        "REFUTED BY A REPLAY": [*refuted(document)],
        "NOT CHECKED: this is what the file says; privcalc verify checks it": True,
    }
    unsaid = dict.fromkeys(entry["name"] for entry in document["assumptions"]["needed"] if entry["by"] == "nobody")
    nobody = f"NOBODY: {', '.join(unsaid)}" if unsaid else "somebody, for all that can be vouched for"
    return [
        Fact("", "verdict", next(word for word, found in verdict.items() if found)),
        Fact("", "privacy loss", headline(document, digits=3)),
        Fact("", "one record is", unit(document)),
        Fact("", "hidden is", HIDDEN[relation] + (_number(document) if relation is ADD_OR_REMOVE_ONE else "")),
        Fact("", "who vouches", nobody, "nobody" if unsaid else ""),
    ]


def _number(document: Mapping[str, Any]) -> str:
    """What becomes of the number of records, where it is not the same for neighbours."""
    parts_of = [document, *document["parts"]]
    named = any("records" in part.get("public", {}) for part in parts_of)  # parts of 0.1.0 lack it
    sized = any(
        hasattr(each, "dataset_size") or "reports" in each.needs for each in every(run_from_json(document["run"]))
    )
    if named or sized:
        return "; not the number of records, which is taken as public"
    return "; and how many records there are"


def levels(document: Mapping[str, Any]) -> dict[str, list[Fact]]:
    """All lines, level by level; of what the proofs need what nobody saw to comes first.

    Args:
        document: of a certificate.
    """
    found = sorted(facts(document), key=lambda fact: FIRST.index(fact.by))
    rows = {level: [fact for fact in found if fact.level == level] for level in LEVELS}
    return {level: rows[level] for level in LEVELS if rows[level]}


def facts(document: Mapping[str, Any]) -> list[Fact]:
    """All that a certificate says, but for what must be read first (``warnings``), in the order of its text."""
    return [
        Fact("Parameter", "", headline(document)),
        Fact("Unit", "one record is", unit(document)),
        *_ran(document),
        *_numbers(document),
        *_missing(document),
        *_seen_to(document),
        *_tried(document),
        *_evidence(document),
    ]


def unit(document: Mapping[str, Any]) -> str:
    """What one record is, if anybody said it."""
    if document["unit"] != UNSAID:
        return str(document["unit"])
    tabled = any(ledger.get("persons") for ledger in document["ledgers"])
    return "not stated (of tables, all rows of one person)" if tabled else "not stated"


def _ran(document: Mapping[str, Any]) -> Iterator[Fact]:
    """What the numbers are of."""
    name = "Algorithm"
    yield Fact(name, "bound covers", words()["basis"][document["basis"]])
    run = run_from_json(document["run"])
    yield Fact(name, "for the run", str(run))
    for own in kinds(run):
        yield Fact(name, "", f"{own.kind or own.__name__}: {meaning(own)}")
    if document["recorded"] is not None and document["recorded"] != document["run"]:
        yield Fact(name, "recorded", str(run_from_json(document["recorded"])))
    if document["declared"] and document["basis"] != "declared":
        yield Fact(name, "drawn elsewhere", f"{run_from_json(document['declared'])} (see noise)")
    if document["stopping"]:
        yield Fact(name, "stopping", f'the caller declared: "{document["stopping"]}"')
    yield Fact("Implementation", "noise", str(document.get("noise", "real-valued")))
    if document["target"]:
        yield Fact(name, "target", ", ".join(f"{key} = {value!r}" for key, value in document["target"].items()))
    for number, part in enumerate(document["parts"], 1):
        stopping = f', the end declared "{part["stopping"]}"' if part["stopping"] else ""
        ran = f"by its {part['basis']} run, {part['status']}{stopping}: {run_from_json(part['run'])}"
        yield Fact(name, f"part {number}", ran)
        yield from (Fact(name, f"part {number}, public", text) for text in public_in_words(part.get("public", {})))


def meaning(own: type[Mechanism]) -> str:
    """The first line of a mechanism's description, of the public one of its family."""
    kind = next((each for each in own.__mro__ if each.__name__ == own.kind), own)
    return (kind.__doc__ or "").partition("\n")[0].replace("``", "")


def _numbers(document: Mapping[str, Any]) -> Iterator[Fact]:
    """The other numbers; and what attacks can do (``proofs/risk.md``), each on its safe side."""
    gdp, name, relation = document["gdp"], "Risk", relation_from_json(document["relation"])
    others = [point for point in document["curve"] if point["delta"] != document["guarantee"]["delta"]]
    curve = ", ".join(f"{stated('ε', p['epsilon'], document)} at δ = {at_most(p['delta'])}" for p in others)
    missed = ", ".join(
        f"{stated('false negative rate', p['beta'], document, 'lower')} at false positive rate "
        f"{downward(p['alpha'], 'g')}"
        for p in document["beta"]
    )
    mu, error = stated("μ", gdp["mu"], document), enclosure(document["advantage"], relation).upper
    yield Fact(name, "also", curve)
    yield Fact(name, "", f"GDP of {mu} except with probability {at_most(gdp['delta'])}")
    yield Fact(name, "", "of any attack, whatever it knows of other records:")
    yield Fact(name, "membership", stated("advantage (best TPR − FPR)", document["advantage"], document))
    yield Fact(name, "", missed)
    wrong = downward(bayes_risk(error), ".6g")
    yield Fact(name, "Bayes risk", f"at prior 1/2 it errs with a probability of {wrong} or more")
    known = {point["alpha"]: point["beta"] for point in document["beta"]}
    for rate in sorted(known.keys() & set(RATES), reverse=True):
        most = upward(reconstructed(enclosure(known[rate], relation, "lower").lower), ".6g")
        text = f"where a blind guess is right with {rate:.0%}, it is right with {most} or less"
        yield Fact(name, "reconstruction", text)


def _missing(document: Mapping[str, Any]) -> Iterator[Fact]:
    """What is taken as public, and what is outside."""
    if document["public"]:
        yield Fact("Unit", "public", ", ".join(public_in_words(document["public"])))
    missing = "; ".join(document["not_accounted"]) or "nothing declared; was anything tuned on private data?"
    yield Fact("Outside", "not accounted", missing)
    beyond = "collection, storage and access to the data, and what was released elsewhere: no proof covers them"
    yield Fact("Outside", "", beyond)
    yield Fact("Outside", "", "what all records show together, they show about everyone, also about who took no part")


def _seen_to(document: Mapping[str, Any]) -> Iterator[Fact]:
    """Who saw to what the proofs need: what was seen to, and what is assumed."""
    version = document["version"]
    sets = dict.fromkeys(repr(ledger["budget"]["dataset"]) for ledger in document["ledgers"] if ledger.get("budget"))
    beside = f"; what else draws on the budget of {', '.join(sets)} is counted there, not here" if sets else ""
    for entry in document["assumptions"]["needed"]:
        label = "seen to" if entry["by"] in ("ledger", "code") else "assumed"
        by = "" if entry["by"] in ("always", "nobody") else f"{VOUCHED[entry['by']]}; "
        said = in_words(entry) + beside * (entry["name"] == "other_releases")
        yield Fact("Trust", label, f"{said} ({by}{entry['page']})", entry["by"])
    unlisted = []
    if version == 2:
        unlisted.append("what version 2 does not list: rows, public records, first weights, other releases (NOT SAID)")
    if version in (2, 3) and document["basis"] != "composed":
        unlisted.append(f"what version {version} does not list: who clipped, and words of training (NOT SAID)")
    unlisted += document.get("idealised", []) if version < VERSION else []
    later = sorted(set(document) - {*fields_of(version), "replayed"})
    unlisted += [f"{name} = {str(document[name])[:200]}, which this version does not know" for name in later]
    yield from (Fact("Trust", "assumed", text, "always") for text in unlisted)


def _tried(document: Mapping[str, Any]) -> Iterator[Fact]:
    """What was proved, and what was replayed."""
    for proof in document["confirmed"]:
        claim = f"ε ≤ {upward(proof['epsilon'], '.9g')} at δ = {at_most(proof['delta'])} by {proof['route']}, it says"
        yield Fact("Evidence", "proved", claim)
    if document["basis"] != "composed" and not document.get("replayed"):
        nothing = "nothing: no program was tried on neighbouring data (privcalc.attacks.replay)"
        yield Fact("Evidence", "replayed", nothing)
    yield from (Fact("Evidence", "replayed", told(section)) for section in document.get("replayed", []))


def _evidence(document: Mapping[str, Any]) -> Iterator[Fact]:
    """What it can be checked with."""
    for ledger in document["ledgers"]:
        if "labels" in ledger:
            yield Fact("Evidence", "labels", "; ".join(ledger["labels"]))
        yield Fact("Evidence", "ledger", f"{ledger['lines']} lines, hash {ledger['hash']}")
        if budget := ledger.get("budget"):
            spent = f"that of the data set {budget['dataset']!r}, as reservation {budget['reservation']}"
            where = f"line {budget['lines']} of its history has hash {budget['hash']}"
            yield Fact("Algorithm", "budget", f"{spent}; {where}")
    yield Fact("Evidence", "proofs", ", ".join(document["proofs"]))
    yield Fact("Evidence", "privcalc", document["privcalc"])


def warnings(document: Mapping[str, Any], revoked: Sequence[str] = ()) -> Iterator[str]:
    """What must be read before anything else."""
    yield from (f"REVOKED: {line}" for line in revoked)
    if changed(document):
        yield "CHANGED: this text does not fit its own hash, and cannot be relied on."
    if document["seeded"]:
        yield "REPRODUCIBLE RUN: NO PRIVACY CLAIM. It draws from a seed; what follows holds for secret noise only."
    if document["basis"] == "composed" and document["version"] == 2:
        yield (
            "WITHOUT ITS PARTS: this composition was written by privcalc 0.1.0, "
            "and cannot be checked from this file alone."
        )
    given = [part.get("public", {}).get("records") for part in [document, *document["parts"]]]  # parts of 0.1.0 lack it
    known = max((n for n in given if isinstance(n, int)), default=0)
    if (delta := document["guarantee"]["delta"]) * known >= 1:
        yield (
            f"WEAK: δ = {at_most(delta)} is not below 1/{known}, one over the records: one could be published, "
            "at random."
        )
    for section in refuted(document):
        yield (
            f"REFUTED BY A REPLAY: {section['process']} does not do what is described here "
            f"({', '.join(section['found'])})."
        )
    for name in private(document["assumptions"]):
        yield f"NO GUARANTEE: {name} is private: what began with private data, without noise, has no ε."
    yield from opened(document)
    yield from (f"WARNED: {line}." for line in warned(document))
    yield from (f"EMPTY: {line}." for line in unused(document))
    yield from (f"OTHER RECORDS: {line}." for line in of_others(document))


def refuted(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Replays that found something."""
    for part in [document, *document["parts"]]:
        yield from (each for each in part.get("replayed", []) if each["found"])


def doubts(document: Mapping[str, Any]) -> Iterator[str]:
    """What may not hold, as far as this text shows it."""
    yield from (f"{name} is private, so that nothing is proved: ε = ∞" for name in private(document["assumptions"]))
    yield from (f"the run was warned: {line}" for line in warned(document))
    yield from unused(document)
    yield from of_others(document)


def warned(document: Mapping[str, Any]) -> Iterator[str]:
    """What was warned of while it ran, as far as its ledgers may tell it, each once."""
    yield from dict.fromkeys(
        text.removesuffix(".") for ledger in document["ledgers"] for text in ledger.get("warnings", [])
    )


def of_others(document: Mapping[str, Any]) -> Iterator[str]:
    """What is said about other records than the rest: public numbers that differ, or do not fit a sampler's."""
    parts_of = [document, *document["parts"]]
    known = sorted({n for part in parts_of if isinstance(n := part.get("public", {}).get("records"), int)})
    if len(known) > 1:
        yield (
            f"its parts are said to be about {', '.join(map(str, known))} records: what is certified together is about "
            "the same ones, whose public number is one. Certify other records by themselves; if some came or went, "
            "this is about those who were there all the time"
        )
    runs = (run_from_json(part["run"]) for part in parts_of)
    sizes = {size for each in every(*runs) if (size := getattr(each, "dataset_size", None)) is not None}
    if known and max(sizes, default=0) > known[-1] + 1:  # a neighbour has one more
        yield (
            f"dataset_size = {max(sizes)} is more than the {known[-1]} records that are public: with fewer of them "
            "each is drawn more often, and ε does not hold"
        )


def unused(document: Mapping[str, Any]) -> Iterator[str]:
    """What holds of a ledger that was closed without a charge: it may have been forgotten by what ran."""
    if any(part["status"] == "closed" and part.get("recorded") == [] for part in [document, *document["parts"]]):
        yield (
            "this ledger recorded nothing: nothing was released through it; if training ran without it, this "
            "certificate does not cover it"
        )


def opened(document: Mapping[str, Any]) -> Iterator[str]:
    """What holds of a ledger that was not closed, or whose end is missing."""
    if document["status"] != "closed":
        within = {"plan": "ITS PLAN", "cap": "ITS CAP"}.get(document["basis"], "ITS PARTS' PLANS AND CAPS")
        yield f"OPEN, WITHIN {within}: {headline(document)} holds for everything that can still be released from it."
    for of in uncomposed(document):
        yield (
            f"TO COMPOSE: it began from a model of the same records, {of}: what counts is pc.certify([that one, "
            "this one], …)."
        )


def uncomposed(document: Mapping[str, Any]) -> Iterator[str]:
    """The certificates whose models its runs began from, and that it does not contain."""
    parts_of = document["parts"] or [document]
    there = {part["hash"] for part in parts_of}
    for part in parts_of:
        named = [
            each for ledger in part.get("ledgers", []) for each in ledger.get("start", [])
        ]  # parts of 0.1.0 lack both
        yield from (f"whose certificate has hash {each}" for each in named if each not in there)
        word = part.get("assumptions", {"declared": {}})["declared"].get("start")
        if not named and word in ("certificate", "released"):  # a bare word names none of the others
            yield "whose certificate is not named"


Safe = Literal["lower", "upper"]


def stated(symbol: str, value: Mapping[str, Any], document: Mapping[str, Any], safe: Safe = "upper") -> str:
    """One number of a certificate, its safe end first: of β the lower one."""
    return enclosure(value, relation_from_json(document["relation"]), safe).stated(symbol)


def at_most(value: float) -> str:
    """A δ, in six digits or few more."""
    return upward(value, "g")


def headline(document: Mapping[str, Any], *, digits: int | None = None) -> str:
    """The claim in one line: with all digits, or few, rounded up."""
    claim = document["guarantee"]
    bound = stated("ε", claim["epsilon"], document)
    if digits is not None:
        found = enclosure(claim["epsilon"], relation_from_json(document["relation"]))
        bound = f"ε ≤ {'∞' if found.upper == math.inf else format(found, f'.{digits}g')}"
    return f"{bound} at δ = {at_most(claim['delta'])}, {relation_from_json(document['relation'])}"


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


def plain(line: str) -> str:
    """Without line ends and other control characters."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
