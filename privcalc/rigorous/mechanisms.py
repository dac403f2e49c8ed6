"""The pairs of ``proofs/``, stated again: from a description of a mechanism to exact factors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from privcalc.rigorous.allocation import Allocated
from privcalc.rigorous.balls import arb, precision, upper
from privcalc.rigorous.correlated import bins, shift, turns
from privcalc.rigorous.description import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    ZERO_OUT,
    Described,
    RefusedError,
    UnprovableError,
)
from privcalc.rigorous.discrete_gaussian import Integers, unit_mu
from privcalc.rigorous.factors import Atoms, Chords, Factor, Finite, Laplace, Logistic, Moments, Normal, TwoPoint
from privcalc.rigorous.sampled import Opposite, Persons, Sampled

Kind = Literal["dominating", "moments", "occurring"]
"""Pairs that dominate; alternatives; pairs that occur.

The alternatives: of a bounded range a²/8-zCDP, of short integer vectors a normal pair.
"""


@dataclass(frozen=True)
class Leak:
    """Uses that give everything away, with probability ≤ ``high`` and ≥ ``low`` each.

    From below ``dropped`` is not counted.
    """

    count: int
    high: Fraction
    low: Fraction
    dropped: Fraction


_FINE = 2**80
"""Steps of roots per unit: far finer than the 53 bits of what is claimed."""

STATED = frozenset({"PureDP", "ApproxDP", "GDP", "ZCDP", "RDP", "CustomMechanism"})
"""Guarantees for one relation."""

PLAIN = STATED.union(
    {"Gaussian", "Laplace", "DiscreteGaussian", "RandomizedResponse", "AboveThreshold", "TopK", "ExponentialMechanism"},
    {"PermuteAndFlip", "NoisyMax"},
)
"""What may run on a sample, or on a batch."""

MOST_DRAWS = 200
"""Of a batch with replacement: each is a term at every node."""

BOUNDED = frozenset(
    {"FixedSizeSampled", "TruncatedPoissonSampled", "WithReplacementSampled", "ShuffledEpoch", "Parallel"}
    | {"NoisyMax", "PermuteAndFlip", "AboveThreshold", "CustomMechanism", "CorrelatedGaussian"}
)
"""Whose pairs here are not said to occur, or not together with those of others; from below they count as nothing."""


def occurs(mechanism: Described, part: Factor | Leak, alone: bool) -> bool:
    """Whether the pair's profile is attained.

    The logistic pair's is by one use, not by several; that of integers, and of rounded norms, is not.
    """
    base = mechanism.fields["mechanism"] if mechanism.kind == "PoissonSampled" else mechanism
    if base.kind in BOUNDED or (base.kind == "DiscreteGaussian" and base.fields["norm"] == 2):
        return False
    return alone if isinstance(part, Logistic) else not isinstance(part, (Moments, Chords))


def factors_of(mechanism: Described, count: int, relation: str, kind: Kind, add: bool) -> Iterator[Factor | Leak]:
    """The factors and leaks of so many uses in one direction.

    Raises:
        UnprovableError: if there are none here.
        RefusedError: if there is no guarantee under the relation.
    """
    if mechanism.kind in STATED and mechanism.fields["relation"] != relation:
        raise RefusedError(f"relation = {relation}: {mechanism} was given for {mechanism.fields['relation']}")
    if kind == "occurring" and mechanism.kind in BOUNDED and mechanism.kind != "CorrelatedGaussian":
        return
    moves = 2 if relation == REPLACE_ONE else 1
    match mechanism:
        case Described("Gaussian" | "GDP"):
            yield Normal(count, ((moves if mechanism.kind == "Gaussian" else 1) * _mu(mechanism)) ** 2)
        case Described("LastIterate", {"noise_multiplier": z, "steps": steps, "contraction": c}):
            if relation == ADD_OR_REMOVE_ONE and not mechanism.fields["capped"]:
                raise RefusedError(f"relation = {relation}: {mechanism} is of a public number of records")
            power = _power(c, steps, up=kind == "occurring")  # more of it is less of μ
            yield Normal(count, (1 - power) * (1 + c) / ((1 + power) * (1 - c)) * (moves / z) ** 2)
        case Described("DiscreteGaussian", {"norm": 2, "sensitivity": norm}):
            if kind == "moments" or (kind == "dominating" and norm >= 2):
                yield Normal(count, (moves * _mu(mechanism)) ** 2)
            else:  # so many coordinates that move by 1
                yield Integers(count * math.floor(norm**2), _square(mechanism), moves)
        case Described("DiscreteGaussian", {"sensitivity": shift_}):
            if shift_.denominator > 1:
                raise UnprovableError(f"{mechanism}: moves by no whole number")
            yield Integers(count, _square(mechanism), moves * int(shift_))
        case Described("PureDP", {"epsilon": a}):
            yield Atoms(count, a)
        case Described("RandomizedResponse", {"epsilon": a, "categories": categories}):
            yield Atoms(count, a, categories - 2)
        case Described("ApproxDP", {"epsilon": a, "delta": p}):
            if a:
                yield Atoms(count, a)
            if p:
                yield Leak(count, p, p, p)
        case Described("Laplace", {"scale": scale}):
            yield Laplace(count, moves / scale)
        case Described("ExponentialMechanism" | "PermuteAndFlip" | "NoisyMax", {"epsilon": a, "monotone": monotone}):
            moved = a * moves * (1 if monotone else 2)
            ranged = mechanism.kind == "ExponentialMechanism" or mechanism.fields.get("noise") == "gumbel"
            yield _ranged(count, moved, kind) if ranged else Laplace(count, moved)
        case Described("TopK", {"epsilon": a}):
            yield _ranged(count, a / 2 * moves, kind)
        case Described("AboveThreshold"):
            yield _above(mechanism, count, relation, add)
        case Described("CustomMechanism"):
            yield from _custom(mechanism, count, relation, add)
        case Described("ZCDP", {"rho": rho, "xi": xi}):
            yield Normal(count, 2 * rho) if kind == "occurring" else Moments(count, rho, xi)
        case Described("RDP"):
            yield _renyi(mechanism, count, kind)
        case _:
            yield from _on_samples(mechanism, count, relation, kind, add)


def _on_samples(mechanism: Described, count: int, relation: str, kind: Kind, add: bool) -> Iterator[Factor | Leak]:
    match mechanism:
        case Described("PoissonSampled", {"rate": 1, "mechanism": base}):
            yield from factors_of(_plain(base), count, relation, kind, add)
        case Described("PoissonSampled"):
            yield from _sampled(mechanism, count, relation, kind, add)
        case Described("UserSampled"):
            yield _persons(mechanism, count, relation, add)
        case Described("RandomAllocation"):
            yield _allocated(mechanism, count, relation, add)
        case Described("FixedSizeSampled" | "TruncatedPoissonSampled" | "WithReplacementSampled"):
            yield from _drawn(mechanism, count, relation, kind, add)
        case Described("ShuffledEpoch", {"mechanism": base}):
            if relation == ADD_OR_REMOVE_ONE:
                raise RefusedError(f"relation = {relation}: {mechanism} has no guarantee under it")
            yield from factors_of(_plain(base), count, relation, kind, add)
        case Described("Parallel", {"parts": several}):
            yield from _parallel(mechanism, several, count, relation, kind, add)
        case Described("CorrelatedGaussian"):
            yield from _correlated(mechanism, count, relation, kind, add)
        case _:
            raise UnprovableError(f"{mechanism}: not covered by the rigorous route")


def _plain(base: object) -> Described:
    """Return the description of a mechanism that is not sampled itself."""
    if not isinstance(base, Described) or base.kind not in PLAIN:
        raise UnprovableError(f"{base}: on a sample is not covered by the rigorous route")
    return base


def _unsampled(given: object, relation: str) -> Described:
    """Return the mechanism under a sampler, if that has a guarantee: zero-out's ignores absent records."""
    base = _plain(given)
    if base.kind in STATED and relation != REPLACE_ONE and base.fields["relation"] != relation:
        raise RefusedError(f"relation = {relation}: {base} was given for {base.fields['relation']}")
    if base.kind in STATED and (relation == ZERO_OUT or base.fields["relation"] != ADD_OR_REMOVE_ONE):
        raise RefusedError(f"relation = {relation}: {base} cannot be sampled under it")
    return base


def _normal(given: object, relation: str) -> Fraction:
    """Return the μ of a normal release."""
    base = _unsampled(given, relation)
    if base.kind not in ("Gaussian", "GDP"):
        raise UnprovableError(f"{base}: is no normal release")
    return _mu(base)


def _persons(mechanism: Described, count: int, relation: str, add: bool) -> Factor:
    """All records of the worst person point the same way."""
    if relation == REPLACE_ONE:
        raise UnprovableError(f"{mechanism}: two persons of opposite records are not covered by the rigorous route")
    records, counted, rate = (mechanism.fields[name] for name in ("records", "counted", "rate"))
    most = records if counted is None else counted
    mu = most * _normal(mechanism.fields["mechanism"], relation)
    if most > records:
        raise UnprovableError(f"{mechanism}: counts more than there are")
    return Normal(count, mu**2) if rate == 1 else Persons(count, mu, rate, add, records, most)


def _allocated(mechanism: Described, count: int, relation: str, add: bool) -> Factor:
    """One of the steps, in every pass the same."""
    if relation == REPLACE_ONE:
        raise RefusedError(f"relation = {relation}: {mechanism} is not evaluated for it")
    steps, epochs, choices = (mechanism.fields[name] for name in ("steps", "epochs", "choices"))
    square = _normal(mechanism.fields["mechanism"], relation) ** 2 * epochs
    if choices == steps:
        return Normal(count, square * steps)
    if choices > 1:
        raise UnprovableError(f"{mechanism}: several steps for each record are not covered by the rigorous route")
    return Allocated(count, square, steps, add)


def _drawn(mechanism: Described, count: int, relation: str, kind: Kind, add: bool) -> Iterator[Factor | Leak]:
    """Batches of a size, from above: another record takes the slot; cut ones leak.

    See ``fixed_size.md`` and ``replacement.md``.
    """
    fields = mechanism.fields
    base, size, of = _plain(fields["mechanism"]), fields["batch_size"], fields["dataset_size"]
    if mechanism.kind == "TruncatedPoissonSampled":
        rate = fields["rate"]
        if size > of:
            raise UnprovableError(f"{mechanism}: batches are larger than the data set")
        if rate < 1:
            yield from _sampled(mechanism, count, relation, kind, add)
        else:
            yield from factors_of(base, count, relation, kind, add)
        if size <= of - 1:
            cut = _cut(of - 1, rate, size) * rate
            yield Leak(count, cut, Fraction(0), cut)
        return
    if mechanism.kind == "FixedSizeSampled" and size == of and relation != ADD_OR_REMOVE_ONE:
        yield from factors_of(base, count, relation, kind, add)
        return
    if of == 1 or (mechanism.kind == "FixedSizeSampled" and size >= of):
        raise RefusedError(f"relation = {relation}: {mechanism} has no guarantee under it")
    if relation != ADD_OR_REMOVE_ONE:
        raise UnprovableError(
            f"{mechanism}: under {relation} only a profile is known, not covered by the rigorous route"
        )
    if mechanism.kind == "WithReplacementSampled":
        if size > MOST_DRAWS:
            raise UnprovableError(f"{mechanism}: more than {MOST_DRAWS} draws are not covered by the rigorous route")
        yield Persons(count, 2 * size * _normal(base, relation), Fraction(1, of), add, size, size)
        return
    rate = Fraction(size, of)
    for part in factors_of(base, count, REPLACE_ONE, kind, add):
        if isinstance(part, Normal):
            yield Sampled(count, _root(part.square), rate, add)
        elif isinstance(part, Atoms):
            yield replace(part, rate=rate, add=add)
        else:
            raise UnprovableError(f"{mechanism}: its transform is not covered by the rigorous route")


def _root(square: Fraction) -> Fraction:
    """√, from above; exact where it is a fraction."""
    top, bottom = math.isqrt(square.numerator), math.isqrt(square.denominator)
    if top * top == square.numerator and bottom * bottom == square.denominator:
        return Fraction(top, bottom)
    with precision(192):
        return Fraction(upper(arb(square).sqrt()))


def _cut(records: int, rate: Fraction, size: int) -> Fraction:
    """A double above P(Bin(records, rate) ≥ size), by the incomplete beta function."""
    if rate == 1:
        return Fraction(1)
    with precision(192):
        tail = arb(rate).beta_lower(size, records - size + 1, regularized=True)
        return Fraction(upper(tail.min(arb(1))) if tail.is_finite() else 1.0)


def _parallel(
    mechanism: Described, several: object, count: int, relation: str, kind: Kind, add: bool
) -> Iterator[Factor | Leak]:
    """The worst part, where it is the same at every ε: equal factors, or normal ones."""
    if relation == REPLACE_ONE:
        raise RefusedError(f"relation = {relation}: {mechanism} has no guarantee under it")
    parts = several if isinstance(several, tuple) else ()
    different = {tuple(factors_of(part, count, relation, kind, add)) for part in parts}
    normal = [one[0] for one in different if len(one) == 1 and isinstance(one[0], Normal)]
    if len(normal) == len(different) > 0:
        yield max(normal, key=lambda part: part.square)
    elif len(different) == 1:
        yield from different.pop()
    else:
        raise UnprovableError(f"{mechanism}: the worst of different parts is not covered by the rigorous route")


def _correlated(mechanism: Described, count: int, relation: str, kind: Kind, add: bool) -> Iterator[Factor | Leak]:
    """Independent Gaussians, sampled in cyclic classes, allocated in bins; shifts rounded outward.

    See ``proofs/correlated.md``.
    """
    noise, strategy, taking = (mechanism.fields[name] for name in ("noise_multiplier", "strategy", "participation"))
    low = kind == "occurring"
    match taking:
        case Described("BallsInBins"):
            if relation == REPLACE_ONE:
                raise RefusedError(f"relation = {relation}: {mechanism} is not evaluated for it")
            square, slots = bins(strategy, taking, low=low)
            if square:
                square /= noise**2
                yield Normal(count, square) if slots == 1 else Allocated(count, square, slots, add)
        case Described("CyclicPoisson", {"rate": rate}):
            for norm, uses in turns(strategy, taking, low=low):
                step = Described("Gaussian", {"noise_multiplier": noise / norm})
                one = Described("PoissonSampled", {"mechanism": step, "rate": rate})
                yield from factors_of(one, count * uses, relation, kind, add)
        case _:
            moves = 4 if relation == REPLACE_ONE else 1
            yield Normal(count, moves * shift(strategy, taking, low=low) / noise**2)


def _ranged(count: int, a: Fraction, kind: Kind) -> Factor:
    """Loss of range a: the logistic pair; or a²/8-zCDP and a-DP; it occurs as a choice between two with losses ±a/2."""
    if kind == "occurring":
        return Atoms(count, a / 2)
    return Moments(count, a * a / 8, most=a) if kind == "moments" else Logistic(count, a)


def _above(mechanism: Described, count: int, relation: str, add: bool) -> Factor:
    """Two outcomes with the largest losses (``proofs/sparse_vector.md``)."""
    fields = mechanism.fields
    raised = fields["monotone"] and relation != REPLACE_ONE
    moves = 2 if relation == REPLACE_ONE and not fields["monotone"] else 1
    question = fields["answers"] * moves / fields["query_scale"]
    high = moves / fields["threshold_scale"] + question * (1 if raised else 2)
    low = question if raised else high
    return TwoPoint(count, high, low) if add else TwoPoint(count, low, high)


def _custom(mechanism: Described, count: int, relation: str, add: bool) -> Iterator[Factor | Leak]:
    """Yield the factors of two given laws; under replace-one each use may have either order."""
    p, q = mechanism.fields["with_record"], mechanism.fields["without_record"]
    whole = sum(p), sum(q)
    if (
        len(p) != len(q)
        or not all(isinstance(x, Fraction) for x in (*p, *q))
        or not all(abs(x - 1) <= 2e-9 for x in whole)
    ):
        raise UnprovableError(f"{mechanism}: no two laws")
    if relation == REPLACE_ONE and sorted(zip(p, q, strict=True)) != sorted(zip(q, p, strict=True)):
        raise UnprovableError(f"{mechanism}: laws in either order are not covered by the rigorous route")
    pairs = [(y, x) if add else (x, y) for x, y in zip(p, q, strict=True)]
    whole = whole[::-1] if add else whole
    leak = sum((x for x, y in pairs if not y), start=Fraction(0)) / whole[0]
    if kept := tuple((x, y) for x, y in pairs if x and y):
        yield Finite(count, kept, whole)
    if leak or not kept:
        yield Leak(count, leak if kept else Fraction(1), Fraction(0), Fraction(1))


def _renyi(mechanism: Described, count: int, kind: Kind) -> Factor:
    """K lies below its chords; D_α does not fall with α, so that a smaller value at a larger order holds below, too."""
    orders, epsilons = mechanism.fields["orders"], mechanism.fields["epsilons"]
    if len(orders) != len(epsilons) or len(set(orders)) < len(orders) or not min(orders) > 1:
        raise UnprovableError(f"{mechanism}: must have one value for each order > 1")
    pairs = [(a, Fraction(e)) for a, e in sorted(zip(orders, epsilons, strict=True)) if e < math.inf]
    if kind == "occurring":
        return Normal(
            count, 2 * min((e / Fraction(a) if a < math.inf else Fraction(0) for a, e in pairs), default=Fraction(0))
        )
    knots, least = [], None
    for a, e in reversed(pairs):
        least = e if least is None else min(least, e)
        if a < math.inf:
            knots.append((Fraction(a) - 1, (Fraction(a) - 1) * least))
    most = pairs[-1][1] if pairs and pairs[-1][0] == math.inf else None
    return Chords(count, tuple(reversed(knots)), most)


def _sampled(mechanism: Described, count: int, relation: str, kind: Kind, add: bool) -> Iterator[Factor | Leak]:
    q = mechanism.fields["rate"]
    base = _unsampled(mechanism.fields["mechanism"], relation)
    vectors = base.kind == "DiscreteGaussian" and base.fields["norm"] == 2
    if kind == "occurring" and (vectors or base.kind in BOUNDED):
        return
    if relation == REPLACE_ONE:
        if not (base.kind in ("Gaussian", "GDP") or vectors):
            raise UnprovableError(f"{mechanism}: under replace-one only the group rule is proved here")
        yield Opposite(count, _mu(base), q)
        return
    for part in [Normal(count, _mu(base) ** 2)] if vectors else factors_of(base, count, relation, kind, False):
        if isinstance(part, Normal):
            if base.kind in STATED and base.kind != "GDP":
                raise UnprovableError(f"{base}: cannot be sampled, because only its Rényi divergences are known")
            yield Sampled(count, _mu(base), q, add)
        elif isinstance(part, Atoms) or (isinstance(part, Finite) and _full(base)):
            yield replace(part, rate=q, add=add)
        elif isinstance(part, Leak) and base.kind == "ApproxDP":
            yield Leak(count, q * part.high, Fraction(0) if add else q * part.low, part.dropped)
        else:
            raise UnprovableError(f"{mechanism}: its transform is not covered by the rigorous route")


def _full(base: Described) -> bool:
    """Every outcome can come of both."""
    return all((*base.fields["with_record"], *base.fields["without_record"]))


def _power(base: Fraction, exponent: int, *, up: bool) -> Fraction:
    """The power of a number in [0, 1), in whole steps of 2⁻²⁵⁶ that are rounded down, or up."""
    bits, sign = 256, -1 if up else 1

    def rounded(product: int | Fraction) -> int:
        return sign * math.floor(sign * Fraction(product))

    unit, found = 1 << bits, 1 << bits
    square = rounded(base * unit)
    for bit in reversed(bin(exponent)[2:]):
        if bit == "1":
            found = rounded(Fraction(found * square, unit))
        square = rounded(Fraction(square * square, unit))
    return Fraction(found, unit)


def _mu(base: Described) -> Fraction:
    """μ of N(μ, 1) against N(0, 1), which dominates one that is added or removed."""
    match base:
        case Described("Gaussian", {"noise_multiplier": z}):
            return 1 / z  # type: ignore[no-any-return]
        case Described("GDP", {"mu": mu}):
            return mu  # type: ignore[no-any-return]
        case Described("DiscreteGaussian", {"norm": 2, "noise_multiplier": z, "sensitivity": norm}):
            length = math.isqrt(math.floor(norm**2) * _FINE**2) + 1  # above √⌊norm²⌋, the longest of integers
            return Fraction(length, _FINE) * unit_mu(z * norm)
    raise UnprovableError(f"{base}: is not covered as a normal release")


def _square(noise: Described) -> Fraction:
    """Return the variance σ² of the noise."""
    return (noise.fields["noise_multiplier"] * noise.fields["sensitivity"]) ** 2  # type: ignore[no-any-return]
