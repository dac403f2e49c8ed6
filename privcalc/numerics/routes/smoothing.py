"""The contour route for losses with atoms: add a Gaussian use that is too small to matter, and bound what it adds.

Where |M| does not decay, the contour cannot be truncated. With one more use, N(η, 1) against N(0, 1), it decays as
e^{−η²u²/2}. The profile δ̂ of that run is an upper bound. It exceeds δ by an average of the Gaussian pair's time value,
a peak of width η at every atom, which lies below a Gaussian density; the average of that is the density R of the
smoothed loss:

    δ̂(ε) − η² e^{η²/8} R(ε) ≤ δ(ε) ≤ δ̂(ε),      R(ε) = (1/2πi) ∫ e^{K̂(s) − sε} ds.

Both integrals have the same nodes. Proof: ``proofs/smoothing.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.floats import QUIET, TINY, Floats
from privcalc.numerics.interfaces import RouteFailed, TransformCounts
from privcalc.numerics.routes import contour
from privcalc.numerics.routes.contour import Contour, Precision
from privcalc.numerics.solve import Bounds
from privcalc.numerics.transforms import GaussianTransform

DIGITS = 21.0
"""−log of the share of δ that aliasing and truncation may each take."""

MAX_WORK = 1_000_000
"""Nodes times transforms that one contour may cost: about 0.1 s."""

MAX_NODES = 250_000


@dataclass(frozen=True)
class Smoothed:
    """The contour of a run with a Gaussian use of size ``eta`` added, and bounds of the run without it."""

    contour: Contour
    eta: float

    @QUIET
    def bounds(self, epsilon: float) -> Bounds:
        """Lower and upper bounds of δ(ε)."""
        lower, upper = self.contour.bounds(epsilon)
        excess = self.excess(epsilon)
        return max(lower - excess, 0.0) if excess < math.inf else 0.0, upper

    def excess(self, epsilon: float) -> float:
        """An upper bound of η² e^{η²/8} R(ε).

        The sum over the nodes is Σ_m e^{cmD} R(ε + mD), whose terms are all ≥ 0.
        """
        built, square = self.contour, self.eta**2
        values, phase, rounding = built.integrand(epsilon)
        values[0] *= 0.5
        total = built.step * contour.in_blocks(values * (np.cos(phase) + rounding))
        tail = float(np.exp(built.k - built.c * epsilon)) * built.tail
        return (square * max(total, 0.0) + tail) / math.pi * math.exp(0.125 * square) * (1 + 1e-9) + TINY


@QUIET
def build(
    entries: TransformCounts, *, delta: float | None = None, epsilon: float | None = None, rtol: float = 1e-9
) -> tuple[Smoothed, float]:
    """Choose η for a target δ or a target ε; any η gives valid bounds.

    Args:
        entries: transforms with their counts.
        delta: the δ for which ε is asked, or None.
        epsilon: the ε for which δ is asked, or None.
        rtol: aimed-at relative width of ε; six times as much of δ.

    Returns:
        The smoothed contour, and an estimate of what was asked.

    Raises:
        RouteFailed: if there are too many nodes, or the saddle is out of reach.
    """

    def k_of(c: Floats) -> Floats:
        return contour.axis([(t.prepare(c[-1], n, -800.0, cut=True), n) for t, n in entries], c).k

    try:
        c, found, log_delta, _ = contour.saddle(k_of, delta, epsilon)
        # The width of log δ is about c(c + 1)η², that of ε is (c + 1)η².
        wanted = math.sqrt(rtol * (max(found, 1e-3 / c) if epsilon is None else 6 / c) / (c + 1))
        most = min(MAX_WORK / (len(entries) + 1), MAX_NODES)
        reach, period = math.sqrt(2 * (DIGITS + 4)), (DIGITS + 2 - log_delta) / c
        eta = max(wanted, reach * period / (2 * math.pi * most))
        if not 0 < eta < min(0.5 / math.sqrt(c * (c + 1)), 10.0):
            raise RouteFailed("the smoothing would be felt")
        smooth = [*entries, (GaussianTransform(eta), 1)]
        built, estimate = contour.build(
            smooth, delta=delta, epsilon=epsilon, precision=Precision(DIGITS, MAX_NODES, eta * eta)
        )
    except (ArithmeticError, ValueError) as error:
        raise RouteFailed(str(error)) from error
    return Smoothed(built, eta), estimate
