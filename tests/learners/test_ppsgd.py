"""PPSGD: stage one is private descent from 0, stage two a function of what that released and of public records."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import privcalc as pc

torch = pytest.importorskip("torch")

from learners import PPSGD, NoisyGD  # noqa: E402
from learners.gradients.softmax import gradient_norms  # noqa: E402
from learners.ppsgd import reused  # noqa: E402

RNG = np.random.default_rng(5)
X, OTHER = RNG.standard_normal((80, 4)) / 3, RNG.standard_normal((20, 4)) / 3
Y, LABELS = (X[:, 0] > 0).astype(int).tolist(), (OTHER[:, 0] > 0).astype(int).tolist()
RUN = {"classes": [0, 1], "epsilon": 2.0, "delta": 1e-5, "steps": 5, "records": 80, "seed": 3}
PUBLIC = torch.from_numpy(OTHER), torch.tensor(LABELS)


def test_the_first_stage_is_noisy_descent_with_a_public_clip_norm():
    """Bit for bit; the certificate is the same, as the second stage is post-processing."""
    clip_norm = float(torch.quantile(gradient_norms(torch.zeros(4, 2, dtype=torch.float64), *PUBLIC), 0.9))
    first = NoisyGD(**RUN, clip_norm=clip_norm).fit(X, Y)
    model = PPSGD(**RUN, reuse=[2.0]).fit(X, Y, OTHER, LABELS)
    assert torch.equal(model.weights_, reused(first.weights_, PUBLIC, [2.0]))
    assert model.ledger_.spent == first.ledger_.spent
    assert model.certificate_.guarantee == first.certificate_.guarantee


@pytest.mark.parametrize("decay", [0.1, 3.0])
def test_the_second_stage_is_the_regularised_minimum(decay):
    """Beside SciPy's minimiser."""
    model = RNG.standard_normal((4, 2))
    one_hot = np.eye(2)[LABELS]

    def loss(v):
        logits = OTHER @ v.reshape(4, 2)
        return (np.log(np.exp(logits).sum(axis=1)) - (logits * one_hot).sum(axis=1)).sum() + decay / 2 * (
            (v - model.ravel()) ** 2
        ).sum()

    best = minimize(loss, model.ravel(), options={"gtol": 1e-9})
    found = reused(torch.from_numpy(model), PUBLIC, [decay])
    np.testing.assert_allclose(found.numpy().ravel(), best.x, atol=1e-4)


def test_a_good_model_is_kept_and_a_bad_one_left():
    """Public records choose λ: large where the released model is right, small where it is noise."""
    good = torch.tensor([[-30.0, 30.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    kept, left = ((reused(start, PUBLIC, [0.01, 1e4]) - start).norm() for start in (good, -good))
    assert float(kept) < 0.1
    assert float(left) > 10


def test_one_public_record_is_enough():
    assert PPSGD(**RUN).fit(X, Y, OTHER[:1], LABELS[:1]).weights_.isfinite().all()


@pytest.mark.parametrize("wrong", [{"reuse": []}, {"reuse": [0.0]}])
def test_refused(wrong):
    with pytest.raises(pc.PrivcalcError, match=next(iter(wrong))):
        PPSGD(**RUN, **wrong)


def test_it_needs_public_records():
    with pytest.raises(pc.PrivcalcError, match="labelled public records"):
        PPSGD(**RUN).fit(X, Y)
