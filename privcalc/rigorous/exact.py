"""Compositions without an integral: sums over atoms of a closed profile (``proofs/rigorous.md``, §5).

δ(ε) = E[δ_rest(ε − L)] over the loss L of the atoms, where the rest has a closed profile at every real ε: nothing, a
Gaussian, one sampled Gaussian, or any number of Laplace and logistic losses, whose transforms are sums of
e^{y·knot}/(2y)^k.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import flint

from privcalc.rigorous.balls import Ball, UnprovableError, arb, lower, precision, upper
from privcalc.rigorous.contour import Bounds
from privcalc.rigorous.discrete_gaussian import Integers
from privcalc.rigorous.factors import Discrete, Factor, Laplace, Logistic, Normal
from privcalc.rigorous.sampled import Opposite, Sampled

MOST_ATOMS, MOST_TERMS, MOST_LOSSES = 2_000_000, 400_000, 200
"""The most terms of a sum: over atoms alone, and else; and losses of one use that are composed one by one."""

Profile = Callable[[Ball], Ball]


def exact(factors: Sequence[Factor], epsilon: Fraction) -> Bounds | None:
    """Bounds of δ(ε) to about 18 digits; None where there is no such form, or its sums are too long."""
    atoms = [f for f in factors if isinstance(f, (Discrete, Integers))]
    splines = [f for f in factors if isinstance(f, (Laplace, Logistic))]
    rest = [f for f in factors if not isinstance(f, (Discrete, Integers, Laplace, Logistic))]
    if splines and any(isinstance(f, Integers) for f in atoms):
        return None
    size = math.prod(_size(f) for f in atoms)
    if not rest and not splines:
        size, kind = size // 2, "atoms"
    elif not rest:
        size, kind = size * _terms(splines), "polynomial pieces"
    elif len(rest) == 1 and not splines and isinstance(rest[0], Normal):
        kind = "closed form"
    elif len(rest) == 1 and not splines and isinstance(rest[0], (Sampled, Opposite)) and rest[0].count == 1:
        kind = "closed form of one sampled use"
    else:
        return None
    if size > (MOST_ATOMS if kind == "atoms" and len(atoms) == 1 else MOST_TERMS):
        return None
    bits = 192
    while True:
        with precision(bits):
            value = _sum(atoms, _profile(splines, rest), arb(epsilon), alone=kind == "atoms")
            low, high = max(0.0, lower(value)), min(1.0, upper(value))
            # All digits of a double; 12,000 bits are more than any cancellation here that can be afforded.
            if high - low <= 1e-15 * high or bits > 12_000:
                return Bounds(low, high, f"{kind}, {size} terms, {bits} bits")
        bits *= 2


def _size(factor: Discrete | Integers) -> int:
    n = factor.count
    if isinstance(factor, Integers):
        return factor.size(192)
    k = len(factor.law())
    if factor.regular or n == 1:
        return 2 * n + k
    if k == 2:
        return n + 1
    return math.comb(n + k - 1, n) if k <= MOST_LOSSES and n < MOST_ATOMS else 4 * MOST_ATOMS


def _profile(splines: Sequence[Laplace | Logistic], rest: Sequence[Factor]) -> Profile:
    if splines:
        return Pieces(splines).profile
    if rest:
        profile: Profile = rest[0].profile  # type: ignore[attr-defined]
        return profile
    return lambda epsilon: (-epsilon.expm1()).max(arb(0))


def _sum(atoms: Sequence[Discrete | Integers], profile: Profile, epsilon: Ball, *, alone: bool) -> Ball:
    """Σ mass·δ_rest(ε − loss). Alone, losses below ε add nothing."""
    total = arb(0)
    if alone and len(atoms) == 1:
        descending = isinstance(atoms[0], Integers) or atoms[0].regular or len(atoms[0].law()) == 2
        for loss, mass in composed(atoms[0]):
            if not loss < epsilon:
                total += mass * profile(epsilon - loss)
            elif descending:
                break
        return total
    for parts in itertools.product(*(list(composed(factor)) for factor in atoms)):
        loss, mass = arb(0), arb(1)
        for x, p in parts:
            loss, mass = loss + x, mass * p
        if not (alone and loss < epsilon):
            total += mass * profile(epsilon - loss)
    return total


def composed(factor: Discrete | Integers) -> Iterator[tuple[Ball, Ball]]:
    """(loss, probability) of all uses together, descending losses.

    Three and more atoms that are not regular come in no order.
    """
    if isinstance(factor, Integers):
        yield from factor.composed()
        return
    law, n = factor.law(), factor.count
    if len(law) == 2:
        (low, d), (high, p) = law
        mass, ratio = p**n, d / p
        for k in range(n, -1, -1):
            yield k * high + (n - k) * low, mass
            mass = mass * k / (n - k + 1) * ratio
    elif factor.regular:
        # Coefficients of (p + zx + dx²)^n: p(j + 1)e_{j+1} = (n − j)z·e_j + (2n − j + 1)d·e_{j−1}; P(L = −l)
        # = e^{−l}P(L = l).
        d, z, p = (mass for _, mass in law)
        a, before, here, upper_half = law[-1][0], arb(0), p**n, []
        for j in range(n + 1):
            yield (n - j) * a, here
            upper_half.append(here)
            before, here = here, ((n - j) * z * here + (2 * n - j + 1) * d * before) / (p * (j + 1))
        for j in range(n - 1, -1, -1):
            yield -(n - j) * a, upper_half[j] * (-(n - j) * a).exp()
    else:
        yield from reversed(law) if n == 1 else _multinomial(law, n)


def _multinomial(law: Sequence[tuple[Ball, Ball]], n: int) -> Iterator[tuple[Ball, Ball]]:
    """Return the law of n uses, loss by loss: C(n, k)p^k ways for k of the last, and the others in the rest."""
    loss, p = law[-1]
    if len(law) == 1:
        yield n * loss, p**n
        return
    for k in range(n + 1):
        share = math.comb(n, k) * p**k
        for other, mass in _multinomial(law[:-1], n - k):
            yield k * loss + other, share * mass


def _terms(splines: Sequence[Laplace | Logistic]) -> int:
    return math.prod((n + 1) * (m + 1) for n, m in _groups(splines).values())


def _groups(splines: Sequence[Laplace | Logistic]) -> dict[Fraction, tuple[int, int]]:
    """a → (uses, Laplace ones)."""
    groups: dict[Fraction, tuple[int, int]] = {}
    for factor in splines:
        n, m = groups.get(factor.a, (0, 0))
        groups[factor.a] = n + factor.count, m + (factor.count if isinstance(factor, Laplace) else 0)
    return groups


class Pieces:
    """M = scale·Σ coefficient·e^{y·knot}/(2y)^k, so that δ(ε) = scale·e^{ε/2}·Σ coefficient·G_k((knot − ε)_+)."""

    def __init__(self, splines: Sequence[Laplace | Logistic]) -> None:
        poly = flint.fmpz_poly
        self.scale = arb(1)
        for factor in splines:
            half = arb(factor.a) / 2
            self.scale *= ((-half).exp() if isinstance(factor, Laplace) else 1 / half.sinh()) ** factor.count
        # Per scale a: cosh^{l − m}·sinh^{m + n − l}/(2y)^{m + n − l}, C(l, m) times, of n uses l Laplace ones;
        # in X = e^{ya}.
        self.knots: dict[tuple[Fraction, ...], dict[int, int]] = {(): {0: 1}}
        for a, (n, laplace) in _groups(splines).items():
            own: dict[tuple[Fraction, ...], dict[int, int]] = {}
            for m in range(laplace + 1):
                product = poly([1, 1]) ** (laplace - m) * poly([-1, 1]) ** (m + n - laplace) * math.comb(laplace, m)
                for i, value in enumerate(product.coeffs()):
                    own.setdefault(((2 * i - n) * a,), {})[m + n - laplace] = int(value)
            joined: dict[tuple[Fraction, ...], dict[int, int]] = {}
            for (left, x), (right, y) in itertools.product(self.knots.items(), own.items()):
                into = joined.setdefault(left + right, {})
                for (i, u), (j, v) in itertools.product(x.items(), y.items()):
                    into[i + j] = into.get(i + j, 0) + u * v
            self.knots = joined
            self.scale /= arb(2) ** n

    def profile(self, epsilon: Ball) -> Ball:
        """δ(ε), any real ε."""
        total = arb(0)
        for knot, powers in self.knots.items():
            x = arb(sum(knot, start=Fraction(0))) - epsilon
            if not x < 0:
                table = _primitives(x.max(arb(0)) / 2, max(powers))
                for k, value in powers.items():
                    total += value * table[k]
        return self.scale * (epsilon / 2).exp() * total


def _primitives(z: Ball, most: int) -> list[Ball]:
    """G_k = 2·Σ_j z^{k+1+2j}/(k + 1 + 2j)! for 0 ≤ k ≤ most.

    The inverse transforms of 1/((2y)^k(y² − ¼)) at x = 2z ≥ 0.
    """
    # The series has about 3z terms, each as wide as e^z: 29,000 bits.
    if not z < 20_000:
        raise UnprovableError("losses this large: no series is summed so far")
    term, terms = arb(2), []
    for i in range(most + 3):
        terms.append(term)  # 2z^i/i!
        term = term * z / (i + 1)
    values, tiny = [arb(0)] * (most + 2), arb(2) ** -(flint.ctx.prec + 20)
    for k in (most + 1, most):
        # The terms from i = k + 1 on, two apart. Once z < i/2 each is less than a quarter of the one before.
        i, here, total = k + 1, terms[k + 1], arb(0)
        while not z < 0.5 * i or here > tiny * total:
            total += here
            here = here * z * z / ((i + 1) * (i + 2))
            i += 2
        values[k] = total + (2 * here).union(arb(0))
    for k in range(most - 1, -1, -1):
        values[k] = values[k + 2] + terms[k + 1]
    return values[: most + 1]
