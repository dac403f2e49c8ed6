"""Bounds of δ(ε) of one composed direction: the routes in turn, until the claim is decided."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import flint

from privcalc.rigorous.allocation import allocated
from privcalc.rigorous.balls import Ball, arb, lower, middle, precision, upper
from privcalc.rigorous.contour import Bounds, Contour, Progress
from privcalc.rigorous.description import ADD_OR_REMOVE_ONE, Description, UnprovableError
from privcalc.rigorous.discrete_gaussian import Integers
from privcalc.rigorous.factors import Discrete, Factor, Laplace, Logistic, Normal
from privcalc.rigorous.mechanisms import BOUNDED, Kind, Leak, factors_of, occurs
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


class Leaked(NamedTuple):
    """1 − Π(1 − p)^n from above and below; the share Π(1 − dropped)^n kept below (``proofs/conversions.md``, §2)."""

    high: Ball
    low: Ball
    kept: Ball


@dataclass(frozen=True)
class Composition:
    """One composed direction: factors, leaks, and whether this pair itself occurs."""

    factors: tuple[Factor, ...]
    leaks: tuple[Leak, ...]
    exact: bool

    def leaked(self) -> Leaked:
        """Return all leaks together: bounds of the probability that any occurs, and of what is kept."""
        high, low, kept = arb(1), arb(1), arb(1)
        for leak in self.leaks:
            high *= (1 - arb(leak.high)) ** leak.count
            low *= (1 - arb(leak.low)) ** leak.count
            kept *= (1 - arb(leak.dropped)) ** leak.count
        return Leaked(1 - high, 1 - low, kept)

    def top(self) -> Ball | None:
        """The largest loss apart from leaks; None if there is none."""
        total = arb(0)
        for factor in self.factors:
            top = factor.top
            if top is None:
                return None
            total += factor.count * top
        return total


def compose(run: Description, relation: str, kind: Kind, *, add: bool) -> Composition:
    """The factors of a run in one direction.

    Raises:
        UnprovableError: if a part has no factor here.
        RefusedError: if a mechanism has no guarantee under the relation.
    """
    square, parts, leaks, exact = Fraction(0), dict[Factor, int](), list[Leak](), True
    alone = len(run) == 1 and run[0][1] == 1
    for mechanism, count in run:
        exact = exact and (kind == "occurring" or mechanism.kind not in BOUNDED)
        for part in factors_of(mechanism, count, relation, kind, add):
            if isinstance(part, Leak):
                leaks.append(part)
            elif isinstance(part, Normal):
                square += part.count * part.square
            else:
                parts[replace(part, count=1)] = parts.get(replace(part, count=1), 0) + part.count
            exact = exact and (kind == "occurring" or occurs(mechanism, part, alone))
    factors = [replace(part, count=n) for part, n in parts.items()]
    if square:
        factors.append(Normal(1, square))
    return Composition(tuple(factors), tuple(leaks), exact)


LADDER = (1e-4, 1e-8, 1e-13, 1e-18)
"""Accuracies of δ relative to the claim, each tried only if the one before did not decide."""

BITS = 192
"""Of what is not asked to more digits than a double has: thrice as many."""


def silent(line: str) -> None:
    """Take a line of progress and show nothing."""


class DirectionBounds:
    """The bounds of δ of one composition: δ ≤ p + (1 − p)·δ' with the leaks' p set apart."""

    def __init__(self, parts: Composition) -> None:
        self.parts = parts
        self.contour = Contour(parts.factors)

    def chernoff(self, epsilon: Fraction) -> float:
        """The bound on the real axis, leaks included."""
        with precision(BITS):
            return self._leaked(Bounds(0.0, self.contour.axis.chernoff(arb(epsilon)), "")).high

    def bounds(self, epsilon: Fraction, delta: float, progress: Progress) -> Bounds:
        """Bounds of δ(ε), sharp enough to compare it with δ where that is possible."""
        with precision(BITS):
            self.contour.axis.progress = progress
            top = self.parts.top()
            if top is not None and top <= arb(epsilon):
                return self._leaked(Bounds(0.0, 0.0, "the largest possible loss"))
            if delta == 0:  # and a loss above ε may occur
                positive = top is None or top > arb(epsilon)
                # 5e-324: the least double above 0, as δ > 0.
                return self._leaked(Bounds(5e-324 if positive else 0.0, 1.0, "losses above ε"))
            leak = self.parts.leaked().high
            rest = middle((delta - leak) / (1 - leak))
            quick = self._leaked(Bounds(0.0, self.contour.axis.chernoff(arb(epsilon)), "a Chernoff bound"))
            if quick.high <= delta:
                return quick
            closed = exact(self.parts.factors, epsilon)
            if closed is not None:
                return self._leaked(closed)
            # Where the leaks take all of δ, four digits of it are looked for, not ever more.
            target = math.log(max(rest, 1e-4 * delta))
            best = quick
            for accuracy in LADDER:
                small = target + math.log(accuracy)
                sharp = allocated(self.parts.factors, epsilon, small, progress) or self.contour.bounds(
                    arb(epsilon), small, progress
                )
                if isinstance(sharp, str):
                    if best is quick:
                        best = self._leaked(Bounds(0.0, self.contour.axis.chernoff(arb(epsilon), fine=True), quick.how))
                    return Bounds(best.low, best.high, f"{best.how} ({sharp})")
                best = self._leaked(sharp)
                if best.high <= delta or best.low > delta:
                    break
            return best

    def _leaked(self, rest: Bounds) -> Bounds:
        high, low, kept = self.parts.leaked()
        if not self.parts.leaks:
            return rest
        most = min(1.0, upper(high + (1 - high) * arb(rest.high)))
        least = max(0.0, lower(low + kept * arb(rest.low)))
        return Bounds(least, most, f"{rest.how}, and leaks with probability {upper(high):.6g}")


def by_group(run: Description, epsilon: Fraction, delta: float, progress: Progress) -> tuple[float, str]:
    """Replace-one as removing and adding: δ ≤ δ_remove(t) + e^t·δ_add(ε − t) for any t.

    Chernoff bounds suggest a t.
    """
    remove, add = (DirectionBounds(compose(run, ADD_OR_REMOVE_ONE, "dominating", add=way)) for way in (False, True))

    def total(t: Fraction, sharp: bool) -> tuple[float, str]:
        rise = math.exp(min(float(t), 700.0))
        with precision(BITS):
            if not sharp:
                return remove.chernoff(t) + rise * add.chernoff(epsilon - t), ""
            first = remove.bounds(t, 1e-9 * delta, silent)
            second = add.bounds(epsilon - t, 1e-9 * delta / rise, silent)
            return upper(
                arb(first.high) + arb(t).exp() * arb(second.high)
            ), f"t = {float(t):.6g}, {first.how}, {second.how}"

    share = min(range(1, 40), key=lambda k: total(epsilon * k / 40, sharp=False)[0])
    low, high = epsilon * max(share - 2, 0) / 40, epsilon * min(share + 2, 40) / 40
    golden, points = Fraction(math.sqrt(5) - 1) / 2, dict[Fraction, tuple[float, str]]()
    best = (1.0, "")
    for turn in range(34):
        if turn > 4 and best[0] > (1 + 4.0 ** (3 - turn)) * delta:  # out of reach
            break
        inner = [high - golden * (high - low), low + golden * (high - low)]
        for wanted in inner:
            t = Fraction(float(wanted))
            if not points or min(abs(p - t) for p in points) > (high - low) / 10**6:
                points[t] = total(t, sharp=True)
                best = min(best, points[t])
                progress(f"group rule: {len(points)} points tried, δ ≤ {best[0]:.9g}")
                if best[0] <= delta:
                    return best
        left, right = (min(points, key=lambda p: abs(p - t)) for t in inner)
        low, high = (low, inner[1]) if points[left] < points[right] else (inner[0], high)
    return best
