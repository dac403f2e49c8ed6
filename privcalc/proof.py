"""Proofs of single claims, ``pc.prove``: δ(ε) ≤ δ by ball arithmetic (``rigorous``).

They use no numerical code of the engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from privcalc import errors
from privcalc.errors import PrivcalcError
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, Relation, check_relation
from privcalc.rigorous.description import RefusedError, finite_claims
from privcalc.run import Mechanism, Run
from privcalc.serial import parts, relation_from_json, run_from_json, run_to_json

__all__ = ["PROVED", "Proof", "finite_claims", "pages_of_proof", "prove", "prove_certificate", "prove_claims"]

PROVED = "ball arithmetic"
"""The route's name in certificates."""


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

    verdict: Literal["proved", "refuted", "undecided"]
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

    Every step is rigorous, from the exact binary arguments to the last comparison; nothing is shared with the code that
    answers ``run.epsilon(delta=)``: the run is handed over as a certificate writes it down. It takes about a second
    where an answer takes milliseconds.

    Args:
        run: a run, or a mechanism.
        epsilon: ε ≥ 0 of the claim.
        delta: δ in [0, 1) of the claim.
        relation: the neighbouring relation.
        progress: called with a line of text now and then, in long proofs.

    Raises:
        PrivcalcError: if an argument is out of range, or a mechanism has no guarantee under the relation.

    Example:
        >>> import privcalc as pc
        >>> run = pc.PoissonSampled(pc.Gaussian(noise_multiplier=1.0), rate=0.01) * 1000
        >>> epsilon = run.epsilon(delta=1e-5)
        >>> print(pc.prove(run, epsilon=epsilon.upper, delta=1e-5).verdict)
        proved
        >>> print(pc.prove(run, epsilon=epsilon.lower * (1 - 1e-6), delta=1e-5).verdict)
        refuted
    """
    if not isinstance(run, (Mechanism, Run)):
        raise PrivcalcError(f"run = {run!r}: must be a run or a mechanism")
    eps, small = errors.epsilon("epsilon", epsilon), errors.delta("delta", delta)
    (proof,) = prove_claims(run.run, check_relation(relation), [(eps, small)], progress)
    return proof


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


def prove_claims(
    run: Run,
    relation: Relation,
    claims: Iterable[tuple[float, float]],
    progress: Callable[[str], None] | None = None,
    watch: Callable[[Proof], None] | None = None,
) -> tuple[Proof, ...]:
    """Prove several claims (ε, δ) of a run, each once.

    Args:
        run: what is claimed to be private.
        relation: the neighbouring relation.
        claims: (ε, δ).
        progress: as of :func:`prove`; with an empty text it only says that time has passed.
        watch: called with each proof when it is done.
    """
    from privcalc.rigorous.direction import silent  # python-flint is imported to prove only
    from privcalc.rigorous.proof import Finding, Prover

    prover, reason = None, ""
    try:
        prover = Prover(run_to_json(run), str(relation))
    except PrivcalcError as error:  # a profile that is a function cannot be written down
        reason = str(error)
    pages, found = pages_of_proof(run, relation), list[Proof]()
    for epsilon, delta in dict.fromkeys(claims):
        start = time.perf_counter()
        try:
            finding = (
                prover.decide(epsilon, delta, progress or silent)
                if prover
                else Finding("undecided", 0.0, 1.0, (reason,))
            )
        except RefusedError as error:
            raise PrivcalcError(str(error)) from None
        ends = finding.low, finding.high
        found.append(
            Proof(finding.verdict, epsilon, delta, relation, *ends, finding.working, pages, time.perf_counter() - start)
        )
        if watch is not None:
            watch(found[-1])
    return tuple(found)


def pages_of_proof(run: Run, relation: Relation) -> tuple[str, ...]:
    """The pages that a proof relies on: of the pairs, and of the bounds."""
    mechanisms = [mechanism for mechanism, _ in run.entries]
    for mechanism in mechanisms:
        mechanisms.extend(parts(mechanism))
    own = [type(mechanism).page for mechanism in mechanisms]
    if relation is REPLACE_ONE and "poisson.md" in own:
        own.append("replace_one.md")
    if "exponential.md" in own:
        own.append("choices.md")
    return tuple(dict.fromkeys([*own, "conversions.md", "rigorous.md"]))
