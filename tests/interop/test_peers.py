"""Where accountants have been seen to break, each as a test of ours; and their answers where they are valid."""

from __future__ import annotations

import math
from typing import Any

import pytest
from cases import quick
from mpmath import mp, mpf  # type: ignore[import-untyped]
from reference import steps as ref

import privcalc as pc
from privcalc.numerics.routes import contour

# rate, noise multiplier, steps, δ
CASES = [
    (0.01, 1.0, 1_000, 1e-5),
    (0.01, 10.0, 1_000, 1e-5),
    (0.02, 2.0, 2_000, 1e-12),
    (0.001, 0.6, 100_000, 1e-6),
    (0.0001, 0.8, 1_000_000, 1e-8),
    (0.01, 100.0, 10_000, 1e-6),
]


def sampled(rate: float, z: float) -> pc.PoissonSampled:
    return pc.PoissonSampled(pc.Gaussian(z), rate)


def renyi_epsilon(rate: float, z: float, steps: int, delta: float) -> float:
    """ε from the Rényi divergences of whole orders (Mironov, Talwar, Zhang 2019) and Canonne, Kamath, Steinke 2020."""
    best = math.inf
    with mp.workdps(40):
        q, target = mpf(rate), mp.log(mpf(delta))
        for order in [*range(2, 40), *range(40, 200, 10)]:
            half = 1 / (2 * mpf(z) ** 2)
            terms = (
                mp.binomial(order, k) * (1 - q) ** (order - k) * q**k * mp.exp((k * k - k) * half)
                for k in range(order + 1)
            )
            log_moment = steps * mp.log(mp.fsum(terms))
            found = (log_moment - target - mp.log(order)) / (order - 1) + mp.log1p(-mpf(1) / order)
            best = min(best, float(found))
    return best


# --- failing open ---------------------------------------------------------------------------------


def test_nan_never_becomes_an_answer() -> None:
    for call in (
        lambda: pc.Gaussian(math.nan),
        lambda: pc.Laplace(math.nan),
        lambda: sampled(math.nan, 1.0),
        lambda: pc.Gaussian(1.0).epsilon(delta=math.nan),
        lambda: pc.Gaussian(1.0).delta(epsilon=math.nan),
    ):
        with pytest.raises(pc.PrivcalcError):
            call()


@pytest.mark.parametrize(("rate", "z", "steps"), [(1e-9, 1e4, 1), (1e-6, 100.0, 10), (1e-4, 50.0, 1_000)])
def test_tiny_losses_are_not_lost(rate: float, z: float, steps: int) -> None:
    # A Rényi divergence of the size of rounding must not turn into ε = 0, or into less than nothing.
    run = sampled(rate, z) * steps
    advantage = run.advantage()
    with mp.workdps(30):
        one = mpf(rate) * (2 * mp.ncdf(1 / (2 * mpf(z))) - 1)
    assert mpf(advantage.upper) >= one
    assert mpf(advantage.lower) <= steps * one
    epsilon = run.epsilon(delta=float(one) * 1e-3)
    assert 0 <= epsilon.lower <= epsilon.upper < math.inf
    assert epsilon.upper > 0


@pytest.mark.parametrize("relation", list(pc.Relation), ids=str)
@pytest.mark.parametrize("run", [pc.Gaussian(1e4), pc.Laplace(1e4) * 3, sampled(1e-6, 10.0) * 5], ids=str)
def test_epsilon_is_never_negative(run: pc.Run, relation: pc.Relation) -> None:
    for delta in (0.01, 0.5, 0.999):
        answer = run.epsilon(delta=delta, relation=relation)
        assert (answer.lower, answer.upper) == (0.0, 0.0)


# --- composition ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [pc.Laplace(2.0), pc.Gaussian(2.0), sampled(0.1, 2.0)], ids=str)
def test_a_hundred_uses_cost_the_same_however_they_are_written(mechanism: pc.Mechanism) -> None:
    one = (mechanism * 100).epsilon(delta=1e-6)
    as_list = pc.Run.of([mechanism] * 100).epsilon(delta=1e-6)
    nested = ((mechanism * 10) * 10).epsilon(delta=1e-6)
    halves = (mechanism * 60 + mechanism * 40).epsilon(delta=1e-6)
    assert one.upper == as_list.upper == nested.upper == halves.upper
    assert one.lower > 10 * mechanism.epsilon(delta=1e-6).upper / 3


def test_a_hundred_pure_mechanisms_are_not_one() -> None:
    # 100 releases of ε = 0.5: far above one of them, below basic composition.
    answer = (pc.Laplace(2.0) * 100).epsilon(delta=1e-6)
    assert 15 < answer.lower <= answer.upper < 50
    assert ref.laplace_composition_delta(2.0, 3, 0.2) > ref.laplace_delta(2.0, 0.2)


def test_steps_are_counted_not_rows() -> None:
    run = sampled(0.01, 1.0) * 300 + sampled(0.01, 1.0) * 200 + pc.Gaussian(5.0)
    assert dict(run.entries) == {sampled(0.01, 1.0): 500, pc.Gaussian(5.0): 1}
    with pytest.raises(TypeError):
        len(run)  # type: ignore[arg-type]


# --- relations and rates --------------------------------------------------------------------------


def test_one_gaussian_has_one_epsilon_per_relation() -> None:
    one = pc.Gaussian(1.0)
    assert one.epsilon(delta=1e-5).upper == pytest.approx(4.377178096, abs=1e-9)
    assert one.epsilon(delta=1e-5, relation=pc.REPLACE_ONE).upper == pytest.approx(9.997256146, abs=1e-9)
    # Sampling at rate 1 changes neither.
    for relation in pc.Relation:
        same = sampled(1.0, 1.0).epsilon(delta=1e-5, relation=relation)
        assert same.upper == one.epsilon(delta=1e-5, relation=relation).upper


def test_a_rate_is_a_probability() -> None:
    for wrong in (781 * 0.01, 64, 1.5):
        with pytest.raises(pc.PrivcalcError, match="rate"):
            sampled(wrong, 1.0)
    with pytest.raises(pc.PrivcalcError, match="batch_size"):
        pc.noise_multiplier(epsilon=1.0, delta=1e-5, batch_size=60_000, dataset_size=64)


# --- Gaussian DP ----------------------------------------------------------------------------------


def test_mu_is_exact_for_a_gaussian() -> None:
    answer = pc.Gaussian(1.0).gdp_mu()
    assert answer.lower <= 1.0 <= answer.upper
    assert answer.width <= 1e-14


def test_mu_is_not_a_central_limit_value() -> None:
    # Bu et al. 2020: q√(T(e^{1/σ²} − 1)) = 0.4145 gives ε = 1.618 at 1e-5, below the true 1.828.
    run = sampled(0.01, 1.0) * 1_000
    limit = 0.01 * math.sqrt(1_000 * math.expm1(1.0))
    assert ref.gaussian_epsilon(limit, 1e-5) < run.epsilon(delta=1e-5).lower
    assert run.gdp_mu().upper > run.gdp_mu().lower * (1 - 1e-12) >= limit
    # The far tail is that of an unsampled step: at δ₀ = 0 nothing smaller is valid.
    assert run.gdp_mu().lower >= 1.0 - 1e-12
    # With a share δ₀ set aside, the bound covers the run's own profile.
    share = 1e-6
    mu = run.gdp_mu(delta=share)
    for epsilon in (0.0, 0.5, 1.5):
        asked = 1.0, 0.01, 1_000, epsilon
        truth = max(ref.sampled_gaussian_delta(*asked, way, 12) for way in ("remove", "add"))  # type: ignore[arg-type]
        assert truth <= share + (1 - share) * ref.gaussian_delta(mu.upper, epsilon) + mpf(10) ** -12
    assert mu.upper < math.sqrt(1_000)


# --- small δ, small losses, many steps ------------------------------------------------------------


@pytest.mark.parametrize("delta", [1e-14, 1e-20, 1e-50, 1e-100])
def test_small_delta_is_finite_and_better_than_renyi(delta: float) -> None:
    answer = (sampled(0.01, 1.0) * 2_000).epsilon(delta=delta)
    assert answer.width <= 1e-6 * answer.upper
    assert answer.upper <= renyi_epsilon(0.01, 1.0, 2_000, delta)


@pytest.mark.parametrize(("rate", "z", "steps", "delta"), CASES)
def test_renyi_is_never_better(rate: float, z: float, steps: int, delta: float) -> None:
    assert (sampled(rate, z) * steps).epsilon(delta=delta).upper <= renyi_epsilon(rate, z, steps, delta)


@pytest.mark.parametrize(
    ("rate", "z", "steps", "delta"),
    quick([(0.01, 100.0, 10**6, 1e-6), (1e-4, 1.0, 10**6, 1e-6), (1e-4, 5.0, 10**6, 1e-15)], 0, 2),
)
def test_many_small_steps_are_not_overcharged(rate: float, z: float, steps: int, delta: float) -> None:
    answer = (sampled(rate, z) * steps).epsilon(delta=delta)
    truth = ref.sampled_gaussian_epsilon(z, rate, steps, delta)
    assert mpf(answer.lower) <= truth <= mpf(answer.upper) <= truth * (1 + mpf("1e-6"))


# --- small noise, large ε -------------------------------------------------------------------------


@pytest.mark.parametrize(("z", "steps"), [(1e-3, 1), (0.01, 10**4), (0.1, 10**6)])
def test_small_noise_without_sampling(z: float, steps: int) -> None:
    answer = (pc.Gaussian(z) * steps).epsilon(delta=1e-6)
    truth = ref.gaussian_epsilon(mp.sqrt(steps) / mpf(z), 1e-6)
    assert answer.upper == pytest.approx(float(truth), rel=1e-9)


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all contours that are laid."""
    found: list[int] = []
    assemble = contour.assemble

    def spy(*arguments: Any) -> contour.Contour:
        found.append(arguments[4])
        return assemble(*arguments)

    monkeypatch.setattr(contour, "assemble", spy)
    return found


@pytest.mark.parametrize("delta", quick([1e-12, 1e-5], 0))
@pytest.mark.parametrize(
    ("z", "rate", "steps"),
    [
        pytest.param(0.01, 0.3, 1_000, marks=pytest.mark.slow),
        (0.05, 0.1, 10),
        (0.1, 0.5, 100),
        (0.2, 0.01, 1_000),
        (0.3, 0.9, 10_000),
    ],
)
def test_small_noise_with_sampling(z: float, rate: float, steps: int, delta: float, nodes: list[int]) -> None:
    answer = (sampled(rate, z) * steps).epsilon(delta=delta)
    assert sum(nodes) < 10**6
    whole = (pc.Gaussian(z) * steps).epsilon(delta=delta)
    assert 0 < answer.lower <= answer.upper <= whole.upper
    # All steps sample the record with probability q^T: then nothing is amplified. One step is a bound from below.
    assert answer.upper >= sampled(rate, z).epsilon(delta=delta).lower


@pytest.mark.parametrize("scale", [1e-3, 0.05])
def test_small_laplace_noise(scale: float) -> None:
    for steps in (1, 5):
        answer = (pc.Laplace(scale) * steps).epsilon(delta=1e-6)
        assert 0.5 * steps / scale < answer.lower <= answer.upper <= steps / scale * (1 + 1e-12)


# --- calibration ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.01, 1e-5), (1e-4, 1e-8), (3.0, 1e-5), (50.0, 1e-10), (2_000.0, 1e-6)]
)
def test_calibration_neither_overshoots_nor_runs_out_of_bracket(epsilon: float, delta: float) -> None:
    z = pc.noise_multiplier(epsilon=epsilon, delta=delta, sample_rate=1.0, steps=100)
    reached = ref.gaussian_epsilon(10 / mpf(z), delta)
    assert epsilon * (1 - 1e-8) <= reached <= epsilon


def test_calibration_to_a_tiny_epsilon_with_sampling(nodes: list[int]) -> None:
    z = pc.noise_multiplier(epsilon=0.01, delta=1e-5, sample_rate=0.01, steps=1_000)
    assert sum(nodes) < 10**5  # none, where the batched contour answers all the way
    assert 0.01 * (1 - 1e-5) <= ref.sampled_gaussian_epsilon(z, 0.01, 1_000, 1e-5) <= 0.01


def test_asking_changes_nothing() -> None:
    run = sampled(0.01, 1.0) * 100
    before = repr(run), run.epsilon(delta=1e-5).upper
    run.delta(epsilon=1.0)
    run.advantage()
    assert (repr(run), run.epsilon(delta=1e-5).upper) == before


# --- their answers --------------------------------------------------------------------------------


def peer(name: str) -> Any:
    return pytest.importorskip(name, exc_type=Exception) if name == "autodp" else pytest.importorskip(name)


@pytest.mark.parametrize(("rate", "z", "steps", "delta"), CASES[:3])
def test_beside_prv_accountant(rate: float, z: float, steps: int, delta: float) -> None:
    accountant = peer("prv_accountant")
    if delta < 1e-10:
        pytest.skip("below its stated range")
    prv = accountant.PRVAccountant(
        prvs=[accountant.PoissonSubsampledGaussianMechanism(sampling_probability=rate, noise_multiplier=z)],
        max_self_compositions=[steps],
        eps_error=0.05,
        delta_error=delta * 1e-3,
    )
    low, _, high = prv.compute_epsilon(delta=delta, num_self_compositions=[steps])
    answer = (sampled(rate, z) * steps).epsilon(delta=delta)
    assert low <= answer.upper
    assert answer.lower <= high


@pytest.mark.parametrize(("rate", "z", "steps", "delta"), CASES[:2])
def test_beside_dp_accounting(rate: float, z: float, steps: int, delta: float) -> None:
    peer("dp_accounting")
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    answer = (sampled(rate, z) * steps).epsilon(delta=delta)
    one = pld.from_gaussian_mechanism(z, sampling_prob=rate, pessimistic_estimate=True)
    high = one.self_compose(steps).get_epsilon_for_delta(delta)
    assert answer.lower <= high
    assert answer.upper <= high * (1 + 1e-9) + 1e-9
    assert answer.upper >= 0.98 * high


@pytest.mark.parametrize(("scale", "steps"), [(1.0, 1), (2.0, 20), (10.0, 200)])
def test_laplace_beside_dp_accounting(scale: float, steps: int) -> None:
    peer("dp_accounting")
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    answer = (pc.Laplace(scale) * steps).epsilon(delta=1e-6)
    high = pld.from_laplace_mechanism(scale, pessimistic_estimate=True).self_compose(steps).get_epsilon_for_delta(1e-6)
    assert answer.lower <= high
    assert answer.upper >= 0.98 * high


@pytest.mark.parametrize(("rate", "z", "steps", "delta"), CASES[:1])
def test_renyi_beside_dp_accounting(rate: float, z: float, steps: int, delta: float) -> None:
    dp_accounting = peer("dp_accounting")
    rdp = pytest.importorskip("dp_accounting.rdp")
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(z))
    high = rdp.RdpAccountant().compose(event, steps).get_epsilon(delta)
    assert (sampled(rate, z) * steps).epsilon(delta=delta).upper <= high


@pytest.mark.parametrize(("z", "steps", "delta"), [(1.0, 1, 1e-5), (5.0, 30, 1e-6)])
def test_gaussian_beside_autodp(z: float, steps: int, delta: float) -> None:
    peer("autodp")
    mechanisms = pytest.importorskip("autodp.mechanism_zoo", exc_type=Exception)
    composed = mechanisms.ExactGaussianMechanism(sigma=z / math.sqrt(steps))
    answer = (pc.Gaussian(z) * steps).epsilon(delta=delta)
    assert answer.upper == pytest.approx(composed.get_approxDP(delta), rel=1e-3)
