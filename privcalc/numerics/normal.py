"""The privacy profile of the Gaussian mechanism, to nearly full *relative* precision.

For N(μ, 1) against N(0, 1), with a = μ/2 − ε/μ and b = −μ/2 − ε/μ (Balle, Wang 2018, Theorem 8):

    δ(ε) = Φ(a) − e^ε Φ(b) = φ(a)·[m(a) − m(b)] = φ(a)·∫_b^a m'(t) dt,

with the Mills ratio m = Φ/φ and m'(t) = 1 + t·m(t) > 0, because e^ε φ(b) = φ(a). The last form loses nothing when μ is
small, where the first one cancels. Derivation and rounding constants: ``proofs/gaussian.md``.
"""

from __future__ import annotations

import math

import numpy as np

from privcalc.numerics.faces import ProfileValues
from privcalc.numerics.floats import TINY, UNIT, Floats
from privcalc.numerics.special import erfcx, log_ndtr, ndtr

_SQRT_HALF_PI = math.sqrt(math.pi / 2)
_FEW = 80
"""Numbers that one by one take less than 0.1 ms; SciPy takes much longer to import."""
_RULES = {size: np.polynomial.legendre.leggauss(size) for size in (6, 12)}


def mills(t: Floats) -> Floats:
    """Φ(t)/φ(t), for t ≤ 37 (it overflows beyond)."""
    return np.asarray(_SQRT_HALF_PI * erfcx(t * -math.sqrt(0.5)), dtype=np.float64)


@np.errstate(over="ignore", invalid="ignore", under="ignore")
def gdp_profile(mu: float, epsilon: Floats) -> ProfileValues:
    """Return the privacy profile of μ-GDP.

    Args:
        mu: separation of the two unit normals, > 0.
        epsilon: array of losses ≥ 0.

    Returns:
        ``(delta, tail, error)``: δ(ε); e^ε·Q(L > ε); and a bound on the absolute error of δ.

    Example:
        >>> delta, tail, error = gdp_profile(1.0, np.array([4.377178095681]))
        >>> bool(abs(delta[0] - 1e-5) < 1e-15 and error[0] < 1e-17)
        True
    """
    middle = -np.minimum(epsilon / mu, 1e300)  # beyond, where δ is nothing, it may overflow
    a, b = mu / 2 + middle, -mu / 2 + middle
    density = np.exp(-0.5 * a * a) / math.sqrt(2 * math.pi)
    tail = density * mills(b)
    if mu <= 2:
        # Against 60 nodes both rules are off by at most 1e-14, relative (μ to 0.2, and to 2), which is below ``error``.
        nodes, weights = _RULES[6 if mu <= 0.2 else 12]
        t = np.multiply.outer(middle, np.ones(nodes.size)) + (mu / 2) * nodes
        delta = density * ((1 + t * mills(t)) @ weights) * (mu / 2)
        condition = np.ones_like(b)
    else:
        delta = np.maximum(ndtr(a) - tail, 0.0)
        condition = 3 + np.abs(b) / mu
    error = np.where(delta > 0, 16 * UNIT * (4 + a * a + b * b) * condition * delta, 0.0) + TINY
    return ProfileValues(delta, tail, error)


def log_normal_tail(t: Floats) -> Floats:
    """log(1 − Φ(t)); of few numbers without SciPy, which takes long to import.

    Example:
        >>> [float(round(x, 12)) for x in log_normal_tail(np.array([-1.0, 0.0, 40.0]))]
        [-0.172753779023, -0.69314718056, -804.608442013754]
    """
    t = np.asarray(t, dtype=np.float64)
    if t.size > _FEW:
        return np.asarray(log_ndtr(-t), dtype=np.float64)
    return np.array([_log_tail(x) for x in t.ravel().tolist()], dtype=np.float64).reshape(t.shape)


def _log_tail(t: float) -> float:
    if t < 30.0:  # erfc does not underflow
        half = 0.5 * math.erfc(abs(t) * math.sqrt(0.5))
        return math.log(half) if t > 0 else math.log1p(-half)
    # Mills' ratio ~ 1/t Σ (−1)^k (2k − 1)!!/t^{2k}: it errs by less than the first term left out, 2·10⁻¹⁴.
    y, series = 1 / (t * t), 0.0
    for k in (9, 7, 5, 3, 1):
        series = 1 - k * y * series if k < 9 else 1 - 9 * y
    return -0.5 * t * t - math.log(t) - 0.5 * math.log(2 * math.pi) + math.log(series)
