"""Numbers of five papers on learning with public data: what they print about privacy, recomputed, and what is true.

Every truth is the paper's own, or a closed form, quadrature or enumeration written here. Where a paper is wrong, the
test has the right value and says so.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from cases import quick
from mpmath import mp, mpf  # type: ignore[import-untyped]
from scipy.special import gammaln, logsumexp, ndtr, ndtri
from scipy.stats import chi2

import privcalc as pc

LEVEL = 1e-5


def gaussian_delta(mu: float, epsilon: float) -> mpf:
    """δ of N(μ, 1) against N(0, 1)."""
    with mp.workdps(40):
        m, e = mpf(mu), mpf(epsilon)
        return mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)


def largest_mu(epsilon: float, delta: float) -> float:
    """The μ with δ_μ(ε) = δ, by bisection."""
    low, high = mpf("1e-6"), mpf(100)
    for _ in range(120):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(middle, epsilon) <= delta else (low, middle)
    return float(low)


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def scale_leak(n: int, coordinates: int, epsilon: float) -> tuple[float, float]:
    """δ(ε) of noise of standard deviation 1/(n + 1) against 1/n in so many coordinates, and reversed: Σx² decides."""
    ratio = (n + 1) / n
    gain, log_scale = ratio**2 - 1, coordinates * math.log(ratio)
    t = 2 * (log_scale - epsilon) / gain
    small = chi2.cdf(ratio**2 * t, coordinates) - math.exp(epsilon) * chi2.cdf(t, coordinates)
    t = 2 * (log_scale + epsilon) / gain
    large = chi2.sf(t, coordinates) - math.exp(epsilon) * chi2.sf(ratio**2 * t, coordinates)
    return float(small), float(large)


# --- Golatkar, Achille, Wang, Roth, Kearns, Soatto: Mixed Differential Privacy in Computer Vision (AdaMix) ---


@pytest.mark.parametrize(
    ("epsilon", "moves"), list(itertools.product((1.0, 3.0), (1, 2)))
)  # the two columns of Table 1
def test_adamix_steps_at_sigma_20(epsilon: float, moves: int) -> None:
    mu, sigma = largest_mu(epsilon, LEVEL), 20.0
    allowed = math.floor((mu * sigma / moves) ** 2)  # ρ = T/(2σ²), and √(2ρ) = μ
    relation = (pc.ADD_OR_REMOVE_ONE, pc.REPLACE_ONE)[moves - 1]
    assert pc.steps(epsilon=epsilon, delta=LEVEL, noise_multiplier=sigma, relation=relation) == allowed
    if epsilon == 3:
        assert allowed == (206, 51)[moves - 1]
        assert (
            math.floor(mu * sigma) == 14
        )  # Propositions 2, 5 and 9 print ρ = T²/(2σ²): 14 steps where 206 are allowed
    run = pc.Gaussian(sigma) * allowed
    found = run.delta(epsilon=epsilon, relation=relation)
    assert mpf(found.lower) <= gaussian_delta(moves * math.sqrt(allowed) / sigma, epsilon) * (1 + mpf("1e-12"))
    assert gaussian_delta(moves * math.sqrt(allowed) / sigma, epsilon) <= mpf(found.upper) * (1 + mpf("1e-12"))
    assert gaussian_delta(moves * math.sqrt(allowed + 1) / sigma, epsilon) > LEVEL


def test_adamix_rho() -> None:
    """ρ = T/(2σ²) (Corollary 16 and Algorithm 3), not the T²/(2σ²) of Propositions 2, 5 and 9."""
    rho, xi = (pc.Gaussian(20.0) * 206).zcdp()
    assert xi == 0
    assert rho == pytest.approx(206 / 800, rel=1e-14)
    assert rho < 206**2 / 800 / 200


@pytest.mark.parametrize("sigma", [5.0, 10.0, 40.0])
def test_adamix_trades_steps_for_noise(sigma: float) -> None:
    """The same guarantee as long as σ/√T is constant (remark after Proposition 5)."""
    steps = round(100 * (sigma / 10) ** 2)
    assert (pc.Gaussian(sigma) * steps).epsilon(delta=LEVEL).upper == pytest.approx(
        (pc.Gaussian(10.0) * 100).epsilon(delta=LEVEL).upper, rel=1e-12
    )


def test_adamix_losses_along_the_run_are_no_guarantee() -> None:
    """Proposition 14's right side follows the run. σ = 20, T = 201, gradients vanish after step 1 in 95 % of runs."""
    sigma, rest = 20.0, math.sqrt(200) / 20
    one = 1 / sigma
    claimed = pc.Gaussian(sigma).epsilon(delta=LEVEL).upper
    assert claimed == pytest.approx(0.160, abs=5e-4)
    x, width = np.linspace(-12.0, 12.0, 240_001, retstep=True)
    density = [np.exp(-0.5 * (x - shift) ** 2) * width / math.sqrt(2 * math.pi) for shift in (one, 0.0)]
    cap = pc.Gaussian(sigma) * 201
    found = []
    for p, q in (density, density[::-1]):
        left = claimed - (np.log(p) - np.log(q))  # what the other 200 steps have to exceed
        later = ndtr(rest / 2 - left / rest) - np.exp(left) * ndtr(-rest / 2 - left / rest)
        stopped = x <= ndtri(0.95)
        found.append(float(np.sum(np.where(stopped, np.maximum(p - math.exp(claimed) * q, 0.0), p * later))))
    assert found == pytest.approx([0.01416, 0.00944], rel=1e-3)
    assert min(found) > 900 * LEVEL
    assert max(found) <= cap.delta(epsilon=claimed).upper
    # A filter: the certificate is that of the whole budget, whatever was used of it.
    budget = pc.Filter(mu=math.sqrt(201) / sigma * (1 + 1e-12))
    budget.charge(pc.Gaussian(sigma))
    assert max(found) <= budget.mechanism.delta(epsilon=claimed).upper


# --- Nasr, Mahloujifar, Tang, Mittal, Houmansadr: Effectively Using Public Data in Privacy Preserving ML (DOPE-SGD) ---


def mixture(parts: list[tuple[float, float]], sigma: float) -> np.ndarray:
    """Masses of Σ weight·N(mean, σ²) in fine cells."""
    edges = np.linspace(-4 - 12 * sigma, 6 + 12 * sigma, 20_001)
    return sum(weight * np.diff(ndtr((edges - mean) / sigma)) for weight, mean in parts)


STEPS = 9
LAMBDA = 0.75  # a bound of the norm of the public origin ĝ, in units of C

# Scheme, relation, sampling rate, law with and law without the record (or with the other record), what to tell the
# accountant, exact or not. Noise σ·C, C = 1.
SIGMA, RATE = 1.1, 0.2
POISSON = pc.PoissonSampled(pc.Gaussian(SIGMA), RATE)
FIXED = pc.FixedSizeSampled(pc.Gaussian(SIGMA), batch_size=2, dataset_size=10)
BOTH = [(1 - RATE, 0.0), (RATE, 2.0)]  # the others at −1 each, the record at +1, counted from −2
DOPE = {
    "Poisson, add-or-remove, printed update": (
        pc.PoissonSampled(pc.Gaussian(SIGMA / (1 + LAMBDA)), RATE), pc.ADD_OR_REMOVE_ONE,
        [(1 - RATE, 0.0), (RATE, 1 + LAMBDA)], [(1.0, 0.0)], POISSON),
    "Poisson, add-or-remove, public batch size": (
        POISSON, pc.ADD_OR_REMOVE_ONE, [(1 - RATE, 0.0), (RATE, 1.0)], [(1.0, 0.0)], None),
    "Poisson, replace-one, public batch size": (
        POISSON, pc.REPLACE_ONE, [(1 - RATE, 0.0), (RATE, 1.0)], [(1 - RATE, 0.0), (RATE, -1.0)], POISSON),
    "fixed size, add-or-remove, as Poisson": (
        pc.PoissonSampled(pc.Gaussian(SIGMA / 2), RATE), pc.ADD_OR_REMOVE_ONE, BOTH, [(1.0, 0.0)], POISSON),
    "fixed size, add-or-remove": (FIXED, pc.ADD_OR_REMOVE_ONE, BOTH, [(1.0, 0.0)], POISSON),
    "fixed size, replace-one": (FIXED, pc.REPLACE_ONE, BOTH, [(1.0, 0.0)], POISSON),
    "full batch, add-or-remove": (
        pc.Gaussian(SIGMA), pc.ADD_OR_REMOVE_ONE, [(1.0, 1.0)], [(1.0, 0.0)], None),
    "full batch, add-or-remove, printed update": (
        pc.Gaussian(SIGMA / (1 + LAMBDA)), pc.ADD_OR_REMOVE_ONE, [(1.0, 1 + LAMBDA)], [(1.0, 0.0)], pc.Gaussian(SIGMA)),
    "full batch, replace-one": (
        pc.Gaussian(SIGMA), pc.REPLACE_ONE, [(1.0, 1.0)], [(1.0, -1.0)], pc.Gaussian(SIGMA)),
}  # fmt: skip


@pytest.mark.parametrize("scheme", list(DOPE))
def test_dope_sgd_schemes(scheme: str) -> None:
    """One step, both laws by quadrature. Proposition 2 claims sensitivity C for all; ``printed`` is that accountant."""
    step, relation, with_it, without, printed = DOPE[scheme]
    laws = mixture(with_it, SIGMA), mixture(without, SIGMA)
    beaten = []
    for epsilon in (0.0, 0.1, 0.3, 1.0, 2.0):
        truth = max(hockey_stick(*laws, epsilon), hockey_stick(*laws[::-1], epsilon))
        found = step.delta(epsilon=epsilon, relation=relation)
        assert found.lower * (1 - 1e-5) <= truth <= found.upper * (1 + 1e-5)
        if scheme != "Poisson, replace-one, public batch size":  # where two opposite records attain the claim
            assert truth == pytest.approx(found.upper, rel=1e-5)
        if printed is not None:
            beaten.append(truth > printed.delta(epsilon=epsilon).upper * (1 + 1e-3))
    assert printed is None or any(beaten)


@pytest.mark.parametrize(
    ("mu", "relation", "noise"),
    [
        (math.sqrt(STEPS) / SIGMA, pc.ADD_OR_REMOVE_ONE, SIGMA),
        (math.sqrt(STEPS) * (1 + LAMBDA) / SIGMA, pc.ADD_OR_REMOVE_ONE, SIGMA / (1 + LAMBDA)),
        (2 * math.sqrt(STEPS) / SIGMA, pc.REPLACE_ONE, SIGMA),
    ],
)
def test_dope_sgd_full_batch(mu: float, relation: pc.Relation, noise: float) -> None:
    run = pc.Gaussian(noise) * STEPS
    assert run.gdp_mu(relation=relation).upper == pytest.approx(mu, rel=1e-12)
    for epsilon in (0.5, 3.0, 10.0):
        assert run.delta(epsilon=epsilon, relation=relation).upper == pytest.approx(
            float(gaussian_delta(mu, epsilon)), rel=1e-10
        )


def test_dope_sgd_two_steps_of_replace_one() -> None:
    """Poisson and fixed size, two steps: the joint law of two opposite records stays inside the enclosure."""
    cells = [np.add.reduceat(mixture(parts, SIGMA), np.arange(0, 20_000, 20)) for parts in (BOTH, [(1.0, 0.0)])]
    opposite = [[(1 - RATE, 0.0), (RATE, value)] for value in (1.0, -1.0)]
    poisson = [np.add.reduceat(mixture(parts, SIGMA), np.arange(0, 20_000, 20)) for parts in opposite]
    for run, (p, q) in ((FIXED * 2, cells), (POISSON * 2, poisson)):
        for epsilon in (0.2, 1.0):
            truth = max(hockey_stick(np.outer(a, a), np.outer(b, b), epsilon) for a, b in ((p, q), (q, p)))
            found = run.delta(epsilon=epsilon, relation=pc.REPLACE_ONE)
            assert truth <= found.upper
            assert found.upper < 4 * truth


# --- Pinto, Hu, Yang, Sanyal: How to Make Semi-Private Learning More Effective (PILLAR) ---


@pytest.mark.parametrize("epsilon", [0.1, 0.7, 1.0])
def test_pillar_lemma_1_claims_too_little(epsilon: float) -> None:
    """k runs at (ε/k, δ/k) and an exponential mechanism at ε are (2ε, δ), not Lemma 1's (ε, δ); half of each is."""
    k, delta = math.ceil(math.log(4 / 0.1)), LEVEL
    run = pc.ApproxDP(epsilon=epsilon / k, delta=delta / k) * k + pc.PureDP(epsilon=epsilon)
    # The worst case is attained by randomised responses: δ at any level by a sum over 2(k + 1) outcomes.
    with mp.workdps(40):
        kept = (1 - mpf(delta) / k) ** k

        def truth(at: float) -> mpf:
            total = mpf(0)
            for j, last in itertools.product(range(k + 1), (0, 1)):
                loss = (2 * j - k) * mpf(epsilon) / k + (2 * last - 1) * mpf(epsilon)
                small, large = (1 / (1 + mp.exp(s * mpf(epsilon) / k)) for s in (1, -1))
                weight = mp.binomial(k, j) * large**j * small ** (k - j) / (1 + mp.exp((1 - 2 * last) * mpf(epsilon)))
                total += weight * max(1 - mp.exp(mpf(at) - loss), mpf(0))
            return 1 - kept + kept * total

        for at in (0.0, 0.5 * epsilon, epsilon, 1.5 * epsilon):
            found = run.delta(epsilon=at)
            assert mpf(found.lower) * (1 - mpf("1e-6")) <= truth(at) <= mpf(found.upper) * (1 + mpf("1e-12"))
        assert truth(epsilon) > 100 * delta
    assert 1.5 * epsilon < run.epsilon(delta=delta).lower
    assert run.epsilon(delta=delta).upper <= 2 * epsilon * (1 + 1e-12)
    fixed = pc.ApproxDP(epsilon=epsilon / (2 * k), delta=delta / k) * k + pc.PureDP(epsilon=epsilon / 2)
    assert fixed.epsilon(delta=delta).upper <= epsilon * (1 + 1e-12)


def test_pillar_selection() -> None:
    """Weights exp(−ε·loss/(2B)), losses in [0, B]: range ε under replace-one, ε/2 under add-or-remove."""
    epsilon = 0.7
    selection = pc.ExponentialMechanism(epsilon=epsilon / 2)
    for relation, top in ((pc.REPLACE_ONE, epsilon), (pc.ADD_OR_REMOVE_ONE, epsilon / 2)):
        assert selection.epsilon(delta=0.0, relation=relation).upper == pytest.approx(top, rel=1e-12)
        # Two models: the record's losses are 0 and B before, B and 0 after (0 and 0, without it), in units of B; the
        # second model is far better on the other records.
        losses = [(0.0, 1.0), (1.0, 0.0)] if relation is pc.REPLACE_ONE else [(0.0, 1.0), (0.0, 0.0)]
        weights = [np.exp(-epsilon / 2 * np.add(own, [60.0, 0.0])) for own in losses]
        p, q = (w / w.sum() for w in weights)
        assert np.log(p / q).max() == pytest.approx(top, rel=1e-6)


@pytest.mark.parametrize("n", quick([50, 200], 0))
def test_pillar_noise(n: int) -> None:
    """Algorithm 2 prints σ² = 32L²n²·log(n/δ)log(1/δ)/ε for n² steps of one record; ε² belongs there."""
    for epsilon in (1e-3, 0.1, 0.7):
        product = 32 * math.log(n / LEVEL) * math.log(1 / LEVEL)
        for power, valid in ((1, epsilon > 0.01), (2, True)):
            step = pc.FixedSizeSampled(pc.Gaussian(math.sqrt(product / epsilon**power)), batch_size=1, dataset_size=n)
            found = (step * n**2).delta(epsilon=epsilon, relation=pc.REPLACE_ONE)
            assert found.upper <= LEVEL if valid else found.lower > LEVEL


# --- Amid, Ganesh, Mathews, Ramaswamy, Song, Steinke, Suriyakumar, Thakkar, Thakurta:
# Public Data-Assisted Mirror Descent ---

# Section 4: records, batch size, epochs, δ, σ, ε as printed. 4 % of the records are public.
PRINTED = [
    (48_764, 250, 20, 1e-5, 0.5, "15.7"),
    (48_764, 250, 20, 1e-5, 1.08, "1.71"),
    (50_000, 500, 100, 1e-5, 1.51, "3.51"),
    (50_000, 500, 100, 1e-5, 20.0, "0.19"),
    (697_932, 500, 50, 1e-6, 0.41, "25.80"),
    (697_932, 500, 50, 1e-6, 1.89, "0.48"),
]
ORDERS = [1 + x / 10 for x in range(1, 100)] + list(range(12, 64))


def renyi(rate: float, z: float, order: float) -> float:
    """D_α of the sampled Gaussian: a sum for whole orders (Mironov, Talwar, Zhang 2019), else a trapezoid sum."""
    if order == round(order):
        k = np.arange(order + 1)
        terms = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1) + (k * k - k) / (2 * z * z)
        return float(logsumexp(terms + k * math.log(rate) + (order - k) * math.log1p(-rate))) / (order - 1)
    x, width = np.linspace(-14 * z, 14 * z + order + 2, 6_001, retstep=True)
    log_ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * x - 1) / (2 * z * z))
    log_density = -0.5 * (x / z) ** 2 - 0.5 * math.log(2 * math.pi * z * z) + math.log(width)
    return float(logsumexp(order * log_ratio + log_density)) / (order - 1)


@pytest.mark.parametrize(("records", "batch", "epochs", "delta", "sigma", "printed"), PRINTED)
def test_mirror_descent_table(records: int, batch: int, epochs: int, delta: float, sigma: float, printed: str) -> None:
    """All six printed pairs are the Rényi bound for Poisson sampling of the private 96 %; the exact ε is smaller."""
    private = 0.96 * records
    rate, steps = batch / private, epochs * private / batch
    bound = min(
        steps * renyi(rate, sigma, a)
        + math.log1p(-1 / a)
        - math.log(delta * a) / (a - 1)  # Canonne, Kamath, Steinke 2020
        for a in ORDERS
    )
    digits = len(printed.split(".")[1])
    assert f"{bound:.{digits}f}" == printed
    exact = (pc.PoissonSampled(pc.Gaussian(sigma), rate) * math.ceil(steps - 1e-6)).epsilon(delta=delta)
    assert exact.upper < bound
    assert exact.width < 1e-6 * exact.upper
    of_run = pc.PoissonSampled(pc.Gaussian(sigma), rate).rdp([2.0, 7.5, 40.0])
    for order, value in zip((2.0, 7.5, 40.0), of_run, strict=True):
        assert renyi(rate, sigma, order) * (1 - 1e-9) <= value <= renyi(rate, sigma, order) * (1 + 1e-3)


@pytest.mark.parametrize(("relation", "moves"), [(pc.ZERO_OUT, 1), (pc.REPLACE_ONE, 2)])
def test_mirror_descent_noise(relation: pc.Relation, moves: int) -> None:
    """σ² = 8L²T ln(1/δ)/(εn)²: z = √(8T ln(1/δ))/ε. 2.6 times what zero-out needs at ε = 1, 1.3 under replace-one."""
    steps = 50
    needed = pc.noise_multiplier(epsilon=1.0, delta=LEVEL, steps=steps, relation=relation)
    assert needed == pytest.approx(moves * math.sqrt(steps) / largest_mu(1.0, LEVEL), rel=1e-9)
    assert round(math.sqrt(8 * steps * math.log(1 / LEVEL)) / needed, 1) == (2.6, 1.3)[moves - 1]
    for epsilon in (0.01, 1.0, 7.5, 8.1, 20.0, 8 * math.log(1 / LEVEL)):
        printed = pc.Gaussian(math.sqrt(8 * steps * math.log(1 / LEVEL)) / epsilon) * steps
        valid = moves == 1 or epsilon < 8  # the paper has no upper limit for ε
        found = printed.delta(epsilon=epsilon, relation=relation)
        assert found.upper <= LEVEL if valid else found.lower > LEVEL


def test_mirror_descent_divides_by_a_private_number() -> None:
    """Dividing by the private n makes the noise's scale reveal n: at p·T = 6·10⁶ and n = 10⁴, ε ≥ 1.3 at any noise."""
    assert min(scale_leak(10**4, 6 * 10**6, 1.3)) > LEVEL
    wide = pc.Gaussian(math.sqrt(1000 * 8 * math.log(1 / LEVEL)) / 0.1) * 1000  # asked for ε = 0.1
    assert wide.epsilon(delta=LEVEL, relation=pc.ZERO_OUT).upper < 0.1


# --- Wahdany, Jagielski, Dziedzic, Boenisch: differentially private prototypes (DPPL) ---

RANGE = [0.01, 0.1, 1.0, 10.0]
SPLITS = [(5, 7, 52), (8, 8, 48)]  # of 64: the paper's shares, and those of CoinPress


@pytest.mark.parametrize("epsilon", RANGE)
def test_dppl_public(epsilon: float) -> None:
    """Lemma 3: ε-DP and ε²/8-zCDP, true under add-or-remove; Definition 1 replaces an entry: 2ε, ε²/2."""
    one = pc.ExponentialMechanism(epsilon=epsilon)
    for relation, factor in ((pc.ADD_OR_REMOVE_ONE, 1), (pc.REPLACE_ONE, 2)):
        a = factor * epsilon
        assert one.epsilon(delta=0.0, relation=relation).upper == pytest.approx(a, rel=1e-12)
        rho, xi = one.zcdp(relation=relation)
        assert xi == 0
        assert rho <= a**2 / 8 * (1 + 1e-12)
        # Two candidates, one lifted by a: their Rényi divergence at orders near 1 is close to ρ·α for small a.
        with mp.workdps(40):
            p = 1 / (1 + mp.exp(-mpf(a) / 2))
            for order in (mpf("1.0001"), mpf(2), mpf(30)):
                value = mp.log(p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)) / (order - 1)
                assert value <= rho * order * (1 + mpf("1e-12"))
                assert a > 0.1 or order > 2 or value > 0.99 * rho * order
    every_class = pc.Parallel([one] * 10)
    assert every_class.epsilon(delta=0.0).upper == pytest.approx(epsilon, rel=1e-12)
    assert every_class.zcdp()[0] <= epsilon**2 / 8 * (1 + 1e-12)


@pytest.mark.parametrize("rho", [1e-4, 1e-3, 0.5, 100.0])
@pytest.mark.parametrize("split", SPLITS)
def test_dppl_mean(rho: float, split: tuple[int, ...]) -> None:
    """Noise R²/(2ρ_s) on clipped sums: ρ in total, over all classes; a replaced record may change its class."""
    share = 0.9 * rho
    steps = pc.Run.of(pc.Gaussian(1 / math.sqrt(2 * share * part / 64)) for part in split)
    count = pc.Gaussian(1 / math.sqrt(2 * (rho - share)))
    assert (steps + count).zcdp()[0] == pytest.approx(rho, rel=1e-12)
    # The record stays in its class: sums move by 2R, the count does not. It leaves:
    # two classes change by a record each.
    assert steps.zcdp(relation=pc.REPLACE_ONE)[0] == pytest.approx(4 * share, rel=1e-12)
    assert (2 * (steps + count)).zcdp()[0] == pytest.approx(2 * rho, rel=1e-12)
    # As one Gaussian: exactly μ = √(2ρ), hence ε at δ; zCDP alone gives more.
    exact = (steps + count).epsilon(delta=LEVEL)
    assert float(gaussian_delta(math.sqrt(2 * rho), exact.upper)) == pytest.approx(LEVEL, rel=1e-6)
    assert exact.upper < pc.ZCDP(rho=rho).epsilon(delta=LEVEL).upper


@pytest.mark.parametrize("epsilon", [*RANGE, 100.0])
def test_dppl_axis_is_no_guarantee(epsilon: float) -> None:
    """The paper's second axis is ε = √(2ρ). A release with exactly this ρ has no pure ε, and a large δ at this one."""
    rho = epsilon**2 / 2  # ε-DP implies this ρ (Bun, Steinke 2016), not the other way round
    assert pc.PureDP(epsilon=epsilon).zcdp()[0] <= rho * (1 + 1e-12)
    mean = pc.Gaussian(1 / math.sqrt(2 * rho))
    assert mean.epsilon(delta=0.0).lower == math.inf
    truth = gaussian_delta(epsilon, epsilon)
    found = mean.delta(epsilon=epsilon)
    assert mpf(found.lower) * (1 - mpf("1e-12")) <= truth <= mpf(found.upper) * (1 + mpf("1e-12"))
    assert truth > 50 * LEVEL
    assert pc.ZCDP(rho=rho).delta(epsilon=epsilon).upper >= found.lower
    # The axis compares unlike things: DPPL-Public at pure ε has ρ = ε²/8, so it is shown at ε/2.
    assert pc.ExponentialMechanism(epsilon=epsilon).zcdp()[0] <= rho / 4 * (1 + 1e-12)


def test_dppl_mean_divides_by_a_private_count() -> None:
    """Noise on the mean over a private n_c: 50 records or 51 at d = 1280 cost ε ≥ 4.1, 4.7 the worse way, at any ρ."""
    assert scale_leak(50, 1280, 4.1)[0] > LEVEL
    assert scale_leak(50, 1280, 4.65)[1] > LEVEL > scale_leak(50, 1280, 4.75)[1]
    assert pc.ZCDP(rho=1e-3).epsilon(delta=LEVEL).upper < 0.3  # what is claimed


@pytest.mark.parametrize("k", [1, 2, 3])
def test_dppl_top_k_counts_sets_wrongly(k: int) -> None:
    """C(y, k) for C(y − 1, k − 1), 1.28·10⁶ candidates, nominal ε = 1: a set falling to the last rank gains > 12."""
    n = 1_280_000
    y = np.arange(k, n + 1)

    def log_probability(scores: np.ndarray, rank: int, printed: bool) -> float:
        """Of the set of the first k, whose worst has this rank, among scores in order of rank."""
        top, least = (y, k) if printed else (y - 1, k - 1)
        weights = gammaln(top + 1) - gammaln(least + 1) - gammaln(top - least + 1) + scores
        sets = gammaln(rank) - gammaln(k) - gammaln(rank - k + 1)
        return float(weights[rank - k] - logsumexp(weights) - sets)

    even, lifted = np.zeros(y.size), np.full(y.size, 0.5)
    lifted[-1] = 0.0  # the record lifts every candidate but the k-th, which drops from rank k to rank n
    for printed in (True, False):
        loss = log_probability(lifted, n, printed) - log_probability(even, k, printed)
        if printed:
            assert loss > 12
            assert loss == pytest.approx(math.log(n / k) - 0.5, abs=1e-3)
        else:
            assert abs(loss) <= pc.TopK(epsilon=1.0, k=k).epsilon(delta=0.0).upper
    assert pc.TopK(epsilon=1.0, k=k).epsilon(delta=0.0).upper == pytest.approx(0.5, rel=1e-12)  # the paper pays 1
    assert pc.TopK(epsilon=1.0, k=k).zcdp()[0] == pytest.approx(1 / 32, rel=1e-12)
