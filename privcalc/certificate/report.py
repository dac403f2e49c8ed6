"""A certificate as text for people: all of it in ``show``; and on one page, from the parameter down, in ``report``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privcalc.certificate.consistency import wrong_form
from privcalc.certificate.facts import LEVELS, Fact, facts
from privcalc.certificate.text import plain, warnings

__all__ = ["LAST", "levels", "report", "show"]

FIRST = ("nobody", "caller", "always", "code", "ledger", "")
"""Whose word comes first: the weakest."""

LAST = "Nothing was verified for this report but the hash: privcalc verify"


def show(document: Mapping[str, Any]) -> str:
    """The text of ``privcalc show``.

    What a certificate says is never more than one line, so that it cannot pose as another.
    """
    lines, before = [part for line in warnings(document) for part in (line, "")], False
    for fact in facts(document):
        if fact.weight != "report":
            risk = fact.level == "Risk"
            lines += [""] * (risk is not before)
            lines.append(fact.text if fact.level == "Parameter" else f"{fact.label:<15} {fact.text}")
            before = risk
    return "\n".join(map(plain, lines))


def report(document: Mapping[str, Any]) -> str:
    """The text of ``privcalc show --report``.

    Args:
        document: of a certificate.
    """
    with wrong_form():
        lines, found = [part for line in warnings(document) for part in (line, "")], levels(document)
    lines.append("PRIVACY REPORT")
    for number, (title, rows) in enumerate(found.items(), 1):
        for row, fact in enumerate(rows):
            begin = "" if row else f"{number}. {title}"
            lines.append(
                f"{begin:<18}{fact.label:<15} {fact.text}" if fact.level != "Parameter" else f"{begin:<18}{fact.text}"
            )
    return "\n".join(map(plain, [*lines, LAST]))


def levels(document: Mapping[str, Any]) -> dict[str, list[Fact]]:
    """What the report says, level by level; of what the proofs need what nobody saw to comes first.

    Args:
        document: of a certificate.
    """
    found: dict[str, list[Fact]] = {level: [] for level in LEVELS}
    for fact in sorted(facts(document), key=lambda fact: FIRST.index(fact.by)):
        if fact.weight != "text":
            found[fact.level].append(fact)
    return {level: rows for level, rows in found.items() if rows}
