"""DOPE-SGD: clipping around an origin, by autograd; what the update reads; ensembles; users; and the printed update's privacy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import watch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from watch import Records

import privcalc as pc

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from learners import DOPESGD, DPSGD  # noqa: E402
from learners.dope import ShiftedGradient, UserGradient  # noqa: E402
from learners.records import PrivateRecords  # noqa: E402
from privcalc.noise import SeededNoise  # noqa: E402

RNG = np.random.default_rng(4)
X = RNG.standard_normal((30, 4))
Y = np.arange(30) % 3
PUBLIC = X[:8], Y[:8]
COMMON = {"classes": [0, 1, 2], "delta": 1e-5, "records": 25, "sample_rate": 0.4, "noise_multiplier": 1.0, "steps": 4, "seed": 1}


@pytest.fixture
def uncertified(monkeypatch):
    monkeypatch.setattr(pc, "certify", lambda *_, **__: None)


@pytest.fixture
def silent(monkeypatch, uncertified):
    monkeypatch.setattr(SeededNoise, "normal", lambda self, size: np.zeros(size))


def generator(seed):
    return torch.Generator().manual_seed(seed)


def dope(**options):
    return DOPESGD(**{**COMMON, "clip_norm": 0.3, "start": "cold", **options})


def gradients(weights, x, y):
    """One record after another, in double precision."""
    found = []
    for row, label in zip(x, y, strict=True):
        w = weights.double().requires_grad_(True)
        loss = nn.functional.cross_entropy((row.double() @ w)[None], label[None])
        found.append(torch.autograd.grad(loss, w)[0])
    return torch.stack(found) if found else torch.zeros(0, *weights.shape, dtype=torch.float64)


def clipped(rows, clip_norm):
    norms = rows.flatten(1).norm(dim=1).clamp_min(1e-300)
    return (rows * torch.clamp(clip_norm / norms, max=1.0)[:, None, None]).sum(dim=0)


# --- clipping around the origin ---


@given(st.integers(0, 10**6), st.integers(0, 6), st.sampled_from([0.0, 0.3, 30.0, 1e6]), st.sampled_from([1e-2, 0.3, 1.0, 1e3]))
def test_shifted_gradients_are_those_of_a_loop(seed, n, size, clip_norm):
    g = generator(seed)
    x, y = torch.randn(n, 4, generator=g), torch.randint(0, 3, (n,), generator=g)
    weights, origin = torch.randn(4, 3, generator=g), size * torch.randn(4, 3, generator=g)
    found = ShiftedGradient(weights, origin).clipped_sum(x, y, clip_norm)
    expected = clipped(gradients(weights, x, y) - origin.double(), clip_norm)
    assert found.shape == (4, 3)
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-5 * max(1.0, n * min(clip_norm, 1 + 4 * size)))


@pytest.mark.parametrize("clip_norm", [1e-6, 1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("near", [0.0, 1e-7, 1e-5, 1e-3, 1.0])
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_nothing_is_longer_than_the_clip_norm_however_much_cancels(clip_norm, near, scale):
    """The origin is nearly the record's own gradient, and both are far longer than C."""
    g = generator(1)
    d = 300
    weights = torch.zeros(d, 5)
    for _ in range(10):
        row, label = scale * torch.randn(1, d, generator=g), torch.tensor([2])
        own = gradients(weights, row, label)[0].float()
        origin = own + near * scale * torch.randn(d, 5, generator=g) / math.sqrt(5 * d)
        one = ShiftedGradient(weights, origin).clipped_sum(row, label, clip_norm).double()
        assert float(one.norm()) <= clip_norm * (1 + 1e-5)
        many = Records(row.repeat(400, 1), label.repeat(400))
        more, less = (
            ShiftedGradient(weights, origin).clipped_sum(many.features[k:], many.labels[k:], clip_norm).double() for k in (0, 1)
        )
        assert float((more - less).norm()) <= clip_norm * (1 + 1e-3)


@given(st.integers(0, 10**6), st.sampled_from([0.0, 1e-30, 1e8, 1e15]), st.sampled_from([0.0, 1e-3, 1e6]))
def test_odd_records_stay_within_the_clip_norm(seed, scale, size):
    g = generator(seed)
    for weights in (torch.zeros(4, 3), 1e6 * torch.randn(4, 3, generator=g), 1e30 * torch.randn(4, 3, generator=g)):
        kind = ShiftedGradient(weights, size * torch.randn(4, 3, generator=g))
        one = kind.clipped_sum(scale * torch.randn(1, 4, generator=g), torch.tensor([1]), 0.5)
        assert float(one.double().norm()) <= 0.5 * (1 + 1e-4)


# --- what the update reads ---


@pytest.mark.parametrize("origin", ["public", "history", "none"])
@pytest.mark.parametrize("max_origin", [None, 0.2])
@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_the_update(origin, max_origin, sampling, silent, monkeypatch):
    _, batches = watch.ledgers(monkeypatch)
    options = {"origin": origin, "max_origin": max_origin, "sampling": sampling, "records": 30 if sampling == "fixed" else 25}
    model = dope(**options, momentum=0.5, weight_decay=0.1, learning_rate=0.7).fit(X, Y, *PUBLIC)
    assert model.ledger_.spent == model.plan_.run
    x, y = torch.tensor(X).float(), torch.tensor(Y)
    theta, velocity, noisy = (torch.zeros(4, 3, dtype=torch.float64) for _ in range(3))
    expected_size = 12 if sampling == "fixed" else 0.4 * 25  # public; the batch's own size appears nowhere
    for batch in batches:
        shift = torch.zeros(4, 3, dtype=torch.float64)
        if origin == "public":
            shift = gradients(theta, x[:8], y[:8]).mean(dim=0)
        elif origin == "history":
            shift = noisy
        if max_origin is not None and float(shift.norm()) > max_origin:
            shift = shift * (max_origin / shift.norm())
        noisy = shift + clipped(gradients(theta, x[batch], y[batch]) - shift, 0.3) / expected_size
        velocity = 0.5 * velocity + noisy
        theta = theta - 0.7 * (velocity + 0.1 * theta)
    torch.testing.assert_close(model.weights_[0].double(), theta, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("origin", ["public", "history"])
@pytest.mark.parametrize("extended", [False, True])
def test_everything_between_two_releases_is_a_function_of_what_was_released(origin, extended, uncertified, monkeypatch):
    """With the noisy sums given, origins and models are the same whatever the private records are."""
    seen = []

    def same(self, contribution, step, clip_norm):
        seen.append(contribution)
        return torch.full((4, 3), 0.1 * (len(seen) % 4 + 1))

    monkeypatch.setattr(PrivateRecords, "noisy_sum", same)
    options = {"origin": origin, "extended": extended, "public_batch": 3, "start": "warm", "ensemble": 3}
    one, two = (dope(**options).fit(x, y, *PUBLIC).weights_ for x, y in ((X, Y), (5 * X[:2], [0, 0])))
    assert torch.equal(one, two)
    for a, b in zip(seen[:4], seen[4:], strict=True):
        assert torch.equal(a.origin, b.origin)
        assert torch.equal(a.weights, b.weights)


def test_a_batch_without_records_gets_the_whole_public_gradient(silent):
    model = dope(sample_rate=1e-9, noise_multiplier=1.0, steps=1, learning_rate=1.0, clip_norm=1.0).fit(X, Y, *PUBLIC)
    expected = -gradients(torch.zeros(4, 3), torch.tensor(X[:8]).float(), torch.tensor(Y[:8])).mean(dim=0)
    torch.testing.assert_close(model.weights_[0].double(), expected, rtol=1e-4, atol=1e-6)


def test_without_an_origin_it_is_dp_sgd(uncertified):
    options = {**COMMON, "clip_norm": 0.3, "momentum": 0.4, "ema": 0.2}
    one, two = DOPESGD(**options, origin="none").fit(X, Y).weights_[0], DPSGD(**options).fit(X, Y).weights_
    torch.testing.assert_close(one, two)


def test_public_records_take_part_at_the_same_rate(silent):
    """With q = 1 nothing is left to chance: the mean over private and public records, by public counts."""
    model = dope(extended=True, sample_rate=1.0, steps=1, learning_rate=1.0, origin="none").fit(X, Y, *PUBLIC)
    rows = gradients(torch.zeros(4, 3), torch.tensor(X).float(), torch.tensor(Y))
    expected = -(clipped(rows, 0.3) + clipped(rows[:8], 0.3)) / (25 + 8)
    torch.testing.assert_close(model.weights_[0].double(), expected, rtol=1e-4, atol=1e-6)
    assert model.ledger_.spent == model.plan_.run  # at no cost


def test_starts_augmentations_and_public_batches(silent):
    seen = []
    augment = lambda rows: seen.append(rows) or 2.0 * rows  # noqa: E731
    model = dope(augment=augment, public_batch=5, steps=3, start="warm").fit(X, Y, *PUBLIC)
    assert [rows.shape for rows in seen] == [(5, 4)] * 3
    assert not torch.equal(seen[0], seen[1])
    assert torch.isfinite(model.weights_).all()
    cold, warm = (dope(start=start, learning_rate=0.0).fit(X, Y, *PUBLIC).weights_ for start in ("cold", "warm"))
    assert float(cold.norm()) == 0 < float(warm.norm())


@pytest.mark.parametrize("combine", ["vote", "logits", "weights"])
def test_ensembles(combine, uncertified):
    model = dope(ensemble=3, combine=combine, steps=5).fit(X, Y, *PUBLIC)
    assert model.weights_.shape == (3, 4, 3)
    logits = np.einsum("nd,tdc->tnc", X, model.weights_.numpy().astype(float))
    expected = {
        "vote": np.eye(3)[logits.argmax(axis=2)].mean(axis=0),
        "logits": logits.mean(axis=0),
        "weights": X @ model.weights_.numpy().mean(axis=0),
    }[combine]
    np.testing.assert_allclose(model.scores(X), expected, atol=1e-4)
    assert model.ledger_.spent == model.plan_.run == dope(steps=5).plan().run  # at no cost
    last = dope(steps=5).fit(X, Y, *PUBLIC).weights_
    assert torch.equal(model.weights_[-1], last[0])
    assert dope(ensemble=9, steps=5).fit(X, Y, *PUBLIC).weights_.shape == (5, 4, 3)


def test_the_certificate_is_that_of_dp_sgd():
    options = {**COMMON, "seed": None, "sample_rate": 1.0, "records": 30}
    model, same = DOPESGD(**options, ensemble=4).fit(X, Y, *PUBLIC), DPSGD(**options).plan()
    assert model.certificate_.run == same.run
    assert model.certificate_.guarantee.epsilon.upper == same.guarantee.epsilon.upper
    assert model.certificate_.verify(model.ledger_)


@pytest.mark.parametrize(
    "wrong",
    [
        {"origin": "private"},
        {"start": "hot"},
        {"combine": "max"},
        {"ensemble": 0},
        {"ensemble": True},
        {"max_origin": 0.0},
        {"max_origin": math.nan},
        {"public_batch": 0},
    ],
)
def test_bad_options(wrong):
    with pytest.raises(pc.PrivcalcError):
        dope(**wrong)


@pytest.mark.parametrize("options", [{}, {"origin": "none", "extended": True}])
def test_what_needs_public_records(options, uncertified):
    with pytest.raises(pc.PrivcalcError, match="X_public"):
        dope(**options).fit(X, Y)


# --- the printed update ---


@pytest.mark.parametrize("printed", [True, False])
def test_the_printed_update_breaks_the_claim_and_ours_does_not(printed, uncertified):
    """Full batch, q = 1, one step; one record more adds clip(g − ĝ), and as printed ĝ itself: C + ‖ĝ‖ = 4C. Exact laws.

    What the learner really releases, its noise taken off, decides.
    """
    clip_norm, sigma, claimed = 0.2, 1.0, pc.Gaussian(1.0)
    direction = torch.tensor([[1.0, -1.0]]) / math.sqrt(2)
    origin = 3 * clip_norm * direction
    record, label = torch.tensor([[4.0]]), torch.tensor([1])  # gradient 4·(0.5, −0.5), along the origin and beyond it
    sums = []
    for n in (1, 0):
        total = ShiftedGradient(torch.zeros(1, 2), origin).clipped_sum(record[:n], label[:n], clip_norm)
        sums.append(total + (n * origin if printed else 25 * origin))
    shift = float((sums[0] - sums[1]).norm()) / (sigma * clip_norm)
    assert shift == pytest.approx(4.0 if printed else 1.0, rel=1e-5)
    beaten = []
    for epsilon in (0.0, 0.5, 1.0, 3.0):
        truth = norm.cdf(shift / 2 - epsilon / shift) - math.exp(epsilon) * norm.cdf(-shift / 2 - epsilon / shift)
        beaten.append(truth > claimed.delta(epsilon=epsilon).upper * (1 + 1e-4))
    assert all(beaten) if printed else not any(beaten)


# --- users ---


@given(
    st.integers(0, 10**6),
    st.integers(0, 5),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.5, 50.0]),
    st.sampled_from([1, 30, 10**6]),
)
def test_user_gradients_are_those_of_a_loop(seed, users, m, size, memory):
    g = generator(seed)
    x, y = torch.randn(users, m, 4, generator=g), torch.randint(0, 3, (users, m), generator=g)
    missing = torch.rand(users, m, generator=g) < 0.3
    x[missing] = 0.0
    weights, origin = torch.randn(4, 3, generator=g), size * torch.randn(4, 3, generator=g)
    means = [
        gradients(weights, x[u][~missing[u]], y[u][~missing[u]]).sum(dim=0) / max(1, int((~missing[u]).sum()))
        for u in range(users)
    ]
    rows = torch.stack(means) if users else torch.zeros(0, 4, 3, dtype=torch.float64)
    found = UserGradient(weights, origin, memory=memory).clipped_sum(x, y, 0.3)
    torch.testing.assert_close(found.double(), clipped(rows - origin.double(), 0.3), rtol=1e-4, atol=1e-5)
    # rows of zeros contribute nothing, whatever their labels
    wider = torch.cat([x, torch.zeros(users, 2, 4)], dim=1), torch.cat([y, torch.ones(users, 2, dtype=torch.long)], dim=1)
    torch.testing.assert_close(UserGradient(weights, origin).clipped_sum(*wider, 0.3), found, rtol=1e-4, atol=1e-5)
    for changed in range(users):  # one user less
        rest = torch.arange(users) != changed
        moved = found.double() - UserGradient(weights, origin).clipped_sum(x[rest], y[rest], 0.3).double()
        assert float(moved.norm()) <= 0.3 * (1 + 1e-4)


def test_one_record_each_is_the_ordinary_case(uncertified):
    one = dope(origin="public").fit(X, Y, *PUBLIC)
    users = dope(origin="public").fit(X[:, None], Y[:, None], *PUBLIC)
    torch.testing.assert_close(one.weights_, users.weights_, rtol=1e-4, atol=1e-5)


def test_users_are_the_unit_of_the_ledger(tmp_path):
    x, y = RNG.standard_normal((12, 5, 4)), RNG.integers(0, 3, (12, 5))
    options = {"records": None, "relation": pc.ZERO_OUT, "sample_rate": 1.0, "seed": None}
    model = dope(**options).fit(
        x,
        y,
        *PUBLIC,
    )
    assert model.ledger_.terms.unit == "one user"
    assert model.ledger_.terms.public["records"] == 12  # users, not records
    assert "one user" in str(model.certificate_)
    assert model.certificate_.run == model.plan_.run
    assert model.predict(x[0]).shape == (5,)
    assert dope().fit(X, Y, *PUBLIC).ledger_.terms.unit == "one training example"


def test_batches_are_of_users(uncertified, monkeypatch):
    _, batches = watch.ledgers(monkeypatch)
    dope(steps=200, origin="none").fit(X.reshape(15, 2, 4), Y.reshape(15, 2))
    watch.check_coins(batches, 15, 0.4)


@pytest.mark.parametrize(
    ("y", "public"),
    [(Y, PUBLIC), (Y[:15], PUBLIC), (Y.reshape(15, 2)[:14], PUBLIC), (Y.reshape(15, 2), (X[None, :8], Y[None, :8]))],
)
def test_users_that_do_not_fit(y, public, uncertified):
    with pytest.raises(pc.PrivcalcError, match=r"y: |X_public"):
        dope().fit(X.reshape(15, 2, 4), y, *public)
