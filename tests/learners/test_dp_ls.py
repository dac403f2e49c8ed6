"""DP least squares: what one record moves, and that the noise of the plan is drawn for it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import watch

import privcalc as pc

torch = pytest.importorskip("torch")

from learners import DPLS  # noqa: E402
from learners.dp_ls import Products  # noqa: E402


@pytest.mark.parametrize("scale", [1e-3, 0.3, 1.0, 1e6])
def test_what_a_record_moves(scale):
    rng = np.random.default_rng(3)
    products, moved, replaced = Products(3), [], []
    for _ in range(200):
        x = torch.from_numpy(scale * rng.standard_normal((2, 4)))
        y = torch.from_numpy(rng.integers(0, 3, 2))
        one, other, none = (products.clipped_sum(x[rows], y[rows], math.sqrt(2)) for rows in ([0], [1], []))
        moved.append(float((one - none).norm()))
        replaced.append(float((one - other).norm()))
    assert max(moved) <= math.sqrt(2) * (1 + 1e-12)
    assert max(replaced) <= math.sqrt(4.5) * (1 + 1e-12)
    if scale >= 1e6:
        assert min(moved) == pytest.approx(math.sqrt(2), rel=1e-4)  # rows are rounded to 2⁻¹⁶, and as much shorter


def test_how_far_a_replaced_record_moves_the_sum():
    """Vectors of all norms at all angles, same label or another: at most √4.5, attained at norms 1 and cosine −1/2."""
    norms, angles = np.linspace(0, 1, 21), np.linspace(0, math.pi, 61)
    r, s, cosine = np.meshgrid(norms, norms, np.cos(angles), indexing="ij")
    inner = r * s * cosine
    for same in (1, 0):
        squares = r**4 + s**4 - 2 * inner**2 + r**2 + s**2 - 2 * same * inner
        assert squares.max() == pytest.approx(4.5 if same else 4.0)
    x = torch.tensor([[1.0, 0.0], [-0.5, math.sqrt(0.75)]], dtype=torch.float64)
    one, other = (Products(2).clipped_sum(x[[i]], torch.tensor([0]), 1.0) for i in (0, 1))
    assert float((one - other).norm()) == pytest.approx(math.sqrt(4.5), rel=1e-4)


@pytest.mark.parametrize(("relation", "most"), [(pc.ZERO_OUT, math.sqrt(2)), (pc.REPLACE_ONE, math.sqrt(4.5))])
def test_noise_under_each_relation(relation, most, monkeypatch):
    seen, _ = watch.ledgers(monkeypatch)
    model = DPLS(classes=[0, 1], epsilon=1.0, delta=1e-5, seed=1, relation=relation).fit(np.eye(2), [0, 1])
    _, _, mechanism, clip_norm = seen[0]
    # the standard deviation is what the most that a record moves, over μ, needs
    mu = float(mechanism.run.gdp_mu(relation=relation))
    assert mechanism.noise_multiplier * clip_norm == pytest.approx(most / mu, rel=1e-9)
    assert model.certificate_.guarantee.epsilon <= 1.0


def test_one_release_with_the_noise_of_the_plan(monkeypatch):
    seen, _ = watch.ledgers(monkeypatch)
    rng = np.random.default_rng(4)
    x, y = rng.standard_normal((50, 40)), rng.integers(0, 2, 50)
    model = DPLS(classes=[0, 1], epsilon=1.0, delta=1e-5, seed=1).fit(x, y)
    assert len(seen) == 1
    clean, noisy, mechanism, clip_norm = seen[0]
    assert clip_norm == math.sqrt(2)
    assert mechanism == pc.Gaussian(model.noise_multiplier_)
    noise = (noisy - clean) / (clip_norm * mechanism.noise_multiplier)
    assert abs(noise.mean()) < 5 / math.sqrt(noise.size)
    assert abs(noise.var() - 1) < 5 * math.sqrt(2 / noise.size)
    assert abs(np.corrcoef(noise[:, :40].ravel(), noise[:, :40].T.ravel())[0, 1]) < 0.2
    assert model.certificate_.guarantee.epsilon <= 1.0


def test_noise_in_both_triangles_costs_nothing(monkeypatch):
    """Symmetrised: the noise of a release of one triangle, √2 times what is off the diagonal: σ²/2 there, σ² on it."""
    seen, _ = watch.ledgers(monkeypatch)
    rng = np.random.default_rng(6)
    x, y = rng.standard_normal((20, 150)), rng.integers(0, 2, 20)
    DPLS(classes=[0, 1], epsilon=1.0, delta=1e-5, seed=1).fit(x, y)
    clean, noisy, mechanism, clip_norm = seen[0]
    noise = ((noisy - clean) / (clip_norm * mechanism.noise_multiplier))[:, :150]
    above = (0.5 * (noise + noise.T))[np.triu_indices(150, 1)]
    assert above.var() == pytest.approx(0.5, abs=5 * 0.5 * math.sqrt(2 / above.size))
    assert noise.diagonal().var() == pytest.approx(1.0, abs=5 * math.sqrt(2 / 150))
    outer = np.outer(x[0], x[0])
    triangle = np.concatenate([outer.diagonal(), math.sqrt(2) * outer[np.triu_indices(150, 1)]])
    assert float(np.linalg.norm(triangle)) == pytest.approx(float(np.linalg.norm(outer)))


# --- with a matrix for each class (Mehta et al. 2023, Algorithm 3) ---


def test_what_a_record_moves_with_matrices_of_classes():
    """At most √3; replaced at most 2.5, at norms 1 and cosine −1/4 in one class."""
    norms, angles = np.linspace(0, 1, 21), np.linspace(0, math.pi, 241)
    r, s, cosine = np.meshgrid(norms, norms, np.cos(angles), indexing="ij")
    inner = r * s * cosine
    own = r**4 + s**4 - 2 * inner**2
    assert (2 * own + r**2 + s**2 - 2 * inner).max() == pytest.approx(6.25, abs=1e-3)
    assert (own + r**4 + s**4 + r**2 + s**2).max() == pytest.approx(6.0)  # of two classes
    rng, moments = np.random.default_rng(3), Products(3, 0.5, by_class=True)
    for scale in (0.3, 1e6):
        for _ in range(100):
            x, y = torch.from_numpy(scale * rng.standard_normal((2, 4))), torch.from_numpy(rng.integers(0, 3, 2))
            one, other, none = (moments.clipped_sum(x[rows], y[rows], math.sqrt(3)) for rows in ([0], [1], []))
            assert float((one - none).norm()) <= math.sqrt(3) * (1 + 1e-12)
            assert float((one - other).norm()) <= 2.5 * (1 + 1e-12)
    x = torch.tensor([[1.0, 0.0], [-0.25, math.sqrt(15) / 4]], dtype=torch.float64)
    one, other = (Products(2, by_class=True).clipped_sum(x[[i]], torch.tensor([0]), 1.0) for i in (0, 1))
    assert float((one - other).norm()) == pytest.approx(2.5, rel=1e-4)


@pytest.mark.parametrize(("relation", "most"), [(pc.ADD_OR_REMOVE_ONE, math.sqrt(3)), (pc.REPLACE_ONE, 2.5)])
def test_its_noise_is_for_what_a_record_moves(relation, most, monkeypatch):
    seen, _ = watch.ledgers(monkeypatch)
    model = DPLS(classes=[0, 1], epsilon=1.0, delta=1e-5, seed=1, relation=relation, weight=0.1).fit(np.eye(2), [0, 1])
    _, _, mechanism, clip_norm = seen[0]
    assert mechanism.noise_multiplier * clip_norm == pytest.approx(
        most / float(mechanism.run.gdp_mu(relation=relation)), rel=1e-9
    )
    assert len(seen) == 1
    assert model.certificate_.guarantee.epsilon <= 1.0


@pytest.mark.parametrize("norm", [1.0, 0.5])
def test_it_is_the_least_of_its_objective(norm):
    """Without noise to speak of: the gradient of Σ (1 − ⟨w, x⟩)² + α Σ ⟨w, x⟩² + λ‖w‖² is 0 at each class's weights."""
    rng = np.random.default_rng(8)
    x, y, alpha, ridge = rng.standard_normal((60, 5)) / 4, rng.integers(0, 3, 60), 0.3, 0.2
    model = DPLS(classes=[0, 1, 2], epsilon=1e13, delta=0.5, weight=alpha, ridge=ridge, clip_norm=norm, seed=1).fit(
        x, y
    )
    rows = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True) / norm, 1.0) / norm
    for c in range(3):
        w, own = model.weights_[:, c].numpy(), rows[y == c]
        slope = own.T @ (own @ w - 1) + alpha * rows.T @ (rows @ w) + ridge * w
        assert np.abs(slope).max() < 5e-3


def test_much_weight_is_the_plain_ridge():
    rng = np.random.default_rng(9)
    x = rng.standard_normal((400, 4)) / 2
    y = (x[:, 0] > 0).astype(int)
    common = {"classes": [0, 1], "epsilon": 1e13, "delta": 0.5, "seed": 1}
    plain = DPLS(**common, ridge=0.1).fit(x, y).weights_
    heavy = DPLS(**common, ridge=0.1e6, weight=1e6).fit(x, y).weights_ * 1e6
    torch.testing.assert_close(heavy, plain, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("wrong", [{"weight": 0.0}, {"weight": -1.0}, {"weight": math.nan}])
def test_weights_that_are_refused(wrong):
    with pytest.raises(pc.PrivcalcError, match="weight"):
        DPLS(classes=[0, 1], epsilon=1.0, delta=1e-5, **wrong)
