"""The discrete Gaussian mechanism (Canonne, Kamath, Steinke 2020)."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

import numpy as np

from privcalc import errors
from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.interfaces import ProfileValues, Transform
from privcalc.numerics.routes.atoms import AtomLaw, Atoms, Masses, lost_tails, power
from privcalc.numerics.solve import Bounds
from privcalc.numerics.special import erf, ndtr, ndtri_exp
from privcalc.numerics.transforms import LEAST_SIGMA, ThetaTransform
from privcalc.pairs.discrete import DiscretePair
from privcalc.pairs.dominating import NOTHING, Pairs
from privcalc.pairs.gaussian import GaussianPair
from privcalc.pairs.pair import Pair, SymmetricPair
from privcalc.pairs.replace_one import finite
from privcalc.run import Additive, ByNumber

__all__ = ["DiscreteGaussian", "unit_mu"]

WIDEST = 1e5
"""The largest standard deviation of a table, which has 8 million entries."""

WIDEST_OF_VECTORS = 1e12
"""The largest standard deviation for L2 norms, which need no table."""

_LARGEST_TABLE = 30_000
"""The most atoms of an exact power: one convolution takes a quarter of a second."""

_SMOOTH = 4.0
"""From there on a sum of n noises has the masses of one noise of variance nσ², to a factor within n·1e-67 of 1."""

_LARGEST_OPPOSITE = 10_000.0
"""The largest standard deviation at which two opposite records have a table: a million entries."""

_FEW = 10_000
"""Atoms up to which all values of a run are enumerated."""


@dataclass(frozen=True)
class DiscreteGaussianPair(SymmetricPair):
    """N_Z(shift, σ²) against N_Z(0, σ²) on the integers, symmetric by x → shift − x.

    ``count`` > 1 is the exact composition.

    The loss at shift + y is (shift/σ²)·(y + shift/2). Proof: ``proofs/discrete_gaussian.md``.
    """

    sigma: float
    shift: int
    count: int = 1

    def profile(self, epsilon: Floats) -> ProfileValues:
        """A sum over the atoms above ε."""
        return _law(self).profile(epsilon)

    @property
    def factors(self) -> tuple[tuple[Pair, int], ...]:
        """The single uses, each of which has a transform."""
        return ((DiscreteGaussianPair(self.sigma, self.shift), self.count),)

    def power(self, count: int) -> DiscreteGaussianPair | None:
        """The exact composition of ``count`` uses; None where its table would be too large."""
        total = self.count * count
        if self.sigma >= _SMOOTH:
            fits = self.sigma * math.sqrt(total) <= WIDEST and total * self.shift <= 2**50
        else:
            # A table is 2·38.7σ wide: down to e^{−745}.
            fits = total <= (_LARGEST_TABLE / (80 * max(self.sigma, 0.5))) ** 2
        if total > 1 and not fits:
            return None
        return DiscreteGaussianPair(self.sigma, self.shift, total)

    @property
    def atoms(self) -> Atoms | None:
        """The atoms of the table, if it is small."""
        return Atoms.of(_law(self)) if 80 * self.sigma * math.sqrt(self.count) < _FEW else None

    @property
    def transform(self) -> Transform | None:
        """Closed, for one use; of little noise a sum over the atoms."""
        if self.count > 1:
            return None
        return ThetaTransform(self.sigma, self.shift) if self.sigma >= LEAST_SIGMA else super().transform

    def opposed(self, rate: float) -> Pair | None:
        """The pair of N_Z around the shift and around its negative, if a small table has nearly all of both."""
        root = math.sqrt(self.count)
        if self.sigma * root > _LARGEST_OPPOSITE or self.shift * root > 20 * self.sigma:
            return None
        if rate == 1:
            return DiscreteGaussianPair(self.sigma, 2 * self.shift, self.count)
        return OppositeDiscreteGaussianPair(self.sigma, self.shift, rate, self.count)

    @property
    def zcdp(self) -> float:
        """shift²/(2σ²), as for the Gaussian (Canonne, Kamath, Steinke 2020)."""
        return 0.5 * self.count * (self.shift / self.sigma) ** 2 * (1 + 8 * UNIT)

    @property
    def gdp_bounds(self) -> Bounds:
        """A μ for one use, hence √n·μ for n uses; nothing is claimed from below."""
        return 0.0, math.sqrt(self.count) * _gdp(self.sigma, self.shift)


@dataclass(frozen=True)
class OppositeDiscreteGaussianPair(SymmetricPair):
    """N_Z(0, σ²), or with probability q < 1 N_Z(shift, σ²), against the same with −shift.

    These are two opposite records, in ``count`` coordinates.

    Tests of all coordinates are tests of their sum. A finite pair, but for what lies beyond e^{−648}.
    """

    sigma: float
    shift: int
    rate: float
    count: int = 1

    def profile(self, epsilon: Floats) -> ProfileValues:
        """Return the profile of the finite pair, its error raised by the mass it lacks."""
        pair, missing = _opposite_law(self)
        delta, tail, error = pair.profile(epsilon)
        return ProfileValues(delta, tail, error + missing)

    @property
    def zcdp(self) -> float:
        """The ρ of two records without sampling, which dominates, as Rényi divergences are quasi-convex."""
        return DiscreteGaussianPair(self.sigma, 2 * self.shift, self.count).zcdp

    @property
    def gdp_bounds(self) -> Bounds:
        return DiscreteGaussianPair(self.sigma, 2 * self.shift, self.count).gdp_bounds

    @property
    def atoms(self) -> Atoms | None:
        """The atoms of the finite pair, if they are few."""
        pair, missing = _opposite_law(self)
        law = pair.atoms
        if law.losses.size > _FEW:
            return None
        return Atoms(law.losses, law.masses, law.relative + missing, law.shift, missing)


@functools.lru_cache(maxsize=8)
def _opposite_law(pair: OppositeDiscreteGaussianPair) -> tuple[DiscretePair, float]:
    """The finite pair of sums at which the noise without a record is above e^{−648}.

    Returned with what P has elsewhere, at most.
    """
    sigma, shift, count = pair.sigma, pair.shift, pair.count
    spread = sigma * math.sqrt(count)
    # e^{−36²/2} = e^{−648}.
    reach = math.floor(36 * spread)
    y = np.arange(-reach, reach + 1, dtype=np.float64)
    inherited = 0.0
    if count == 1 or sigma >= _SMOOTH:
        null = np.exp(-0.5 * (y / spread) ** 2)
    else:
        law = power(_masses(sigma), count)
        null = law.values[-reach - int(law.first) : reach + 1 - int(law.first)]
        null = null + null[::-1]  # levels of x and x' are the same numbers
        inherited = 4 * law.relative
    null = null / float(null.sum())
    with np.errstate(under="ignore"):
        moved = null * np.exp((shift / sigma) * (y / sigma) - 0.5 * count * (shift / sigma) ** 2)
    # P(y > reach) of noise around count·shift, of which E e^{ty} is at most a Gaussian's.
    beyond = math.exp(-0.5 * (max(reach + 1 - count * shift, 0) / spread) ** 2)
    opposites = dataclasses.replace(finite(moved, null, pair.rate), inherited=inherited)
    return opposites, pair.rate * min(2 * beyond, 1.0) + 1e-280


def _masses(sigma: float, count: int = 1) -> Masses:
    """N_Z(0, count·σ²) down to e^{−745}.

    A weight is off by 6 units of its exponent; beyond the table lies less than 1e-320.
    """
    variance = sigma * sigma * count
    # e^{−38.7²/2} = e^{−749} is 0.
    reach = math.ceil(38.7 * math.sqrt(variance)) + 1
    y = np.arange(-reach, reach + 1, dtype=np.float64)
    with np.errstate(under="ignore"):
        weights = np.exp(-(y * y) * (0.5 / variance))
    kept = np.flatnonzero(weights)
    low, high = int(kept[0]), int(kept[-1]) + 1
    weights = weights[low:high]
    return Masses(
        float(y[low]), weights / weights.sum(), (3_800 if count == 1 else 4_600) * UNIT, lost_tails(0.5 * weights.size)
    )


@functools.lru_cache(maxsize=4)
def _law(pair: DiscreteGaussianPair) -> AtomLaw:
    """The loss of ``count`` uses: (shift/σ²)·(Σy + count·shift/2)."""
    if pair.count > 1 and pair.sigma >= _SMOOTH:
        law = _masses(pair.sigma, pair.count)
        law = Masses(law.first + 0.5 * pair.shift * pair.count, law.values, law.relative, law.missing)
        return AtomLaw(law, pair.shift / pair.sigma / pair.sigma, 0.0)
    law = _masses(pair.sigma)
    law = power(Masses(law.first + 0.5 * pair.shift, law.values, law.relative, law.missing), pair.count)
    return AtomLaw(law, pair.shift / pair.sigma / pair.sigma, 0.0)


@functools.lru_cache(maxsize=64)
def _gdp(sigma: float, shift: int) -> float:
    """The largest z(x) − z(x − shift), where z(y) = −Φ⁻¹(P(Y ≥ y)).

    Beyond 37σ it is a closed bound (see the proof page).
    """
    far = int(37 * sigma) + 50
    top = far + shift
    y = np.arange(1, top + int(8 * sigma) + 8, dtype=np.float64)
    # logs throughout: nothing underflows; what lies beyond the end is below e^{−300} of what is summed
    log_weights = -0.5 * (y / sigma) ** 2
    log_tails = np.logaddexp.accumulate(log_weights[::-1])[::-1]
    log_tails -= np.logaddexp(0.0, math.log(2) + log_tails[0])  # the sum over all integers
    z = -ndtri_exp(log_tails[:top])
    scores = np.concatenate((-z[::-1], z))  # z(1 − y) = −z(y): y = 1 − top … top
    largest = float(np.max(scores[shift:] - scores[:-shift]))
    # (4.2) of ``proofs/discrete_gaussian.md``.
    beyond = shift / sigma * 1.0065 * (1 + 0.5 * shift / far)
    return max(largest * (1 + 1e-9) + 1e-12 * (1 + sigma), min(beyond, shift * unit_mu(sigma)))


@functools.lru_cache(maxsize=64)
def unit_mu(sigma: float) -> float:
    """A μ for N_Z(0, σ²) moved by 1, close to the smallest: about 1/√(σ² − 1/12).

    Moved by an integer vector v, noise in every coordinate is ‖v‖·μ-GDP (``proofs/discrete_gaussian.md``, §6).

    Example:
        >>> print(f"{unit_mu(1.0):.6f} {unit_mu(10.0):.8f}")
        1.046674 0.10004171
    """
    from scipy.optimize import brentq  # slow to import

    if sigma < 0.03:  # (6.3): weights underflow
        return math.sqrt(8 * float(np.logaddexp(0.0, 0.5 / sigma**2 - math.log(2)))) * (1 + 1e-12)
    if sigma > 100:  # (6.2): what it gives away is less than the rounding of (6.1)
        return math.sqrt(2 / (1 + math.sqrt(1 - 1 / (3 * sigma * sigma)))) / sigma * (1 + 1e-14)

    def excess(w: float) -> float:
        """log of the second cell's probability over that of the first, plus 1/(2σ²): it falls."""
        x = w * math.sqrt(0.125)
        first = float(erf(x))
        beside = 0.5 * float(erf(3 * x) - first) if w < 0.5 else float(ndtr(-0.5 * w) - ndtr(-1.5 * w))
        return math.log(beside / first) + 0.5 / sigma**2

    return float(brentq(excess, 1 / sigma, 2.02 / sigma, xtol=1e-15, rtol=1e-14)) * (1 + 2e-10)


@dataclass(frozen=True)
class DiscreteGaussian(ByNumber, Additive):
    """Release integers: a sum of contributions of norm at most ``sensitivity``, plus N_Z(0, σ²) in every coordinate.

    σ = noise_multiplier·sensitivity, and N_Z(0, σ²) has mass ∝ e^{−x²/(2σ²)} at every integer x. Under
    add-or-remove-one and zero-out two outputs differ by shifts of norm at most ``sensitivity``, under replace-one of
    twice that.

    Of L1 norms the largest shift in one coordinate dominates all others, and is accounted for exactly. A bound of the
    *L2* norm is not enough for that: four coordinates that move by 1 leak more than one that moves by 2. With
    ``norm=2`` the upper end is that of a Gaussian mechanism with a little less noise, of variance σ² − 1/12 (σ² − 0.09
    where σ is below 2), for vectors of any length; the lower end is that of as many coordinates that move by 1, which
    is exact for sensitivities below 2 (``proofs/discrete_gaussian.md``).

    Args:
        noise_multiplier: σ/sensitivity, > 0; σ at most 1e5 (L2: 1e12).
        sensitivity: bounds the norm of one record's contribution, at least 1: a whole number, for L2 norms any.
        norm: 1 or 2. For one coordinate they are the same, and 1 is sharper.

    Raises:
        PrivcalcError: if an argument is out of range.

    Example:
        >>> print(f"{DiscreteGaussian(noise_multiplier=1.0).delta(epsilon=1.0):.9f}")
        0.141351340
        >>> print(f"{DiscreteGaussian(noise_multiplier=10.0, sensitivity=30.0, norm=2).epsilon(delta=1e-5):.6f}")
        0.340670
    """

    kind = "DiscreteGaussian"
    page = "discrete_gaussian.md"
    draws = "gaussian"
    scheme = None

    noise_multiplier: float
    sensitivity: float = 1
    norm: Literal[1, 2] = field(default=1, metadata={"since": 3})

    def __post_init__(self) -> None:
        if self.norm not in (1, 2) or type(self.norm) is not int:
            raise errors.PrivcalcError(f"norm = {self.norm!r}: must be 1 or 2")
        object.__setattr__(self, "noise_multiplier", errors.scale("noise_multiplier", self.noise_multiplier))
        if self.norm == 1:
            size: float = errors.count("sensitivity", self.sensitivity, least=1)
        else:
            size = errors.real("sensitivity", self.sensitivity, "a number from 1 to 2^53", low=1.0, high=2.0**53)
        object.__setattr__(self, "sensitivity", size)
        widest = WIDEST if self.norm == 1 else WIDEST_OF_VECTORS
        allowed = f"a finite number > 0 with noise_multiplier·sensitivity between 1e-100 and {widest:g}"
        errors.real("noise_multiplier", self.noise_multiplier, allowed, low=0.0, high=widest / size)

    @property
    def multiplier(self) -> float:
        return self.noise_multiplier

    @property
    def whole(self) -> bool:
        return True

    @property
    def sigma(self) -> float:
        """The noise's σ, rounded."""
        return self.noise_multiplier * self.sensitivity

    def opposites(self, rate: float) -> tuple[Pair, ...]:
        """Two opposite records, all others null: in one coordinate, or in as many as may move by 1."""
        if self.sigma > WIDEST:
            return ()
        pair = (self._ones(1) or DiscreteGaussianPair(self.sigma, math.floor(self.sensitivity))).opposed(rate)
        return () if pair is None else (pair,)

    def _ones(self, records: int) -> DiscreteGaussianPair | None:
        """Return the pair in which each record moves ⌊C²⌋ coordinates by 1.

        It dominates where C < 2, so that entries are at most 1; of three records or more, in one coordinate each.
        """
        if self.norm == 1 or self.sensitivity >= 2 or self.sigma > WIDEST:
            return None
        coordinates = math.floor(Fraction(self.sensitivity) ** 2)
        ones = DiscreteGaussianPair(self.sigma, records).power(coordinates)
        return ones if coordinates == 1 or records <= 2 else None

    def apart(self, records: int) -> Pairs:
        """The largest shift; of L2 norms a Gaussian, and as many shifts by 1 as occur."""
        if self.norm == 1:
            pair = DiscreteGaussianPair(self.sigma, math.floor(self.sensitivity) * records)
            return Pairs(pair, pair)
        if (ones := self._ones(records)) is not None:
            return Pairs(ones, ones)
        length = math.sqrt(math.floor(Fraction(self.sensitivity) ** 2))  # of whole numbers the largest
        bound = GaussianPair(records * length * unit_mu(self.sigma * (1 - 2 * UNIT)) * (1 + 8 * UNIT))
        return Pairs(bound, bound, self._attained(records), bound="integer vectors")

    def _attained(self, records: int) -> tuple[Pair, Pair]:
        """Return pairs that occur for vectors: each moves all coordinates by 1, or one by as much as it may."""
        if self.sigma > WIDEST:
            return NOTHING
        ones = DiscreteGaussianPair(self.sigma, records).power(math.floor(Fraction(self.sensitivity) ** 2))
        pair = ones or DiscreteGaussianPair(self.sigma, records * math.floor(self.sensitivity))
        return pair, pair
