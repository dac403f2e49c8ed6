"""Transforms M(s) = E_P[e^{sL}] on a vertical line, with certified errors.

The contour route (``contour.py``) asks three things of a transform, for Re s = c > 0:

* ``log_real(c)``: K(c) = log M(c) on the real axis, with a bound on its absolute error;
* ``log_nodes(c, u)``: log M(c + iu)/M(c) at many u, with a bound on its error;
* ``log_decay(c, u)``: a non-increasing bound on log |M(c + iu')|/M(c), valid for all u' ≥ u.

``prepare(c_max, count)`` fixes the precision: errors must stay small after ``count``-fold composition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from privcalc.numerics.normal import UNIT, Floats

Complexes = NDArray[np.complex128]


def log_slack(log_m: Complexes, error: Floats | float) -> tuple[Complexes, Floats]:
    """Turn the absolute error of m = M(c + iu)/M(c) into a bound on log(1 + error/|m|), keeping both finite."""
    floor = np.log(np.maximum(error, 1e-300))
    real = np.maximum(log_m.real, floor)
    angle = np.where(np.isfinite(log_m.imag), log_m.imag, 0.0)
    # Where |m| is below its own error, m is replaced by a number of that size: off by at most twice the error.
    slack = np.log1p(np.exp(floor - real) * np.where(log_m.real < floor, 2.0, 1.0))
    return real + 1j * angle, np.asarray(slack, dtype=np.float64)


class Prepared(Protocol):
    """A transform with its quadrature fixed for 0 < c ≤ c_max and a given count."""

    @property
    def lost(self) -> float:
        """Probability under P of what M leaves out."""
        ...

    def log_real(self, c: Floats) -> tuple[Floats, Floats]:
        """K(c) and a bound on its error."""
        ...

    def edge(self, c: Floats | float) -> Floats:
        """Error of M(c) that comes from leaving something out sharply; 0 where nothing is."""
        ...

    def log_nodes(self, c: float, step: float, size: int) -> tuple[Complexes, Floats]:
        """log M(c + iu)/M(c) at u = k·step, 0 ≤ k < size, and a bound on log(1 + relative error of M(c + iu))."""
        ...

    def log_decay(self, c: float, u: Floats) -> Floats:
        """Non-increasing in u; bounds log |M(c + iu')|/M(c) for every u' ≥ u."""
        ...


class Transform(Protocol):
    """A transform, before its precision is fixed."""

    def prepare(self, c_max: float, count: int, log_mass: float, *, cut: bool) -> Prepared:
        """Fix the quadrature for real parts up to ``c_max`` and ``count``-fold composition.

        M may leave out an event of probability ``lost`` under P, with count·lost ≤ e^log_mass.
        """
        ...


class ClosedTransform(Prepared, Protocol):
    """A transform in closed form: there is nothing to prepare, and nothing is left out."""

    @property
    def lost(self) -> float:
        """Zero."""
        return 0.0

    def prepare(self, c_max: float, count: int, log_mass: float, *, cut: bool) -> Prepared:
        """Itself."""
        return self

    def edge(self, c: Floats | float) -> Floats:
        """Zero."""
        return np.zeros_like(np.atleast_1d(c))


@dataclass(frozen=True)
class GaussianTransform(ClosedTransform):
    """N(μ, 1) against N(0, 1): K(s) = μ² s (s + 1)/2 (Dong, Roth, Su 2022, §2.3)."""

    mu: float

    def log_real(self, c: Floats) -> tuple[Floats, Floats]:
        """K(c)."""
        value = 0.5 * self.mu**2 * c * (c + 1)
        return value, 16 * UNIT * value

    def log_nodes(self, c: float, step: float, size: int) -> tuple[Complexes, Floats]:
        """K(c + iu) − K(c) = μ²(−u² + i(2c + 1)u)/2."""
        u = step * np.arange(size)
        value = 0.5 * self.mu**2 * (-u * u + 1j * (2 * c + 1) * u)
        return value, 16 * UNIT * np.abs(value)

    def log_decay(self, c: float, u: Floats) -> Floats:
        """Exact: −μ²u²/2."""
        return -0.5 * self.mu**2 * u * u


@dataclass(frozen=True)
class LaplaceTransform(ClosedTransform):
    """Laplace at distance a (in units of its scale): atoms at ±a and a density between them.

    M(s) = [e^{sa} + e^{−(s+1)a}]/2 + [e^{sa} − e^{−(s+1)a}]/(2(2s + 1)): integrate e^{sL} over the three pieces of the line
    (Mironov 2017, Table II, at α = s + 1). The atoms keep |M| from decaying; the bound on it is that of the two terms.
    """

    a: float

    def log_real(self, c: Floats) -> tuple[Floats, Floats]:
        """K(c) = ca + log[((c + 1) + c e^{−(2c+1)a})/(2c + 1)]."""
        value = c * self.a + np.log1p(c * np.expm1(-(2 * c + 1) * self.a) / (2 * c + 1))
        return value, 8 * UNIT * (1 + c * self.a)

    def log_nodes(self, c: float, step: float, size: int) -> tuple[Complexes, Floats]:
        """log of [((s + 1) + s e^{−(2s+1)a})/(2s + 1)] e^{sa}, relative to its value at s = c."""
        u = step * np.arange(size)
        s = c + 1j * u
        a = self.a
        value = ((s + 1) + s * np.exp(-(2 * s + 1) * a)) / (2 * s + 1)
        scale = 1 + c * np.expm1(-(2 * c + 1) * a) / (2 * c + 1)
        error = 16 * UNIT * (2 + (2 * np.abs(s) + 1) * a)
        with np.errstate(divide="ignore"):
            return log_slack(np.log(value / scale) + 1j * u * a, error / scale)

    def log_decay(self, c: float, u: Floats) -> Floats:
        """|M(c + iu)| ≤ [e^{ca} + e^{−(c+1)a}]·[1 + 1/|2s + 1|]/2."""
        bound = 0.5 * (1 + np.exp(-(2 * c + 1) * self.a)) * (1 + 1 / np.hypot(2 * c + 1, 2 * u))
        scale = 1 + c * np.expm1(-(2 * c + 1) * self.a) / (2 * c + 1)
        return np.asarray(np.minimum(np.log(bound / scale), 0.0), dtype=np.float64)
