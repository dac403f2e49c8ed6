"""Proofs of single claims: δ(ε) ≤ δ by ball arithmetic, sharing no numerical code with the engine (``proofs/rigorous.md``)."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from privcalc import errors
from privcalc.mechanisms.exponential import ExponentialMechanism
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, Relation, check_relation
from privcalc.rigorous import choices
from privcalc.rigorous.balls import flint
from privcalc.rigorous.contour import Progress
from privcalc.rigorous.direction import DirectionBounds, by_group, silent
from privcalc.rigorous.factors import UnprovableError
from privcalc.rigorous.translate import compose
from privcalc.run import Mechanism, Questions, Run
from privcalc.serial import enclosure, parts, relation_from_json, run_from_json

__all__ = ["PROVED", "Proof", "finite_claims", "pages_of_proof", "prove", "prove_certificate", "prove_claims"]

PROVED = "ball arithmetic"
"""The route's name in certificates."""

Verdict = Literal["proved", "refuted", "undecided"]


@dataclass(frozen=True)
class Proof:
    """What became of the claim "the run is (ε, δ)-DP"; true as a condition only if it was proved.

    Attributes:
        verdict: ``proved``, ``refuted`` (δ(ε) > δ is proved) or ``undecided``.
        epsilon: ε of the claim.
        delta: δ of the claim.
        relation: its neighbouring relation.
        lower: proved: δ(ε) of the run is no smaller; 0 where nothing is known.
        upper: proved: δ(ε) of the run is no larger; 1 where nothing is known.
        working: what was done, line by line.
        pages: the pages in ``proofs/`` that it relies on.
        seconds: how long it took.
    """

    verdict: Verdict
    epsilon: float
    delta: float
    relation: Relation
    lower: float
    upper: float
    working: tuple[str, ...]
    pages: tuple[str, ...]
    seconds: float

    def __bool__(self) -> bool:
        return self.verdict == "proved"

    def __str__(self) -> str:
        """The verdict, and the working below it."""
        claim = f"δ({self.epsilon!r}) ≤ {self.delta!r} under {self.relation}: {self.verdict} in {self.seconds:.2f} s"
        return "\n  ".join(
            [claim, f"δ(ε) is in [{self.lower!r}, {self.upper!r}]", *self.working, "pages: " + ", ".join(self.pages)]
        )


def prove(
    run: Mechanism | Run,
    *,
    epsilon: float,
    delta: float,
    relation: Relation = ADD_OR_REMOVE_ONE,
    progress: Callable[[str], None] | None = None,
) -> Proof:
    """Prove or refute that a run is (ε, δ)-DP, by interval arithmetic on another route than the answers'.

    Every step is rigorous, from the exact binary arguments to the last comparison; nothing is shared with the code that answers
    ``run.epsilon(delta=)`` but the descriptions of mechanisms. It needs python-flint, and takes about a second where an answer
    takes milliseconds.

    Args:
        run: a run, or a mechanism.
        epsilon: ε ≥ 0 of the claim.
        delta: δ in [0, 1) of the claim.
        relation: the neighbouring relation.
        progress: called with a line of text now and then, in long proofs.

    Raises:
        PrivcalcError: if an argument is out of range, a mechanism has no guarantee under the relation, or python-flint is
            missing.

    Example:
        >>> import privcalc as pc
        >>> run = pc.PoissonSampled(pc.Gaussian(noise_multiplier=1.0), rate=0.01) * 1000
        >>> epsilon = run.epsilon(delta=1e-5)
        >>> print(pc.prove(run, epsilon=epsilon.upper, delta=1e-5).verdict)
        proved
        >>> print(pc.prove(run, epsilon=epsilon.lower * (1 - 1e-6), delta=1e-5).verdict)
        refuted
    """
    if not isinstance(run, Questions):
        raise errors.PrivcalcError(f"run = {run!r}: must be a run or a mechanism")
    start = time.perf_counter()
    eps, small, side = errors.epsilon("epsilon", epsilon), errors.delta("delta", delta), check_relation(relation)
    flint()
    verdict, low, high, working = _decide(run.run, Fraction(eps), small, side, progress or silent)
    seconds = time.perf_counter() - start
    return Proof(verdict, eps, small, side, low, high, tuple(working), pages_of_proof(run.run, side), seconds)


def prove_certificate(document: Mapping[str, Any], progress: Callable[[str], None] | None = None) -> tuple[Proof, ...]:
    """Prove every finite (ε, δ) that a certificate claims: its guarantee first, then its curve.

    Args:
        document: the JSON object of a certificate.
        progress: called with a line of text now and then.

    Example:
        >>> import privcalc as pc
        >>> document = pc.certify(pc.Gaussian(noise_multiplier=20.0) * 206, delta=1e-5).document
        >>> all(proof.verdict == "proved" for proof in prove_certificate(document))
        True
    """
    run, relation = run_from_json(document["run"]), relation_from_json(document["relation"])
    return prove_claims(run, relation, finite_claims(document), progress)


def finite_claims(document: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Every finite ε that a certificate claims, with its δ: its guarantee first, then its curve; each once."""
    relation = relation_from_json(document["relation"])
    points = [document["guarantee"], *document["curve"]]
    found = dict.fromkeys((enclosure(point["epsilon"], relation).upper, float(point["delta"])) for point in points)
    return [(epsilon, delta) for epsilon, delta in found if epsilon < math.inf]


def prove_claims(
    run: Run, relation: Relation, claims: Iterable[tuple[float, float]], progress: Callable[[str], None] | None = None
) -> tuple[Proof, ...]:
    """Prove several claims (ε, δ) of a run, each once."""
    found = dict.fromkeys(claims)
    return tuple(prove(run, epsilon=epsilon, delta=delta, relation=relation, progress=progress) for epsilon, delta in found)


def _decide(
    run: Run, epsilon: Fraction, delta: float, relation: Relation, progress: Progress
) -> tuple[Verdict, float, float, list[str]]:
    """The verdict, bounds of δ(ε), and the working."""
    lines: list[str] = []
    low, high = 0.0, 1.0
    try:
        found = []
        for add in (False, True):
            name = "add" if add else "remove"
            direction = DirectionBounds(compose(run, relation, "dominating", add=add))
            best = direction.bounds(epsilon, delta, progress)
            lines.append(f"{name}: δ(ε) in [{best.low!r}, {best.high!r}] by {best.how}")
            least, most = (best.low if direction.parts.exact else 0.0), best.high
            if most > delta and (other := compose(run, relation, "moments", add=add)) != direction.parts:
                moments = DirectionBounds(other).bounds(epsilon, delta, progress)
                lines.append(f"{name}, a²/8-zCDP or a normal pair: δ(ε) ≤ {moments.high!r} by {moments.how}")
                most = min(most, moments.high)
            if most > delta and (played := choices.of(direction.parts)):
                with contextlib.suppress(UnprovableError):
                    better, points = choices.game(*played, epsilon, delta)
                    lines.append(f"{name}, adaptive choices: δ(ε) ≤ {better!r} by their game, {points} points per range")
                    most = min(most, better)
            if most > delta and not direction.parts.exact:
                occurs = DirectionBounds(compose(run, relation, "occurring", add=add)).bounds(epsilon, delta, progress)
                lines.append(f"{name}, a pair that occurs: δ(ε) ≥ {occurs.low!r} by {occurs.how}")
                least = occurs.low
            found.append((least, most))
            if not add and compose(run, relation, "dominating", add=True) == direction.parts:
                lines[-1] += "; the other direction is the same"
                break
        low, high = max(x for x, _ in found), max(x for _, x in found)
    except UnprovableError as reason:
        lines.append(str(reason))
        if relation is REPLACE_ONE:
            try:
                high, how = by_group(run, epsilon, delta, progress)
                lines.append(f"group rule: δ(ε) ≤ {high!r} by {how}")
            except (UnprovableError, errors.PrivcalcError) as other:
                lines.append(f"group rule: {other}")
    if low > high:
        raise ArithmeticError(f"δ({float(epsilon)!r}) in [{low!r}, {high!r}]: an error in the rigorous route")
    verdict: Verdict = "proved" if high <= delta else "refuted" if low > delta else "undecided"
    return verdict, low, high, lines


def pages_of_proof(run: Run, relation: Relation) -> tuple[str, ...]:
    """The pages that a proof relies on: of the pairs, and of the bounds."""
    mechanisms = [mechanism for mechanism, _ in run.entries]
    for mechanism in mechanisms:
        mechanisms.extend(parts(mechanism))
    own = [type(mechanism).page for mechanism in mechanisms]
    if relation is REPLACE_ONE and "poisson.md" in own:
        own.append("replace_one.md")
    if ExponentialMechanism.page in own:
        own.append("choices.md")
    return tuple(dict.fromkeys([*own, "conversions.md", "rigorous.md"]))
