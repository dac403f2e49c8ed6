"""PDA-DPMD: mirror steps against their optimality condition, noise that follows curvature, the first-order variant."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import watch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import norm

import privcalc as pc

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from benchmarks.figures import pda_dpmd as figure  # noqa: E402
from benchmarks.figures.figure import Given  # noqa: E402
from learners import (  # noqa: E402
    DPSGD,
    PDADPMD,
    pda_dpmd,
)
from learners.frame.records import PrivateRecords  # noqa: E402
from learners.gradients.softmax import public_gradient  # noqa: E402
from learners.pda_dpmd import mirror_step, private_share, top_curvature  # noqa: E402

RNG = np.random.default_rng(6)
X = RNG.standard_normal((40, 4))
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
PUBLIC = X[:15].copy(), Y[:15]
COMMON = {
    "classes": [0, 1, 2],
    "delta": 1e-5,
    "records": 40,
    "noise_multiplier": 2.0,
    "steps": 4,
    "seed": 1,
    "clip_norm": 0.4,
}
SHARED = torch.tensor(PUBLIC[0]), torch.tensor(PUBLIC[1])


def generator(seed):
    return torch.Generator().manual_seed(seed)


def pda(**options):
    return PDADPMD(**{**COMMON, **options})


def slope(w, curvature, public=SHARED):
    """∇Ψ by autograd, in double precision."""
    theta = w.detach().double().clone().requires_grad_(True)
    loss = nn.functional.cross_entropy(public[0].double() @ theta, public[1]) + 0.5 * curvature * theta.square().sum()
    return torch.autograd.grad(loss, theta)[0]


# --- the mirror step ---


@given(st.integers(0, 10**6), st.sampled_from([0.01, 0.1, 1.0]), st.sampled_from([0.0, 1e-2, 1.0, 10.0]))
def test_mirror_steps_solve_their_equation(seed, curvature, size):
    g = generator(seed)
    theta, step = (scale * torch.randn(4, 3, generator=g, dtype=torch.float64) for scale in (1.0, size))
    found = mirror_step(theta, step, SHARED, curvature)
    residual = slope(found, curvature) - (slope(theta, curvature) - step)
    assert float(residual.norm()) <= 1e-4 * max(1.0, float(step.norm()))


@pytest.mark.parametrize("seed", range(3))
def test_mirror_steps_against_a_generic_solver(seed):
    """argmin ⟨step, w⟩ + B_Ψ(w, θ), B_Ψ(w, θ) = Ψ(w) − Ψ(θ) − ⟨∇Ψ(θ), w − θ⟩, by scipy's BFGS on its definition."""
    g = generator(seed)
    theta, step = (torch.randn(4, 3, generator=g, dtype=torch.float64) for _ in range(2))
    curvature = 0.2

    def psi(w):
        return nn.functional.cross_entropy(SHARED[0] @ w, SHARED[1]) + 0.5 * curvature * w.square().sum()

    def objective(flat):
        w = torch.tensor(flat).reshape(4, 3).requires_grad_(True)
        value = (step * w).sum() + psi(w) - psi(theta) - (slope(theta, curvature) * (w - theta)).sum()
        return float(value.detach()), torch.autograd.grad(value, w)[0].numpy().ravel()

    best = minimize(objective, np.zeros(12), jac=True, method="BFGS", options={"gtol": 1e-9}).x
    np.testing.assert_allclose(mirror_step(theta, step, SHARED, curvature).numpy().ravel(), best, atol=1e-3)


@given(st.integers(0, 10**6), st.integers(2, 5), st.floats(0.1, 5.0), st.floats(0.1, 3.0))
def test_noise_shrinks_with_curvature(seed, d, sigma, rate):
    """Theorem 3.6, quadratic Ψ, eigenvectors v_i to w_i: along v = Σ a_i·v_i, E|move| = √(2/π)·ησ·√(Σ (a_i/w_i)²)."""
    g = generator(seed)
    features = torch.randn(2 * d, d, generator=g, dtype=torch.float64)
    hessian = features.T @ features / (2 * d) + 0.05 * torch.eye(d, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(hessian)
    noise = sigma * torch.randn(4_000, d, generator=g, dtype=torch.float64)
    moves = rate * torch.linalg.solve(hessian, noise.T).T
    some = torch.nn.functional.normalize(torch.randn(d, generator=g, dtype=torch.float64), dim=0)
    for parts in (*torch.eye(d, dtype=torch.float64), some):
        mean = math.sqrt(2 / math.pi) * rate * sigma * float((parts / values).norm())
        # the standard deviation of |N(0, 1)| is 0.76 of its mean; wrong alarms in 1e-9 of cases
        assert float((moves @ (vectors @ parts)).abs().mean()) == pytest.approx(
            mean, rel=6.2 * 0.756 / math.sqrt(4_000)
        )


@given(st.integers(0, 10**6), st.floats(0.5, 6.0), st.sampled_from([0.05, 0.3, 1.0]))
@settings(max_examples=5)
def test_noise_shrinks_with_curvature_that_varies(seed, scale, sigma):
    """Theorem 3.6 where w_i depends on θ: two-class logistic loss on records along the axes, steps solved by iteration.

    Along e_i⊗(1, −1)/√2 the curvature at u_i, the difference of the classes' weights, is
    2·c_i·s(x_i·u_i)·s(−x_i·u_i)·x_i² + λ, c_i the share of records on axis i, s the logistic function; least where
    |u_i| is largest within the reach of the noise.
    """
    g = generator(seed)
    sizes, curvature, repeats = torch.tensor([scale, scale / 4], dtype=torch.float64), 0.2, 30
    rows = torch.diag(sizes).repeat_interleave(4, dim=0)
    public = rows, torch.tensor([0, 1, 0, 1, 0, 0, 1, 1])
    theta = torch.zeros(2, 2, dtype=torch.float64)
    clean = mirror_step(theta, theta, public, curvature)
    torch.testing.assert_close(clean, theta, atol=1e-6, rtol=0)
    direction = torch.tensor([1.0, -1.0], dtype=torch.float64) / math.sqrt(2)
    noise = sigma * torch.randn(repeats, 2, generator=g, dtype=torch.float64)
    moves = torch.stack(
        [mirror_step(theta, torch.outer(row, direction), public, curvature) @ direction for row in noise]
    )
    for x, along, kick in zip(sizes, moves.T, noise.T, strict=True):
        reach = math.sqrt(2) * x * along.abs().max()  # of x·u
        least = 2 * 0.5 * float(torch.sigmoid(reach) * torch.sigmoid(-reach)) * float(x) ** 2 + curvature
        assert bool((along.abs() <= kick.abs() / least + 1e-3).all())  # so that in mean it is at most √(2/π)·ησ/w
        most = 2 * 0.5 * 0.25 * float(x) ** 2 + curvature
        assert bool((along.abs() >= kick.abs() / most - 1e-3).all())


def test_noise_shrinks_with_the_curvature_of_the_logistic_loss():
    """The steep direction of the public loss moves less than the flat one, by the ratio of the curvatures."""
    public = torch.tensor([[6.0, 0.0], [-6.0, 0.0], [6.0, 0.0], [-6.0, 0.0]]), torch.tensor([0, 0, 1, 1])
    moved = []
    for direction in range(2):
        step = torch.zeros(2, 2, dtype=torch.float64)
        step[direction] = torch.tensor([0.01, -0.01])
        moved.append(float(mirror_step(torch.zeros_like(step), step, public, 0.1).norm()))
    # along x the softmax Hessian is 36·(1/2) for the difference of the classes, plus 0.1
    assert moved[1] / moved[0] == pytest.approx(18.1 / 0.1, rel=0.05)


def top_eigenvalue(weights):
    """Of the Hessian of the mean public loss, by autograd."""
    hessian = torch.autograd.functional.hessian(
        lambda w: nn.functional.cross_entropy(SHARED[0] @ w, SHARED[1]), weights
    )
    return float(torch.linalg.eigvalsh(hessian.reshape(12, 12))[-1])


# --- the learner ---


@pytest.mark.parametrize("sample_rate", [1.0, 0.4])
@pytest.mark.parametrize("update", ["mirror", "first order"])
def test_the_update(update, sample_rate, uncertified, monkeypatch):
    seen, sums = [], PrivateRecords.noisy_sum

    def spy(self, contribution, step, clip_norm):
        noisy = sums(self, contribution, step, clip_norm)
        seen.append((contribution.weights, noisy))
        return noisy

    monkeypatch.setattr(PrivateRecords, "noisy_sum", spy)
    model = pda(update=update, sample_rate=sample_rate, horizon=2, learning_rate=0.3, records=30, curvature=0.5).fit(
        X, Y, *PUBLIC
    )
    start, path = seen[0][0], []
    top = top_eigenvalue(start)
    assert top_curvature(start, SHARED[0]) == pytest.approx(top, rel=1e-4)
    least = 0.5 * top
    assert len(seen) == (4 if update == "mirror" else 2)  # those of weight 0 are neither drawn nor charged
    assert model.steps_ == len(seen)
    for t, (theta, noisy) in enumerate(seen, 1):
        mean = noisy / (30 * sample_rate)
        if update == "mirror":
            new = mirror_step(theta, 0.3 * least * mean, SHARED, least)
        else:
            share = math.cos(math.pi * (t - 1) / 4)  # the paper's first weight is α₀ = 1
            new = theta - 0.3 * (share * mean + (1 - share) * public_gradient(theta, *SHARED) / 15)
        path.append(new)
        if t < len(seen):
            torch.testing.assert_close(seen[t][0], new, rtol=1e-3, atol=1e-4)
    for _ in range(0 if update == "mirror" else 2):  # on public records alone
        new = new - 0.3 * public_gradient(new, *SHARED) / 15
    expected = torch.stack(path).mean(dim=0) if update == "mirror" else new
    torch.testing.assert_close(model.weights_, expected, rtol=1e-3, atol=1e-4)
    assert model.ledger_.spent == model.plan_.run


@pytest.mark.parametrize("horizon", [1, 2, 7, 1000])
def test_the_private_share_at_its_edges(horizon):
    """α_t = cos(πt/2K): 1 at 0, 0 at K and for ever after, where the printed cosine turns negative."""
    found = [private_share(t, horizon) for t in range(3 * horizon + 2)]
    assert found[0] == 1.0
    assert all(value == 0.0 for value in found[horizon:])
    assert all(1 > a > b > 0 or b == 0 for a, b in itertools.pairwise(found[1 : horizon + 1]))
    assert math.cos(0.5 * math.pi * (horizon + 1) / horizon) < 0 or horizon == 1
    np.testing.assert_allclose(found[:horizon], np.cos(0.5 * np.pi * np.arange(horizon) / horizon), rtol=1e-12)


def test_after_the_horizon_no_private_gradient_is_used(uncertified, monkeypatch):
    """α_t = cos(πt/2K) would be negative: clamped at 0."""
    monkeypatch.setattr(PrivateRecords, "noisy_sum", lambda *_: torch.full((4, 3), 1e6, dtype=torch.float64))
    monkeypatch.setattr(pda_dpmd, "train_public", lambda *_, start, **__: start)
    found = [
        pda(update="first order", horizon=1, steps=steps, learning_rate=0.5).fit(X, Y, *PUBLIC).weights_
        for steps in (3, 4)
    ]
    theta = torch.zeros(4, 3, dtype=torch.float64)
    for steps in range(1, 5):
        share = 1.0 if steps == 1 else 0.0
        theta = theta - 0.5 * (share * 1e6 / 40 + (1 - share) * public_gradient(theta, *SHARED) / 15)
        if steps >= 3:
            torch.testing.assert_close(found[steps - 3], theta, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "given",
    [{"steps": 7, "noise_multiplier": 3.0}, {"steps": 7, "epsilon": 1.0}, {"noise_multiplier": 3.0, "epsilon": 5.0}],
)
def test_steps_of_weight_0_are_not_paid_for(given):
    settings = {"classes": [0, 1, 2], "delta": 1e-5, "update": "first order", **given}
    plan = PDADPMD(**settings, horizon=2).plan()
    assert plan.steps == 2
    if "noise_multiplier" in given:
        assert plan.noise_multiplier == 3.0
        assert float(plan.guarantee.epsilon) == float((pc.Gaussian(3.0) * 2).epsilon(delta=1e-5))
    else:  # all of the budget is for the two
        assert 0.99 < float(plan.guarantee.epsilon) <= 1.0
    assert PDADPMD(**settings, horizon=10**6).plan() == PDADPMD(**settings | {"update": "mirror"}).plan()


def test_starts_at_the_public_model(uncertified):
    for update in ("mirror", "first order"):
        model = pda(update=update, learning_rate=1e-12).fit(X, Y, *PUBLIC)
        public = DPSGD(**{**COMMON, "sample_rate": 1.0, "learning_rate": 0.0}).fit(X, Y, *PUBLIC)
        torch.testing.assert_close(model.weights_, public.weights_)


def test_the_noise_does_not_tell_how_many_records_there_are(silent):
    """A record of zeros adds nothing: with a public count it changes nothing."""
    one = pda().fit(X, Y, *PUBLIC).weights_
    more = pda().fit(np.vstack([X, np.zeros((20, 4))]), [*Y, *[0] * 20], *PUBLIC).weights_
    torch.testing.assert_close(one, more, rtol=0, atol=1e-4)


@pytest.mark.parametrize("relation", list(pc.Relation))
def test_full_batch_is_gdp(relation):
    model = pda(relation=relation, seed=None).fit(X, Y, *PUBLIC)
    same = pc.GDP(mu=math.sqrt(4) / 2 * (2 if relation is pc.REPLACE_ONE else 1), relation=relation)
    expected = float(same.epsilon(delta=1e-5, relation=relation))
    assert float(model.certificate_.guarantee.epsilon) == pytest.approx(expected, rel=1e-6)
    assert model.certificate_.verify(model.ledger_)


@pytest.mark.parametrize("printed", [True, False])
def test_a_private_count_shows_in_the_noise(printed, uncertified, monkeypatch):
    """Noise σ/n in many coordinates tells 10 records from 11; noise on the sum, divided by a public count, does not."""
    seen, _ = watch.ledgers(monkeypatch)
    scales = []
    for n in (10, 11):
        DPSGD(classes=[0, 1], delta=1e-5, records=10, sample_rate=1.0, noise_multiplier=2.0, steps=1, seed=1).fit(
            np.zeros((n, 3000)), [0] * n
        )
        clean, noisy, *_ = seen[-1]
        scales.append(float(np.std((noisy - clean) / (n if printed else 10))))
    size, gap = 6000, abs(math.log(scales[0] / scales[1]))
    assert (gap > 6 * math.sqrt(1 / size)) == printed
    assert printed or scales[0] == scales[1]
    if printed:  # the test by the scale alone: δ at ε = 1 is beyond any claim of the mean's own Gaussian
        z = gap / math.sqrt(1 / (2 * size))
        assert norm.cdf(z / 2) - math.e * norm.cdf(-z / 2) > 0.5


@pytest.mark.parametrize("label", [math.nan, math.inf, -math.inf, 1e300, -1e300, 3e38, 1e15])
@pytest.mark.parametrize("feature", [math.nan, 0.0, 1.0, 1e300])
def test_odd_labels_and_features(label, feature, uncertified):
    ledger = pc.Ledger(None, plan=pc.Gaussian(1.0), seed=1)
    private = PrivateRecords([[feature, 1.0]], [label], ledger=ledger, classes=None)
    for kept in (private._features, private._labels):
        assert torch.isfinite(kept).all()
        assert float(kept.abs().max()) <= 1e15


@pytest.mark.parametrize("wrong", [{"update": "second order"}, {"curvature": 0.0}, {"horizon": 0}])
def test_bad_options(wrong):
    with pytest.raises(pc.PrivcalcError):
        pda(**wrong)


def test_it_needs_public_records(uncertified):
    with pytest.raises(pc.PrivcalcError, match="X_public"):
        pda().fit(X, Y)


# --- Figure 1 ---


def dense(positions, p):
    """Rows of the positions' features."""
    rows = np.zeros((len(positions), p))
    np.put_along_axis(rows, positions.astype(int), 0.05, axis=1)
    return rows


def test_the_synthetic_task():
    task = figure.make_task(250, 0, records=50)
    positions, labels = task.private
    assert positions.shape == (50, 120)
    assert labels.shape == (50,)
    rows = dense(positions, 250)
    assert ((rows[:, :50] > 0).sum(axis=1) == 40).all()
    assert ((rows[:, 50:] > 0).sum(axis=1) == 80).all()
    again = figure.make_task(250, 0, records=50)
    assert all(np.array_equal(a, b) for a, b in zip(task.private, again.private, strict=True))
    # y = ⟨x, θ*⟩ + N(0, 0.01), θ* ~ N(0, I), found by least squares; both sums of features are constant,
    # so that the rank is 249
    positions, labels = figure.make_task(250, 1, records=20_000).private
    counts = np.bincount(positions.ravel(), minlength=250) / 20_000
    np.testing.assert_allclose(counts, np.repeat([40 / 50, 80 / 200], [50, 200]), atol=6 * 0.5 / math.sqrt(20_000))
    theta, _, rank, _ = np.linalg.lstsq(dense(positions, 250), labels, rcond=1e-9)
    assert rank == 249
    residual = labels - dense(positions, 250) @ theta
    assert float(residual @ residual) / (20_000 - 249) == pytest.approx(0.01, rel=6 * math.sqrt(2 / 20_000))
    assert float(theta @ theta) / 249 == pytest.approx(1.0, rel=6 * math.sqrt(2 / 249))
    assert np.abs(task.optimum).max() < 10


@given(st.integers(0, 10**6), st.integers(0, 5), st.sampled_from([1e-3, 0.1, 10.0]))
def test_sparse_gradients_are_those_of_the_dense_rows(seed, n, clip_norm):
    rng = np.random.default_rng(seed)
    positions = np.sort(rng.permuted(np.tile(np.arange(200.0), (n, 1)), axis=1)[:, :120], axis=1)
    theta, labels = torch.tensor(rng.standard_normal(200)), torch.tensor(rng.standard_normal(n))
    rows = dense(positions, 200)
    each = 2 * (rows @ theta.numpy() - labels.numpy())[:, None] * rows
    each *= np.minimum(1.0, clip_norm / np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-300))
    expected = torch.from_numpy(each.sum(axis=0))
    found = figure.SparseGradient(theta).clipped_sum(torch.tensor(positions), labels, clip_norm)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=n * 2.0**-15 * clip_norm)
    # one row more that is no list of increasing positions
    for wrong in (
        np.zeros(120),
        np.arange(120.0) - 1,
        np.arange(120.0) + 81,
        np.arange(120.0)[::-1],
        np.full(120, 1e9),
    ):
        more = torch.tensor(np.vstack([wrong, positions])), torch.cat([torch.tensor([1e15]).double(), labels])
        torch.testing.assert_close(figure.SparseGradient(theta).clipped_sum(*more, clip_norm), found, rtol=0, atol=0)


def test_what_is_told(monkeypatch):
    """Means, intervals and the best rate, from losses that are known."""
    monkeypatch.setattr(figure, "SIZES", (500, 1000))
    monkeypatch.setattr(
        figure,
        "one_run",
        lambda p, seed: {
            (method, rate): p * (1 + seed) + (rate != max(rates)) - (method == "mirror") * (p == 500)
            for method, rates in figure.RATES.items()
            for rate in rates
        },
    )
    page = figure.tell(figure.compute(Given(None, None, "cpu", 3)))
    # 500, 1000, 1500: mean 1000, standard deviation 500; Student's t for two degrees of freedom is 4.303
    half = f"± {4.30265273 * 500 / math.sqrt(3):.4f}"
    assert f"| 500 | 1000.0000 {half} | 0.125 | 1000.0000 {half} | 0.125 | 999.0000 {half} | 0.25 |" in page
    assert "clearly lower at p = 500." in page
    assert "1.00 at p = 1000" in page


@pytest.mark.slow
def test_figure_1(monkeypatch):
    """Its shape at small p."""
    monkeypatch.setattr(figure, "SIZES", (500, 1000, 2000))
    rows = figure.compute(Given(None, None, "cpu", 3))
    losses = {(p, method): figure.best(rows, p, method)[1] for p in figure.SIZES for method in figure.METHODS}
    for p in figure.SIZES:
        assert losses[p, "warm"] < 0.2 * losses[p, "cold"]
        assert losses[p, "mirror"] < losses[p, "warm"], p
    assert losses[500, "mirror"] < 0.6 * losses[500, "warm"]
    assert losses[2000, "mirror"] > losses[500, "mirror"]
