"""Laws of the number of trials: what tuning needs of each is its generating function f(x) = E[x^K], and exact draws."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privcalc import errors
from privcalc.noise import trials as numbers
from privcalc.noise.source import Noise
from privcalc.numerics.floats import Floats

__all__ = ["Distribution", "Finite", "Law", "NegativeBinomial", "Poisson", "law"]

Distribution = str | float | tuple[float, ...]
"""A name, η of a truncated negative binomial law, or probabilities."""

_SHAPES = {"geometric": 1.0, "logarithmic": 0.0, "poisson": math.inf}
"""η of those that have a name."""

_MOST = 1_000
"""The largest η, and the largest number of trials in a list of probabilities, which is summed as it is."""
_LEAST = math.log(1e30)
"""log 1/γ is at most that: f and f′ keep their digits."""


@dataclass(frozen=True)
class Poisson:
    """P(K = k) = e^{−mean}·mean^k/k!."""

    mean: float

    @property
    def none(self) -> float:
        """The probability P(K = 0) = e^{−mean}."""
        return math.exp(-self.mean)

    def better(self, a: Floats) -> Floats:
        """1 − f(1 − a): the probability that some trial is in an event of probability a."""
        return np.asarray(-np.expm1(-self.mean * a), dtype=np.float64)

    def weight(self, a: Floats) -> Floats:
        """f′(1 − a), the derivative of that, to a relative 5e-13."""
        return np.asarray(self.mean * np.exp(-self.mean * a), dtype=np.float64)

    def draw(self, noise: Noise) -> int:
        """Draw K, exactly from this law."""
        return numbers.poisson(noise, self.mean)

    def simulate(self, rng: np.random.Generator) -> int:
        """Draw K from its law as rounded to floats, for simulations."""
        return int(rng.poisson(self.mean))


@dataclass(frozen=True)
class NegativeBinomial:
    """P(K = k) ∝ (1 − γ)^k·Γ(k + η)/k! for k ≥ 1: truncated at 0, of any η > −1 and 0 < γ ≤ 1."""

    eta: float
    gamma: float

    none = 0.0

    @property
    def mean(self) -> float:
        """E[K] = η(1 − γ)/(γ(1 − γ^η)), for η = 0 its limit."""
        if self.gamma == 1:
            return 1.0
        return (1 - self.gamma) / self.gamma / self._between(-math.log(self.gamma))

    def _between(self, x: float) -> float:
        """Return (1 − e^{−ηx})/η, which is x at η = 0."""
        return -math.expm1(-self.eta * x) / self.eta if self.eta else x

    def better(self, a: Floats) -> Floats:
        """Return (1 − r^{−η})/(1 − γ^η), r = 1 + a(1 − γ)/γ, the probability that ``Poisson.better`` describes."""
        if self.gamma == 1:
            return a
        if self.eta == 1:
            return np.asarray(a / (self.gamma + (1 - self.gamma) * a), dtype=np.float64)
        x = np.log1p((1 - self.gamma) / self.gamma * a)
        part = -np.expm1(-self.eta * x) / self.eta if self.eta else x
        return np.asarray(part / self._between(-math.log(self.gamma)), dtype=np.float64)

    def weight(self, a: Floats) -> Floats:
        """Return E[K]·r^{−1 − η}, the derivative that ``Poisson.weight`` describes."""
        if self.gamma == 1:
            return np.ones_like(a)
        ratio = self.gamma / (self.gamma + (1 - self.gamma) * a)
        return np.asarray(self.mean * ratio ** (1 + self.eta), dtype=np.float64)

    def draw(self, noise: Noise) -> int:
        """Draw K, exactly from this law."""
        return numbers.negative_binomial(noise, self.eta, self.gamma)

    def simulate(self, rng: np.random.Generator) -> int:
        """Draw K from its law as rounded to floats, for simulations."""
        if self.gamma == 1:
            return 1
        if self.eta in (0, 1):
            return int(rng.geometric(self.gamma) if self.eta else rng.logseries(1 - self.gamma))
        u, k, mass = rng.random(), 1, self.gamma ** (1 + self.eta) * self.mean
        while (u := u - mass) >= 0 and mass > 1e-300:
            mass *= (1 - self.gamma) * (k + self.eta) / (k + 1)
            k += 1
        return k


@dataclass(frozen=True)
class Finite:
    """P(K = k) = masses[k]/(their sum)."""

    masses: tuple[float, ...]

    @functools.cached_property
    def _law(self) -> Floats:
        return np.array(self.masses) / math.fsum(self.masses)

    @property
    def none(self) -> float:
        """The probability P(K = 0)."""
        return float(self._law[0])

    @property
    def mean(self) -> float:
        """The mean number of trials, E[K]."""
        return math.fsum(k * mass for k, mass in enumerate(self.masses)) / math.fsum(self.masses)

    def better(self, a: Floats) -> Floats:
        """Return Σ p_k (1 − (1 − a)^k), the probability that ``Poisson.better`` describes."""
        with np.errstate(divide="ignore"):
            logs = np.log1p(-a)
        k = np.arange(1, self._law.size)
        return np.asarray(-np.expm1(np.multiply.outer(logs, k)) @ self._law[1:], dtype=np.float64)

    def weight(self, a: Floats) -> Floats:
        """Return Σ k p_k (1 − a)^{k − 1}, the derivative that ``Poisson.weight`` describes, by Horner's rule."""
        factors = (np.arange(self._law.size) * self._law)[1:]
        return np.asarray(np.polynomial.polynomial.polyval(1 - a, factors), dtype=np.float64)

    def draw(self, noise: Noise) -> int:
        """Draw K, exactly from this law."""
        return numbers.finite(noise, self.masses)

    def simulate(self, rng: np.random.Generator) -> int:
        """Draw K from its law as rounded to floats, for simulations."""
        return int(rng.choice(self._law.size, p=self._law))


Law = Poisson | NegativeBinomial | Finite


@functools.lru_cache(maxsize=64)
def law(distribution: Distribution, mean: float) -> Law:
    """The law of that name, shape or list.

    Raises:
        PrivcalcError: if a truncated negative binomial law has so small an η that its γ were below 1e-30.
    """
    if isinstance(distribution, tuple):
        return Finite(distribution)
    if distribution == "poisson":
        return Poisson(mean)
    eta = _SHAPES[distribution] if isinstance(distribution, str) else distribution
    if mean == 1 or eta == 1:
        return NegativeBinomial(eta, 1 / mean)

    def excess(t: float) -> float:
        """Return log(mean at γ = e^{−t}) − log(mean); it rises with t, and with η."""
        divisor = t if eta == 0 else -math.expm1(-eta * t) / eta
        return math.log(math.expm1(t) / divisor / mean) if t > 0 else -math.log(mean)

    top = 2 * math.log(mean) if eta >= 0 else _LEAST  # (e^t − 1)/t ≥ e^{t/2}
    if excess(top) < 0:
        raise errors.PrivcalcError(
            f"mean = {mean!r}: a truncated negative binomial law of η = {eta!r} has it only with γ < 1e-30; "
            "take a larger η"
        )
    from scipy.optimize import brentq  # slow to import

    return NegativeBinomial(eta, math.exp(-brentq(excess, 0.0, top)))


def checked(distribution: Any, mean: Any) -> tuple[Distribution, float]:
    """The arguments ``distribution`` and ``mean`` of ``RandomTrials``, each written in one way.

    Raises:
        PrivcalcError: if one is out of range, or they do not fit together.
    """
    if isinstance(distribution, (Sequence, np.ndarray)) and not isinstance(distribution, (str, bytes)):
        return _list(distribution, mean)
    if isinstance(distribution, str):
        errors.one_of("distribution", distribution, *_SHAPES)
        name: Distribution = distribution
    else:
        allowed = (
            f"a name ({', '.join(_SHAPES)}), a number > -1 (up to 1000, inf, and 0 or 1e-100 from it), or probabilities"
        )
        eta = errors.real("distribution", distribution, allowed, low=-1.0, high=math.inf, open_low=True)
        if _MOST < eta < math.inf or 0 < abs(eta) < 1e-100:
            raise errors.PrivcalcError(f"distribution = {distribution!r}: must be {allowed}")
        name = next((known for known, shape in _SHAPES.items() if shape == eta), eta)
    if mean is None:
        raise errors.PrivcalcError(
            f"mean = None: must be given, unless distribution is a list of probabilities, not {name!r}"
        )
    if name == "poisson":
        number = errors.real("mean", mean, "a number > 0 (1e-9 to 1e9)", low=1e-9, high=1e9)
    else:
        allowed = f"a number >= 1 (up to 1e9) for distribution {name!r}"
        number = errors.real("mean", mean, allowed, low=1.0, high=1e9)
    law(name, number)
    return name, number


def _list(distribution: Any, mean: Any) -> tuple[Distribution, float]:
    allowed = f"probabilities P(K = 0), P(K = 1), …, at most {_MOST + 1}, of sum 1, and not all at 0"
    values = errors.floats("distribution", distribution, allowed)
    if values.ndim != 1 or not 2 <= values.size <= _MOST + 1 or not np.all((values >= 0) & (values <= 1)):
        raise errors.PrivcalcError(f"distribution = {distribution!r}: must be {allowed}")
    masses = tuple(values.tolist())
    if not abs(math.fsum(masses) - 1) <= 1e-9 or not any(mass >= 1e-9 for mass in masses[1:]):
        raise errors.PrivcalcError(f"distribution = {distribution!r}: must be {allowed} (to 1e-9)")
    found = Finite(masses).mean
    if mean is not None and mean != found:
        raise errors.PrivcalcError(f"mean = {mean!r}: must be that of the probabilities, {found!r}, or left out")
    return masses, found
