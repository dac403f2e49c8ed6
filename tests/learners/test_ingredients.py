"""One loop: learners whose ingredients are switched off are each other, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from learners import DPSGD, PILLAR, AdaMix, NoisyGD, WhitenedGD  # noqa: E402
from learners.gradients.whitening import whitened, whitening  # noqa: E402
from learners.pillar import projection  # noqa: E402

RNG = np.random.default_rng(7)
X, OTHER = RNG.standard_normal((60, 5)) / 3, RNG.standard_normal((12, 5)) / 3
Y, LABELS = (X[:, 0] > 0).astype(int).tolist(), (OTHER[:, 0] > 0).astype(int).tolist()
RUN = {"classes": [0, 1], "epsilon": 2.0, "delta": 1e-5, "steps": 5, "records": 60, "seed": 3, "learning_rate": 2.0}
"""The same seed draws the same noise."""


def same(one, other):
    assert one.weights_.abs().max() > 0.1
    assert torch.equal(one.weights_, other.weights_)
    assert one.certificate_.guarantee == other.certificate_.guarantee


def test_adamix_with_a_fixed_clip_norm_is_noisy_descent():
    adamix = AdaMix(**RUN, clip_norm=0.3, public_gradient=False).fit(X, Y, OTHER, LABELS)
    same(adamix, NoisyGD(**RUN, clip_norm=0.3).fit(X, Y, OTHER, LABELS))


def test_adamix_from_zero_is_noisy_descent_without_public_records():
    start = np.zeros((5, 2))
    same(
        AdaMix(**RUN, clip_norm=0.3, public_gradient=False, start=start, weight_decay=0.1).fit(X, Y, OTHER, LABELS),
        NoisyGD(**RUN, clip_norm=0.3, weight_decay=0.1).fit(X, Y),
    )


def test_sgd_of_whole_batches_is_noisy_descent():
    same(DPSGD(**RUN, sample_rate=1.0).fit(X, Y), NoisyGD(**RUN).fit(X, Y))


def test_pillar_is_sgd_on_mapped_features():
    mapped = torch.from_numpy(X) @ projection(torch.from_numpy(OTHER), 3)
    mapped = mapped / mapped.norm(dim=1, keepdim=True).clamp_min(1.0)
    one, other = PILLAR(**RUN, k=3).fit(X, Y, OTHER), NoisyGD(**RUN).fit(mapped, Y)
    assert torch.allclose(
        one.weights_, other.weights_, rtol=1e-4, atol=1e-4
    )  # products for one record and for all differ
    exact = NoisyGD(**RUN).fit(one.project_(torch.from_numpy(X)), Y)
    same(one, exact)


def test_whitened_descent_is_adamix_with_a_fixed_clip_norm_on_mapped_features():
    run = {**RUN, "clip_norm": 0.1}
    matrix = whitening(torch.from_numpy(OTHER), 3, 1.0)
    mapped, public = whitened(torch.from_numpy(X), matrix), whitened(torch.from_numpy(OTHER), matrix)
    same(
        WhitenedGD(**run, dimension=3).fit(X, Y, OTHER, LABELS),
        AdaMix(**run, public_weight_decay=0.1).fit(mapped, Y, public, LABELS),
    )
