"""Check a certificate again: its hash, its logic, its numbers; ε by a route without the engine's numerics, where there is one.

Runs of (Poisson-sampled) Gaussians are checked with mpmath, in 50-digit arithmetic; guarantees known by their moments with the
tight conversion in mpmath; choices alone by all strategies of a coarse grid; other runs by the lattice, which is named the
engine's where the engine had it, too. What each line of the answer means: ``proofs/certificate.md``.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from mpmath import mp, mpf

from privcalc.certificate.claims import claims, each
from privcalc.certificate.consistency import check, contradicted, of_part, same_listing
from privcalc.certificate.schema import NOISE
from privcalc.certificate.story import of_given
from privcalc.certificate.text import opened, unused
from privcalc.composition.curve import Curve
from privcalc.composition.direction import Direction, max_loss, merge, split_leaks
from privcalc.composition.fallback import Moments
from privcalc.errors import Contradiction, NotConfirmed, PrivcalcError
from privcalc.ledger.assumptions import of_version
from privcalc.ledger.terms import Terms
from privcalc.numerics.floats import UNIT
from privcalc.numerics.routes import lattice
from privcalc.numerics.routes.route import RouteFailed
from privcalc.pairs.choices import ChoicesPair
from privcalc.pairs.gaussian import OppositeGaussianPair
from privcalc.pairs.pair import Pair
from privcalc.pairs.sampled import SampledPair
from privcalc.reference import choices_delta
from privcalc.reference import steps as reference
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, Relation
from privcalc.rigorous.proof import Proof, finite_claims, prove_claims
from privcalc.rounding import upward
from privcalc.run import Run
from privcalc.serial import enclosure, relation_from_json, run_from_json, target_from_json

SAME = (
    *("basis", "status", "relation", "unit", "public", "assumptions", "not_accounted", "stopping", "run", "recorded", "declared"),
    *("target", "seeded", "noise", "ledgers"),
)
"""What a certificate and its ledger must agree on."""


def verify(document: Mapping[str, Any], given: Sequence[str | list[str]] = (), *, rigorous: bool = False) -> tuple[str, ...]:
    """What could be confirmed; see :meth:`Certificate.verify`.

    Args:
        document: the certificate.
        given: the ledgers and descriptions it was made from, as paths, or the lines of one in memory.
        rigorous: whether to prove every claim of ε.

    Raises:
        Contradiction: with whatever is wrong.
        NotConfirmed: if it cannot be told.
    """
    check(document)
    with contradicted():
        # Ledgers first: they are read quickly, and may show what is wrong before the numbers take their time.
        ledgers = _ledgers(document, given)
        found = ["the text is whole: it fits its own hash", "what is certified follows from what was planned, capped or recorded"]
        found += _claims(document, rigorous=rigorous)
        first: dict[str, int] = {}
        for number, part in enumerate(document["parts"]):
            if (same := first.setdefault(part["hash"], number)) < number:
                found.append(f"part {number + 1}: is the same as part {same + 1}, and counts again")
                continue
            with of_part(number):
                found += [f"part {number + 1}: {line}" for line in _claims(part, rigorous=False)]
        return (*found, *ledgers, *opened(document), *unused(document))


def _claims(document: Mapping[str, Any], *, rigorous: bool) -> list[str]:
    """Target, numbers, and what is said to be proved, of a certificate that fits itself."""
    found = []
    run, relation = run_from_json(document["run"]), relation_from_json(document["relation"])
    delta = document["guarantee"]["delta"]
    _numbers(document, claims(run, relation, delta), relation)
    if document["target"] is not None:
        target = target_from_json(document["target"], relation)
        Terms(relation, document["unit"], run, None, target, {}, (), False).check_target()
        found.append(f"the target {target} is met")
    found.append("every number was computed again, and none is smaller than what is proved")
    points = finite_claims(document)
    found += [f"δ({upward(epsilon, '.9g')}) ≤ {upward(d, 'g')}: {confirm(run, relation, epsilon, d)}" for epsilon, d in points]
    said = points if rigorous else [(claim["epsilon"], claim["delta"]) for claim in document["confirmed"]]
    return found + [str(proof).splitlines()[0] for proof in _proofs(run, relation, said)]


def _proofs(run: Run, relation: Relation, points: Sequence[tuple[float, float]]) -> tuple[Proof, ...]:
    """What a file says was proved is not believed: it is proved again."""
    if points and importlib.util.find_spec("flint") is None:
        raise NotConfirmed("confirmed: python-flint is needed to prove claims in ball arithmetic (pip install python-flint)")
    proofs = prove_claims(run, relation, points, lambda text: print(text, file=sys.stderr))
    for proof in proofs:
        if proof.verdict != "proved":
            raise (Contradiction if proof.verdict == "refuted" else NotConfirmed)(f"not proved: {proof}")
    return proofs


def _ledgers(document: Mapping[str, Any], given: Sequence[str | list[str]]) -> list[str]:
    """Every ledger given must be that of a part, each of another one, and every part that names a ledger must have it."""
    composed = document["basis"] == "composed"
    left = dict(enumerate(document["parts"] if composed else [document]))
    for source in given:
        story = of_given(source)
        fits = [number for number, part in left.items() if not any(_unlike(part, story))]
        near = [number for number, part in left.items() if not composed or part["ledgers"] == story["ledgers"] != []]
        if not fits + near:
            raise PrivcalcError(f"ledger: {source if isinstance(source, str) else 'one'} is that of no part that is left")
        number = (fits + near)[0]
        part = left.pop(number)
        with of_part(number) if composed else contextlib.nullcontext():
            for name in _unlike(part, story):
                said = repr(part[name]) if name in part else "nothing"
                raise PrivcalcError(f"{name}: the certificate says {said}, its ledger {story[name]!r}")
    for number, part in left.items():
        if given and part["ledgers"]:
            raise PrivcalcError(f"part {number + 1}: its ledger, of hash {part['ledgers'][0]['hash']}, was not given")
    if given and composed:
        return ["every ledger given is that of a part, and every ledger that a part names was given"]
    kind = "ledger" if document["ledgers"] else "description"
    return [f"the {kind} is whole, says the same, and charges no more than it may"] * bool(given)


def _unlike(part: Mapping[str, Any], story: Mapping[str, Any]) -> Iterator[str]:
    """Where a certificate says something else than its ledger."""
    for name in SAME:
        one, two = part.get(name, NOISE[0]) if name == "noise" else part[name], story[name]
        if name in ("run", "recorded", "declared") and one is not None and two is not None:
            one, two = run_from_json(one), run_from_json(two)
        elif name == "assumptions":
            one, two = same_listing(one, of_version(two, part["version"])), True
        if one != two:
            yield name


def _numbers(document: Mapping[str, Any], fresh: Mapping[str, Any], relation: Relation) -> None:
    """Every claim against one that is made now: never on the unsafe side of it, beyond the last digits."""
    made, now = list(each(document)), list(each(fresh))
    if (found := [(claim.name, claim.at) for claim in made]) != (right := [(claim.name, claim.at) for claim in now]):
        raise Contradiction(f"the numbers must be {str(right)[:500]}, not {str(found)[:500]}")
    for claim, true in zip(made, now, strict=True):
        safe: Literal["lower", "upper"] = "lower" if claim.name == "beta" else "upper"
        old, new = enclosure(claim.value, relation, safe), enclosure(true.value, relation, safe)
        slack = 1e-9 * abs(float(new)) if math.isfinite(float(new)) else 0.0
        wrong = old.lower > new.lower + slack if safe == "lower" else old.upper < new.upper - slack
        if wrong or old.lower > new.upper + slack or old.upper < new.lower - slack:
            raise Contradiction(f"{claim}: claimed [{old.lower!r}, {old.upper!r}], true is [{new.lower!r}, {new.upper!r}]")


def confirm(run: Run, relation: Relation, epsilon: float, delta: float) -> str:
    """How δ(ε) ≤ δ was confirmed: by other code than the engine's, or it is said that there was none.

    Raises:
        Contradiction: if δ(ε) > δ was shown.
    """
    sides = run._sides(relation)
    at = functools.cache(delta_bounds)
    for direction in sides.lower:
        low, _, route = at(direction, epsilon)
        if low > delta * (1 + 1e-12) + 1e-320:
            raise Contradiction(f"epsilon = {epsilon!r} at delta = {delta!r}: is too small, δ(ε) is at least {low!r} ({route})")
    for factor, how in ((1.0, ""), (1 + 1e-6, ", ε to 1e-6"), (1 + 1e-3, ", ε to 1e-3")):
        for side in (sides.upper, sides.other):
            results = [at(direction, factor * epsilon) for direction in side]
            if results and all(found.upper <= delta for found in results):
                return ", ".join(dict.fromkeys(found.route for found in results)) + how
        if relation is REPLACE_ONE and _by_group(run, factor * epsilon, delta):
            return "group rule, mpmath" + how
    return "by the engine alone; the other routes neither confirm nor refute it"


class Found(NamedTuple):
    """Bounds of δ(ε) of one direction, and by what."""

    lower: float
    upper: float
    route: str


def delta_bounds(direction: Direction, epsilon: float) -> Found:
    """Bounds of δ(ε) of one direction, without the contour, the closed forms and the convolutions of the engine."""
    rest, leak = split_leaks(direction)
    pairs = merge(rest)
    if not pairs:
        return Found(leak.lower, leak.upper, "exactly")
    if any(pair.moments_only for pair, _ in pairs):
        return Found(0.0, leak.delta((0.0, _by_moments(pairs, epsilon)))[1], "tight conversion, mpmath")
    only = pairs[0][0]
    if len(pairs) == 1 and isinstance(only, ChoicesPair):
        with contextlib.suppress(ArithmeticError):
            return Found(*leak.delta(choices_delta(only.a, only.count, epsilon)), "every strategy of a coarse grid")
    entries = [_gaussian(pair, count) for pair, count in pairs]
    if all(entries):
        try:
            value = _reference([e for e in entries if e], epsilon, _order(pairs))
        except ArithmeticError:
            pass
        else:
            low, high = leak.delta((float(value * (1 - mpf(10) ** -15)), float(value * (1 + mpf(10) ** -15))))
            return Found(low, high, "mpmath")
    try:
        built, _ = lattice.build(list(pairs), epsilon=epsilon)
        own = any(pair.transform is None for pair, _ in pairs)
        return Found(*leak.delta(built.bounds(epsilon)), "the engine's lattice once more" if own else "lattice")
    except RouteFailed:
        if epsilon > max_loss(pairs) * (1 + 16 * UNIT):
            return Found(*leak.delta((0.0, 0.0)), "the largest loss")
        return Found(0.0, 1.0, "no route")


def _reference(entries: list[reference.Entry], epsilon: float, direction: reference.Direction) -> Any:
    """One sampled step by quadrature or a root; a transform that decays slowly, of a few rare steps, is left to the lattice."""
    noise, rate, count = entries[0]
    if len(entries) == 1 and count == 1 and float(rate) < 1:
        return reference.one_step_delta(float(noise), float(rate), epsilon, direction)
    if direction == "replace":
        slow = not _slope(entries) > (0.09 if importlib.util.find_spec("flint") is None else 0.002)
    else:
        slow = sum(n for _, _, n in entries) < 10 and all(float(q) < 1 for _, q, _ in entries)
    if slow:
        raise ArithmeticError("too few steps for the contour integral to be fast")
    return reference.run_delta(entries, epsilon, direction)


def _slope(entries: list[reference.Entry]) -> float:
    """The slope of the summed loss at t = 0, for opposite records: |M(c + iu)| begins to fall where u is about its inverse."""
    total = 0.0
    for noise, rate, count in entries:
        q, mu = float(rate), 1 / float(noise)
        stay = (1 - q) * math.exp(min(mu * mu / 2, 700.0))
        total += count * (mu if q == 1 else 2 * mu * q / (stay + q)) ** 2
    return math.sqrt(total)


def _gaussian(pair: Pair, count: int) -> reference.Entry | None:
    """(noise multiplier, rate, count) of a Gaussian, sampled or not."""
    if isinstance(pair, OppositeGaussianPair):
        return 1 / pair.mu, pair.rate, count
    base, rate = (pair.base, pair.rate) if isinstance(pair, SampledPair) else (pair, 1.0)
    return (1 / base.gdp, rate, count) if base.gdp else None


def _order(pairs: Direction) -> reference.Direction:
    """Which of the reference's directions the sampled ones take; without any it does not matter."""
    if any(isinstance(pair, OppositeGaussianPair) for pair, _ in pairs):
        return "replace"
    return "add" if any(isinstance(pair, SampledPair) and pair.add for pair, _ in pairs) else "remove"


def _by_moments(pairs: Direction, epsilon: float) -> float:
    """e^{K(c) − cε}·c^c/(1 + c)^{1+c} in mpmath, at the best c of a grid; any c gives a valid bound."""
    moments = Moments(pairs)
    with mp.workdps(30):

        def log_delta(c: float, k: float) -> Any:
            x = mpf(c)
            return mpf(k) - x * mpf(epsilon) + x * mp.log(x) - (1 + x) * mp.log(1 + x)

        points = sorted((log_delta(c, k), c) for c, k in zip(moments.grid, moments.k, strict=True) if math.isfinite(k))[:3]
        if not points:
            return 1.0
        fine = np.linspace(0.8 * min(c for _, c in points), 1.25 * max(c for _, c in points), 2001)
        best = min(log_delta(float(c), float(k)) for c, k in zip(fine, moments.log_moment(fine), strict=True))
        return min(1.0, float(mp.exp(best)) * (1 + 1e-15))


def _by_group(run: Run, epsilon: float, delta: float) -> bool:
    """δ ≤ δ_remove(t) + e^t δ_add(ε − t): the engine proposes t, mpmath decides."""
    try:
        sides = run._sides(ADD_OR_REMOVE_ONE).upper
    except PrivcalcError:
        return False
    remove, add = sides[0], sides[-1]
    curves = Curve(remove), Curve(add)

    def total(t: float) -> float:
        return curves[0].delta(t, quick=True).upper + math.exp(min(t, 700.0)) * curves[1].delta(epsilon - t, quick=True).upper

    t = min((epsilon * k / 40 for k in range(1, 40)), key=total)
    t = min((t + epsilon * k / 800 for k in range(-20, 21)), key=total)
    if total(t) > delta * (1 + 1e-9):
        return False
    first, second = delta_bounds(remove, t).upper, delta_bounds(add, epsilon - t).upper
    return first + math.exp(t) * second * (1 + 1e-12) <= delta
