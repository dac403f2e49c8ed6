"""A certificate as a report for those who judge risk: one page, from the parameter down to what no proof covers.

The order follows the pyramid of NIST SP 800-226: at its top ε and the unit, in its middle what can undermine them, at its base
what is outside of any proof; before that come the risks of attacks, which EDPB Opinion 28/2024 asks about. Everything
follows from the certificate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from privcalc.attacks.replay.report import told
from privcalc.certificate.text import BASES, VOUCHED, headline, plain, stated, warnings
from privcalc.ledger.words import in_words
from privcalc.rounding import downward, upward
from privcalc.serial import enclosure, relation_from_json, run_from_json

RATES = (0.1, 0.01)
"""False positive rates at which attacks are asked for."""


def report(document: Mapping[str, Any]) -> str:
    """The text of ``privcalc show --report``.

    Args:
        document: of a certificate.
    """
    return "\n".join(plain(line) for line in _lines(document))


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    yield from (part for line in warnings(document) for part in (line, ""))
    yield "PRIVACY REPORT"
    yield f"1. Parameter       {headline(document)}"
    yield f"2. Unit            {document['unit']}; neighbours: {relation_from_json(document['relation'])}"
    yield f"3. Algorithm       {run_from_json(document['run'])}"
    yield f"                   it holds for {BASES[document['basis']]}"
    yield f"4. Implementation  noise: {document.get('noise', 'real-valued')}"
    yield from (f"   idealised       {text}" for text in document["idealised"])
    yield "5. Trust           what the proofs assume, and who says so"
    for entry in document["assumptions"]["needed"]:
        yield f"   {VOUCHED[entry['by']]:<23} {in_words(entry)} ({entry['page']})"
    yield "6. Risk            of any attack, whatever it knows of other records"
    yield from (f"   {line}" for line in risks(document))
    yield from (f"   replayed        {told(section)}" for section in document.get("replayed", []))
    if not document.get("replayed"):
        yield "   attacked        no attack's result is in this certificate"
    missing = "; ".join(document["not_accounted"]) or "nothing declared; was anything tuned on private data?"
    yield f"7. Outside         not accounted: {missing}"
    yield "                   collection, storage and access to the data, and what was released elsewhere: no proof covers them"
    yield "Nothing was verified for this report but the hash: privcalc verify"


def risks(document: Mapping[str, Any]) -> Iterator[str]:
    """What attacks can do: β, the Bayes risk, reconstruction (``proofs/risk.md``); each number errs on its safe side."""
    relation = relation_from_json(document["relation"])
    known = {point["alpha"]: point["beta"] for point in document["beta"]}
    for rate in RATES:
        missed = stated("misses β", known[rate], document, "lower")
        yield f"membership      at {rate:.0%} false positives it {missed} of those who are there"
    advantage = enclosure(document["advantage"], relation)
    yield f"Bayes risk      at prior 1/2 it errs with a probability of {downward(bayes_risk(advantage.upper), '.6g')} or more"
    for rate in RATES:
        most = upward(reconstructed(enclosure(known[rate], relation, "lower").lower), ".6g")
        yield f"reconstruction  where a blind guess is right with {rate:.0%}, it is right with {most} or less"


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
