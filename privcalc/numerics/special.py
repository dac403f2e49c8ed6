"""SciPy's special functions, imported at the first call: that takes longer than importing all of privcalc."""

from __future__ import annotations

import functools
import importlib
from typing import Any


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
