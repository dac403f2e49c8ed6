"""Numbers behind the errata: closed forms, quadrature and enumeration, without the engine of the package."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import gammaln, log_ndtr, logsumexp, ndtr, ndtri
from scipy.stats import binom, chi2, norm

from privcalc.numerics.floats import Floats

DELTA = 1e-5
PART = list[tuple[float, float]]
"""(weight, mean) of the normal laws of a mixture."""


def gdp_delta(mu: float, epsilon: float) -> float:
    """δ(ε) of N(μ, 1) against N(0, 1) (Balle, Wang 2018).

    Example:
        >>> round(gdp_delta(1.0, 0.0), 6)
        0.382925
    """
    upper, lower = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return float(np.exp(upper) * -np.expm1(lower - upper))


def epsilon_at(profile: Callable[[float], float], delta: float = DELTA) -> float:
    """The ε ≥ 0 at which a non-increasing profile falls to δ."""
    high = 1.0
    while profile(high) > delta:
        high *= 2
    return (
        0.0 if profile(0.0) <= delta else float(brentq(lambda e: profile(e) - delta, 0.0, high, xtol=1e-12, rtol=1e-13))
    )


def gdp_epsilon(mu: float, delta: float = DELTA) -> float:
    """ε at δ of N(μ, 1) against N(0, 1)."""
    return epsilon_at(lambda e: gdp_delta(mu, e), delta)


def mixture(parts: PART, sigma: float) -> Floats:
    """Masses of Σ weight·N(mean, σ²) in 40,000 cells."""
    means = [mean for _, mean in parts]
    edges = np.linspace(-12 * sigma - 4, max(12.0, *means) + 12 * sigma, 40_001)
    return np.asarray(sum(weight * np.diff(ndtr((edges - mean) / sigma)) for weight, mean in parts), dtype=np.float64)


def worse_delta(one: PART, other: PART, sigma: float, epsilon: float) -> float:
    """δ(ε) of two mixtures, the worse order; a lower bound, as cells are a post-processing."""
    p, q = mixture(one, sigma), mixture(other, sigma)
    return max(float(np.maximum(a - math.exp(epsilon) * b, 0.0).sum()) for a, b in ((p, q), (q, p)))


def worse_epsilon(one: PART, other: PART, sigma: float, delta: float = DELTA) -> float:
    """ε at δ, as ``worse_delta``."""
    return epsilon_at(lambda e: worse_delta(one, other, sigma, e), delta)


def sampled(rate: float, shift: float) -> PART:
    """A record of a Poisson sample that moves the sum by ``shift``."""
    return [(1 - rate, 0.0), (rate, shift)]


NOBODY: PART = [(1.0, 0.0)]


# --- AdaMix ---


def printed_lambda(rho: float, distance: float, dimension: int, lipschitz: float) -> tuple[float, float]:
    """a/λ + bλ, a = dL²/ρ, b = R²/2, at the λ of Theorem 3 as printed, and the least over a fine grid of λ."""
    a, b = dimension * lipschitz**2 / rho, distance**2 / 2
    printed = math.sqrt(rho / (2 * distance * dimension * lipschitz**2))
    grid = np.geomspace(1e-6, 1e6, 2_000_001)
    return a / printed + b * printed, float((a / grid + b * grid).min())


def realised_loss() -> tuple[float, float]:
    """σ = 20: ε of one step at δ = 1e-5; δ at it if 200 more follow in the 5 % of runs with a large first output."""
    sigma, mu = 20.0, math.sqrt(200) / 20
    claimed = gdp_epsilon(1 / sigma)
    edge = float(ndtri(0.95)) * sigma

    def loss(y: float) -> float:
        return (2 * y - 1) / (2 * sigma**2)

    def stopped(y: float) -> float:
        return float(norm.pdf(y, 1, sigma)) * max(0.0, -math.expm1(claimed - loss(y)))

    def gone_on(y: float) -> float:
        rest = claimed - loss(y)
        return float(norm.pdf(y, 1, sigma) * (ndtr(mu / 2 - rest / mu) - math.exp(rest) * ndtr(-mu / 2 - rest / mu)))

    parts = quad(stopped, -240, edge, limit=500, epsabs=1e-14), quad(gone_on, edge, 240, limit=500, epsabs=1e-14)
    return claimed, sum(part[0] for part in parts)


def softmax_rank(classes: int = 10, dimension: int = 64, records: int = 500) -> int:
    """Rank of Σ x ⊗ (p − e_y) for random records: rows p − e_y sum to zero."""
    rng = np.random.default_rng(0)
    x, logits = rng.standard_normal((records, dimension)), rng.standard_normal((records, classes))
    residual = (
        np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True) - np.eye(classes)[rng.integers(0, classes, records)]
    )
    return int(np.linalg.matrix_rank(x.T @ residual))


def without_decay(steps: int = 20_000) -> tuple[float, float]:
    """Loss (w − 1)²/2, λ = 1, w_ref = 0, η_t = 2/(λ(t + 1)): end of Algorithm 3 as printed, and with λ(w − w_ref)."""
    printed = right = 0.0
    for t in range(1, steps + 1):
        rate = 2 / (t + 1)
        printed -= rate * (printed - 1)
        right -= rate * (right - 1 + right)
    return printed, right


def clipped_curl(scores: Sequence[float] = (0.0, 1.0, -1.0), label: int = 0, clip: float = 0.5) -> float:
    """Asymmetry of the Jacobian of the clipped softmax residual: 0 if it were the gradient of some loss."""

    def field(z: Floats) -> Floats:
        r = np.exp(z - logsumexp(z)) - np.eye(z.size)[label]
        return np.asarray(r * min(1.0, clip / float(np.linalg.norm(r))))

    z, h = np.array(scores), 1e-5
    columns = [(field(z + h * unit) - field(z - h * unit)) / (2 * h) for unit in np.eye(z.size)]
    return float(np.abs(np.transpose(columns) - columns).max())


# --- DOPE-SGD ---


def private_rate(records: int = 10, batch: float = 5.0, sigma: float = 4.0, delta: float = 1e-3) -> tuple[float, float]:
    """One step, q = b/|D|, other records at +1, the record at −1: ε of a fixed q, and ε of the true pair."""
    both = []
    for n, there in ((records, False), (records + 1, True)):
        q = batch / n
        counts = binom.pmf(np.arange(records + 1), records, q)
        own = [(1 - q, 0.0), (q, -1.0)] if there else [(1.0, 0.0)]
        both.append([(float(c) * w, k + shift) for k, c in enumerate(counts) for w, shift in own])
    q = batch / records
    return worse_epsilon(sampled(q, 1.0), NOBODY, sigma, delta), worse_epsilon(both[1], both[0], sigma, delta)


def printed_sum_under_replace_one(rate: float = 0.3, sigma: float = 0.8, origin: float = 3.0) -> tuple[float, float]:
    """δ(2) of a record that adds 1 or −1 to a Poisson sum, and of |B|·ĝ + that sum, where another record adds −1."""
    one, other = ([(1 - rate, 0.0), (rate, value)] for value in (1.0, -1.0))

    def printed(value: float) -> PART:
        return [
            ((rate if a else 1 - rate) * (rate if b else 1 - rate), a * (origin - 1.0) + b * (origin + value))
            for a, b in itertools.product((0, 1), repeat=2)
        ]

    return worse_delta(one, other, sigma, 2.0), worse_delta(printed(1.0), printed(-1.0), sigma, 2.0)


def composition_constant(steps: int = 100_000, records: int = 50_000) -> float:
    """(Tδ' + δ̂)/δ with δ' = δ/2n and δ̂ = δ/2, which the proof takes for at most 1; q = 1."""
    return steps / (2 * records) + 0.5


def dropped_root(steps: int = 1000, delta: float = DELTA) -> tuple[float, float]:
    """4ε'√(2T ln(1/δ̂)) in units of qr/σ, with ε' = (r/σ)√(2 ln(2.5T/δ)) and δ̂ = δ/2: as printed, and right."""
    first, second = math.log(2.5 * steps / delta), math.log(2 / delta)
    return 4 * math.sqrt(2 * steps * first * second), 4 * math.sqrt(2 * first) * math.sqrt(2 * steps * second)


def best_of(runs: int, epsilon: float, delta: float = DELTA) -> float:
    """A lower bound of ε at δ when the best of k runs, each ε-DP, is shown.

    Each run is good with probability 1 − p or 1 − q, with 1 − q ≤ e^ε(1 − p) and p ≤ e^ε q; none is with p^k or q^k.
    """
    shares = np.exp(-np.geomspace(1e-3, -math.log(1.2 * delta), 4000))  # p^k
    log_p = np.log(shares) / runs
    q = np.maximum(1 + math.exp(epsilon) * np.expm1(log_p), np.exp(log_p - epsilon))
    return float((np.log(shares - delta) - runs * np.log(q)).max())


# --- PILLAR ---


def selection_on_top(epsilon: float = 1.0, delta: float = DELTA, runs: int = 4) -> float:
    """ε at δ of k randomised responses at (ε/k, δ/k) and one at ε, by enumeration of all outcomes."""
    kept = (1 - delta / runs) ** runs
    outcomes = []
    for signs in itertools.product((1, -1), repeat=runs + 1):
        losses = [sign * (epsilon / runs if i < runs else epsilon) for i, sign in enumerate(signs)]
        outcomes.append((math.prod(1 / (1 + math.exp(-loss)) for loss in losses), sum(losses)))

    def profile(e: float) -> float:
        return 1 - kept + kept * math.fsum(weight * max(0.0, -math.expm1(e - loss)) for weight, loss in outcomes)

    return epsilon_at(profile, delta)


def printed_noise(epsilon: float = 1e-3, records: int = 50, delta: float = DELTA) -> float:
    """A lower bound of δ(ε) for n² one-record steps at the printed σ²: the sum of all, a record at +nL or at −nL."""
    sigma = math.sqrt(32 * math.log(records / delta) * math.log(1 / delta) / epsilon)  # in units of nL
    steps = records**2
    times = np.arange(steps + 1)
    weights, spread = binom.pmf(times, steps, 1 / records), sigma * math.sqrt(steps)
    cuts = np.linspace(-6, 6, 2001) * spread
    found = 0.0
    for cut in cuts:  # the sum exceeds a threshold: the record at +1 against the record at −1, all others at 0
        p, q = (float(weights @ ndtr((sign * times - cut) / spread)) for sign in (1, -1))
        found = max(found, p - math.exp(epsilon) * q)
    return found


def centred_or_not() -> float:
    """|cosine| of the first principal directions, centred or not: mean (10, 0), spread along the other axis."""
    x = np.array([[10.0, y] for y in (-2.0, -1.0, 1.0, 2.0)])
    first = [np.linalg.svd(x - centre)[2][0] for centre in (0.0, x.mean(axis=0))]
    return abs(float(first[0] @ first[1]))


# --- PDA-DPMD, DPPL ---


def gradient_at(start: bool, steps: int = 20) -> float:
    """Loss (θ − 1)²/2, η = 1/2, from 0: where gradient descent ends if gradients are taken at θ₀, or at θ_t."""
    theta = 0.0
    for _ in range(steps):
        theta -= 0.5 * ((0.0 if start else theta) - 1)
    return theta


def scale_leak(n: int, coordinates: int, delta: float = DELTA) -> tuple[float, float]:
    """ε at δ of noise of standard deviation 1/(n + 1) against 1/n in so many coordinates, both orders: Σx² decides."""
    ratio = (n + 1) / n
    gain, log_scale = ratio**2 - 1, coordinates * math.log(ratio)

    def small(e: float) -> float:
        t = 2 * (log_scale - e) / gain
        return float(chi2.cdf(ratio**2 * t, coordinates) - math.exp(e) * chi2.cdf(t, coordinates))

    def large(e: float) -> float:
        t = 2 * (log_scale + e) / gain
        return float(chi2.sf(t, coordinates) - math.exp(e) * chi2.sf(ratio**2 * t, coordinates))

    return epsilon_at(small, delta), epsilon_at(large, delta)


def printed_sigma(moves: int, epsilon: float, delta: float = DELTA) -> float:
    """δ(ε) with the printed σ² = 8L²T ln(1/δ)/(εn)²; a record moves the sum by L, or by 2L."""
    return gdp_delta(moves * epsilon / math.sqrt(8 * math.log(1 / delta)), epsilon)


def top_k_loss(n: int, k: int, *, printed: bool) -> float:
    """Log-ratio of a set's probability; a record lifts all but its worst, which falls from rank k to n; ε = 1."""
    y = np.arange(k, n + 1)

    def log_probability(scores: Floats, rank: int) -> float:
        top, least = (y, k) if printed else (y - 1, k - 1)
        weights = gammaln(top + 1) - gammaln(least + 1) - gammaln(top - least + 1) + scores
        of_rank = gammaln(rank) - gammaln(k) - gammaln(rank - k + 1)
        return float(weights[rank - k] - logsumexp(weights) - of_rank)

    lifted = np.full(y.size, 0.5)
    lifted[-1] = 0.0
    return log_probability(lifted, n) - log_probability(np.zeros(y.size), k)


def choice_range(moves: int, epsilon: float = 1.0) -> float:
    """Largest log-ratio of a choice between two candidates; a record moves one utility, or one up and one down."""
    before, after = np.array([0.0, 60.0]), np.array([1.0, 60.0 if moves == 1 else 59.0])
    p, q = (np.exp(epsilon * scores - logsumexp(epsilon * scores)) for scores in (after, before))
    return float(np.log(p / q).max())


def projected_gradient(queries: int = 20, clip: float = 1.0) -> float:
    """How far a support record moves the sum of clipped per-query gradients of a 1-D projection, in clip norms."""
    sums = []
    for support in ([-1.0], [-1.0, -60.0]):
        centres = np.array([np.mean(support), 1.0])
        total = 0.0
        for x in np.linspace(-1.2, -0.8, queries):  # class 0; loss a²(p₀ − x)² + log Σ exp(−a²(p_c − x)²), a = 1
            squares = (centres - x) ** 2
            gradient = 2 * (squares[0] - float(np.exp(-squares - logsumexp(-squares)) @ squares))
            total += max(-clip, min(clip, gradient))
        sums.append(total)
    return abs(sums[1] - sums[0]) / clip
