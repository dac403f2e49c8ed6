"""A certificate as a report for those who judge risk: one page, from the parameter down to what no proof covers.

The order follows the pyramid of NIST SP 800-226: at its top ε and the unit, in its middle what can undermine them, at its base
what is outside of any proof; before that come the risks of attacks, which EDPB Opinion 28/2024 asks about. Everything
follows from the certificate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from privcalc.attacks.replay.report import told
from privcalc.certificate.assumed import VOUCHED, in_words
from privcalc.certificate.consistency import wrong_form
from privcalc.certificate.text import BASES, headline, plain, said, spends, stated, warnings
from privcalc.rounding import downward, upward
from privcalc.serial import enclosure, relation_from_json, run_from_json

__all__ = ["Part", "report", "reported"]

RATES = (0.1, 0.01)
"""False positive rates at which attacks are asked for."""

FIRST = ("nobody", "caller", "always", "code", "ledger")
"""Whose word comes first: the weakest."""

LAST = "Nothing was verified for this report but the hash: privcalc verify"


class Part(NamedTuple):
    """One level of the report.

    Attributes:
        title: what it is about.
        rows: its lines, each with what it is called.
    """

    title: str
    rows: list[tuple[str, str]]


def report(document: Mapping[str, Any]) -> str:
    """The text of ``privcalc show --report``.

    Args:
        document: of a certificate.
    """
    with wrong_form():
        lines, parts = [part for line in warnings(document) for part in (line, "")], reported(document)
    lines.append("PRIVACY REPORT")
    for number, (title, rows) in enumerate(parts, 1):
        begin, wide = f"{number}. {title}", max(len(name) for name, _ in rows)
        for row, (name, text) in enumerate(rows):
            lines.append(f"{'' if row else begin:<18}{name:<{wide}}{'  ' if wide else ''}{text}")
    return "\n".join(plain(line) for line in [*lines, LAST])


def reported(document: Mapping[str, Any]) -> list[Part]:
    """What the report says, from top to bottom; neither shortened nor made printable.

    Args:
        document: of a certificate.
    """
    implemented = [("noise", str(document.get("noise", "real-valued")))]
    weakest = sorted(document["assumptions"]["needed"], key=lambda entry: FIRST.index(entry["by"]))
    trusted = [(VOUCHED[entry["by"]], f"{in_words(entry)} ({entry['page']})") for entry in weakest]
    trusted += list(said(document))[len(weakest) :]
    replayed = [("replayed", told(section)) for section in document.get("replayed", [])]
    attacked = replayed or [("attacked", "no attack's result is in this certificate")]
    missing = "; ".join(document["not_accounted"]) or "nothing declared; was anything tuned on private data?"
    budgets = [("budget", spends(ledger["budget"])) for ledger in document["ledgers"] if "budget" in ledger]
    beyond = "collection, storage and access to the data, and what was released elsewhere: no proof covers them"
    run = [("", str(run_from_json(document["run"]))), ("", f"it holds for {BASES[document['basis']]}")]
    return [
        Part("Parameter", [("", headline(document))]),
        Part("Unit", [("", f"{document['unit']}; neighbours: {relation_from_json(document['relation'])}")]),
        Part("Algorithm", [*run, *budgets]),
        Part("Implementation", implemented),
        Part("Trust", [("", "what the proofs need, and who saw to it or said so"), *trusted]),
        Part("Risk", [("", "of any attack, whatever it knows of other records"), *risks(document), *attacked]),
        Part("Outside", [("not accounted", missing), ("", beyond)]),
    ]


def risks(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The risks from attacks: β, the Bayes risk, reconstruction; each number errs on its safe side.

    See ``proofs/risk.md``.
    """
    relation = relation_from_json(document["relation"])
    known = {point["alpha"]: point["beta"] for point in document["beta"]}
    for rate in RATES:
        missed = stated("misses β", known[rate], document, "lower")
        yield "membership", f"at {rate:.0%} false positives it {missed} of those who are there"
    advantage = enclosure(document["advantage"], relation)
    error = downward(bayes_risk(advantage.upper), ".6g")
    yield "Bayes risk", f"at prior 1/2 it errs with a probability of {error} or more"
    for rate in RATES:
        most = upward(reconstructed(enclosure(known[rate], relation, "lower").lower), ".6g")
        yield "reconstruction", f"where a blind guess is right with {rate:.0%}, it is right with {most} or less"


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
