"""The discrete Gaussian against 60-digit sums, ball arithmetic and enumeration of small databases."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
from cases import quick
from flint import arb, arb_poly, ctx  # type: ignore[import-untyped]
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mp, mpf  # type: ignore[import-untyped]

import privcalc as pc
from privcalc.errors import PrivcalcError
from privcalc.mechanisms.discrete_gaussian import DiscreteGaussian, DiscreteGaussianPair, unit_mu
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.numerics.routes import contour
from privcalc.numerics.special import gdp_profile
from privcalc.numerics.transforms import ThetaTransform
from privcalc.relation import ADD_OR_REMOVE_ONE, REPLACE_ONE, ZERO_OUT, Relation


def theta(sigma: float) -> mpf:
    """Σ_x e^{−x²/2σ²} over the integers."""
    return mp.jtheta(3, 0, mp.exp(-1 / (2 * mpf(sigma) ** 2)))


def delta_of(sigma: float, shift: int, epsilon: float) -> mpf:
    """P(X > x*) − e^ε Q(X > x*) for masses ∝ e^{−(x − shift)²/2σ²}, e^{−x²/2σ²}, term by term, far beyond any mass."""
    with mp.workdps(60):
        two = 2 * mpf(sigma) ** 2
        cut = mpf(epsilon) * two / (2 * shift) + mpf(shift) / 2
        start = int(mp.floor(cut)) + 1
        stop = max(start, shift) + int(50 * sigma) + 50
        terms = (
            mp.exp(-(mpf(x - shift) ** 2) / two) - mp.exp(mpf(epsilon) - mpf(x) ** 2 / two) for x in range(start, stop)
        )
        return mp.fsum(terms) / theta(sigma)


@pytest.mark.parametrize(
    ("sigma", "shift"), quick(itertools.product([0.05, 0.3, 1.0, 4.7, 40.0], [1, 2, 7]), 0, 2, 4, 6, 11, 13)
)
def test_profile(sigma: float, shift: int) -> None:
    pair = DiscreteGaussianPair(sigma, shift)
    mu = shift / sigma
    losses = np.array(
        [0.0, 1e-12, 1e-3, 1.0, 50.0, 600.0, *(max(mu * mu / 2 + k * mu, 0.0) for k in (-2, 0, 1, 3, 8, 20, 36))]
    )
    delta, tail, error = pair.profile(losses)
    for e, d, slope, err in zip(losses, delta, tail, error, strict=True):
        truth = delta_of(sigma, shift, float(e))
        assert abs(mpf(float(d)) - truth) <= err
        place = e * sigma**2 / shift + 0.5 * shift
        if abs(place - round(place)) > 1e-9 * (1 + place):  # at an atom, the rounding of the loss decides
            assert err <= 1e-12 * d + 1e-13 * (e + mu * mu) * (slope + d) + 1e-300


POWERS = [(0.3, 1, 7), (1.0, 1, 2), (1.0, 2, 20), (3.0, 1, 10), (1.0, 2, 100), (3.0, 1, 40), (4.0, 3, 6), (9.0, 1, 4)]


@pytest.mark.parametrize(("sigma", "shift", "count"), quick(POWERS, 0, 1, 2, 3, 6))
def test_powers(sigma: float, shift: int, count: int) -> None:
    """The law of a sum of integers, by ball arithmetic; each loss is (shift/σ²)(y + shift/2) at shift + y."""
    pair = DiscreteGaussianPair(sigma, shift).power(count)
    assert pair is not None
    reach = int(45 * sigma) + 2
    old, ctx.prec = ctx.prec, 3200
    try:
        law = arb_poly([(-(arb(y) ** 2) / (2 * arb(sigma) ** 2)).exp() for y in range(-reach, reach + 1)]) ** count
        with mp.workdps(60):
            total = theta(sigma) ** count
            step = mpf(shift) / mpf(sigma) ** 2
            atoms = [
                (step * (k - reach * count + count * mpf(shift) / 2), mpf(law[k].str(50, radius=False)) / total)
                for k in range(2 * reach * count + 1)
            ]
    finally:
        ctx.prec = old
    mu = math.sqrt(count) * shift / sigma
    losses = np.array([max(mu * mu / 2 + k * mu, 0.0) for k in (-50, -2, 0, 2, 6, 20)])
    delta, _, error = pair.profile(losses)
    with mp.workdps(60):
        for e, d, err in zip(losses, delta, error, strict=True):
            truth = mp.fsum(p * (1 - mp.exp(mpf(float(e)) - loss)) for loss, p in atoms if loss > e)
            assert abs(mpf(float(d)) - truth) <= err
            assert err <= 1e-9 * d + 1e-300


@pytest.mark.parametrize(("sigma", "shift", "count"), [(100.0, 1, 100_000), (40.0, 3, 1_000_000), (4.0, 2, 1_000)])
def test_many_uses_of_wide_noise(sigma: float, shift: int, count: int) -> None:
    """A sum of noises is nearly one, of n times the variance; before, these were rounded to a grid, to four digits."""
    found = (DiscreteGaussian(sigma / shift, shift) * count).epsilon(delta=1e-6)
    assert found.upper - found.lower <= 1e-9 * found.upper
    mean, wide = shift * count, mpf(sigma) * mp.sqrt(count)
    # Of so wide a noise sums are integrals: the Gaussian mechanism with half a step of continuity at each end,
    # to a few digits.
    assert abs(found.upper / Gaussian(float(wide / mean)).epsilon(delta=1e-6).upper - 1) < 2 / float(wide)


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("sensitivity", [1, 3])
def test_enumerated_databases(sensitivity: int, relation: Relation) -> None:
    """All databases of up to three records, contributions in −s … s: all pairs are dominated, the worst attained."""
    z, e = 0.8, 0.9
    sigma = z * sensitivity
    values = range(-sensitivity, sensitivity + 1)
    shifts = set()
    for rest in itertools.product(values, repeat=2):
        for one in values:
            others = values if relation is REPLACE_ONE else (0,)
            shifts |= {sum(rest) + one - (sum(rest) + other) for other in others}
    pair = DiscreteGaussian(z, sensitivity).pairs(relation).forward
    delta, _, error = pair.profile(np.array([e]))
    with mp.workdps(40):
        total = theta(sigma)

        def mass(x: int) -> mpf:
            return mp.exp(-(mpf(x) ** 2) / (2 * mpf(sigma) ** 2)) / total

        found = [
            mp.fsum(max(mass(x - s) - mp.exp(mpf(e)) * mass(x), mpf(0)) for x in range(-60, 120))
            for s in sorted(shifts, key=abs)
        ]
    assert max(found) <= delta[0] + error[0]
    assert abs(max(found) - float(delta[0])) <= 1e-14
    with mp.workdps(40):
        assert all(x <= y + mpf(10) ** -30 for x, y in itertools.pairwise(found))  # δ rises with |shift|


@pytest.mark.parametrize("sigma", [0.05, 0.4, 1.0, 20.0])
@pytest.mark.parametrize("shift", [1, 4])
def test_zcdp(sigma: float, shift: int) -> None:
    """log E[e^{cL}]/(c(c + 1)) ≤ ρ, with equality where c·shift is whole."""
    pair = DiscreteGaussianPair(sigma, shift)
    with mp.workdps(60):
        two = 2 * mpf(sigma) ** 2
        for c in (0.01, 0.5, 1.0, 1.3, 7.0):
            middle = int(c * shift)
            span = int(50 * sigma) + 20
            terms = [
                mp.exp(-(mpf(y) ** 2) / two + 2 * c * shift * (y + mpf(shift) / 2) / two)
                for y in range(middle - span, middle + span)
            ]
            rate = mp.log(mp.fsum(terms) / theta(sigma)) / (mpf(c) * (c + 1))
            assert rate <= pair.zcdp
            if c in (1.0, 7.0):
                assert mpf(pair.zcdp) <= rate * (1 + mpf(10) ** -12)


@pytest.mark.parametrize(("sigma", "shift"), quick(itertools.product([0.02, 0.4, 1.0, 3.0, 20.0], [1, 3]), 0, 3, 4, 7))
def test_gdp(sigma: float, shift: int) -> None:
    """Every corner (Q(X ≥ x), P(X ≥ x)) of the trade-off curve lies on the safe side of G_μ; the worst almost on it."""
    low, mu = DiscreteGaussianPair(sigma, shift).gdp_bounds
    assert low == 0
    needed = mpf(0)
    with mp.workdps(60):
        two = 2 * mpf(sigma) ** 2
        total = theta(sigma)
        reach = min(int(60 * sigma) + 6, 200)

        def score(y: int) -> mpf:
            """−Φ⁻¹(P(Y ≥ y))."""
            if y <= 0:
                return -score(1 - y)
            tail = mp.fsum(mp.exp(-(mpf(k) ** 2) / two) for k in range(y, y + int(30 * sigma) + 30)) / total
            guess = mp.sqrt(-2 * mp.log(tail)) if tail < mpf(10) ** -3 else mpf(0.5)
            return mp.findroot(lambda z: mp.log(mp.erfc(z / mp.sqrt(2)) / 2) - mp.log(tail), guess)

        scores = {y: score(y) for y in range(-shift - 2, reach)}
        for x in range(0, reach):
            needed = max(needed, scores[x] - scores[x - shift] if x - shift in scores else mpf(0))
    assert needed <= mu <= 1.02 * needed
    losses = np.linspace(0, 30 * mu + mu * mu, 400)
    delta, _, error = DiscreteGaussianPair(sigma, shift).profile(losses)
    top, _, top_error = gdp_profile(mu, losses)
    assert np.all(delta - error <= top + top_error)


def test_the_continuous_gaussian_is_no_bound() -> None:
    """At σ = 1/2 the discrete pair needs a μ above shift/σ: the two mechanisms are not interchangeable."""
    pair = DiscreteGaussianPair(0.5, 1)
    losses = np.linspace(0, 12, 500)
    assert np.any(pair.profile(losses)[0] > gdp_profile(2.0, losses)[0] * 1.01)


def test_description_and_refusals() -> None:
    mechanism = DiscreteGaussian(2.0, sensitivity=3)
    assert mechanism.pairs(ADD_OR_REMOVE_ONE).forward == DiscreteGaussianPair(6.0, 3)
    assert mechanism.pairs(ZERO_OUT).forward == DiscreteGaussianPair(6.0, 3)
    assert mechanism.pairs(REPLACE_ONE).forward == DiscreteGaussianPair(6.0, 6)
    for z, s in ((0.0, 1), (math.nan, 1), (1e5, 2), (1.1e5, 1)):
        with pytest.raises(PrivcalcError, match="noise_multiplier"):
            DiscreteGaussian(z, s)
    for s in (0, 1.0, True):
        with pytest.raises(PrivcalcError, match="sensitivity"):
            DiscreteGaussian(1.0, s)  # type: ignore[arg-type]


def law_of_shifts(sigma: float, shifts: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The losses of noise in each coordinate, moved, and their masses, by enumeration."""
    reach = math.ceil(7 * sigma) + 1
    y = np.arange(-reach, reach + 1)
    mass = np.exp(-(y**2) / (2 * sigma**2))
    mass /= mass.sum()
    losses, masses = np.zeros(1), np.ones(1)
    for shift in shifts:
        own = shift * (2 * y + shift) / (2 * sigma**2)
        losses, where = np.unique(np.add.outer(losses, own).round(9), return_inverse=True)
        masses = np.bincount(where.ravel(), np.multiply.outer(masses, mass).ravel())
    return losses, masses


def excess(losses: np.ndarray, masses: np.ndarray, epsilon: float) -> float:
    """δ(ε)."""
    return float(masses @ np.maximum(-np.expm1(np.minimum(epsilon - losses, 0.0)), 0.0))


@pytest.mark.parametrize("sigma", [0.3, 0.7, 1.0, 2.5])
@pytest.mark.parametrize(
    ("shifts", "norm", "bounded"), [((1, 1), 2, True), ((2, 1), 3, True), ((1, -1, 1), 3, True), ((1,) * 4, 2, False)]
)
def test_several_coordinates(sigma: float, shifts: tuple[int, ...], norm: int, bounded: bool) -> None:
    """Shifts of L1 norm m are dominated by m in one coordinate, by enumeration; of L2 norm m they are not."""
    losses, masses = law_of_shifts(sigma, shifts)
    mechanism = DiscreteGaussian(noise_multiplier=sigma / norm, sensitivity=norm)
    beaten = []
    for epsilon in (0.0, 0.3, 1.0, 2.0, 4.0, 7.0):
        truth = excess(losses, masses, epsilon)
        beaten.append(truth > mechanism.delta(epsilon=epsilon).upper * (1 + 1e-6) + 1e-9)
    assert any(beaten) != bounded


VECTORS = [
    (1,),
    (1, 1),
    (1, -1, 1),
    (2, 1),
    (1,) * 4,
    (2,),
    (2, 2, -1),
    (1,) * 9,
    (3, 1),
    (1,) * 12,
    (5, 1),
    (3, 3, 2, 1),
]
LEVELS = (0.0, 0.3, 1.0, 2.0, 4.0, 7.0, 11.0)


@pytest.mark.parametrize("sigma", [0.3, 0.5, 0.7, 1.0, 2.5])
@pytest.mark.parametrize("shifts", VECTORS)
def test_vectors(sigma: float, shifts: tuple[int, ...]) -> None:
    """Every integer vector of L2 norm Δ is dominated, in both orders; and what occurs is between the ends."""
    norm = math.sqrt(sum(j * j for j in shifts)) * (1 + 1e-15)
    mechanism = DiscreteGaussian(noise_multiplier=sigma / norm, sensitivity=norm, norm=2)
    losses, masses = law_of_shifts(sigma, shifts)
    for epsilon in LEVELS:
        found, truth = mechanism.delta(epsilon=epsilon), excess(losses, masses, epsilon)
        assert truth <= found.upper * (1 + 1e-6) + 1e-9
        if set(shifts) == {1}:  # the vector that is said to occur
            assert found.lower == pytest.approx(truth, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("sigma", [0.5, 0.7, 1.0])
def test_the_gaussian_of_the_same_noise_is_beaten_by_vectors(sigma: float) -> None:
    """Without the 1/12: so the test above can fail."""
    losses, masses = law_of_shifts(sigma, (1,) * 4)
    same = Gaussian(sigma / 2)
    assert any(excess(losses, masses, e) > same.delta(epsilon=e).upper * (1 + 1e-6) + 1e-9 for e in LEVELS)


@pytest.mark.parametrize("sigma", quick([0.03, 0.1, 0.31, 0.5, 0.68, 0.9, 1.0, 1.7, 4.0, 15.0], 1, 2, 3, 5))
def test_unit_mu(sigma: float) -> None:
    """All differences of −Φ⁻¹ of neighbouring tails, 60 digits: the largest at most 0.211 % below, most at σ = 0.68."""
    with mp.workdps(60):
        two, total = 2 * mpf(sigma) ** 2, theta(sigma)
        reach = int(40 * sigma) + 4
        masses = [mp.exp(-(mpf(k) ** 2) / two) for k in range(1, reach + int(30 * sigma) + 30)]
        tails = list(itertools.accumulate(reversed(masses)))[::-1]  # of 1, 2, …
        scores = []
        for tail in tails[:reach]:
            share = mp.log(tail / total)
            guess = mp.sqrt(-2 * share) if share < -7 else mpf(0.5)
            scores.append(mp.findroot(lambda z, share=share: mp.log(mp.erfc(z / mp.sqrt(2)) / 2) - share, guess))
        needed = max(2 * scores[0], *(high - low for low, high in itertools.pairwise(scores)))
    assert needed <= unit_mu(sigma) <= needed * 1.00211


@given(st.floats(math.log(0.02), math.log(1e4)).map(math.exp))
@example(0.03)
@example(math.nextafter(0.03, 0))
@example(100.0)
@example(math.nextafter(100.0, math.inf))
@example(1e12)
def test_unit_mu_solves_its_equation(sigma: float) -> None:
    """By ball arithmetic: what is returned is on the safe side, and hardly more; as good as 1/12 less variance."""
    mu = unit_mu(sigma)
    before = ctx.prec
    ctx.prec = 400
    try:

        def left(w: arb) -> arb:
            root = arb(8).sqrt()
            return ((w / root).erfc() - (3 * w / root).erfc()) / (2 * (1 - (w / root).erfc()))

        right = (-1 / (2 * arb(sigma) ** 2)).exp()
        assert left(arb(mu)) < right
        if sigma >= 0.03:
            assert left(arb(mu) * arb(1 - 1e-9)) > right
        if sigma >= 1:
            assert 1 / arb(mu) ** 2 > arb(sigma) ** 2 * (1 - arb(1e-9)) - (arb(1) / 12 + arb(1) / 240 / arb(sigma) ** 2)
    finally:
        ctx.prec = before


@pytest.mark.parametrize("relation", [ADD_OR_REMOVE_ONE, REPLACE_ONE])
def test_sampled_vectors(relation: Relation) -> None:
    """A step that draws a record of ones with probability q, by enumeration; under replace-one against minus ones."""
    sigma, q, size = 0.8, 0.3, 3
    step = PoissonSampled(
        DiscreteGaussian(sigma / math.sqrt(size) / (1 + 1e-15), math.sqrt(size) * (1 + 1e-15), norm=2), q
    )
    y = np.arange(-12, 13)

    def law(shift: int) -> np.ndarray:
        one = np.exp(-((y - shift) ** 2) / (2 * sigma**2))
        one /= one.sum()
        return np.multiply.outer(np.multiply.outer(one, one), one).ravel()

    p, other = law(0) * (1 - q) + q * law(1), law(0)
    if relation is REPLACE_ONE:
        other = law(0) * (1 - q) + q * law(-1)
    for epsilon in (0.0, 0.2, 0.7, 1.5, 3.0):
        for one, two in ((p, other), (other, p)):
            truth = float(np.maximum(one - math.exp(epsilon) * two, 0).sum())
            assert truth <= step.delta(epsilon=epsilon, relation=relation).upper + 1e-12


def moment(sigma: float, shift: int, s: object) -> object:
    """Σ_y e^{−y²/2σ² + sL(y)} over Σ_y e^{−y²/2σ²}, L(y) = (m/σ²)(y + m/2), in 260 digits."""
    step = mpf(shift) / mpf(sigma) ** 2
    terms = range(-int(40 * sigma) - 20 * shift, int(40 * sigma) + 20 * shift + 1)
    return mp.fsum(mp.exp(-(mpf(y) ** 2) / (2 * mpf(sigma) ** 2) + s * step * (y + mpf(shift) / 2)) for y in terms)


TRANSFORMS = itertools.product([(1.0, 1), (1.3, 4), (2.0, 1), (3.5, 3)], [1e-3, 0.5, 2.5, 11.0])


@pytest.mark.parametrize(("law", "c"), quick(TRANSFORMS, 0, 5, 10, 15))
def test_transform(law: tuple[float, int], c: float) -> None:
    sigma, shift = law
    transform = ThetaTransform(sigma, shift)
    period = 2 * mp.pi * mpf(sigma) ** 2 / shift
    with mp.workdps(260):
        one = moment(sigma, shift, mpf(c))
        value, error = transform.log_real(np.array([c]))
        assert abs(mp.log(one / moment(sigma, shift, mpf(0))) - value[0]) <= error[0] < 1e-13 * (1 + value[0])
        step = transform.period / 7.5
        log_m, slack = transform.log_nodes(c, step, 40)
        for k in (0, 1, 3, 4, 7, 15, 38):  # near, half way, and after one, two and five returns
            truth = moment(sigma, shift, mp.mpc(c, mpf(step) * k)) / one
            found = mp.exp(mp.mpc(complex(log_m[k])))
            assert abs(found - truth) <= mp.expm1(float(slack[k])) * abs(found)
            away = mpf(step) * k - mp.nint(mpf(step) * k / period) * period
            fall = transform.log_fall(c, np.array([float(abs(away))]))[0]
            assert mp.log(abs(truth)) <= fall + (1 - fall) * mpf(2) ** -46
        for k in (0, 15):  # it returns: no decay is promised
            assert slack[k] < 1e-9
            assert log_m[k].real > -1e-9
        assert transform.log_decay(c, np.array([1.0])) == 0


@pytest.mark.parametrize("noises", quick([((1.5, 4.0, 7.0),), ((1.0, 1.0, 12.0),), ((3.0, 7.3, 9.1),)], 0))
def test_several_noises(noises: tuple[float, ...]) -> None:
    """Against all outcomes of three releases."""
    losses, masses = np.zeros(1), np.ones(1)
    for sigma in noises:
        y = np.arange(-math.ceil(12 * sigma), math.ceil(12 * sigma) + 1)
        weights = np.exp(-(y**2) / (2 * sigma * sigma))
        losses = np.add.outer(losses, (y + 0.5) / sigma**2).ravel()
        masses = np.multiply.outer(masses, weights / weights.sum()).ravel()
    run = sum((DiscreteGaussian(noise_multiplier=sigma) * 1 for sigma in noises[1:]), DiscreteGaussian(noises[0]) * 1)
    for epsilon in (0.0, 0.3, 1.7, 3.1):
        above = losses > epsilon
        truth = float(masses[above] @ -np.expm1(epsilon - losses[above]))
        found = run.delta(epsilon=epsilon)
        assert found.lower * (1 - 1e-11) <= truth <= found.upper * (1 + 1e-11) + 1e-30
        assert found.upper - found.lower <= 1e-5 * truth


def test_the_wide_noise_of_many_ends_the_contour() -> None:
    """Ninety different noises, as of a census: to nine digits, without a lattice."""
    noises = np.exp(np.linspace(0, math.log(1000), 90)).tolist()
    scale = math.sqrt(sum(1 / (2 * sigma * sigma) for sigma in noises) / 2.56)
    run = sum((DiscreteGaussian(scale * sigma) * 1 for sigma in noises[1:]), DiscreteGaussian(scale * noises[0]) * 1)
    found = run.epsilon(delta=1e-10)
    assert found.route == "contour"
    assert found.upper - found.lower < 1e-8 * found.lower
    # Sums of so many lattices are all but normal: by Poisson summation the laws differ by less than e^{−2π²σ²},
    # σ ≥ 1.37.
    assert (
        found.lower - 1e-8 <= (Gaussian(1 / math.sqrt(2 * 2.56)) * 1).epsilon(delta=1e-10).upper <= found.upper + 1e-8
    )


@pytest.mark.parametrize(("sigma", "count"), [(2.0, 10**7), (1000.0, 10**7), (6324.5, 10**7)])
def test_very_many_uses(sigma: float, count: int) -> None:
    """Where no table is small enough. Their sum is N_Z(0, nσ²) but for 10⁻³⁰ or less, or as good as normal."""
    found = (DiscreteGaussian(sigma) * count).epsilon(delta=1e-6)
    assert found.upper - found.lower < 1e-8 * found.lower
    normal = (Gaussian(sigma) * count).epsilon(delta=1e-6)
    assert abs(normal.lower - found.lower) <= 1e-6 * found.lower


@given(st.floats(0.1, 3), st.floats(0.2, 40), st.floats(0.05, 3), st.integers(1, 1000))
def test_what_returns_bounds_all_later_nodes(sigma: float, c: float, step: float, count: int) -> None:
    transform = ThetaTransform(1 + sigma, 1)
    first = 1 + int(0.5 * transform.period / step) * 2
    u = step * np.arange(first, first + 20_000)
    log_m = transform.log_nodes(c, step, first + 20_000).log_m.real[first:]
    with np.errstate(under="ignore"):
        total = step * float(np.sum(np.exp(count * log_m) / (u * u)))
    assert total <= contour.returns(transform, count, c, step, u[:1])[0] * (1 + 1e-9)


@pytest.mark.parametrize(("sigma", "count", "widest"), [(10_000.0, 1, 2e-7), (100.0, 100_000, 4e-8)])
def test_the_contour_agrees_with_the_table(sigma: float, count: int, widest: float) -> None:
    """The table is a sum over all atoms; the contour is as wide as what its returns may add, about c(c + 1)h²/3."""
    table = DiscreteGaussianPair(sigma, 1).power(count)
    assert table is not None
    mu = math.sqrt(count) / sigma
    epsilon = 0.5 * mu * mu + 3 * mu
    delta, _, error = table.profile(np.array([epsilon]))
    built, _ = contour.build([(ThetaTransform(sigma, 1), count)], epsilon=epsilon)
    low, high = built.bounds(epsilon)
    assert low <= delta[0] + error[0]
    assert high >= delta[0] - error[0]
    assert high - low <= widest * high


def moved(sigma: float, shift: tuple[int, ...], epsilon: float) -> float:
    """δ of noise around v against noise around 0: the loss is (Σ v_i y_i + ‖v‖²/2)/σ², a function of a whole number."""
    reach = math.ceil(12 * sigma) + 8
    y = np.arange(-reach, reach + 1)
    one = np.exp(-0.5 * (y / sigma) ** 2)
    law = np.ones(1)
    for v in shift:
        wide = np.zeros(2 * abs(v) * reach + 1)
        wide[:: abs(v)] = one / one.sum()
        law = np.convolve(law, wide)
    sums = np.arange(law.size) - (law.size - 1) // 2
    losses = (sums + 0.5 * sum(v * v for v in shift)) / sigma**2
    return float(law @ np.maximum(-np.expm1(epsilon - losses), 0.0))


@pytest.mark.parametrize("sigma", [0.6, 1.0, 2.5])
@pytest.mark.parametrize(("norm", "entries"), [(1.0, 1), (1.5, 2), (math.sqrt(3) * (1 + 1e-15), 3), (1.99, 3)])
def test_short_vectors_are_exact(sigma: float, norm: float, entries: int) -> None:
    """Every difference of two vectors of L2 norm below 2; the answer was up to 6 % wide."""
    mechanism = pc.DiscreteGaussian(sigma / norm, norm, norm=2)
    for epsilon in (0.3, 2.0):
        for relation, most in ((pc.ADD_OR_REMOVE_ONE, 1), (pc.REPLACE_ONE, 2)):
            found = mechanism.delta(epsilon=epsilon, relation=relation)
            shifts = [
                (2,) * twos + (1,) * ones
                for twos in range(entries + 1 if most == 2 else 1)
                for ones in range(most * entries - 2 * twos + 1)
                if twos + ones
            ]
            won = [moved(sigma, shift, epsilon) for shift in shifts]
            assert max(won) == pytest.approx(moved(sigma, (most,) * entries, epsilon), rel=1e-9)
            assert found.lower * (1 - 1e-9) <= max(won) <= found.upper * (1 + 1e-9)
            assert found.upper - found.lower < 1e-9 * found.upper


def test_many_short_vectors() -> None:
    """A census of different noises, two cells each: was 1.5e-3 wide."""
    run = pc.Run()
    for i in range(12):
        run += pc.DiscreteGaussian((4 + 0.7 * i) / math.sqrt(2), math.sqrt(2), norm=2) * 2
    same = pc.Run()
    for i in range(12):
        same += pc.DiscreteGaussian((4 + 0.7 * i) / math.sqrt(2) * math.sqrt(2)) * 4
    found, truth = run.epsilon(delta=1e-6), same.epsilon(delta=1e-6)
    assert found.upper - found.lower < 1e-6 * found.upper
    assert found.lower <= truth.upper
    assert truth.lower <= found.upper


@pytest.mark.parametrize(("sigma", "cells"), [(1.1, 2), (0.6, 3), (4.5, 2)])
def test_opposite_records_twice(sigma: float, cells: int) -> None:
    """Two uses, sampled: every pair of the two sums, written out."""
    rate, epsilon = 0.25, 0.7 / sigma
    run = (
        pc.PoissonSampled(pc.DiscreteGaussian(sigma / math.sqrt(cells + 0.1), math.sqrt(cells + 0.1), norm=2), rate) * 2
    )
    found = run.delta(epsilon=epsilon, relation=pc.REPLACE_ONE)
    far = math.ceil(9 * sigma)
    y = np.arange(-far, far + 1)
    one = np.exp(-0.5 * (y / sigma) ** 2)
    null = functools.reduce(np.convolve, [one / one.sum()] * cells)
    total = np.arange(-far * cells, far * cells + 1)
    laws = [null * (1 - rate + rate * np.exp((s * total - 0.5 * cells) / sigma**2)) for s in (1, -1)]
    first, second = (np.multiply.outer(law, law) for law in laws)
    truth = math.fsum(np.maximum(first - math.exp(epsilon) * second, 0.0).ravel())
    assert found.lower * (1 - 1e-11) <= truth <= found.upper * (1 + 1e-11)
    assert found.upper - found.lower < 1e-8 * found.upper
