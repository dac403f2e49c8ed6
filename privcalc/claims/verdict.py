"""What is to be said of a claim: under which of its readings the published ε holds, and between which values ε lies.

Parameters may contradict each other: then a reading uses some, and not the others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from privcalc.claims.readings import Reading, open_samplers, rates, readings
from privcalc.claims.schema import FULL, Claim, samplers
from privcalc.enclosure import downward, upward
from privcalc.errors import may_be_swapped
from privcalc.serial import Json


def contradictions(claim: Claim) -> list[str]:
    """What does not fit, in words; nothing if all that is stated may be true of one run.

    Args:
        claim: the claim.
    """
    return list(_found(claim))


def _found(claim: Claim) -> Iterator[str]:
    steps, epochs, known = claim.values("steps"), claim.values("epochs"), rates(claim)
    for name, values, others in (("steps", steps, epochs), ("epochs", epochs, steps)):
        for value in values if others and known else ():
            pairs = ((value, other) if name == "steps" else (other, value) for other in others)
            if not any(_passes(made, passed, rate) for (made, passed), rate in itertools.product(pairs, known)):
                rest = "epochs" if name == "steps" else "steps"
                yield f"{name} = {value} with {rest} = {_either(others)} and a sampling rate of {_either(known)}"
    stated, drawn = claim.values("sample_rate"), open_samplers(claim)
    sized = [
        batch / records
        for batch, records in itertools.product(claim.values("batch_size"), claim.values("dataset_size"))
    ]
    if stated and sized and any("batch_size" in samplers()[name].takes for name in drawn):  # and pass over a rate
        for rate in sized:
            if not any(math.isclose(rate, other, rel_tol=0.01) for other in stated):
                yield f"sample_rate = {_either(stated)} with {rate:.6g}, the batch size over the number of records"
    if FULL.name in drawn and any(rate < 1 for rate in known):
        yield f"sampler = full batch with a sampling rate of {_either(known)}"
    if "Poisson" in claim.values("sampler") and claim.values("largest_batch") and "truncated Poisson" not in drawn:
        largest = _either(claim.values("largest_batch"))
        yield f"sampler = Poisson with largest_batch = {largest}: that is truncated Poisson"
    for delta, records in itertools.product(claim.values("delta"), claim.values("dataset_size")):
        if delta * records >= 1:
            yield f"delta = {delta:g} with dataset_size = {records}: one record could be published whole, at random"
    for epsilon, delta in itertools.product(claim.values("epsilon"), claim.values("delta")):
        if may_be_swapped(epsilon, delta):
            yield f"epsilon = {epsilon:g} with delta = {delta:g}: δ is the larger; are they swapped?"


def _passes(steps: int, epochs: int, rate: float) -> bool:
    """Whether so many steps are so many passes, up to a pass's rounding and a tenth, for division among workers."""
    return 0.9 * epochs * math.floor(1 / rate) - 1 <= steps <= 1.1 * epochs * math.ceil(1 / rate) + 1


def _either(values: tuple[object, ...]) -> str:
    return " or ".join(f"{value:.6g}" if isinstance(value, float) else str(value) for value in values)


__all__ = ["Verdict", "check", "contradictions"]

DIGITS = ".5g"


@dataclass(frozen=True)
class Verdict:
    """What recomputing a claim gave.

    Attributes:
        claim: the claim.
        readings: all that it may mean.
    """

    claim: Claim
    readings: Sequence[Reading]

    @property
    def groups(self) -> dict[str, list[Reading]]:
        """The readings under which the claim holds, fails, is left open by proofs, or of which nothing is known."""
        found: dict[str, list[Reading]] = {"holds": [], "fails": [], "open": [], "unknown": []}
        for reading in self.readings:
            epsilon = self.claim.values("epsilon")
            found["unknown" if reading.why or not epsilon else reading.outcome(float(epsilon[0]))].append(reading)
        return found

    @property
    def range(self) -> tuple[float, float]:
        """Between which values ε lies, over all readings; ∞ above where one of them has no number."""
        return _hull(self.readings)

    @property
    def contradictions(self) -> list[str]:
        """What the claim says against itself."""
        return contradictions(self.claim)

    @property
    def holds(self) -> bool | None:
        """True under every reading, False under none, else None.

        None if it depends, is not known, or the claim contradicts itself.
        """
        if self.contradictions:
            return None
        found = self.groups
        everything = [len(found[name]) == len(self.readings) for name in ("holds", "fails")]
        return True if everything[0] else False if everything[1] else None

    @property
    def missing(self) -> list[str]:
        """The parameters for lack of which there is no number under any reading; none if there is one."""
        if not self.claim.values("epsilon"):
            return ["epsilon"]
        if not all(reading.why for reading in self.readings):
            return []
        lacking = [name for r in self.readings for name, value in r.given.items() if value is None]
        return list(dict.fromkeys(lacking))

    @property
    def text(self) -> str:
        """The verdict, in one line."""
        if self.holds is not None:
            return "holds under every reading" if self.holds else "does not hold under any reading"
        if against := self.contradictions:
            return f"cannot be judged, because the claim contradicts itself: {'; '.join(against)}"
        if missing := self.missing:
            return f"cannot be recomputed: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not stated"
        words = {
            "holds": "holds under",
            "fails": "not under",
            "open": "not decided under",
            "unknown": "no number under",
        }
        groups = self.groups
        told = {words[name]: dict.fromkeys(map(self._short, found)) for name, found in groups.items() if found}
        return "; ".join(f"{word}: {', '.join(names)}" for word, names in told.items())

    def label(self, reading: Reading) -> str:
        """A reading's name: sampler, relation, and what else the claim leaves open."""
        others = [
            f"{name} {reading.given[name]:.9g}"
            for name in reading.given
            if len({str(r.given[name]) for r in self.readings if name in r.given}) > 1
            and reading.given[name] is not None
        ]
        return " / ".join((reading.sampler, str(reading.relation), *others))

    def _short(self, reading: Reading) -> str:
        """The same; the sampler's alone, where for one reason nothing is known of all its readings."""
        alike = {other.why for other in self.readings if other.sampler == reading.sampler}
        return reading.sampler if reading.why and alike == {reading.why} else self.label(reading)

    def __str__(self) -> str:
        lines = [f"{self.claim.name}: {self.text}"]
        for name in ("epsilon", "delta"):
            lines.append(f"published {name}: {(self.claim.values(name) or ('not stated',))[0]}")
        lines.append(f"not stated: {', '.join(self.claim.missing) or 'nothing'}")
        lines += self._passes()
        found = {
            f"  {self._short(one)}: " + (f"no number: {one.why}" if one.why else within(one.lower, one.upper)): None
            for one in self.readings
        }
        lines += found
        numbers = [reading for reading in self.readings if not reading.why]
        if numbers:
            whole = "over all of them" if len(numbers) == len(self.readings) else "over those with a number"
            lines.append(f"{whole}: {within(*_hull(numbers))}")
        return "\n".join(lines)

    def _passes(self) -> Iterator[str]:
        """How often steps go through the data set, or how many steps epochs are, where only one is stated."""
        steps_said, epochs_said, known = self.claim.values("steps"), self.claim.values("epochs"), rates(self.claim)
        for epochs, rate in itertools.product(() if steps_said else epochs_said, known):
            yield f"{epochs} epochs are some {math.ceil(epochs / rate)} steps: state steps, if the sources do"
        for steps, rate in itertools.product(() if epochs_said else steps_said, known):
            doubt = "; are they epochs?" if steps * rate < 1 else ""
            yield f"{steps} steps are {steps * rate:.3g} passes over the data set{doubt}"

    @property
    def json(self) -> Json:
        """All of it as one JSON object; null is ∞."""

        def number(value: float) -> float | None:
            return value if math.isfinite(value) else None

        def told(reading: Reading) -> dict[str, Any]:
            ends = {"lower": number(reading.lower), "upper": number(reading.upper), "why": reading.why}
            return {"relation": str(reading.relation), "sampler": reading.sampler, "given": reading.given, **ends}

        low, high = self.range
        return {
            **{"name": self.claim.name, "verdict": self.text, "holds": self.holds, "not_stated": self.claim.missing},
            **{name: next(iter(self.claim.values(name)), None) for name in ("epsilon", "delta")},
            **{"contradictions": self.contradictions, "lower": number(low), "upper": number(high)},
            "readings": {name: [told(reading) for reading in found] for name, found in self.groups.items()},
        }


def _hull(found: Sequence[Reading]) -> tuple[float, float]:
    return min(reading.lower for reading in found), max(reading.upper for reading in found)


def within(lower: float, upper: float) -> str:
    """An ε and its two ends, rounded away from each other."""
    low, high = downward(lower, DIGITS), upward(upper, DIGITS)
    if not lower:
        return f"ε ≤ {high}" if math.isfinite(upper) else "nothing is known of ε"
    return f"{low} ≤ ε ≤ {high}" if math.isfinite(upper) else f"{low} ≤ ε"


def check(claim: Claim) -> Verdict:
    """Recompute a claim under everything that it may mean.

    Args:
        claim: the claim.

    Returns:
        The verdict. Nothing in it is about what is not in the claim: that the program does what it says, say.

    Source: ``proofs/claims.md``.
    """
    return Verdict(claim, readings(claim))
