"""The error budget of proofs/engine.md and proofs/lattice.md, term by term.

For every term: a case in which it dominates and the enclosure still holds, and the same case with the term set to zero,
in which it does not: a bound that could be dropped unnoticed would not be tested.
"""

import dataclasses
import math
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from cases import quick
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mpc, mpf  # type: ignore[import-untyped]
from reference import steps as reference

import privcalc as pc
from privcalc.composition.curve import Curve
from privcalc.mechanisms.laplace import LaplacePair
from privcalc.numerics.elementary import log_rotated, rotated_size
from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.interfaces import ProfileValues
from privcalc.numerics.normal_loss import PreparedNormalLoss, log_edge, quadrature_error
from privcalc.numerics.routes import contour, lattice, minorant, rules
from privcalc.numerics.routes.contour import Axis, assemble, axis
from privcalc.numerics.routes.lattice import Cells
from privcalc.numerics.sampled_gaussian import OppositeGaussianTransform, SampledGaussianTransform
from privcalc.numerics.solve import crossing
from privcalc.numerics.special import log_normal_tail
from privcalc.numerics.transforms import GaussianTransform, LaplaceTransform
from privcalc.pairs.gaussian import GaussianPair
from privcalc.pairs.pair import SymmetricPair
from privcalc.pairs.poisson import JointConvexityPair, SampledPair

MU, EPSILON = 1.0, 3.0
TRUTH = float(reference.gaussian_delta(MU, EPSILON))


def gaussian_contour(c, period, reach, tail=0.0):
    """A contour for N(1, 1) against N(0, 1) with a chosen period D and height U."""
    prepared = [(GaussianTransform(MU), 1)]
    step = 2 * math.pi / period
    line = axis(prepared, np.geomspace(0.05, 40.0, 60))
    return assemble(prepared, line, c, step, math.ceil(reach / step) + 1, tail)


def contains(bounds, truth):
    return bounds[0] <= truth <= bounds[1]


def without_alias(built, epsilon, *, left=True, right=True):
    """The bounds with an alias term set to zero."""
    lower, upper = built.bounds(epsilon)
    found = built.axis.alias(epsilon, built.c, 2 * math.pi / built.step)
    return lower + (0 if left else found[0]) + (0 if right else found[1]), upper


def test_left_alias():
    built = gaussian_contour(c=1.0, period=9.0, reach=12.0)
    left, right = built.axis.alias(EPSILON, built.c, 9.0)
    assert left > 100 * right
    assert left > 1e-3 * TRUTH
    assert contains(built.bounds(EPSILON), TRUTH)
    assert not contains(without_alias(built, EPSILON, left=False), TRUTH)


def test_right_alias():
    built = gaussian_contour(c=7.0, period=3.0, reach=12.0)
    left, right = built.axis.alias(EPSILON, built.c, 3.0)
    assert right > 100 * left
    assert right > 1e-3 * TRUTH
    assert contains(built.bounds(EPSILON), TRUTH)
    assert not contains(without_alias(built, EPSILON, right=False), TRUTH)


def test_alias_sum_is_exact():
    """Poisson summation itself: S − δ(ε) equals Σ_{m≠0} e^{cmD} δ(ε + mD), whose terms mpmath knows."""
    c, period = 1.5, 4.0
    built = gaussian_contour(c=c, period=period, reach=14.0)
    with mp.workdps(40):
        negative = [
            1 - mp.e ** (EPSILON + m * period) * (1 - reference.gaussian_delta(MU, -(EPSILON + m * period)))
            for m in range(-30, 0)
        ]
        positive = [reference.gaussian_delta(MU, EPSILON + m * period) for m in range(1, 12)]
        excess = sum(mp.e ** (c * m * period) * value for m, value in zip(range(-30, 0), negative, strict=True))
        excess += sum(mp.e ** (c * m * period) * value for m, value in zip(range(1, 12), positive, strict=True))
    left, right = built.axis.alias(EPSILON, c, period)
    upper = built.bounds(EPSILON)[1]
    assert upper - TRUTH == pytest.approx(float(excess), rel=1e-9)
    assert float(excess) <= left + right


def tail_sum(u, ratio=1.05, blocks=400):
    """Σ_j ρ(U_j)(1/U_j − 1/U_{j+1}) for N(1, 1) from u on."""
    grid = u * ratio ** np.arange(blocks)
    return float(np.sum(np.exp(-0.5 * MU**2 * grid**2) * np.append(1 / grid[:-1] - 1 / grid[1:], 1 / grid[-1])))


def test_truncation():
    reach = 2.0
    built = gaussian_contour(c=3.0, period=30.0, reach=reach)
    assert not contains(built.bounds(EPSILON), TRUTH)
    last = built.step * (built.log.size - 1)
    with_tail = dataclasses.replace(built, tail=tail_sum(last))
    lower, upper = with_tail.bounds(EPSILON)
    assert contains((lower, upper), TRUTH)
    assert upper - lower > 1e-3 * TRUTH


SAMPLED = [
    (SampledGaussianTransform(1.0, 0.01, False), 5.0),
    (SampledGaussianTransform(1.0, 0.01, True), 12.0),
    (SampledGaussianTransform(3.3, 0.3, False), 2.0),
    (SampledGaussianTransform(0.1, 0.5, True), 40.0),
    (SampledGaussianTransform(1.25, 1e-4, False), 4.0),
    (OppositeGaussianTransform(1.0, 0.01), 5.0),
    (OppositeGaussianTransform(3.3, 0.3), 0.7),
    (OppositeGaussianTransform(0.1, 0.5), 40.0),
    (OppositeGaussianTransform(1.25, 1e-4), 4.0),
]


def power_mean(mu, q, power, low=-14, high=None):
    """F(p) = E[(1 − q + qr)^p] by mpmath quadrature."""
    return product_mean(mu, q, power, 0, low, high)


def product_mean(mu, q, power, other, low=-14, high=None):
    """E[w(t)^power · w(−t)^other], w = 1 − q + qr, by mpmath quadrature, piece by piece."""
    with mp.workdps(30):
        end = max(0.0, float(mp.re(power - other)) * mu) + 14 if high is None else high
        rate, shift = mp.mpf(q), mp.mpf(mu) ** 2 / 2

        def ratio(x):
            return 1 - rate + rate * mp.exp(mu * x - shift)

        def integrand(t):
            return mp.npdf(t) * ratio(t) ** power * (ratio(-t) ** other if other else 1)

        pieces = mp.linspace(low, end, math.ceil((end - low) / 1.5) + 1)
        return mp.quad(integrand, pieces, method="gauss-legendre", maxdegree=8)


def moment(loss, s):
    """M(s) by mpmath quadrature."""
    if isinstance(loss, OppositeGaussianTransform):
        return product_mean(loss.mu, loss.q, s + 1, -s)
    return power_mean(loss.mu, loss.q, -s if loss.add else s + 1)


@pytest.mark.parametrize(
    ("mu", "q", "c"), quick([(10.0, 1e-3, 20.0), (30.0, 1e-3, 4.0), (3.0, 0.01, 60.0), (3.3, 0.3, 2.0)], 1, 3)
)
def test_a_cut_is_felt_where_the_moment_is_beyond_doubles(mu, q, c):
    """The error of a quadrature that ends before the mode, at moments up to e^2000."""
    prepared = SampledGaussianTransform(mu, q, add=False).prepare(c, 1, -20.0, cut=True)
    (value,), (error,) = prepared.log_real(np.array([c]))
    end = float(prepared.nodes[-1]) + 0.5 * prepared.step
    truth = mp.log(power_mean(mu, q, mp.mpf(c) + 1, high=end))
    assert abs(truth - value) <= error


@pytest.mark.parametrize(("loss", "c"), SAMPLED)
def test_transform_nodes(loss, c):
    """M at the nodes agrees with mpmath within its claimed error, at small and large u."""
    prepared = loss.prepare(c, 1000, -80.0, cut=False)
    step, size = 3.7, 12
    log_m, slack = prepared.log_nodes(c, step, size)
    k_real = float(prepared.log_real(np.array([c]))[0][0])
    for k in (1, 11):
        truth = complex(moment(loss, mp.mpc(c, k * step)))
        found = complex(np.exp(log_m[k] + k_real))
        assert abs(found - truth) <= abs(found) * math.expm1(slack[k]) + 1e-14 * abs(truth)


@pytest.mark.parametrize(("loss", "c"), SAMPLED)
def test_quadrature(loss, c):
    """With a step far too long the rule's error dominates, and stays below the bound."""
    prepared = loss.prepare(c, 1, -80.0, cut=False)
    line = prepared.line
    grows = isinstance(loss, OppositeGaussianTransform) or loss.add
    kappa = math.cos(loss.mu * line) ** (-c) if grows else 1.0
    met, exact = [], complex(moment(loss, mp.mpc(c, 6.9)))
    for digits in (1.5, 2.5, 4.0, 6.0, 10.0):
        step = 2 * math.pi * line / (digits + 2 * line * line + math.log(kappa))
        bound = quadrature_error(line, math.log(kappa), step)
        nodes = prepared.nodes[0] + step * np.arange(int((prepared.nodes[-1] - prepared.nodes[0]) / step) + 2)
        coarse = PreparedNormalLoss(prepared.of, 1, step, line, nodes, 0.0, 0.0, cut=False)
        log_m, _ = coarse.log_nodes(c, 2.3, 4)
        scale = float(coarse.log_real(np.array([c]))[0][0])
        error = abs(complex(np.exp(log_m[3] + scale)) - exact) / math.exp(float(prepared.log_real(np.array([c]))[0][0]))
        met.append(error / bound)
        assert error <= bound
    if not grows:  # elsewhere κ is generous
        assert max(met) > 1e-6  # the bound is about this error, and needed


@pytest.mark.parametrize("rate", [1e-6, 0.01, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
def test_what_is_asked_of_a_loss(mu, rate):
    """Where the ratios are turned: Im L has one sign and rises, and |e^{A + cL}| grows no more than κ says."""
    t = np.linspace(-30.0, 30.0, 6001)
    angles = np.array([1e-3, 0.1, 0.5, 1.0, 1.4, 1.57])
    weight = np.exp(-0.5 * t * t) * 0.01 / math.sqrt(2 * math.pi)
    losses = (*(SampledGaussianTransform(mu, rate, add) for add in (False, True)), OppositeGaussianTransform(mu, rate))
    for loss in losses:
        before = np.zeros_like(t)
        for angle in (*angles, 2.5, 3.0):
            turn = (-1 if loss.conjugate else 1) * loss.turned(t, angle).loss.imag
            assert np.all(turn >= 0)
            if angle < math.pi / 2:
                assert np.all(turn >= before * (1 - 1e-12))
                before = turn
        for c in (0.3, 5.0, 60.0, 2000.0):
            flat = loss.logs(t).at(c)
            for angle in (*angles, 2.5, 3.0):
                turned, log_kappa = loss.turned(t, angle).at(c).real, float(loss.log_kappa(np.asarray(angle), c))
                assert np.all(turned <= log_kappa + np.maximum(flat, 0.0) + 1e-9 * (1 + np.abs(flat)))
                if max(float(turned.max()), float(flat.max()), log_kappa) < 600:
                    whole, still = (float(weight @ np.exp(x)) for x in (turned, flat))
                    assert whole <= math.exp(log_kappa) * max(1.0, still) * (1 + 1e-9)


def test_decay_bounds_every_later_node():
    for loss, c in SAMPLED:
        prepared = loss.prepare(c, 1000, -80.0, cut=False)
        u = np.array([0.5, 3.0, 10.0, 40.0])
        decay = prepared.log_decay(c, u)
        log_m, slack = prepared.log_nodes(c, 0.05, 4000)
        for start, bound in zip(u, decay, strict=True):
            later = (log_m.real - slack)[np.arange(4000) * 0.05 >= start]
            assert later.max() <= bound
        assert decay[-1] < -1e-9  # not the trivial bound


@pytest.mark.parametrize("opposite", [False, True])
@pytest.mark.parametrize("cut", [3.0, 4.0, 5.5])
def test_edge(cut, opposite):
    """Ending the rule at b: the error against the integral over t ≤ b is below the edge term, and not by much."""
    mu, q, c = 1.0, 0.1, 1.5
    loss = OppositeGaussianTransform(mu, q) if opposite else SampledGaussianTransform(mu, q, False)
    full = loss.prepare(c, 1, -80.0, cut=False)
    nodes = full.nodes[full.nodes < cut]
    short = dataclasses.replace(full, nodes=nodes)
    b = float(nodes[-1]) + 0.5 * full.step
    found = math.exp(float(short.log_real(np.array([c]))[0][0]))
    error = abs(found - float(product_mean(mu, q, mp.mpf(c + 1), -c if opposite else 0, high=b)))
    edge = float(np.exp(log_edge(short.of, c, short.line, b))[0])
    assert edge * (1e-9 if opposite else 1e-6) < error <= edge  # with two ratios κ is generous
    assert float(short.edge(c)[0]) == pytest.approx(edge)


def test_lost_mass():
    """Leaving out an event of probability comparable to δ: the upper bound needs it."""
    sigma, q, steps, epsilon = 1.0, 0.001, 1000, 1.2
    truth = float(reference.sampled_gaussian_delta(sigma, q, steps, epsilon, "remove"))
    transform = SampledGaussianTransform(1 / sigma, q, False)
    c, points = 9.0, np.geomspace(0.5, 12.0, 50)
    for log_share in (-3.0, -1.0, 0.0):
        prepared = [(transform.prepare(c, steps, math.log(truth) + log_share, cut=True), steps)]
        built = assemble(prepared, axis(prepared, points), c, 2 * math.pi / 12.0, 3000, 0.0)
        assert built.lost > 0
        lower, upper = built.bounds(epsilon)
        assert lower <= truth <= upper
    # The left-out event matters: without its mass, and without the edge term it brings, the bound is wrong.
    bare = dataclasses.replace(built, lost=0.0, slack=np.zeros_like(built.slack))
    assert bare.bounds(epsilon)[1] < truth


@example(mu=5.0, log_q=math.log(1e-30), t=2.498, angle=0.0)
@example(mu=5.0, log_q=math.log(1e-12), t=7.6, angle=0.4)
@given(st.floats(0.01, 12), st.floats(-80, -0.7), st.floats(-9, 30), st.floats(0, 1.5))
def test_a_turned_logarithm_is_off_by_less_than_8_units_of_its_size(
    mu: float, log_q: float, t: float, angle: float
) -> None:
    """What §7 of engine.md says of ℓ, of one question and of many; for rates below the unit roundoff the size was 0."""
    q = math.exp(log_q)
    points = np.array([t])
    log = log_rotated(mu, q, points, angle)
    size = rotated_size(mu, q, points, log)
    rows = rules.Rows(np.array([mu]), np.array([q]), np.array([2.0]), np.array([-10.0]))
    modulus, turn, of_many = rules.turned(rows, points[None, :], np.array([[angle]]))
    with mp.mp.workdps(60):
        truth = mp.log1p(mpf(q) * (mp.exp(mpf(mu) * mpf(t) - mpf(mu) ** 2 / 2 + mpc(0, angle)) - 1))
        assert abs(mpc(complex(log[0])) - truth) <= 8 * UNIT * size[0]
        assert abs(mpc(float(modulus[0, 0]), float(turn[0, 0])) - truth) <= 8 * UNIT * of_many[0, 0]


def test_rounding():
    """A billion steps: the rounding of M dominates the width, and cannot be left out."""
    transform = SampledGaussianTransform(0.01, 1e-4, False)
    entries = [(transform, 10**9)]
    outside = 0
    for epsilon in (0.1, 0.12, 0.14, 0.16, 0.18):
        truth = reference.sampled_gaussian_delta(100.0, 1e-4, 10**9, epsilon, "remove")
        built, _ = contour.build(entries, epsilon=epsilon)
        lower, upper = built.bounds(epsilon)
        assert lower <= truth <= upper
        assert upper - lower < 1e-6 * float(truth)
        exact = dataclasses.replace(built, slack=np.zeros_like(built.slack), tail=0.0, lost=0.0)
        bare = exact.bounds(epsilon)
        outside += not (bare[0] * (1 + 1e-13) <= truth <= bare[1] * (1 - 1e-13))
    assert outside >= 1


@pytest.mark.parametrize("add", quick([False, True], 0))
def test_lattice_laws_enclose_and_differ(add):
    """Upper and lower law enclose the truth on a coarse lattice; the profile itself in place of either does not."""
    pair, epsilon = SampledPair(GaussianPair(2.0), 0.3, add), 0.4
    truth = float(reference.two_step_delta(0.5, 0.3, epsilon, "add" if add else "remove"))
    built, _ = lattice.build([(pair, 2)], epsilon=epsilon, rtol=1e-3)
    lower, upper = built.bounds(epsilon)
    assert lower < truth < upper
    assert upper - lower < 0.05 * truth
    swapped = dataclasses.replace(built, lower=built.upper)
    assert swapped.bounds(epsilon)[0] > truth  # chords alone are no lower law
    crossed = dataclasses.replace(built, upper=built.lower)
    assert crossed.bounds(epsilon)[1] < truth


def test_lattice_between_points():
    pair = GaussianPair(1.0)
    built, _ = lattice.build([(pair, 1)], delta=1e-5, rtol=1e-3)
    for epsilon in np.linspace(4.0, 4.6, 37):
        assert contains(built.bounds(float(epsilon)), float(reference.gaussian_delta(1.0, float(epsilon))))


def test_lattice_alias_counts():
    """With a period too short for the tilt the alias term dominates, and the lower bound needs it."""
    pair, point = GaussianPair(1.0), 2241
    truth = float(reference.gaussian_delta(1.0, point / 512))
    narrow = lattice.invert([(pair, 1)], 4.0, 2**-9, 2048, math.log(1e-5), np.geomspace(0.2, 20.0, 24))
    lower, upper = narrow._at(point)
    assert lower <= truth <= upper
    assert upper - lower > 1e-3 * truth
    blind = dataclasses.replace(narrow, axis=Axis(narrow.axis.c, np.full_like(narrow.axis.k, -1e4), narrow.axis.error))
    left, right = narrow.axis.alias(point / 512, 4.0, 4.0)
    assert lower + left + right > truth or blind._at(point)[0] > truth


def exact_law(hull, spacing):
    """The function a hull stands for: slopes and time values on both sides, from the slopes alone, in 50 digits."""
    step, slopes, values = mp.mpf(spacing), [], []
    for side in hull.slopes:
        slope = [mp.mpf(float(x)) for x in side]
        n = len(slope) - 1
        cells = [mp.e ** (-j * step) - (mp.e ** (-(j + 1) * step) if j < n else 0) for j in range(n + 1)]
        slopes.append(slope)
        values.append([mp.e ** (i * step) * sum(map(mp.fmul, cells[i:], slope[i:])) for i in range(n + 1)])
    start = min(value[0] for value in values)
    factors = [start / value[0] if value[0] else mp.mpf(1) for value in values]
    return [[[f * x for x in side] for f, side in zip(factors, both, strict=True)] for both in (slopes, values)]


def exact_minorant(points, spacing):
    """Time values of the largest convex profile: everywhere the lowest chord of two, in x = e^ε, H = w + (1 − x)_+."""
    right, left = ([mp.mpf(float(x)) for x in side] for side in points)
    x = [mp.e ** (mp.mpf(spacing) * i) for i in range(1 - len(left), len(right))]
    w = [x[k] * left[len(left) - 1 - k] for k in range(len(left) - 1)] + right
    h = [mp.mpf(1)] + [a + max(1 - b, 0) for a, b in zip(w, x, strict=True)]
    x = [mp.mpf(0), *x]
    found = []
    for k in range(1, len(x)):
        best = min(h[1 : k + 1])  # constant to x = ∞
        for a in range(k):
            best = min([best] + [h[a] + (h[b] - h[a]) * (x[k] - x[a]) / (x[b] - x[a]) for b in range(k, len(x))])
        found.append(best - max(1 - x[k], 0))
    zero = len(left) - 1
    return [found[zero:], [found[zero - i] / x[zero + 1 - i] for i in range(zero + 1)]]


def hulls():
    """Small sets of time values: convex, noisy, with a hull that passes 0 in a straight line, ending in zeros."""
    rng = np.random.default_rng(5)
    for spacing, (right, left), noise, bump in [
        (0.3, (9, 7), 0.0, 0.0),
        (0.3, (9, 7), 1e-15, 0.0),
        (0.2, (12, 9), 0.1, 0.0),
        (0.4, (8, 8), 1e-3, 0.3),
        (1e-6, (10, 14), 1e-9, 1e-5),
        (1.0, (6, 1), 0.0, 0.5),
        (40.0, (20, 18), 0.01, 0.0),
    ]:
        for cut in (0, 3):
            sides = []
            for add, n in ((False, right), (True, left)):
                v = SampledPair(GaussianPair(2.0), 0.3, add).profile(min(spacing, 0.1) * np.arange(n + 1.0))[0] + 1e-30
                v *= 1 + noise * rng.standard_normal(v.size).clip(-2, 2)
                v[v.size - cut :] = 0.0
                sides.append(v)
            sides[0][0] += bump
            sides[1][0] = sides[0][0]
            yield spacing, (sides[0], sides[1]), cut


def below_exactly(hull, factor, points, spacing):
    """Whether factor × the hull is a law, and its time values are below the points."""
    slopes, values = exact_law(hull, spacing)
    law = all(a >= b >= 0 for side in slopes for a, b in pairwise(side))
    law &= factor * (slopes[0][0] + slopes[1][0] - values[0][0]) <= 1
    pairs = zip(values[0] + values[1], np.concatenate(points).tolist(), strict=True)
    return law and all(factor * w <= v for w, v in pairs)


def test_lattice_minorants_are_laws_and_largest():
    """In exact arithmetic: f·hull is a law below the points, F·hull above their minorant, f and F nearly 1."""
    straight = 0
    for spacing, points, cut in hulls():
        with mp.workdps(60 + int(20 * spacing)):
            hull = minorant.minorant(points, spacing)
            f = hull.below(points)
            assert below_exactly(hull, mp.mpf(f), points, spacing)
            assert 1 - f < 1e-12
            slopes, values = exact_law(hull, spacing)
            for value, found in zip(values, hull.values, strict=True):
                assert all(abs(a - float(b)) <= hull.rounding * a for a, b in zip(value, found, strict=True))
            straight += slopes[0][0] + slopes[1][0] - values[0][0] > 1 - mp.mpf(10) ** -12
            truth = exact_minorant(points, spacing)
            factor = mp.mpf(1 + 1e-11) if cut else mp.mpf(hull.above(points, spacing))
            assert factor - 1 < 2e-11
            for value, best in zip(values, truth, strict=True):
                assert all(
                    f * a <= b * (1 + mp.mpf(10) ** -50) + mp.mpf(10) ** -50 for a, b in zip(value, best, strict=True)
                )
                assert all(b <= factor * a + mp.mpf(10) ** -40 for a, b in zip(value, best, strict=True))
    assert straight >= 4


def test_lattice_certificate_is_needed(monkeypatch):
    """Slopes that are too large by 1e-9: scaled, the law is below the points; unscaled it is not, or no law."""
    honest = minorant._side
    monkeypatch.setattr(minorant, "_side", lambda point, spacing: [x * (1 + 1e-9) for x in honest(point, spacing)])
    failed = 0
    for spacing, points, _ in hulls():
        with mp.workdps(60):
            hull = minorant.minorant(points, spacing)
            assert below_exactly(hull, mp.mpf(hull.below(points)), points, spacing)
            failed += not below_exactly(hull, mp.mpf(1), points, spacing)
    assert failed == 13  # all but one straight line through ε = 0, which its slopes' sum makes right again


@pytest.mark.parametrize(("add", "spacing"), [(False, 0.05), (True, 0.05), (False, 0.01), (True, 0.002)])
def test_lattice_lower_law_is_below_the_profile(add, spacing, monkeypatch):
    """Chords of the lower law against 50 digits, inside the cells, and of the law without its gaps or certificate."""
    spacing = minorant.exact_spacing(spacing)

    def excess():
        cells = Cells(SampledPair(GaussianPair(2.0), 0.3, add), 3.0, spacing, -40.0, 2)
        worst = -1.0
        zero = int(np.flatnonzero(cells.index == 0)[0])
        for k in [*range(zero - 6, zero + 6), zero + 20, zero + 60]:
            if not 0 <= k < cells.index.size - 1:
                continue
            for share in (0.0, 0.2, 0.5, 0.7):
                ends = []
                for j in (k, k + 1):
                    x = mp.e ** (mp.mpf(spacing) * int(cells.index[j]))
                    w = mp.mpf(float(cells.lower[j] - cells.lower_error[j]))
                    ends.append((x, w * min(x, 1) + max(1 - x, 0)))
                x = ends[0][0] * (1 - share) + ends[1][0] * share
                found = ends[0][1] * (1 - share) + ends[1][1] * share
                worst = max(
                    worst, float(found - reference._one_step(mp.mpf(0.5), mp.mpf(0.3), x, "add" if add else "remove"))
                )
        return worst

    with mp.workdps(50):
        assert excess() <= 0
        honest = minorant._side
        monkeypatch.setattr(minorant, "_side", lambda point, spacing: [1.5 * x for x in honest(point, spacing)])
        assert excess() <= 0
        monkeypatch.setattr(minorant.Hull, "below", lambda hull, points: 1.0)
        assert excess() > 0


class WavyPair(JointConvexityPair):
    """A bound that is far from convex."""

    def profile(self, epsilon):
        delta, tail, error = super().profile(epsilon)
        return ProfileValues(delta * (1 + 0.2 * np.sin(9 * epsilon)), tail, error)


def test_lattice_upper_law_of_a_bound():
    """A non-convex bound's minorant: float values within their error of the exact one, on a coarse lattice."""
    pair, spacing = WavyPair(GaussianPair(1.0), GaussianPair(2.0), 0.01), minorant.exact_spacing(0.25)
    cells = Cells(pair, 2.0, spacing, math.log(1e-3), 1)
    with mp.workdps(120):
        zero = int(np.flatnonzero(cells.index == 0)[0])
        h, _, error = pair.profile(spacing * np.arange(max(zero, cells.index.size - zero - 1) + 1.0))
        points = tuple(((h + error) * (1 + 2 * UNIT))[:n] for n in (cells.index.size - zero, zero + 1))
        best, ratios = exact_minorant(points, spacing), []
        for side, point, part in zip(best, points, (slice(zero, None), slice(zero, None, -1)), strict=True):
            w, slack = cells.upper[part], cells.error[part]
            ratios += [float(b) / v for b, v in zip(side, point.tolist(), strict=True)]
            assert all(abs(b - float(a)) <= float(e) for a, e, b in zip(w, slack, side, strict=True))
            assert np.all(slack < 1e-12 * w + 1e-30)
        assert min(ratios) < 0.9


def test_lattice_spans_any_range():
    """Beyond e^700 nothing overflows: five uses with losses up to 1000, each 1000 − 2 max(E, 0), E exponential or 0."""
    built, guess = lattice.build([(LaplacePair(1000.0), 5)], delta=1e-2)
    left, right = crossing(built.bounds, 1e-2, guess, 0.0, math.inf)
    assert right - left < 1e-4 * right
    for gap in (0.5, 1.0, 4.0):
        truth = mp.mpf(1) / 32 * (1 - mp.e ** (-mp.mpf(gap)))
        for k in range(1, 6):

            def density(x, k=k, gap=gap):
                return x ** (k - 1) * mp.e**-x / mp.factorial(k - 1) * (1 - mp.e ** (2 * x - gap))

            truth += mp.binomial(5, k) / 32 * mp.quad(density, [0, mp.mpf(gap) / 2])
        lower, upper = built.bounds(5000 - gap)
        assert lower <= truth <= upper
        assert upper - lower < 0.2 * upper


def test_routes_overlap_and_agree():
    for sigma, q, steps, delta in [(1.0, 0.01, 1000, 1e-5), (0.5, 0.3, 20, 1e-8), (5.0, 0.3, 3, 1e-30)]:
        pair = SampledPair(GaussianPair(1 / sigma), q, False)
        found = []
        for built, guess in (
            contour.build([(pair.transform, steps)], delta=delta),
            lattice.build([(pair, steps)], delta=delta),
        ):
            found.append(crossing(built.bounds, delta, guess, 0.0, math.inf))
        assert max(f[0] for f in found) <= min(f[1] for f in found)


def test_laplace_transform_nodes():
    transform = LaplaceTransform(0.7)
    c, step = 2.0, 1.3
    log_m, slack = transform.log_nodes(c, step, 6)
    k_real = float(transform.log_real(np.array([c]))[0][0])
    for k in range(6):
        s = mp.mpc(c, k * step)
        a = mp.mpf(0.7)
        middle = mp.quad(lambda x, s=s: mp.e ** (s * (2 * x - a)) * mp.e ** (x - a) / 2, [0, a])
        truth = complex(mp.e ** (s * a) / 2 + mp.e ** (-(s + 1) * a) / 2 + middle)
        assert abs(complex(np.exp(log_m[k] + k_real)) - truth) <= abs(truth) * (math.expm1(slack[k]) + 1e-14)
        assert log_m[k].real <= transform.log_decay(c, np.array([k * step]))[0] + 1e-12


def test_what_a_pair_does_not_say_counts_as_unbounded() -> None:
    class Bare(SymmetricPair):
        def profile(self, epsilon: Floats) -> tuple[Floats, Floats, Floats]:
            return GaussianPair(1.0).profile(epsilon)

    pair = Bare()
    assert (pair.max_loss, pair.zcdp, pair.gdp_bounds, pair.reverse) == (math.inf, math.inf, (0.0, math.inf), pair)
    assert np.all(pair.log_moment(np.array([0.5, 2.0])) == math.inf)
    assert Curve(((pair, 1),)).epsilon(0.0).upper == math.inf


@pytest.mark.parametrize("many", [False, True])
def test_normal_tail(many):
    t = np.concatenate([np.linspace(-36, 45, 60), [1e-9, -1e-9, 29.9999, 30.0, 30.0001, 1e3, 1e6]])
    found = log_normal_tail(np.tile(t, 2)) if many else log_normal_tail(t)  # the first few need no SciPy
    with mp.workdps(50):
        for x, value in zip(t.tolist(), found.tolist()[: t.size], strict=True):
            exact = mp.log(mp.erfc(x / mp.sqrt(2)) / 2)
            assert abs(mp.mpf(value) - exact) <= mp.mpf("1e-13") + abs(exact) * mp.mpf(4 * UNIT)
    assert log_normal_tail(np.array([math.inf, 0.0])).tolist() == [-math.inf, -math.log(2)]


@pytest.mark.parametrize(("noise", "rate", "delta"), quick([(1.0, 0.01, 1e-5), (2.0, 0.1, 1e-6)], 0))
def test_two_uses_decay_on_a_fixed_line(noise, rate, delta):
    """Most of their loss is narrow but skew: far out the angle that suits a Gaussian decays to nothing."""
    found = (pc.PoissonSampled(pc.Gaussian(noise), rate) * 2).epsilon(delta=delta)
    assert found.route == "contour"
    assert found.upper - found.lower <= 1e-7 * found.upper
    assert reference.two_step_delta(noise, rate, found.upper, "remove") <= delta
    assert reference.two_step_delta(noise, rate, found.lower, "remove") >= delta


@pytest.mark.parametrize(
    ("mu", "count", "epsilon"), [(1 / 38.239234809390894, 1, 1.0), (1 / 54.0, 2, 1.0), (1 / 54.0, 2, 10.0)]
)
def test_what_underflows_is_counted(mu: float, count: int, epsilon: float) -> None:
    """Terms that underflow were 0 in the upper end, too."""
    built, _ = contour.build([(GaussianTransform(mu), count)], epsilon=epsilon)
    with mp.workdps(60):
        m, e = mp.sqrt(count) * mp.mpf(mu), mp.mpf(epsilon)
        truth = mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)
        lower, upper = built.bounds(epsilon)
        assert lower <= truth <= upper


def test_a_long_sum_that_is_not_finite_is_not_known() -> None:
    """math.fsum raised a ValueError."""
    x = np.zeros(3 * contour.BLOCK)
    x[0], x[2 * contour.BLOCK] = np.inf, -np.inf
    assert math.isnan(contour.in_blocks(x))
