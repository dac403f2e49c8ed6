"""The contour route for few losses with atoms and a density.

What the atoms make of δ is summed, and only the rest inverted.

With M_i = A_i + D_i, A_i the atoms' part, which does not decay, and D_i the density's, which does as 1/u,

    Π M_i^{n_i} = Π A_i^{n_i} + Σ_i n_i D_i Π A^n / A_i + R,      |R| = O(u^{−2}).

Each term is the transform of a measure ≥ 0. The first is a sum over atoms, the second one of a known profile at atoms,
and R goes to the contour, whose integrand falls as u^{−4}. Proof: ``proofs/apart.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privcalc.numerics.floats import QUIET, TINY, UNIT, Complexes, Floats
from privcalc.numerics.interfaces import RouteFailed, SplitTransform, TransformCounts, log_slack
from privcalc.numerics.routes import contour
from privcalc.numerics.routes.atoms import Atoms, enumerate_sums
from privcalc.numerics.routes.contour import DIGITS, Contour
from privcalc.numerics.solve import Bounds

MOST_USES = 10_000

MOST_VALUES = 20_000
"""Values of the sum of all atoms but one."""

MAX_NODES = 50_000

SplitCounts = list[tuple[SplitTransform, int]]


@dataclass(frozen=True)
class Apart:
    """δ in three parts.

    Attributes:
        atoms: the law of the composed loss where every use's is an atom.
        others: for every entry the law of what is left of that without one of its uses; none where that is nothing.
        rest: the contour of R.
    """

    entries: SplitCounts
    atoms: Atoms
    others: list[Atoms]
    rest: Contour

    @QUIET
    def bounds(self, epsilon: float) -> Bounds:
        """Lower and upper bounds of δ(ε)."""
        low, high = self.atoms.bounds(epsilon)
        parts = [(low, high), self.rest.bounds(epsilon)]
        for (transform, count), law in zip(self.entries, self.others, strict=True):
            moved = law.shift + 4 * UNIT * (abs(epsilon) + law.reach)
            margin = law.relative + (law.losses.size + 64) * UNIT
            value, error = transform.rest_profile(epsilon - law.losses - moved)
            most = float(law.masses @ (value + error)) * (1 + margin) + law.missing
            value, error = transform.rest_profile(epsilon - law.losses + moved)
            least = float(law.masses @ np.maximum(value - error, 0.0)) * (1 - margin)
            parts.append((count * least, count * most))
        lower, upper = (math.fsum(ends) for ends in zip(*parts, strict=True))
        if math.isnan(lower) or math.isnan(upper):
            return 0.0, 1.0
        return max(lower * (1 - 8 * UNIT), 0.0), min(upper * (1 + 8 * UNIT) + TINY, 1.0)


@QUIET
def build(entries: TransformCounts, *, delta: float | None = None, epsilon: float | None = None) -> tuple[Apart, float]:
    """For a target δ or a target ε; any contour gives valid bounds.

    Args:
        entries: transforms with their counts, all of losses with atoms and a density.
        delta: the δ for which ε is asked, or None.
        epsilon: the ε for which δ is asked, or None.

    Returns:
        The three parts, and an estimate of what was asked.

    Raises:
        RouteFailed: if a loss is of another kind, or there are too many uses or values.
    """
    found = [(transform, count) for transform, count in entries if isinstance(transform, SplitTransform)]
    if len(found) < len(entries) or not 2 <= sum(count for _, count in found) <= MOST_USES:
        raise RouteFailed("losses are not all of few atoms and a density, or too many")
    try:
        return _build(found, delta, epsilon)
    except (ArithmeticError, ValueError) as error:
        raise RouteFailed(str(error)) from error


def _build(entries: SplitCounts, delta: float | None, epsilon: float | None) -> tuple[Apart, float]:
    laws = [_law(entries, without) for without in (None, *range(len(entries)))]

    def k_of(c: Floats) -> Floats:
        return contour.axis(contour.prepare(list(entries), c[-1], -800.0, cut=False), c).k

    c_star, eps, log_delta, _ = contour.saddle(k_of, delta, epsilon)
    points = c_star * np.geomspace(0.03, 5.0, 56)
    line = contour.axis(contour.prepare(list(entries), points[-1], -800.0, cut=False), points)
    c, d = contour.place(line, eps, log_delta, c_star, DIGITS)
    step = 2 * math.pi / d
    k = math.fsum(n * float(t.prepare(c, n, -800.0, cut=False).log_real(np.array([c])).value[0]) for t, n in entries)
    grid, tails = _tails(entries, c, step)
    limit = math.pi * math.exp(max(log_delta - (k - c * eps) - DIGITS, -740.0))
    wanted = float(grid[int(np.argmax(tails <= limit))]) if np.any(tails <= limit) else math.inf
    size = min(math.ceil(wanted / step) + 1 if wanted < math.inf else MAX_NODES, MAX_NODES)
    while True:
        try:
            log, slack = _remainder(entries, c, step, size)
            break
        except OverflowError:
            size //= 2
            if size < 16:
                raise
    last = int(np.searchsorted(grid, (size - 2) * step, side="right")) - 1
    if last < 0:
        raise RouteFailed("the rest decays too slowly along the contour")
    rest = Contour(c, step, log, k, slack, float(tails[last]), 0.0, line)
    return Apart(entries, laws[0], laws[1:], rest), (eps if epsilon is None else math.exp(log_delta))


def _law(entries: SplitCounts, without: int | None) -> Atoms:
    """Of the sum of all uses, each an atom; ``without`` one use of an entry."""
    parts = []
    for i, (transform, count) in enumerate(entries):
        losses, masses, blur = transform.points
        parts.append((Atoms(losses, masses, blur, blur), count - (i == without)))
    parts = [(atoms, count) for atoms, count in parts if count]
    law = enumerate_sums(parts) if parts else Atoms(np.zeros(1), np.ones(1), 0.0, 0.0)
    if law.losses.size > MOST_VALUES:
        raise RouteFailed("the atoms' sum takes too many values")
    return law


def _tails(entries: SplitCounts, c: float, step: float) -> tuple[Floats, Floats]:
    """Points U, and ``Contour.tail`` of R from each on."""
    grid = np.asarray(step * 1.1 ** np.arange(400), dtype=np.float64)
    log_atoms, grown = 0.0, np.zeros_like(grid)
    for transform, count in entries:
        part = transform.prepare(c, count, -800.0, cut=False)
        assert isinstance(part, SplitTransform)
        first = part.split_nodes(c, step, 1)
        atoms = float(first.atoms[0].real) + float(first.error[0])
        log_atoms += count * math.log(atoms)
        grown = grown + count * np.log1p(part.rest_decay(c, grid) / atoms)
    rho = np.minimum(0.5 * grown**2 * np.exp(log_atoms + grown) * (1 + 1e-9), 1.0)
    blocks = np.append(rho[:-1] * (1 / grid[:-1] - 1 / grid[1:]), rho[-1] / grid[-1])
    return grid, np.asarray(np.cumsum(blocks[::-1])[::-1] * (1 + 1e-9), dtype=np.float64)


def _remainder(entries: SplitCounts, c: float, step: float, size: int) -> tuple[Complexes, Floats]:
    """log R(c + iu) − K(c) at the nodes, and a bound on log(1 + relative error)."""
    all_, atoms = np.ones(size, dtype=np.complex128), np.ones(size, dtype=np.complex128)
    first, error = np.zeros(size, dtype=np.complex128), np.zeros(size)
    uses = 0
    for transform, count in entries:
        part = transform.prepare(c, count, -800.0, cut=False)
        assert isinstance(part, SplitTransform)
        values = part.split_nodes(c, step, size)
        a, b = values.atoms, values.rest
        before = _power(a, count - 1)
        first = first * before * a + atoms * (count * b * before)
        all_, atoms = all_ * _power(a + b, count), atoms * before * a
        error, uses = error + 8 * count * values.error, uses + count
    if not np.all(error < 1e-3):
        raise RouteFailed("the nodes are known too roughly")
    with np.errstate(divide="ignore"):
        log = np.log(all_ - atoms - first)
    return log_slack(log, 1.01 * error + 32 * (uses + len(entries) + 1) * UNIT)


def _power(z: Complexes, count: int) -> Complexes:
    """The power z^count, by repeated squaring."""
    found = np.ones_like(z)
    for bit in bin(count)[2:]:
        found = found * found
        if bit == "1":
            found = found * z
    return found
