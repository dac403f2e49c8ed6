"""Whether δ(ε) ≤ δ, in ball arithmetic, of a run as a certificate writes it down (``proofs/rigorous.md``)."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from privcalc.rigorous import choices
from privcalc.rigorous.balls import RefusedError, UnprovableError
from privcalc.rigorous.description import RELATIONS, REPLACE_ONE, read
from privcalc.rigorous.direction import DirectionBounds, by_group, silent
from privcalc.rigorous.mechanisms import Kind
from privcalc.rigorous.translate import compose

Verdict = Literal["proved", "refuted", "undecided"]


@dataclass(frozen=True)
class Finding:
    """The outcome of a proof: bounds of δ(ε), 0 and 1 where nothing is known, and the working, line by line."""

    verdict: Verdict
    low: float
    high: float
    working: tuple[str, ...]


class Prover:
    """One run under one relation, of which several claims may be asked; what they share is kept.

    Args:
        run: the field ``run`` of a certificate.
        relation: the name of the neighbouring relation.

    Example:
        >>> mechanism = {"kind": "Gaussian", "noise_multiplier": 20.0}
        >>> prover = Prover([{"mechanism": mechanism, "count": 206}], "add-or-remove-one")
        >>> prover.decide(2.993, 1e-5).verdict, prover.decide(2.992, 1e-5).verdict
        ('proved', 'refuted')
    """

    def __init__(self, run: object, relation: str) -> None:
        self.relation, self.reason = relation, ""
        try:
            self.run = read(run)
        except UnprovableError as reason:
            self.run, self.reason = (), str(reason)
        if relation not in RELATIONS:
            raise RefusedError(f"relation = {relation!r}: must be one of {', '.join(RELATIONS)}")
        self._direction = functools.cache(self._compose)

    def _compose(self, kind: Kind, add: bool) -> DirectionBounds:
        return DirectionBounds(compose(self.run, self.relation, kind, add=add))

    def decide(self, epsilon: float, delta: float, progress: Callable[[str], None] = silent) -> Finding:
        """Decide the claim δ(ε) ≤ δ.

        Args:
            epsilon: ε ≥ 0, finite.
            delta: δ in [0, 1).
            progress: called now and then with what is being done, often with an empty text; it may raise
                ``UnprovableError`` to end what takes too long.

        Raises:
            RefusedError: if a mechanism has no guarantee under the relation.
        """
        if not (0 <= epsilon < math.inf and 0 <= delta < 1):
            raise RefusedError(f"epsilon = {epsilon!r}, delta = {delta!r}: must be finite and >= 0, δ below 1")
        if self.reason:
            return Finding("undecided", 0.0, 1.0, (self.reason,))
        lines = list[str]()
        low, high = 0.0, 1.0
        try:
            low, high = self._both(Fraction(epsilon), delta, progress, lines)
        except (UnprovableError, ArithmeticError) as reason:
            lines.append(str(reason))
        if self.relation == REPLACE_ONE and low <= delta < high:
            with contextlib.suppress(RefusedError, ArithmeticError):
                try:
                    most, how = by_group(self.run, Fraction(epsilon), delta, progress)
                    high = min(high, most)
                    lines.append(f"group rule: δ(ε) ≤ {most!r} by {how}")
                except UnprovableError as other:
                    lines.append(f"group rule: {other}")
        if low > high:
            raise AssertionError(f"δ({epsilon!r}) in [{low!r}, {high!r}]: an error in the rigorous route")
        verdict: Verdict = "proved" if high <= delta else "refuted" if low > delta else "undecided"
        return Finding(verdict, low, high, tuple(lines))

    def _both(
        self, epsilon: Fraction, delta: float, progress: Callable[[str], None], lines: list[str]
    ) -> tuple[float, float]:
        """Bounds in the worse direction."""
        found = []
        for add in (False, True):
            name = "add" if add else "remove"
            direction = self._direction("dominating", add)
            best = direction.bounds(epsilon, delta, progress)
            lines.append(f"{name}: δ(ε) in [{best.low!r}, {best.high!r}] by {best.how}")
            least, most = (best.low if direction.parts.exact else 0.0), best.high
            if most > delta and (other := self._direction("moments", add)).parts != direction.parts:
                moments = other.bounds(epsilon, delta, progress)
                lines.append(f"{name}, a²/8-zCDP or a normal pair: δ(ε) ≤ {moments.high!r} by {moments.how}")
                most = min(most, moments.high)
            if most > delta and (played := choices.of(direction.parts)):
                with contextlib.suppress(UnprovableError):
                    better, points = choices.game(*played, epsilon, delta, progress)
                    lines.append(
                        f"{name}, adaptive choices: δ(ε) ≤ {better!r} by their game, {points} points per range"
                    )
                    most = min(most, better)
            if most > delta and not direction.parts.exact:
                occurs = self._direction("occurring", add).bounds(epsilon, delta, progress)
                lines.append(f"{name}, a pair that occurs: δ(ε) ≥ {occurs.low!r} by {occurs.how}")
                least = occurs.low
            found.append((least, most))
            if not add and self._direction("dominating", True).parts == direction.parts:
                lines[-1] += "; the other direction is the same"
                break
        return max(x for x, _ in found), max(x for _, x in found)
