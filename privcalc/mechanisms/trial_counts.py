"""Laws of the number of trials: what tuning needs of each is its generating function f(x) = E[x^K], and exact draws."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privcalc import errors
from privcalc.noise.source import Noise
from privcalc.numerics.floats import Floats

__all__ = [
    "Distribution",
    "Finite",
    "Law",
    "NegativeBinomial",
    "Poisson",
    "finite",
    "geometric",
    "law",
    "logarithmic",
    "negative_binomial",
    "poisson",
]

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
        return poisson(noise, self.mean)

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
        return float((1 - self.gamma) / self.gamma / self._between(-math.log(self.gamma)))

    def _between(self, x: Any) -> Any:
        """Return (1 − e^{−ηx})/η, which is x at η = 0."""
        return -np.expm1(-self.eta * x) / self.eta if self.eta else x

    def better(self, a: Floats) -> Floats:
        """Return (1 − r^{−η})/(1 − γ^η), r = 1 + a(1 − γ)/γ, the probability that ``Poisson.better`` describes."""
        if self.gamma == 1:
            return a
        if self.eta == 1:
            return np.asarray(a / (self.gamma + (1 - self.gamma) * a), dtype=np.float64)
        part = self._between(np.log1p((1 - self.gamma) / self.gamma * a))
        return np.asarray(part / self._between(-math.log(self.gamma)), dtype=np.float64)

    def weight(self, a: Floats) -> Floats:
        """Return E[K]·r^{−1 − η}, the derivative that ``Poisson.weight`` describes."""
        if self.gamma == 1:
            return np.ones_like(a)
        ratio = self.gamma / (self.gamma + (1 - self.gamma) * a)
        return np.asarray(self.mean * ratio ** (1 + self.eta), dtype=np.float64)

    def draw(self, noise: Noise) -> int:
        """Draw K, exactly from this law."""
        return negative_binomial(noise, self.eta, self.gamma)

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
        return finite(noise, self.masses)

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
    own_mean = Finite(masses).mean
    if mean is not None and mean != own_mean:
        raise errors.PrivcalcError(f"mean = {mean!r}: must be that of the probabilities, {own_mean!r}, or left out")
    return masses, own_mean


TOGETHER = 64
"""Coins that are tossed at once."""

_STEEP = 1 / 64
"""Below minus that, η has a way of its own: of the other, the fewer attempts come to an end the closer η is to −1."""


def poisson(noise: Noise, mean: float) -> int:
    """Draw K with P(K = k) = e^{−mean}·mean^k/k!.

    It is the sum of ⌊mean⌋ numbers of mean 1, and of one more of which each unit is kept by a coin.
    """
    whole = math.floor(mean)
    rest = noise.coins(_poisson_of_one(noise), mean - whole) if mean > whole else ()
    return sum(_poisson_of_one(noise) for _ in range(whole)) + sum(map(int, rest))


def _poisson_of_one(noise: Noise) -> int:
    """Mean 1, from uniform whole numbers (Duchon, Duvignau 2016, Algorithm 1)."""
    bound, seen, trials = 1, 0, 1
    while True:
        place = int(noise.numbers(1, bound + 1)[0]) + 1
        if place == bound + 1:
            trials += 1
        elif place > seen:
            trials, seen = trials - 1, bound + 1
        else:
            return trials
        bound += 1


def geometric(noise: Noise, gamma: float) -> int:
    """K ≥ 1 with P(K = k) = γ(1 − γ)^{k − 1}: the first coin that shows True with probability γ."""
    before = 0
    while True:
        tossed = noise.coins(TOGETHER, gamma)
        if tossed.any():
            return before + int(tossed.argmax()) + 1
        before += TOGETHER


def logarithmic(noise: Noise, gamma: float) -> int:
    """K ≥ 1 with P(K = k) ∝ (1 − γ)^k/k: a geometric number k, kept with probability 1/k."""
    while noise.numbers(1, trials := geometric(noise, gamma))[0]:
        pass
    return trials


def negative_binomial(noise: Noise, eta: float, gamma: float) -> int:
    """K ≥ 1 with P(K = k) ∝ (1 − γ)^k·Γ(k + η)/k!, η > −1; takes about E[K] coins, or E[K]·η."""
    if gamma == 1:
        return 1
    if eta == 1:
        return geometric(noise, gamma)
    if eta == 0:
        return logarithmic(noise, gamma)
    if eta < -_STEEP:
        return _tilted(noise, -eta, gamma)
    if eta < 1:
        return _thinned(noise, eta, gamma, 1)
    often = eta * -math.log(gamma) > math.log(2)  # K = 0 is, without truncation, the exception
    whole = math.floor(eta)
    while True:
        if often:
            if trials := _untruncated(noise, whole, eta - whole, gamma):
                return trials
        elif noise.numbers(1, trials := 1 + _untruncated(noise, whole + 1, eta - whole, gamma))[0] == 0:
            return trials


def _untruncated(noise: Noise, whole: int, rest: float, gamma: float) -> int:
    """K ≥ 0 of η = whole + rest: what comes before so many successes, and part of one."""
    before = sum(geometric(noise, gamma) - 1 for _ in range(whole))
    return before + (_thinned(noise, rest, gamma, 0) if rest else 0)


def _thinned(noise: Noise, eta: float, gamma: float, least: int) -> int:
    """Draw K ≥ ``least`` (0 or 1): coins of γ until one shows True.

    This is begun anew unless each step l is kept, with (l + η)/(l + 1).
    """
    trials = least
    while not noise.coins(1, gamma)[0]:
        trials = trials + 1 if _kept(noise, trials, eta) else least
    return trials


def _kept(noise: Noise, step: int, eta: float) -> bool:
    place = int(noise.numbers(1, step + 1)[0])
    if eta >= 0:
        return place < step or bool(noise.coins(1, eta)[0])
    return place < step - 1 or (place == step - 1 and not noise.coins(1, -eta)[0])


def _tilted(noise: Noise, h: float, gamma: float) -> int:
    """η = −h: the first success of probability h/k at attempt k, begun anew once a coin of γ shows True before."""
    trials = 1
    while noise.numbers(1, trials)[0] or not noise.coins(1, h)[0]:
        trials = 1 if noise.coins(1, gamma)[0] else trials + 1
    return trials


def finite(noise: Noise, masses: Sequence[float]) -> int:
    """K with P(K = k) ∝ masses[k] ≤ 1, the doubles as they are: one of all, kept with the probability masses[k]."""
    while not noise.coins(1, masses[trials := int(noise.numbers(1, len(masses))[0])])[0]:
        pass
    return trials
