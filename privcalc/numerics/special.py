"""SciPy's special functions, imported at the first call: that takes longer than importing all of privcalc."""

from __future__ import annotations

import functools
import importlib
import math
from typing import Any

import numpy as np

from privcalc.numerics.floats import TINY, UNIT, Complexes, Floats
from privcalc.numerics.interfaces import ProfileValues


@functools.cache
def _scipy() -> Any:
    return importlib.import_module("scipy.special")


def ndtr(x: Any) -> Any:
    """Return Φ(x), the standard normal distribution function."""
    return _scipy().ndtr(x)


def log_ndtr(x: Any) -> Any:
    """Return log Φ(x), with all digits in the lower tail."""
    return _scipy().log_ndtr(x)


def ndtri(p: Any) -> Any:
    """The x with Φ(x) = p."""
    return _scipy().ndtri(p)


def ndtri_exp(log_p: Any) -> Any:
    """The x with log Φ(x) = log_p."""
    return _scipy().ndtri_exp(log_p)


def erfcx(x: Any) -> Any:
    """Return e^{x²} erfc(x), the scaled complementary error function."""
    return _scipy().erfcx(x)


def erf(x: Any) -> Any:
    """Return erf(x), the error function."""
    return _scipy().erf(x)


def expit(x: Any) -> Any:
    """Return 1/(1 + e^{−x}), the logistic function."""
    return _scipy().expit(x)


def logit(p: Any) -> Any:
    """log p/(1 − p)."""
    return _scipy().logit(p)


def softmax(x: Any) -> Any:
    """e^x over its sum."""
    return _scipy().softmax(x)


def betainc(a: Any, b: Any, x: Any) -> Any:
    """Return I_x(a, b), the regularised incomplete beta function."""
    return _scipy().betainc(a, b, x)


def betaincinv(a: Any, b: Any, p: Any) -> Any:
    """The x with I_x(a, b) = p."""
    return _scipy().betaincinv(a, b, p)


def betainccinv(a: Any, b: Any, p: Any) -> Any:
    """The x with 1 − I_x(a, b) = p."""
    return _scipy().betainccinv(a, b, p)


def erfinv(y: Any) -> Any:
    """The x with erf(x) = y."""
    return _scipy().erfinv(y)


def wofz(z: Any) -> Any:
    """Faddeeva's function e^{−z²} erfc(−iz)."""
    return _scipy().wofz(z)


def gammaln(x: Any) -> Any:
    """Return log |Γ(x)| for real x."""
    return _scipy().gammaln(x)


def betaln(a: Any, b: Any) -> Any:
    """Return log |B(a, b)|, the logarithm of the beta function."""
    return _scipy().betaln(a, b)


def logsumexp(x: Any, axis: int | None = None) -> Any:
    """log Σ e^x along an axis."""
    return _scipy().logsumexp(x, axis=axis)


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


_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
"""B_2j/(2j(2j − 1)), j = 1, …, 7."""

_FAR = 16
"""From this real part on the series leaves out less than 1e-17."""


def log_gamma(z: Complexes) -> tuple[Complexes, Floats]:
    """Log Γ(z) up to multiples of 2πi, Re z > 0, and a bound on its error.

    By Stirling's series at w = z + m, Re w ≥ 16, log Γ(z) = log Γ(w) − Σ_{j<m} log(z + j). What the series leaves out
    is at most |B_16|/240·|w|^{−15}·(cos ½ arg w)^{−16} < 1e-17 (NIST Digital Library, 5.11.ii).

    Example:
        >>> value, error = log_gamma(np.array([3 + 0j, 1 + 1j]))
        >>> bool(abs(np.exp(value[0]) - 2) <= 1e-14)
        True
    """
    move = max(0, math.ceil(_FAR - float(z.real.min())))
    shift = np.log(np.add.outer(np.arange(move), z)).sum(axis=0)
    w = z + move
    inverse = 1 / w
    series, power = np.zeros_like(w), inverse
    for coefficient in _STIRLING:
        series = series + coefficient * power
        power = power * inverse * inverse
    log = np.log(w)
    value = (w - 0.5) * log - w + 0.5 * math.log(2 * math.pi) + series - shift
    size = np.abs(w) * (np.abs(log) + 2) + np.abs(shift)
    return np.asarray(value), np.asarray(UNIT * (12 * size + 8 * move * (1 + np.abs(log)) + 40), dtype=np.float64)
