"""A slow, independent, high-precision oracle for privacy curves: "truth" for tests and benchmark.

It shares no code with the engine: only mpmath and, lazily and for speed alone, python-flint. It is
an oracle, not a proof. Here are closed forms and quadrature, for one Gaussian, one or two sampled
steps and Laplace; longer runs of sampled Gaussians come from ``reference.runs``.

Notation. z = noise multiplier (noise standard deviation over the norm bound of one record, > 0),
q = sampling rate in (0, 1], r(x) = exp((2x - 1) / 2z^2) the ratio of N(1, z^2) to N(0, z^2).
Direction "remove" is (1-q) N(0, z^2) + q N(1, z^2) against N(0, z^2), "add" the swapped pair
(Mironov, Talwar, Zhang 2019), "replace" the former against (1-q) N(0, z^2) + q N(-1, z^2); there an
entry without sampling is N(1, z^2) against N(0, z^2) as ever, z being half of its noise multiplier.
"""

from __future__ import annotations

from collections.abc import Callable

from mpmath import mp, mpf

from reference.runs import (
    Direction,
    Entry,
    Order,
    Real,
    run_bounds,
    run_delta,
    run_deltas,
    run_epsilon,
    sampled_gaussian_delta,
    sampled_gaussian_epsilon,
)

__all__ = [
    "Direction",
    "Entry",
    "Order",
    "Real",
    "gaussian_delta",
    "gaussian_epsilon",
    "laplace_composition_delta",
    "laplace_delta",
    "one_step_delta",
    "run_bounds",
    "run_delta",
    "run_deltas",
    "run_epsilon",
    "sampled_gaussian_delta",
    "sampled_gaussian_epsilon",
    "two_step_delta",
]


def _gaussian(mu: mpf, eps: mpf) -> mpf:
    return mp.ncdf(mu / 2 - eps / mu) - mp.exp(eps) * mp.ncdf(-mu / 2 - eps / mu)


def gaussian_delta(mu: Real, epsilon: Real) -> mpf:
    """Delta of mu-GDP (mu > 0), any real epsilon, 50 digits (Balle, Wang 2018, Theorem 8)."""
    with mp.workdps(150):
        return _gaussian(mpf(mu), mpf(epsilon))


def gaussian_epsilon(mu: Real, delta: Real) -> mpf:
    """Epsilon >= 0 of mu-GDP (mu > 0) at 0 < delta < 1, 50 digits (Dong, Roth, Su 2022)."""
    with mp.workdps(150):
        mu, target = mpf(mu), mp.log(mpf(delta))
        low, high = mpf(0), mu**2 / 2 + mu * mp.sqrt(-2 * target)  # delta <= P[L > eps]
        if mp.log(_gaussian(mu, low)) <= target:
            return low
        options = {"solver": "anderson", "tol": mpf(10) ** -110, "verify": False, "maxsteps": 500}
        return mp.findroot(lambda e: mp.log(_gaussian(mu, e)) - target, (low, high), **options)


# --- one and two steps by quadrature, Laplace exactly -------------------------------------------


def _expect(z: mpf, q: mpf, level: mpf, g: Callable[[mpf], mpf]) -> mpf:
    """E[g(1-q + q r(x))], x ~ N(0, z^2), g >= 0 smooth except where its argument is ``level``.

    Tanh-sinh on pieces of length z min(1, z) that start at that point, where they matter.
    """
    split = z * z * mp.log((level - 1 + q) / q) + mpf("0.5") if level > 1 - q else mpf(0)
    width = z * min(z, mpf(1))

    def integrand(x: mpf) -> mpf:
        return g(1 - q + q * mp.exp((2 * x - 1) / (2 * z * z))) * mp.npdf(x, 0, z)

    first = int((min(split, 0) - 20 * z - split) / width)
    last = int((max(split, 1) + 20 * z - split) / width)
    parts = [(split + k * width, split + (k + 1) * width) for k in range(first, last + 1)]
    heights = [integrand((low + high) / 2) for low, high in parts]
    top = max(heights)
    kept = [part for part, height in zip(parts, heights, strict=True) if height > top * mp.eps]
    return mp.fsum(top * mp.quad(lambda x: integrand(x) / top, part) for part in kept)


def one_step_delta(noise_multiplier: float, rate: float, epsilon: Real, direction: Direction) -> mpf:
    """One sampled Gaussian step, any real epsilon, 25 digits: quadrature of (p - e^eps q)_+.

    "replace": P[L > eps] - e^eps Q[L > eps], the loss L being increasing.
    """
    if direction == "replace":
        with mp.workdps(150):
            return _opposite(mpf(noise_multiplier), mpf(rate), mpf(epsilon))
    with mp.workdps(50):
        z, q, e = mpf(noise_multiplier), mpf(rate), mp.exp(mpf(epsilon))
        if direction == "remove":
            return _expect(z, q, e, lambda ratio: max(mpf(0), ratio - e))
        return _expect(z, q, 1 / e, lambda ratio: max(mpf(0), 1 - e * ratio))


def _opposite(z: mpf, q: mpf, eps: mpf) -> mpf:
    """Delta of two opposite records in one step, by a root finder.

    Raises ArithmeticError where the root is not found. An error of x lowers delta by its square only.
    """

    def loss(x: mpf) -> mpf:
        return mp.log1p(q * mp.expm1((2 * x - 1) / (2 * z * z))) - mp.log1p(q * mp.expm1((-2 * x - 1) / (2 * z * z)))

    far = z * z * (abs(eps) - mp.log(q) + 1) + mpf("0.5")  # log(qr) alone is above |eps| there
    x = mp.findroot(
        lambda x: loss(x) - eps, (-far, far), solver="anderson", tol=mpf(10) ** -90, verify=False, maxsteps=2000
    )
    if not abs(loss(x) - eps) < mpf(10) ** -40 * q:
        raise ArithmeticError("no root of the loss")
    stay, up, down = (mp.ncdf((m - x) / z) for m in (0, 1, -1))
    return -(1 - q) * mp.expm1(eps) * stay + q * (up - mp.exp(eps) * down)


def _one_step(z: mpf, q: mpf, e: mpf, direction: Order) -> mpf:
    """One sampled Gaussian step in closed form at e = e^eps (Zhu, Wang 2019)."""
    y = 1 + ((e if direction == "remove" else 1 / e) - 1) / q
    if direction == "remove":
        return q * _gaussian(1 / z, mp.log(y)) if y > 0 else 1 - e
    return (1 - (1 - q) * e) * _gaussian(1 / z, -mp.log(y)) if y > 0 else mpf(0)


def two_step_delta(noise_multiplier: float, rate: float, epsilon: Real, direction: Order) -> mpf:
    """Two sampled Gaussian steps (rate < 1), any real epsilon, at least 15 digits.

    Quadrature of E[delta_1(epsilon - L)] with delta_1 in closed form.
    """
    with mp.workdps(50):
        z, q, e = mpf(noise_multiplier), mpf(rate), mp.exp(mpf(epsilon))
        if direction == "remove":
            return _expect(z, q, e / (1 - q), lambda m: m * _one_step(z, q, e / m, direction))
        return _expect(z, q, 1 / (e * (1 - q)), lambda m: _one_step(z, q, e * m, direction))


def laplace_delta(scale: float, epsilon: Real) -> mpf:
    """Delta of one Laplace release of sensitivity 1 and scale b > 0, any real epsilon.

    1 - e^{(eps - 1/b) / 2} for |eps| <= 1/b (Balle, Barthe, Gaboardi 2018), beyond it 0 or
    1 - e^eps.
    """
    with mp.workdps(50):
        eps, a = mpf(epsilon), 1 / mpf(scale)
        return max(mpf(0), -mp.expm1((eps - a) / 2 if eps > -a else eps))


def laplace_composition_delta(scale: float, steps: int, epsilon: Real) -> mpf:
    """Delta of a few Laplace releases of sensitivity 1, exact up to rounding (over 30 digits).

    With a = 1 / scale one loss is a with probability 1/2, -a with probability e^{-a} / 2, and has
    density e^{(L - a) / 2} / 4 between. So sum over j atoms a, k atoms -a and m continuous losses,
    whose sum S has density (e^{-a/2} / 4)^m e^{S/2} times the m-fold convolution of the indicator
    of [-a, a], a spline with knots (2i - m) a.
    """

    def primitive(n: int, rate: mpf, y: mpf) -> mpf:  # integral of y^n e^{rate y}
        terms = (mp.ff(n, k) * y ** (n - k) * (-1 / rate) ** k for k in range(n + 1))
        return mp.exp(rate * y) * mp.fsum(terms) / rate

    def excess(m: int, e: mpf) -> mpf:  # integral of (1 - e^{e - S})_+ e^{S/2} spline(S)
        total, half = mpf(0), mpf("0.5")
        for i in range(m if m * a > e else 0):
            knot, high = (2 * i - m) * a, 2 * (m - i) * a  # spline: y^{m-1} from y = S - knot > 0
            low = max(mpf(0), e - knot)
            up = primitive(m - 1, half, high) - primitive(m - 1, half, low)
            down = primitive(m - 1, -half, high) - primitive(m - 1, -half, low)
            part = up * mp.exp(knot / 2) - down * mp.exp(e - knot / 2)
            total += (-1) ** i * mp.binomial(m, i) * part
        return total / mp.factorial(m - 1)

    with mp.workdps(60 + 10 * steps):
        a, eps, delta = 1 / mpf(scale), mpf(epsilon), mpf(0)
        for m in range(steps + 1):
            for j in range(steps - m + 1):
                k, ways = steps - m - j, mp.binomial(steps, m) * mp.binomial(steps - m, j)
                e = eps - (j - k) * a
                part = excess(m, e) if m else max(mpf(0), -mp.expm1(e))
                delta += ways * part * mp.exp(-a * (k + mpf(m) / 2)) / mpf(2) ** (j + k + 2 * m)
        return delta
