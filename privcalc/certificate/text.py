"""How a certificate is put in words: its claim in one line, what must be read first, and what may not hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from privcalc.certificate.assumed import private
from privcalc.certificate.schema import digest
from privcalc.rounding import upward
from privcalc.serial import enclosure, parts, relation_from_json, run_from_json


def plain(line: str) -> str:
    """Without line ends and other control characters."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def warnings(document: Mapping[str, Any]) -> Iterator[str]:
    """What must be read before anything else."""
    if document["hash"] != digest(document):
        yield "CHANGED: this text does not fit its own hash, and cannot be relied on."
    if document["seeded"]:
        yield (
            "REPRODUCIBLE RUN: NO PRIVACY CLAIM. The noise came from a seed; what follows holds for secret noise only."
        )
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
    for section in [
        each for part in [document, *document["parts"]] for each in part.get("replayed", []) if each["found"]
    ]:
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
    runs = [run_from_json(part["run"]) for part in parts_of]
    steps = [each for run in runs for mechanism, _ in run.entries for each in (mechanism, *parts(mechanism))]
    sizes = {size for each in steps if (size := getattr(each, "dataset_size", None)) is not None}
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


def headline(document: Mapping[str, Any]) -> str:
    """The claim in one line."""
    claim = document["guarantee"]
    bound = stated("ε", claim["epsilon"], document)
    return f"{bound} at δ = {at_most(claim['delta'])}, {relation_from_json(document['relation'])}"
