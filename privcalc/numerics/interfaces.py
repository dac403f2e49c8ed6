"""What numerics ask of a pair of distributions: its profile, and its transform with certified errors."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from privcalc.numerics.floats import UNIT, Complexes, Floats


class ProfileValues(NamedTuple):
    """The profile of a pair at losses ε ≥ 0, every entry of their shape.

    Attributes:
        delta: δ(ε).
        tail: e^ε·Q(L > ε), the slope of −δ.
        error: a bound on the error of δ.
    """

    delta: Floats
    tail: Floats
    error: Floats


class TradeOff(NamedTuple):
    """Bounds of the trade-off curve at a false positive rate α, each sharp, relatively, where it is small.

    Attributes:
        missed: of the smallest false negative rate β.
        power: of 1 − β.
    """

    missed: tuple[float, float]
    power: tuple[float, float]

    def tidy(self, alpha: float) -> TradeOff:
        """The bounds met with what each says of the other, and with what guessing has, β ≤ 1 − α."""
        unit = 2 * UNIT
        (low, high), (least, most) = self
        missed = max(low, 1 - most - unit, 0.0), min(high, 1 - least + unit, (1 - alpha) * (1 + unit))
        return TradeOff(missed, (max(least, 1 - high - unit, alpha), min(most, 1 - low + unit, 1.0)))


class RealValues(NamedTuple):
    """The logarithm of a transform at real c, every entry of their shape.

    Attributes:
        value: K(c) = log M(c).
        error: a bound on its error.
    """

    value: Floats
    error: Floats


class NodeValues(NamedTuple):
    """A transform at the nodes of a vertical line, every entry of shape (nodes,).

    Attributes:
        log_m: log M(c + iu)/M(c).
        slack: a bound on log(1 + relative error of M(c + iu)).
    """

    log_m: Complexes
    slack: Floats


def log_slack(log_m: Complexes, error: Floats | float) -> NodeValues:
    """Turn the absolute error of m = M(c + iu)/M(c) into a bound on log(1 + error/|m|), keeping both finite."""
    floor = np.log(np.maximum(error, 1e-300))
    real = np.maximum(log_m.real, floor)
    angle = np.where(np.isfinite(log_m.imag), log_m.imag, 0.0)
    # Where |m| is below its own error, m is replaced by a number of that size: off by at most twice the error.
    slack = np.log1p(np.exp(floor - real) * np.where(log_m.real < floor, 2.0, 1.0))
    return NodeValues(real + 1j * angle, np.asarray(slack, dtype=np.float64))


class Prepared(Protocol):
    """A transform with its quadrature fixed for 0 < c ≤ c_max and a given count."""

    @property
    def lost(self) -> float:
        """Probability under P of what M leaves out."""
        ...

    def log_real(self, c: Floats) -> RealValues:
        """K(c) and a bound on its error."""
        ...

    def edge(self, c: Floats | float) -> Floats:
        """Error of M(c) that comes from leaving something out sharply; 0 where nothing is."""
        ...

    def log_nodes(self, c: float, step: float, size: int) -> NodeValues:
        """log M(c + iu)/M(c) at u = k·step, 0 ≤ k < size, and a bound on log(1 + relative error of M(c + iu))."""
        ...

    def log_decay(self, c: float, u: Floats) -> Floats:
        """Non-increasing in u; bounds log |M(c + iu')|/M(c) for every u' ≥ u."""
        ...


class Points(NamedTuple):
    """The atoms of a loss.

    Attributes:
        losses: ascending.
        masses: under P.
        blur: bounds the errors of the losses, and the relative ones of the masses.
    """

    losses: Floats
    masses: Floats
    blur: float


class SplitValues(NamedTuple):
    """A transform split into atoms and the rest, at the nodes of a line, in units of e^{K(c)} as computed.

    Attributes:
        atoms: A(c + iu).
        rest: D(c + iu), M = A + D.
        error: a bound on the error of either.
    """

    atoms: Complexes
    rest: Complexes
    error: Floats


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
        return 0.0

    def prepare(self, c_max: float, count: int, log_mass: float, *, cut: bool) -> Prepared:
        """Return this object itself, which has no quadrature to fix."""
        return self

    def edge(self, c: Floats | float) -> Floats:
        return np.zeros_like(np.atleast_1d(c))


@runtime_checkable
class SplitTransform(Transform, Protocol):
    """One of a loss with few atoms and a density: M = A + D."""

    @property
    def points(self) -> Points:
        """The atoms of the loss."""
        ...

    def rest_profile(self, epsilon: Floats) -> tuple[Floats, Floats]:
        """E (1 − e^{ε − L})_+ over what has a density, at any real ε, and a bound on its error."""
        ...

    def rest_decay(self, c: float, u: Floats) -> Floats:
        """Non-increasing in u; bounds |D(c + iu')|/M(c) for every u' ≥ u."""
        ...

    def split_nodes(self, c: float, step: float, size: int) -> SplitValues:
        """A and D at u = k·step, 0 ≤ k < size.

        Raises:
            OverflowError: if there are too many nodes.
        """
        ...


class PeriodicTransform(ClosedTransform):
    """One of a loss on equally spaced points: |M| does not decay, but comes back to M(c) once in every period only."""

    @property
    def period(self) -> float:
        """|M(c + iu)| is even in u, and has this period, or one that is a few units longer."""
        raise NotImplementedError

    def log_fall(self, c: float, u: Floats) -> Floats:
        """Non-increasing in u; bounds log |M(c + iu)|/M(c) up to half a period."""
        raise NotImplementedError

    def log_decay(self, c: float, u: Floats) -> Floats:
        """None, in the end."""
        return np.zeros_like(u)


class Profile(Protocol):
    """The profile of an ordered pair, as numerics use it; ``privcalc.pairs.pair.Pair`` says what each method means."""

    def __hash__(self) -> int: ...

    def profile(self, epsilon: Floats) -> ProfileValues:
        """δ(ε), e^ε·Q(L > ε), and a bound on the error of δ, at losses ε ≥ 0."""
        ...

    @property
    def reverse(self) -> Profile:
        """The pair (Q, P)."""
        ...

    @property
    def max_loss(self) -> float:
        """A number that the loss never exceeds."""
        ...

    @property
    def zcdp(self) -> float:
        """A ρ with D_α ≤ ρα for every α > 1, in both orders."""
        ...

    @property
    def convex(self) -> bool:
        """Whether ``profile`` is convex in e^ε as it stands."""
        ...

    @property
    def transform(self) -> Transform | None:
        """M(s) with certified errors, if known."""
        ...


TransformCounts = list[tuple[Transform, int]]


class RouteFailed(ArithmeticError):
    """Failure of a route to answer a question; another one must."""
