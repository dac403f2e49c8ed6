"""Fixed-size batches, shuffled epochs and disjoint parts, against enumerated output distributions."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from cases import neighbours
from mpmath import mp
from scipy.stats import norm

import privcalc as pc
from privcalc.composition.direction import max_loss
from privcalc.mechanisms.fixed_size import FixedSizeSampled, ShuffledEpoch
from privcalc.mechanisms.parallel import Parallel
from privcalc.pairs.gaussian import OppositeGaussianPair

VALUES = (-1, 0, 1)
SIZES = [(n, m) for n in range(2, 7) for m in range(1, n + 1)]


@functools.cache
def sums(records: tuple[int, ...], m: int) -> dict[int, float]:
    """Distribution of the sum of a uniformly random batch of m of the records."""
    found: dict[int, float] = {}
    batches = list(itertools.combinations(records, m))
    for batch in batches:
        found[sum(batch)] = found.get(sum(batch), 0.0) + 1 / len(batches)
    return found


@functools.cache
def gaussians(m: int, z: float) -> tuple[float, dict[int, np.ndarray]]:
    """A grid step, and the normal densities around −m, …, m on the grid."""
    t, step = np.linspace(-m - 9 * z, m + 9 * z, 3_001, retstep=True)
    return float(step), {k: np.exp(-0.5 * ((t - k) / z) ** 2) / (z * math.sqrt(2 * math.pi)) for k in range(-m, m + 1)}


@functools.cache
def laplaces(m: int, scale: float) -> tuple[float, dict[int, np.ndarray]]:
    """The same for Laplace: exact masses of cells, fine enough as the losses are flat beyond −m and m."""
    edges = np.linspace(-m, m, 2_000 * m + 1)

    def cdf(x: np.ndarray) -> np.ndarray:
        return np.where(x < 0, 0.5 * np.exp(np.minimum(x, 0) / scale), 1 - 0.5 * np.exp(-np.maximum(x, 0) / scale))

    return 1.0, {k: np.diff(np.concatenate([[0.0], cdf(edges - k), [1.0]])) for k in range(-m, m + 1)}


def density(records: tuple[int, ...], m: int, grid: tuple[float, dict[int, np.ndarray]]) -> np.ndarray:
    step, at = grid
    return step * sum(weight * at[total] for total, weight in sums(records, m).items())


def worst(
    n: int, m: int, relation: pc.Relation, grid: tuple[float, dict[int, np.ndarray]], epsilons: list[float]
) -> np.ndarray:
    """The largest δ(ε) of any neighbours."""
    found = np.zeros(len(epsilons))
    for one, other in neighbours(n, relation):
        if sums(one, m) != sums(other, m):
            p, q = density(one, m, grid), density(other, m, grid)
            found = np.maximum(found, [np.maximum(p - math.exp(e) * q, 0.0).sum() for e in epsilons])
    return found


@pytest.mark.parametrize("relation", list(pc.Relation))
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_fixed_size_gaussian_dominates_all_data_sets(n: int, m: int, relation: pc.Relation) -> None:
    if n == m and relation is pc.ADD_OR_REMOVE_ONE:
        return
    for z, scale in ((0.7, 1.0), (2.0, 0.3)):
        step = FixedSizeSampled(pc.Gaussian(z), batch_size=m, dataset_size=n)
        epsilons = [scale * e for e in (0.0, 0.1, 0.5, 1.5)]
        truth = worst(n, m, relation, gaussians(m, z), epsilons)
        answers = [step.delta(epsilon=e, relation=relation) for e in epsilons]
        for answer, value in zip(answers, truth, strict=True):
            assert answer.lower <= value * (1 + 1e-4) + 1e-9
            assert value <= answer.upper * (1 + 1e-4) + 1e-9
            if relation is not pc.ZERO_OUT:  # attained: the other records are all at −1, the record at +1
                assert answer.width <= 1e-9 * answer.upper
                assert value >= answer.upper * (1 - 1e-4) - 1e-9


@pytest.mark.parametrize("relation", list(pc.Relation))
@pytest.mark.parametrize(("n", "m"), [(2, 1), (3, 1), (3, 2), (4, 3), (5, 2)])
def test_fixed_size_laplace_dominates_all_data_sets(n: int, m: int, relation: pc.Relation) -> None:
    for scale in (0.5, 2.0):
        step = FixedSizeSampled(pc.Laplace(scale), batch_size=m, dataset_size=n)
        top = step.epsilon(delta=0.0, relation=relation)
        epsilons = [share * top.upper for share in (0.0, 0.3, 0.7, 0.95)]
        truth = worst(n, m, relation, laplaces(m, scale), [*epsilons, top.upper * (1 + 1e-12)])
        assert truth[-1] <= 1e-11
        for epsilon, value in zip(epsilons, truth, strict=False):
            answer = step.delta(epsilon=epsilon, relation=relation)
            assert answer.lower <= value * (1 + 1e-3) + 1e-6
            assert value <= answer.upper * (1 + 1e-12) + 1e-11


def test_largest_loss_under_zero_out_is_reached() -> None:
    """Records −1 and +1, one drawn, the second nulled: beyond 1 + q(e^a − 1), the bound without the other record."""
    a, q = 1.0, 0.5
    one, other = ((1 - q) * math.exp(-2 * a) + q, (1 - q) * math.exp(-2 * a) + q * math.exp(-a))
    answer = FixedSizeSampled(pc.Laplace(1 / a), 1, 2).epsilon(delta=0.0, relation=pc.ZERO_OUT)
    assert answer.upper == pytest.approx(math.log(one / other), rel=1e-12)
    assert answer.upper > 1.2 * math.log1p(q * math.expm1(a))


@pytest.mark.parametrize("relation", list(pc.Relation))
@pytest.mark.parametrize(("n", "m"), [(2, 1), (3, 2)])
def test_two_fixed_size_steps(n: int, m: int, relation: pc.Relation) -> None:
    z = 1.5
    step, at = gaussians(m, z)
    grid = 3 * step, {k: values[::3] for k, values in at.items()}
    run = FixedSizeSampled(pc.Gaussian(z), batch_size=m, dataset_size=n) * 2
    for epsilon in (0.1, 1.0):
        truth = 0.0
        for one, other in neighbours(n, relation):
            p, q = density(one, m, grid), density(other, m, grid)
            truth = max(truth, float(np.maximum(np.outer(p, p) - math.exp(epsilon) * np.outer(q, q), 0.0).sum()))
        answer = run.delta(epsilon=epsilon, relation=relation)
        assert answer.lower <= truth * (1 + 1e-3)
        assert truth <= answer.upper * (1 + 1e-3)
        if relation is pc.ADD_OR_REMOVE_ONE:
            assert answer.width <= 1e-4 * answer.upper


def test_zero_out_is_not_poisson_of_shift_one() -> None:
    """N = 2, m = 1, records +1 and −1: the nulled record still takes its slot, and the other one leaves it."""
    z, epsilon = 0.5, 1.0
    grid = gaussians(1, z)
    p, q = density((-1, 1), 1, grid), density((-1, 0), 1, grid)
    truth = float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
    poisson = pc.PoissonSampled(pc.Gaussian(z), 0.5).delta(epsilon=epsilon, relation=pc.ZERO_OUT)
    assert truth > 1.01 * poisson.upper
    assert truth <= FixedSizeSampled(pc.Gaussian(z), 1, 2).delta(epsilon=epsilon, relation=pc.ZERO_OUT).upper


def test_fixed_size_is_poisson_with_twice_the_noise() -> None:
    fixed = FixedSizeSampled(pc.Gaussian(3.0), batch_size=50, dataset_size=1000) * 500
    answer, truth = fixed.epsilon(delta=1e-6), (pc.PoissonSampled(pc.Gaussian(1.5), 0.05) * 500).epsilon(delta=1e-6)
    assert truth.upper == answer.upper
    assert truth.lower >= answer.lower >= truth.lower * (1 - 1e-12)  # at the next smaller rate, because 0.05 > 1/20
    assert (
        fixed.epsilon(delta=1e-6, relation=pc.REPLACE_ONE).lower == answer.lower
    )  # that pair occurs under replace-one
    zero = fixed.epsilon(delta=1e-6, relation=pc.ZERO_OUT)
    less = pc.PoissonSampled(pc.Gaussian(3.0), math.nextafter(0.05, 0.0))
    assert zero.lower == (less * 500).epsilon(delta=1e-6).lower


@pytest.mark.parametrize("relation", list(pc.Relation))
def test_the_rate_of_a_batch_is_rounded_outwards(relation: pc.Relation) -> None:
    for m, n in [(1, 3), (2, 3), (1, 10), (3, 7), (1, 4), (10**6, 10**6 + 1), (2**52, 2**53)]:
        pairs = FixedSizeSampled(pc.Gaussian(1.0), m, n).pairs(relation)
        above, below = (pair.rate for pair in (pairs.forward, pairs.lower()[0]))  # type: ignore[attr-defined]
        assert Fraction(below) <= Fraction(m, n) <= Fraction(above)
        assert above <= math.nextafter(below, 1.0)
        assert (above == below) == (Fraction(above) == Fraction(m, n))


@pytest.mark.parametrize("relation", [pc.REPLACE_ONE, pc.ZERO_OUT])
def test_a_batch_of_everyone_is_the_mechanism(relation: pc.Relation) -> None:
    everyone = FixedSizeSampled(pc.Gaussian(1.5), batch_size=7, dataset_size=7)
    assert (
        everyone.pairs(relation).upper() == everyone.pairs(relation).lower() == pc.Gaussian(1.5).pairs(relation).upper()
    )


def test_nulled_slot_with_guarantees_and_limits() -> None:
    stated = pc.GDP(mu=1.0, relation=pc.REPLACE_ONE)
    truth = FixedSizeSampled(pc.Gaussian(2.0), 1, 10).delta(epsilon=0.5)
    assert FixedSizeSampled(stated, 1, 10).delta(epsilon=0.5).upper == truth.upper
    for bad in (
        pc.ZCDP(rho=0.1, relation=pc.REPLACE_ONE),
        pc.ApproxDP(epsilon=1.0, delta=1e-6, relation=pc.REPLACE_ONE),
    ):
        with pytest.raises(pc.PrivcalcError, match="cannot be sampled"):
            FixedSizeSampled(bad, 1, 10).delta(epsilon=0.5)
    with pytest.raises(pc.PrivcalcError, match="was given for"):
        FixedSizeSampled(pc.GDP(mu=1.0), 1, 10).delta(epsilon=0.5)


def test_fixed_size_arguments() -> None:
    with pytest.raises(pc.PrivcalcError, match="could not fill a batch"):
        FixedSizeSampled(pc.Gaussian(1.0), 5, 5).delta(epsilon=1.0)
    with pytest.raises(pc.PrivcalcError, match="batch_size = 6"):
        FixedSizeSampled(pc.Gaussian(1.0), 6, 5)
    for size in (0, 1.5, True):
        with pytest.raises(pc.PrivcalcError, match="batch_size"):
            FixedSizeSampled(pc.Gaussian(1.0), size, 5)  # type: ignore[arg-type]
    inner = FixedSizeSampled(pc.Gaussian(1.0), 1, 5)
    for bad in (inner, pc.PoissonSampled(pc.Gaussian(1.0), 0.5), ShuffledEpoch(pc.Gaussian(1.0)), pc.Gaussian(1.0) * 2):
        with pytest.raises(pc.PrivcalcError, match="not itself sampled"):
            FixedSizeSampled(bad, 1, 5)  # type: ignore[arg-type]
        with pytest.raises(pc.PrivcalcError, match="not itself sampled"):
            ShuffledEpoch(bad)  # type: ignore[arg-type]


# --- shuffled epochs ------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", [pc.REPLACE_ONE, pc.ZERO_OUT])
@pytest.mark.parametrize(("n", "batches"), [(2, 1), (2, 2), (3, 2), (4, 2)])
def test_a_shuffled_epoch_dominates_all_data_sets(n: int, batches: int, relation: pc.Relation) -> None:
    """Every permutation of the records, cut into batches, one noisy sum each."""
    z, most = 1.0, math.ceil(n / batches)
    step, at = gaussians(most, z)
    step, at = 10 * step, {k: values[::10] for k, values in at.items()}

    def outputs(records: tuple[int, ...]) -> np.ndarray:
        orders = list(itertools.permutations(records))
        total = np.zeros((at[0].size,) * batches)
        for order in orders:
            cells = [step * at[sum(order[i * most : (i + 1) * most])] for i in range(batches)]
            total += functools.reduce(np.multiply.outer, cells) / len(orders)
        return total

    seen = {records: outputs(records) for records in itertools.combinations_with_replacement(VALUES, n)}
    for epsilon in (0.0, 0.5, 1.5):
        truth = max(
            float(np.maximum(seen[a] - math.exp(epsilon) * seen[b], 0.0).sum()) for a, b in neighbours(n, relation)
        )
        answer = ShuffledEpoch(pc.Gaussian(z)).delta(epsilon=epsilon, relation=relation)
        assert truth <= answer.upper * (1 + 1e-3)
        if batches == 1:
            assert truth == pytest.approx(float(answer), rel=1e-2)


def test_shuffled_epoch_refuses_add_or_remove() -> None:
    with pytest.raises(pc.PrivcalcError, match="moves others"):
        ShuffledEpoch(pc.Gaussian(1.0)).epsilon(delta=1e-5)


# --- disjoint parts -------------------------------------------------------------------------------

MIXED = (pc.Gaussian(3.0), pc.Laplace(3.0), pc.PoissonSampled(pc.Gaussian(0.5), 0.01))


@pytest.mark.parametrize("relation", [pc.ADD_OR_REMOVE_ONE, pc.ZERO_OUT])
@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.1, 0.3, 1.0, 3.0])
def test_parallel_once_is_the_worst_part(epsilon: float, relation: pc.Relation) -> None:
    answer = Parallel(MIXED).delta(epsilon=epsilon, relation=relation)
    alone = [part.delta(epsilon=epsilon, relation=relation) for part in MIXED]
    assert max(a.lower for a in alone) <= answer.upper
    assert answer.upper <= max(a.upper for a in alone) * (1 + 1e-12) + 1e-300
    assert answer.lower >= max(a.lower for a in alone) * (1 - 1e-12) - 1e-300


def test_parallel_dominates_every_choice_of_parts() -> None:
    """An adaptive rule may send the record to another part in each use."""
    delta = (Parallel(MIXED) * 3).delta(epsilon=0.8).upper
    for chosen in itertools.combinations_with_replacement(MIXED, 3):
        assert pc.Run.of(chosen).delta(epsilon=0.8).lower <= delta
    for order in (1.5, 8.0):
        assert max(part.rdp([order])[0] for part in MIXED) <= Parallel(MIXED).rdp([order])[0]


def test_parallel_enumerated() -> None:
    """Two parts of at most two records, a Gaussian and a Laplace release: the joint output of both."""
    t, step = np.linspace(-12.0, 12.0, 601, retstep=True)
    normal = {k: step * np.exp(-0.5 * (t - k) ** 2) / math.sqrt(2 * math.pi) for k in range(-2, 3)}
    edges = np.linspace(-2, 2, 401)
    cdf = {
        k: np.where(edges < k, 0.5 * np.exp(-np.abs(edges - k)), 1 - 0.5 * np.exp(-np.abs(edges - k)))
        for k in range(-2, 3)
    }
    laplace = {k: np.diff(np.concatenate([[0.0], cdf[k], [1.0]])) for k in cdf}
    both = Parallel([pc.Gaussian(1.0), pc.Laplace(1.0)])
    for epsilon in (0.0, 0.3, 0.9, 1.2):
        answer = both.delta(epsilon=epsilon)
        truth = 0.0
        for a, b, x in itertools.product((-1, 0, 1), repeat=3):
            for moved in ((a + x, b), (a, b + x)):
                p, q = (np.outer(normal[i], laplace[j]) for i, j in (moved, (a, b)))
                truth = max(
                    truth, *(float(np.maximum(u - math.exp(epsilon) * v, 0.0).sum()) for u, v in ((p, q), (q, p)))
                )
        assert truth == pytest.approx(answer.upper, rel=2e-3)


def test_parallel_shortcuts_and_refusals() -> None:
    gaussians_only = Parallel([pc.Gaussian(4.0), pc.Gaussian(2.0), pc.GDP(mu=0.1)])
    assert gaussians_only.pairs(pc.ADD_OR_REMOVE_ONE) == pc.Gaussian(2.0).pairs(pc.ADD_OR_REMOVE_ONE)
    same = Parallel([MIXED[2]] * 3) * 100
    assert same.epsilon(delta=1e-5).upper == (MIXED[2] * 100).epsilon(delta=1e-5).upper
    with pytest.raises(pc.PrivcalcError, match="another part"):
        gaussians_only.epsilon(delta=1e-5, relation=pc.REPLACE_ONE)
    for bad in ([], [pc.Gaussian(1.0) * 2], pc.Gaussian(1.0), 3, [1.0]):
        with pytest.raises(pc.PrivcalcError, match="parts"):
            Parallel(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "inner",
    [
        pc.PoissonSampled(pc.Gaussian(1.0), 0.1),
        pc.FixedSizeSampled(pc.Gaussian(1.0), batch_size=1, dataset_size=9),
        pc.ShuffledEpoch(pc.Gaussian(1.0)),
        pc.Parallel([pc.PoissonSampled(pc.Gaussian(1.0), 0.1), pc.Laplace(1.0)]),
        pc.RandomTrials(pc.PoissonSampled(pc.Gaussian(1.0), 0.1), mean=3.0, distribution="poisson"),
    ],
)
def test_what_is_sampled_is_not_sampled_again(inner: pc.Mechanism) -> None:
    """The proofs are about a mechanism that sees the whole batch."""
    for scheme in (
        lambda: pc.PoissonSampled(inner, 0.1),
        lambda: FixedSizeSampled(inner, 1, 10),
        lambda: ShuffledEpoch(inner),
    ):
        with pytest.raises(pc.PrivcalcError, match="not itself sampled"):
            scheme()


def test_moments_under_a_leak_are_not_sampled() -> None:
    """A profile that is only a bound from Rényi divergences stays one if another part may leak."""
    whole = pc.Parallel([pc.ApproxDP(0.1, 1e-3), pc.ZCDP(0.5)])
    assert whole.delta(epsilon=1.0).upper < 1
    with pytest.raises(pc.PrivcalcError, match="only its Rényi divergences are known"):
        pc.PoissonSampled(whole, 0.1).delta(epsilon=1.0)


def test_the_trade_off_of_a_worst_part_is_attained_by_a_part() -> None:
    """δ of two parts is attained at every ε, but the hull of their trade-off curves is not."""
    parts = [pc.Gaussian(1.0), pc.Laplace(0.8)]
    found = pc.Parallel(parts).beta(alpha=0.1)
    least = min(part.beta(alpha=0.1).lower for part in parts)
    assert found.lower <= least <= found.upper * (1 + 1e-9)


@pytest.mark.parametrize(
    ("scale", "q"),
    [(582036440.1669811, 0.6431202525877004), (0.03324082537286, 5.423522961147944e-14), (1e9, 0.9), (0.1, 1.0)],
)
def test_largest_losses_are_rounded_up_enough(scale: float, q: float) -> None:
    """With the margin that a composition adds, no loss exceeds it; and it is sharp."""
    with mp.workdps(60):
        up, rate = mp.exp(1 / mp.mpf(scale)), mp.mpf(q)
        truth = mp.log(1 - rate + rate * up), -mp.log(1 - rate + rate / up)
        pairs = pc.PoissonSampled(pc.Laplace(scale), q).pairs(pc.ADD_OR_REMOVE_ONE).upper()
        for pair, top in zip(pairs, truth, strict=True):
            bound = max_loss(((pair, 1),))
            assert top <= bound <= top * (1 + mp.mpf(5e-14))


def plane(side=9.0, step=0.02):
    """Points of a grid in the plane, and the mass of N(0, I) around each."""
    axis = np.arange(-side, side, step)
    u, v = np.meshgrid(axis, axis)
    return u, v, np.exp(-0.5 * (u * u + v * v)) / (2 * math.pi) * step**2


@pytest.mark.parametrize("seed", range(12))
def test_opposite_records_are_the_worst_in_the_plane(seed):
    """Records of any direction and length: D_ε by quadrature is never above the claim, which is attained."""
    rng = np.random.default_rng(seed)
    mu, q, epsilon = rng.uniform(0.3, 3.0), rng.uniform(0.01, 0.99), rng.exponential()
    u, v, null = plane()

    def divergence(x, y):
        ratios = [(1 - q) + q * np.exp(a * u + b * v - (a * a + b * b) / 2) for a, b in (x, y)]
        return float((null * np.maximum(ratios[0] - math.exp(epsilon) * ratios[1], 0.0)).sum())

    claim = pc.PoissonSampled(pc.Gaussian(1 / mu), q).delta(epsilon=epsilon, relation=pc.REPLACE_ONE)
    for _ in range(5):
        (r, s), angle = mu * rng.uniform(0, 1, 2) ** 0.3, rng.uniform(0, math.pi)
        assert divergence((r, 0.0), (s * math.cos(angle), s * math.sin(angle))) <= claim.upper + 1e-5
    assert divergence((mu, 0.0), (-mu, 0.0)) == pytest.approx(float(claim), abs=2e-5)


def test_a_nulled_record_that_still_counts_is_not_sampled():
    """The sample's size and a randomised response, nulled records counted: pure ε under zero-out, also on a sample."""
    level, rate = 1.0, 0.1
    p = 1 / (1 + math.exp(-level))
    # Outcomes: the record was not sampled (the size is 0), or it was, and the response is 1 or 0.
    one, null = np.array([1 - rate, rate * p, rate * (1 - p)]), np.array([1 - rate, rate * (1 - p), rate * p])
    assert float(np.log(one / null).max()) == pytest.approx(level)
    claim = math.log1p(rate * math.expm1(level))
    assert claim < 0.16  # what Poisson's pair would say of it
    for part in (
        pc.PureDP(level, relation=pc.ZERO_OUT),
        pc.GDP(1.0, relation=pc.ZERO_OUT),
        pc.ApproxDP(1.0, 0.1, relation=pc.ZERO_OUT),
    ):
        for mechanism in (part, pc.Parallel([part, part])):
            with pytest.raises(pc.PrivcalcError, match="nulled"):
                pc.PoissonSampled(mechanism, rate).epsilon(delta=1e-5, relation=pc.ZERO_OUT)
            assert pc.PoissonSampled(mechanism, 1.0).delta(epsilon=0.5, relation=pc.ZERO_OUT).upper < 1  # no sampling
    assert pc.PoissonSampled(pc.Laplace(1.0), rate).epsilon(delta=0.0, relation=pc.ZERO_OUT).upper == pytest.approx(
        claim
    )


@pytest.mark.parametrize("seed", range(6))
def test_the_profile_of_opposite_records_to_50_digits(seed):
    """Anywhere, and where e^ε brings to light what underflows; the threshold is rounded in doubles."""
    rng = np.random.default_rng(seed)
    draws = [
        (13.601756003920045, 0.06074405977451967, 437.35449240592584),
        (9.32265143288706, 0.4372200573508069, 390.2579866756219),
    ]
    draws += [tuple(10 ** rng.uniform(low, high) for low, high in ((-4, 2.5), (-9, 0), (-12, 2.8))) for _ in range(100)]

    def beyond(x):
        return mp.erfc(x / mp.sqrt(2)) / 2

    with mp.workdps(50):
        for mu, q, epsilon in draws:
            delta, _, error = (float(x[0]) for x in OppositeGaussianPair(mu, q).profile(np.array([epsilon])))
            m, r, grow = mp.mpf(mu), mp.mpf(q), mp.exp(mp.mpf(epsilon))
            a, b = r * mp.exp(-m * m / 2), (1 - r) * (grow - 1)
            t = mp.log((b + mp.sqrt(b * b + 4 * a * a * grow)) / (2 * a)) / m
            p, other = ((1 - r) * beyond(t) + r * beyond(t - shift) for shift in (m, -m))
            truth = p - grow * other
            assert delta - error <= truth <= delta + error, (mu, q, epsilon)


@pytest.mark.parametrize(("mu", "q"), [(1.0, 0.1), (1.0, 0.9), (0.5, 0.01), (3.0, 0.5)])
def test_opposite_records_have_the_tail_of_one(mu, q):
    """The smallest μ of one step: over thresholds t, Φ⁻¹(1 − α) − Φ⁻¹(β), whose limit in the far tail is μ, not 2μ."""
    t = np.concatenate([np.linspace(-12, 12, 2001), np.linspace(12, 36, 200)])
    alpha = (1 - q) * norm.sf(t) + q * norm.sf(t + mu)
    beta = (1 - q) * norm.cdf(t) + q * norm.cdf(t - mu)
    inside = (alpha > 1e-290) & (beta > 1e-290)
    truth = max(mu, float((norm.isf(alpha[inside]) - norm.ppf(beta[inside])).max()))
    found = pc.PoissonSampled(pc.Gaussian(1 / mu), q).gdp_mu(relation=pc.REPLACE_ONE)
    assert found.lower <= truth * (1 + 1e-9)
    assert truth <= found.upper <= 2 * mu * (1 + 1e-9)
