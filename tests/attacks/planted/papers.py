"""Errors of five papers on learning with public data, planted."""

from __future__ import annotations

import math

import numpy as np

from planted.bug import LEARNERS, Bug, Rng, normal
from planted.sums import private_count, sensitivity
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.mechanisms.guarantees import ApproxDP, PureDP
from privcalc.mechanisms.poisson import PoissonSampled
from privcalc.numerics.floats import Floats


def _one_row(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """Noise "N(0, σ²τ² I_C)", one row for all: the difference of two rows has none."""
    rows = 4 * (np.repeat(normal(rng, size, 1), 2, axis=1) if bug else normal(rng, size, 2))
    return np.asarray(rows[:, 0] + there - rows[:, 1])


def _realised_loss(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """A per-instance loss as a guarantee: the record shows in 200 more steps only if the first noisy sum is large."""
    first = there / 20 + normal(rng, size)
    loss = first / 20 - 1 / 800
    if bug:
        rest = math.sqrt(200) / 20
        later = rest * there + normal(rng, size)
        loss = np.where(first > 1.645, loss + rest * later - rest**2 / 2, loss)
    return np.asarray(loss)


def _printed_update(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """DOPE-SGD as printed: a record also adds the origin, of norm 3/4 C."""
    takes = (rng.random((size, 9)) < 0.2) & there
    return np.asarray(((1.75 if bug else 1.0) * takes + 1.1 * normal(rng, size, 9)).clip(-1, 4).sum(axis=1))


def _fixed_size(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """Batches of fixed size taken for Poisson: a record that comes in pushes an opposite one out, 2C."""
    takes = (rng.random((size, 9)) < 0.2) & there
    return np.asarray(((2.0 if bug else 1.0) * takes + 0.8 * normal(rng, size, 9)).clip(-1, 4).sum(axis=1))


def _square_root(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """ρ-zCDP shown as ε = √(2ρ): Gaussian noise has no pure ε. Without the bug: Laplace noise of scale 1/ε."""
    noise = normal(rng, size) if bug else rng.laplace(size=size)
    return np.asarray((there + noise).clip(-3, 4).round(6))


def _responses(rng: Rng, size: int, there: bool, epsilons: list[float]) -> Floats:
    """The sum of losses of binary randomised responses."""
    coins = [rng.random(size) < 1 / (1 + math.exp(-epsilon)) for epsilon in epsilons]
    return np.asarray(
        sum(epsilon * np.where(coin == there, 1.0, -1.0) for epsilon, coin in zip(epsilons, coins, strict=True))
    )


def _selection_added(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """Four runs at ε/4 and a choice at ε: 2ε, not ε."""
    return _responses(rng, size, there, [0.25] * 4 + [1.0] if bug else [0.125] * 4 + [0.5])


def _replaced_choice(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """An exponential mechanism whose range under replace-one is twice that under add-or-remove-one."""
    return _responses(rng, size, there, [2.0 if bug else 1.0])


def _not_clipped(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """A gradient of norm 4L is not clipped, as if L bounded it."""
    return (4.0 if bug else 1.0) * there + 4 * normal(rng, size)


def _private_rate(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """Twenty steps of q = 5/|D|, ten records at +1 and the record at −1: one more, and all take part less often."""
    rate = 5 / (10 + there) if bug else 0.5
    total = rng.binomial(200, rate, size) - (rng.binomial(20, rate, size) if there else 0)
    return np.asarray(-(total + 4 * math.sqrt(20) * normal(rng, size)))


def _best_of_many(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """3360 configurations, 1-DP each; one is good with probability 1 − p, or e(1 − p) without the record. Is none?"""
    runs = 3360
    miss = 1 - 0.05 ** (1 / runs)
    good = miss if there else math.e * miss
    return np.asarray(rng.random(size) < (1 - good) ** (runs if bug else 1), dtype=np.float64)


def _empty_class(_: Rng, size: int, there: bool, bug: bool) -> Floats:
    """Only classes with records get a prototype; the record is the only one of its class."""
    return np.full(size, float(there or not bug))


def _every_query(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """A support record moves the prototype, which is in the clipped gradient of each of 20 queries."""
    return (20.0 if bug else 1.0) * there + 4 * normal(rng, size)


_STEP = PoissonSampled(Gaussian(1.1), 0.2)
PAPERS = (
    Bug("AdaMix: one row of noise for all", Gaussian(4.0), _one_row, "difference of rows",
        LEARNERS + "noise_for_one_row_only"),
    Bug("AdaMix, Proposition 14: realised loss as a guarantee", ApproxDP(0.1601, 1e-5), _realised_loss,
        "the likelihood ratio",
        "house/test_papers.py::test_adamix_losses_along_the_run_are_no_guarantee"),
    Bug("DOPE-SGD, Proposition 2: printed update", _STEP * 9, _printed_update, "the sum",
        "house/test_papers.py::test_dope_sgd_schemes"),
    Bug("DOPE-SGD: fixed size as Poisson", PoissonSampled(Gaussian(0.8), 0.2) * 9, _fixed_size, "the sum",
        "house/test_papers.py::test_dope_sgd_schemes"),
    Bug("DOPE-SGD: rate from the private |D|", PoissonSampled(Gaussian(4.0), 0.5) * 20, _private_rate, "the sum",
        "house/test_errata.py::test_private_rate"),
    Bug("DOPE-SGD: best of 3360 runs", PureDP(1.0), _best_of_many, "whether none is good",
        "house/test_errata.py::test_best_of"),
    Bug("PILLAR: replace-one as add-or-remove-one", Gaussian(2.0), sensitivity, "the sum",
        "house/test_errata.py::test_definition_1"),
    Bug("PILLAR: noise from the private n", Gaussian(20.0), private_count, "the scale of the noise",
        "house/test_errata.py::test_scale_leak"),
    Bug("DPPL: mean over a private count", Gaussian(20.0), private_count, "the scale of the noise",
        "house/test_papers.py::test_dppl_mean_divides_by_a_private_count"),
    Bug("DPPL: ε = √(2ρ)", PureDP(1.0), _square_root, "the sum",
        "house/test_papers.py::test_dppl_axis_is_no_guarantee"),
    Bug("DPPL-Public: range under replace-one", PureDP(1.0), _replaced_choice, "the choice",
        "house/test_papers.py::test_dppl_public"),
    Bug("DPPL: classes without records are left out", PureDP(1.0), _empty_class, "which classes there are",
        "house/test_errata.py::test_empty_classes"),
    Bug("DPPL: best of many choices of K", PureDP(1.0), _best_of_many, "whether none is good",
        "house/test_errata.py::test_best_of"),
    Bug("DPPL, C.5: a record in every query's gradient", Gaussian(4.0), _every_query, "the sum",
        "house/test_errata.py::test_projection_layer"),
    Bug("PILLAR, Lemma 1: selection on top", PureDP(1.0), _selection_added, "the likelihood ratio",
        "house/test_papers.py::test_pillar_lemma_1_claims_too_little"),
    Bug("PDA-DPMD: gradients not clipped", Gaussian(4.0), _not_clipped, "the sum"),
    Bug("PDA-DPMD: mean over the private n", Gaussian(20.0), private_count, "the scale of the noise",
        "house/test_papers.py::test_mirror_descent_divides_by_a_private_number"),
)  # fmt: skip
