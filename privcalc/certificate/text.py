"""A certificate as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from privcalc.certificate.schema import digest
from privcalc.ledger.assumptions import in_words
from privcalc.serial import enclosure, relation_from_json, run_from_json

BASES = {
    "plan": "the declared plan, which what was recorded stays within, wherever and for whatever reason the run stopped",
    "cap": "the cap, a privacy filter, which holds although steps and their number may have depended on outputs",
    "recorded": "what was recorded; the caller vouches that it, and the end, did not depend on any output",
    "declared": "a run that was described by hand; no ledger was kept",
    "composed": "the composition of several certified runs on the same records, none planned from the outputs of another",
}

VOUCHED = {"ledger": "enforced by the ledger", "caller": "declared by the caller", "nobody": "nobody said so"}


def show(document: Mapping[str, Any]) -> str:
    """The text of ``privcalc show``. What a certificate says is never more than one line, so that it cannot pose as another."""
    return "\n".join(plain(line) for line in _lines(document))


def plain(line: str) -> str:
    """Without line ends and other control characters."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def warnings(document: Mapping[str, Any]) -> Iterator[str]:
    """What must be read before anything else."""
    if document["hash"] != digest(document):
        yield "CHANGED: this text does not fit its own hash, and cannot be relied on."
    if document["seeded"]:
        yield "REPRODUCIBLE RUN: NO PRIVACY CLAIM. The noise came from a seed; what follows holds for secret noise only."
    if document["basis"] == "composed" and document["version"] == 2:
        yield "WITHOUT ITS PARTS: this composition was written by privcalc 0.1.0, and cannot be checked from this file alone."
    if document["status"] != "closed":
        yield "OPEN: AT LEAST THIS MUCH. The ledger was not closed, or its end is missing; more may have been drawn."


def _lines(document: Mapping[str, Any]) -> list[str]:
    relation = relation_from_json(document["relation"])

    def number(value: Mapping[str, Any]) -> str:
        return str(enclosure(value, relation))

    claim, gdp = document["guarantee"], document["gdp"]
    lines = [part for line in warnings(document) for part in (line, "")]
    lines += [
        f"ε = {number(claim['epsilon'])} at δ = {claim['delta']:g}, {relation}",
        f"one record is   {document['unit']}",
        f"it holds for    {BASES[document['basis']]}",
        f"for the run     {run_from_json(document['run'])}",
    ]
    if document["recorded"] is not None and document["recorded"] != document["run"]:
        lines.append(f"recorded        {run_from_json(document['recorded'])}")
    if document["declared"] and document["basis"] != "declared":
        lines.append(f"declared only   {run_from_json(document['declared'])} (drawn by other code, on the caller's word)")
    if document["stopping"]:
        lines.append(f'stopping        the caller declared: "{document["stopping"]}"')
    if document["target"]:
        lines.append("target          " + ", ".join(f"{name} = {value!r}" for name, value in document["target"].items()))
    for part in document["parts"]:
        stopping = f', the end declared "{part["stopping"]}"' if part["stopping"] else ""
        lines.append(f"part            by its {part['basis']} run, {part['status']}{stopping}: {run_from_json(part['run'])}")
        lines += [f"part's public   {name} = {value}" for name, value in part.get("public", {}).items()]
    lines += [
        "",
        "also            " + ", ".join(f"ε = {number(p['epsilon'])} at δ = {p['delta']:g}" for p in document["curve"]),
        f"                {number(gdp['mu'])}-GDP except with probability {gdp['delta']:g}",
        f"                advantage (best TPR − FPR) {number(document['advantage'])}",
        "                least false negative rate "
        + ", ".join(f"{number(point['beta'])} at false positive rate {point['alpha']:g}" for point in document["beta"]),
        "",
    ]
    if document["public"]:
        lines.append("public          " + ", ".join(f"{name} = {value}" for name, value in document["public"].items()))
    lines.append(
        "not accounted   " + ("; ".join(document["not_accounted"]) or "nothing declared; was anything tuned on private data?")
    )
    lines += [
        f"assumed         {in_words(entry)} ({VOUCHED[entry['by']]}; {entry['page']})"
        for entry in document["assumptions"]["needed"]
    ]
    if document["version"] == 2:
        lines.append(
            "assumed         what version 2 does not list: rows, public records, first weights, other releases (nobody said so)"
        )
    lines += [f"idealised       {text}" for text in document["idealised"]]
    lines += [
        f"proved          ε = {proof['epsilon']:.9g} at δ = {proof['delta']:g} by {proof['route']}, says the file"
        for proof in document["confirmed"]
    ]
    for ledger in document["ledgers"]:
        lines += [f"labels          {'; '.join(ledger['labels'])}"] if "labels" in ledger else []
        lines.append(f"ledger          {ledger['lines']} lines, hash {ledger['hash']}")
    lines += [f"proofs          {', '.join(document['proofs'])}", f"privcalc        {document['privcalc']}"]
    return lines
