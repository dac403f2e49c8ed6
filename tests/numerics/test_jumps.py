"""The jumps route (proofs/jumps.md): bands against high-precision sums, truth, overlap, that each part is needed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mp, mpc, mpf

import privcalc as pc
from privcalc.numerics.elementary import log_turned, log_weighted
from privcalc.numerics.interfaces import RouteFailed
from privcalc.numerics.routes import bands, contour, jumps, terms
from privcalc.numerics.routes.bands import Band, _log_phi, log_beyond
from privcalc.numerics.routes.jumps import Jumps, _choose
from privcalc.numerics.routes.terms import Family
from privcalc.numerics.sampled_gaussian import SampledGaussianTransform
from privcalc.numerics.solve import crossing
from privcalc.numerics.transforms import GaussianTransform

# z, q, T, δ and ε of the remove direction by reference.run_epsilon, 12 digits.
HARD = [
    (1.97278, 4.36073e-4, 87610, 5.15283e-57, 1.10518335966241),
    (1.31489, 7.15824e-06, 65597, 3.05061e-63, 1.31345491515423),
    (0.92, 5.4e-7, 90_000_000, 1e-80, 6.85843637493658),
    (0.954907, 1.00467e-05, 7524, 8.99662e-72, 7.43931869624071),
]

BANDS = [
    Band(1 / 1.97278, 4.36073e-4, -math.inf, 11.0, 0.25, 87610, 200.0),
    Band(1 / 1.97278, 4.36073e-4, 15.0, 15.75, 0.25, 87610, 200.0),
    Band(1 / 0.5, 0.01, -math.inf, 6.0, 0.1, 1000, 20.0),
    Band(1 / 0.5, 0.01, 5.0, 5.3, 0.1, 1000, 20.0),
]


def run(z: float, q: float, steps: int) -> list[tuple[SampledGaussianTransform, int]]:
    return [(SampledGaussianTransform(1 / z, q, add=False), steps)]


def log_moment(band: Band, s: mpc) -> mpc:
    """log M(s) by a fine trapezoid rule on the real line, which for an entire integrand is as good as exact."""
    mu, q, w, total = mpf(band.mu), mpf(band.q), mpf(band.blur), mpc(0)
    bulk, step = band.low == -math.inf, mpf(band.blur) / 4

    def phi(x: mpf) -> mpf:
        return mp.erfc(-x / mp.sqrt(2)) / 2

    def beta(t: mpf) -> mpf:
        if bulk:
            return phi((band.high - t) / w)
        side = 1 if 2 * t < band.low + band.high else -1  # where both are small
        return side * (phi(side * (t - band.low) / w) - phi(side * (t - band.high) / w))

    low = mpf(-12) if bulk else mpf(band.low) - 14 * w
    for k in range(int((mpf(band.high) + 20 * w - low) / step)):
        t = low + k * step
        total += mp.exp(-t * t / 2 + (s + 1) * mp.log(1 - q + q * mp.exp(mu * t - mu * mu / 2))) * beta(t)
    return mp.log(total * step / mp.sqrt(2 * mp.pi))


@pytest.mark.parametrize("band", BANDS)
@pytest.mark.parametrize("share", [0.1, 0.6])
def test_bands_are_within_their_errors(band: Band, share: float) -> None:
    c = share * band.c_ref
    step = 0.2 * c
    with mp.workdps(60):
        truth = [log_moment(band, mpc(c, k * step)) for k in range(4)]
    value, error = (float(x[0]) for x in band.log_real(np.array([c])))
    assert abs(value - float(truth[0].real)) <= error < 1e-10
    nodes, slack = band.log_nodes(c, step, 4)
    decay = band.log_decay(c, step * np.arange(1.0, 4.0))
    for k in range(4):
        with mp.workdps(40):
            ratio = abs(mp.exp((truth[k] - truth[0]) - mpc(nodes[k])) - 1)
        assert float(ratio) <= math.expm1(slack[k])
        assert slack[k] < 1e-8 or float((truth[k] - truth[0]).real) < -14
        assert all(float((truth[k] - truth[0]).real) <= decay[j] for j in range(min(k, 3)))


def test_the_error_function_on_the_lines_that_are_used() -> None:
    z = np.concatenate([np.linspace(-60, 0, 81) + 1j * y for y in (0.01, 0.5, 1.0, 2.0, -2.0)])
    for x, found in zip(z.tolist(), _log_phi(z).tolist(), strict=True):
        with mp.workdps(50):
            error = abs(mp.exp(mpc(found) - mp.log(mp.erfc(-mpc(x) / mp.sqrt(2)) / 2)) - 1)
        assert error < 1e-12 + abs(x) ** 2 * 4e-16


def test_terms_add_up() -> None:
    """The multinomial theorem, at a c where more than three jumps are negligible."""
    (pair, count) = run(*HARD[0][:3])[0]
    plan = _choose((pair, count), [], math.log(HARD[0][3]), (1.0, 1.2))[2]
    whole = contour.axis([(pair.prepare(5.0, count, -800.0, cut=False), count)], np.array([0.2, 1.0, 5.0]))
    for first in (0, 5, len(plan.bands)):
        merged = np.logaddexp.reduce([plan.bulk_k, *plan.k[:first]])
        family = plan.family(merged, first)
        total = np.logaddexp.reduce(family.k, axis=0)
        assert np.interp(whole.c, family.c, total) == pytest.approx(whole.k, rel=1e-3)
    # More sharply on a grid of its own, where the weights are felt.
    c = np.array([20.0, 40.0])
    parts = [Band(pair.mu, pair.q, *edges, 0.25, count, 100.0) for edges in ((-math.inf, 6.0), (6.0, 7.0), (7.0, 30.0))]
    k = [part.log_real(c)[0] for part in parts]
    assert np.logaddexp.reduce(k) == pytest.approx(pair.prepare(40.0, 1, -800.0, cut=False).log_real(c)[0], abs=1e-12)


@pytest.mark.parametrize(("first", "high"), [(2.5, 3.0), (3.0, 4.0)])
def test_weights(first: float, high: float) -> None:
    """(M_0 + M_1 + M_2)^T by its terms, with T = 3, so that there are no more than three jumps."""
    pair = SampledGaussianTransform(1.0, 0.1, add=False)
    plan = _choose((pair, 3), [], math.log(1e-6), (3.0, 3.0))[2]
    plan.bands = [Band(1.0, 0.1, low, up, plan.blur, 3, plan.c_ref) for low, up in ((first, high), (high, 40.0))]
    plan.k = np.array([np.add(*band.log_real(plan.c)) for band in plan.bands])
    plan.mass = np.zeros(2)
    family = plan.family(np.add(*plan._band(-math.inf, first).log_real(plan.c)), 0)
    whole = 3 * pair.prepare(plan.c[-1], 3, -800.0, cut=False).log_real(plan.c)[0]
    fine = np.isfinite(family.k).all(axis=0) & (plan.c < 5)
    assert fine.sum() > 10
    assert np.logaddexp.reduce(family.k, axis=0)[fine] == pytest.approx(whole[fine], abs=1e-10)


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] if i else []) for i, case in enumerate(HARD)]
)
def test_truth(case: tuple[float, float, int, float, float]) -> None:
    *what, delta, truth = case
    known = (0.7 * truth, 1.5 * truth)
    built, guess = jumps.build(run(*what), delta=delta, known=known)
    low, high = crossing(built.bounds, delta, guess, 0.0, math.inf)
    assert low <= truth * (1 + 1e-12)
    assert high >= truth * (1 - 1e-12)
    assert high - low <= 1e-6 * high
    found = (pc.PoissonSampled(pc.Gaussian(what[0]), what[1]) * int(what[2])).epsilon(delta=delta)
    assert found.lower <= truth * (1 + 1e-12)
    assert truth * (1 - 1e-12) <= found.upper <= found.lower * (1 + 1e-6)
    # And the other way round.
    back = (pc.PoissonSampled(pc.Gaussian(what[0]), what[1]) * int(what[2])).delta(epsilon=truth)
    assert back.lower <= delta * (1 + 1e-9)
    assert delta * (1 - 1e-9) <= back.upper <= back.lower * (1 + 1e-4)


@pytest.mark.parametrize(
    ("z", "q", "steps", "delta"), [(0.8, 1e-4, 1_000_000, 1e-8), (1.0, 0.01, 2000, 1e-20), (0.6, 1e-3, 100_000, 1e-40)]
)
@pytest.mark.parametrize("mu", [None, 0.3])
def test_overlap_where_the_contour_is_sharp(z: float, q: float, steps: int, delta: float, mu: float | None) -> None:
    entries: contour.TransformCounts = [*run(z, q, steps), *([(GaussianTransform(mu), 1)] if mu else [])]
    sharp, guess = contour.build(entries, delta=delta)
    low, high = crossing(sharp.bounds, delta, guess, 0.0, math.inf)
    built, guess = jumps.build(entries, delta=delta, epsilon=guess, known=(0.5 * low, 2 * high))
    other = crossing(built.bounds, delta, guess, 0.0, math.inf)
    assert max(low, other[0]) <= min(high, other[1])
    assert other[1] - other[0] <= 1e-7 * high
    assert high - low <= 1e-7 * high


def two_uses(z: float, q: float, epsilon: float) -> float:
    """δ(ε) of two uses: the profile of one, in closed form, over the loss of the other."""
    with mp.workdps(30):
        mu, rate, e = 1 / mpf(z), mpf(q), mpf(epsilon)

        def above(x: mpf) -> mpf:
            return mp.erfc(x / mp.sqrt(2)) / 2

        def reached(loss: mpf) -> mpf:
            return mp.log((mp.exp(loss) - 1 + rate) / rate) / mu + mu / 2

        def profile(loss: mpf) -> mpf:
            if loss <= mp.log(1 - rate):
                return -mp.expm1(loss)
            t = reached(loss)
            return (1 - rate) * above(t) + rate * above(t - mu) - mp.exp(loss) * above(t)

        def integrand(t: mpf) -> mpf:
            density = (1 - rate) * mp.npdf(t) + rate * mp.npdf(t - mu)
            return density * profile(e - mp.log(1 - rate + rate * mp.exp(mu * t - mu * mu / 2)))

        kink = reached(e - mp.log(1 - rate))
        return float(mp.quad(integrand, sorted([kink, *map(mpf, (-12, -6, -3, 0, 2, 4, 6, 8, 10, 14, 20, 30))])))


@pytest.mark.parametrize(
    ("noise", "rate", "epsilon"),
    [
        (0.8, 1e-6, 1e-3),  # (1 − q + q r)^{c+1} grows faster than a soft edge falls: bands end; most jumps exceed ε
        (0.3, 1e-4, 4.6),  # the bulk does not decay, and most jumps exceed ε by far: the bands have to decay alone
    ],
)
def test_few_uses(noise: float, rate: float, epsilon: float) -> None:
    truth = two_uses(noise, rate, epsilon)
    built, _ = jumps.build(run(noise, rate, 2), epsilon=epsilon, known=(0.5 * truth, 2 * truth))
    low, high = built.bounds(epsilon)
    assert low <= truth * (1 + 1e-14)
    assert truth * (1 - 1e-14) <= high <= low * (1 + 1e-8)


def test_rare_jumps_of_thirty_uses() -> None:
    found = (pc.PoissonSampled(pc.Gaussian(0.3), 1e-4) * 30).epsilon(delta=1e-5)
    assert found.lower < found.upper <= found.lower * (1 + 1e-6)
    assert 4.672 < found.lower < 4.674, "by the lattice, in the answer of which it is"


@pytest.mark.parametrize(
    ("q", "z", "steps", "delta"),
    [
        (1e-7, 0.4, 1_000, 1e-8),
        pytest.param(1e-7, 0.4, 100_000, 1e-6, marks=pytest.mark.slow),
        pytest.param(1e-7, 0.4, 100_000, 1e-8, marks=pytest.mark.slow),
        pytest.param(1.75e-6, 0.41, 208, 3e-7, marks=pytest.mark.slow),
        pytest.param(1e-6, 0.8, 30, 1e-7, marks=pytest.mark.slow),
    ],
)
def test_where_nothing_better_is_known_a_plan_is_found(q: float, z: float, steps: int, delta: float) -> None:
    """zCDP says ε ≤ 10⁵ of what is 10⁻²; and the other way round."""
    mechanism = pc.PoissonSampled(pc.Gaussian(z), q) * steps
    found = mechanism.epsilon(delta=delta)
    assert 0 < found.lower < found.upper <= found.lower * (1 + 1e-7)
    back = mechanism.delta(epsilon=found.upper)
    assert back.lower <= delta
    assert back.upper > delta * (1 - 1e-4)


def a_band(edge: float, first: float = -math.inf, *, count: int = 3) -> Band:
    return Band(1.25, 1e-3, first, edge, 0.1, count, 60.0)


@pytest.mark.parametrize("band", [a_band(5.0), a_band(5.5, 5.0)], ids=["bulk", "jump"])
def test_the_end_of_a_band_is_within_its_error(band: Band, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nodes up to a place at which the integrand is not small; without the error at the end, truth is outside."""
    monkeypatch.setattr(bands, "_DIGITS", 33.0)
    assert band._line[1] > 0  # the rule is as fine as ever
    monkeypatch.setattr(bands, "_DIGITS", -6.0)
    monkeypatch.setattr(bands, "_TILT", 1.0)
    assert band.nodes[-1] < band.high + 0.5
    c = 40.0
    with mp.workdps(20):
        end, mu, q, w = mpf(float(band._end[0])), mpf(band.mu), mpf(band.q), mpf(band.blur)

        def integrand(t: mpf) -> mpf:
            beta = mp.ncdf((band.high - t) / w) - (mp.ncdf((band.low - t) / w) if math.isfinite(band.low) else 0)
            return mp.npdf(t) * mp.exp((c + 1) * mp.log(1 - q + q * mp.exp(mu * t - mu * mu / 2))) * beta

        truth = mp.quad(integrand, [mpf(-12), *(mpf(x) for x in (-4, 0, 3, 4, 4.5, 4.8, 5, 5.2, 5.4) if x < end), end])
    value, error = (float(x[0]) for x in band.log_real(np.array([c])))
    off = abs(value - float(mp.log(truth)))
    assert 1e-9 < off <= error
    monkeypatch.setattr(Band, "_log_ends", lambda self, p, k: np.full_like(p, -800.0))
    assert off > float(band.log_real(np.array([c])).error[0])


def test_a_sure_jump_with_a_soft_edge() -> None:
    """One use, one band, its lower edge near t*: the integral lies between, and above P − e^ε Q."""
    band = Band(1.25, 1e-3, 5.0, 5.5, 0.1, 1, 60.0)
    family = Family([(0,)], np.zeros(1), np.ones(1), np.zeros((1, 1)), np.zeros(1))
    both = terms.of_terms(family, a_band(5.0, count=1), [band])
    with mp.workdps(20):
        mu, q, w = mpf(band.mu), mpf(band.q), mpf(band.blur)
        for t in (4.4, 4.95, 5.1):
            epsilon = mp.log(1 - q + q * mp.exp(mu * t - mu * mu / 2))

            def integrand(x: mpf, epsilon: mpf = epsilon) -> mpf:
                ratio = 1 - q + q * mp.exp(mu * x - mu * mu / 2)
                beta = mp.ncdf((band.high - x) / w) - mp.ncdf((band.low - x) / w)
                return mp.npdf(x) * (ratio - mp.exp(epsilon)) * beta

            truth = float(
                mp.quad(integrand, [mpf(t), 5.0, 5.2, 5.5, 6.0, 7.0] if t < 5 else [mpf(t), 5.2, 5.5, 6.0, 7.0])
            )
            low, high = both.bounds(float(epsilon))
            assert low <= truth <= high
            assert high < 1.1 * truth or t > 4.8
            assert low < truth * (1 - 1e-12)
            assert (high - math.exp(float(both.below(float(epsilon))[0])) < truth) or t < 4.8


def hard_bounds() -> tuple[Jumps, float]:
    *what, delta, truth = HARD[0]
    return jumps.build(run(*what), epsilon=truth, known=(0.5 * delta, 2 * delta))[0], truth


def test_what_is_only_bounded_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jumps, "MOST_TERMS", 2)
    built, truth = hard_bounds()
    low, high = built.bounds(truth)
    delta = HARD[0][3]
    assert low < delta * (1 - 1e-3)
    assert delta * (1 + 1e-3) < high
    assert high - built.small.chernoff(truth).sum() < delta * (1 - 1e-3)


def test_what_is_left_out_is_needed() -> None:
    z, q, steps, delta, truth = HARD[0]
    plan = _choose(run(z, q, steps)[0], [], math.log(delta), (truth, truth))[2]
    plan.edges, plan.bands, plan.k, plan.mass = plan.edges[:9], plan.bands[:8], plan.k[:8], plan.mass[:8]
    built = plan.integrate(truth, math.log(delta))
    low, high = built.bounds(truth)
    assert low <= delta <= high
    assert high - built.rest < 0.9 * delta


def test_a_missing_term_is_seen() -> None:
    """A mutation: without its first term the route contradicts the truth."""
    built, truth = hard_bounds()
    assert Jumps(built.terms[1:], built.small, built.rest).bounds(truth)[1] < HARD[0][3] * (1 - 1e-3)


def test_probability_beyond() -> None:
    with mp.workdps(30):
        for edge in (3.0, 12.0, 25.0):
            spread = mp.sqrt(1 + mpf("0.25") ** 2)
            tail = mpf("0.9") * mp.ncdf(-edge / spread) + mpf("0.1") * mp.ncdf((mpf("0.5") - edge) / spread)
            assert log_beyond(0.5, 0.1, edge, 0.25) == pytest.approx(float(mp.log(tail)), abs=1e-11)


def test_other_runs_are_refused() -> None:
    add = [(SampledGaussianTransform(1.0, 0.1, add=True), 10)]
    with pytest.raises(RouteFailed):
        jumps.build(add, delta=1e-5, known=(0.1, 1.0))
    with pytest.raises(RouteFailed):
        jumps.build([*run(1.0, 0.1, 10), *run(2.0, 0.1, 10)], delta=1e-5, known=(0.1, 1.0))
    with pytest.raises(RouteFailed):
        jumps.build(run(1.0, 0.1, 10), delta=1e-5, known=(0.0, math.inf))
    with pytest.raises(RouteFailed):
        jumps.build(run(1.0, 0.1, 10), delta=0.4, epsilon=1e-9, known=(0.0, 1.0))


@pytest.mark.parametrize(
    ("q", "x"), [(6e-20, 35.0), (1e-20, 31.0), (1e-30, 40.0), (0.3, 29.0), (1e-100, 690.0), (0.9, -40.0), (1e-9, 720.0)]
)
def test_the_logarithm_of_a_mixture_has_its_digits(q: float, x: float) -> None:
    """Also far out, where the rate is so small that a jump is no loss to speak of."""
    with mp.workdps(150):
        for theta in (0.0, 0.3, 1.5):
            truth = mp.log1p(mpf(q) * mp.expm1(mpc(x, theta)))
            found = log_turned(q, np.array([x]), theta)[0]
            assert abs(mpc(found) - truth) <= 8 * 2.0**-53 * abs(truth)
        truth = mp.log1p(mpf(q) * mp.expm1(mpf(x)))
        assert abs(mpf(float(log_weighted(q, np.array([x]))[0])) - truth) <= 8 * 2.0**-53 * abs(truth)


def test_rates_so_small_that_jumps_hardly_cost() -> None:
    """Truth by mpmath: E_P[δ(ε − L)], δ the normal pair's, 24 Gauss points per ½ and finer around ε, 40 digits."""
    run = [(SampledGaussianTransform(1 / 0.4273235857598583, 1.9774272842842275e-22, add=False), 1)]
    epsilon = 2.4491808247666474e-05
    built, _ = jumps.build([*run, (GaussianTransform(4.898361649533295e-07), 1)], epsilon=epsilon, known=(1e-80, 1e-3))
    low, high = built.bounds(epsilon)
    assert low <= 4.3924949830888e-78 * (1 + 1e-12)
    assert 4.3924949830888e-78 * (1 - 1e-12) <= high <= low * (1 + 1e-8)
