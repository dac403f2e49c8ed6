"""What each record really cost: the norms that learners tell an audit."""

import numpy as np
import pytest

import privcalc as pc

torch = pytest.importorskip("torch")

from learners import DPSGD, AdaMix, DPPLMean, NoisyGD  # noqa: E402
from learners.adamix import public_subspace  # noqa: E402
from learners.gradients.softmax import SoftmaxGradient  # noqa: E402

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((40, 6)), RNG.integers(0, 3, 40)
COMMON = {"classes": [0, 1, 2], "delta": 1e-5, "records": 40, "seed": 1, "noise_multiplier": 5.0, "steps": 6}


def alone(contribution, i, clip_norm):
    """The norm of one record's part of the sum."""
    x, y = torch.from_numpy(X[i : i + 1]), torch.from_numpy(Y[i : i + 1])
    return float(contribution.clipped_sum(x, y, clip_norm).norm()) / clip_norm


@pytest.mark.parametrize("clip_norm", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("projected", [False, True])
def test_ratios_are_the_norms_of_what_is_added(clip_norm, projected):
    weights = torch.from_numpy(RNG.standard_normal((6, 3)))
    basis = public_subspace(torch.from_numpy(RNG.standard_normal((6, 3))), 2)
    contribution = SoftmaxGradient(weights, basis) if projected else SoftmaxGradient(weights)
    found = contribution.ratios(torch.from_numpy(X), torch.from_numpy(Y), clip_norm).numpy()
    expected = np.array([alone(contribution, i, clip_norm) for i in range(40)])
    assert np.all(found >= expected * (1 - 1e-12))
    assert np.all(found <= np.minimum(expected * (1 + 3e-5), 1.0) + 1e-12)


@pytest.mark.parametrize("public", [False, True])
def test_full_batches_are_exact(public, monkeypatch):
    """μ_i² = Σ_t ‖g_{i,t}‖²/(zC_t)², and never above the certificate; with any number of steps between passes."""
    seen = []
    plain = SoftmaxGradient.ratios

    def spy(self, features, labels, clip_norm):
        seen.append([alone(self, i, clip_norm) for i in range(40)])
        return plain(self, features, labels, clip_norm)

    monkeypatch.setattr(SoftmaxGradient, "ratios", spy)
    model = AdaMix(**COMMON) if public else NoisyGD(**COMMON, clip_norm=0.5)
    model.fit(X, Y, *((X[:10].copy(), Y[:10]) if public else ()), norms_every=4)
    expected = np.sqrt((np.array(seen) ** 2).sum(axis=0)) / 5.0
    found = np.asarray(model.losses_.mu())
    assert len(seen) == 6
    assert model.losses_.grade == "full pass"
    assert np.all((found >= expected * (1 - 1e-12)) & (found <= expected * (1 + 1e-4) + 1e-12))
    assert found.max() <= float(model.certificate_.run.gdp_mu()) * (1 + 1e-12)


@pytest.mark.slow
def test_sampled_steps_charge_the_worst_case_in_between():
    every, some = (DPSGD(**COMMON, sample_rate=0.5).fit(X, Y, norms_every=k).losses_ for k in (1, 3))
    assert (every.grade, some.grade) == ("full pass", "worst-case filled")
    exact, filled = (np.asarray(losses.epsilon(1e-3)) for losses in (every, some))
    assert np.all(filled >= exact * (1 - 1e-3))  # bounds, each with a small width of its own
    assert filled.max() <= float(some.worst_case.epsilon(delta=1e-3)) * (1 + 1e-9)
    assert some.worst_case == pc.PoissonSampled(pc.Gaussian(5.0), 0.5) * 6


def test_the_noise_is_that_of_the_step():
    """A sampler describes the whole step; losses were those of the plan's noise, of which the step had half."""
    model = DPSGD(**COMMON, sampler=lambda release: pc.PoissonSampled(pc.Gaussian(release.noise_multiplier / 2), 0.5))
    losses = model.fit(X, Y, norms_every=1).losses_
    assert losses.worst_case == model.certificate_.run == pc.PoissonSampled(pc.Gaussian(2.5), 0.5) * 6
    laplace = DPSGD(**COMMON, sampler=lambda _: pc.PoissonSampled(pc.Laplace(2.0), 0.5))
    with pytest.raises(pc.PrivcalcError, match="only Gaussian noise on full or Poisson batches"):
        laplace.fit(X, Y, norms_every=1)


def test_refused():
    with pytest.raises(pc.PrivcalcError, match="replacement"):
        NoisyGD(**COMMON, relation=pc.REPLACE_ONE).fit(X, Y, norms_every=1)
    with pytest.raises(pc.PrivcalcError, match="norms_every"):
        DPSGD(**COMMON, sample_rate=0.5, sampler="fixed").fit(X, Y, norms_every=1)
    with pytest.raises(pc.PrivcalcError, match="norms_every"):
        NoisyGD(**COMMON).fit(X, Y, norms_every=0)
    with pytest.raises(pc.PrivcalcError, match="norms_every"):
        DPPLMean(classes=[0, 1, 2], epsilon=1.0, delta=1e-5).fit(X, Y, norms_every=1)
    assert NoisyGD(**COMMON).fit(X, Y).losses_ is None
    with pytest.raises(pc.PrivcalcError):
        pc.certify(NoisyGD(**COMMON).fit(X, Y, norms_every=1).losses_, delta=1e-5)
