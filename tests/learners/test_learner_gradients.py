"""The learners' per-example gradients, clipping and projections against autograd; what odd records do to a sum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from watch import Records

import privcalc as pc

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from learners.adamix import principal_directions, public_subspace  # noqa: E402
from learners.frame.records import PrivateRecords, as_features, as_labels  # noqa: E402
from learners.gradients.network import NetworkGradient, flatten, unflatten  # noqa: E402
from learners.gradients.softmax import SoftmaxGradient, gradient_norms, public_gradient, train_public  # noqa: E402

TOLERANCE = 1e-4
"""Relative rounding of single precision that the proof pages allow for."""

GRAIN = 2.0**-15
"""Exact contributions are rounded to GRAIN·√k·C, k the number of classes (proofs/sums.md)."""


def generator(seed):
    return torch.Generator().manual_seed(seed)


def records(seed, n, d, classes, scale=1.0):
    g = generator(seed)
    return Records(scale * torch.randn(n, d, generator=g), torch.randint(0, classes, (n,), generator=g))


def by_autograd(loss_of, parameters, data, clip_norm):
    """One record after another, in double precision: gradient, norm, clip, sum."""
    total, norms = torch.zeros_like(parameters), []
    for x, y in zip(data.features, data.labels, strict=True):
        theta = parameters.clone().requires_grad_(True)
        (gradient,) = torch.autograd.grad(loss_of(theta, x, y), theta)
        norms.append(float(gradient.norm()))
        total += gradient * min(1.0, clip_norm / max(norms[-1], 1e-300))
    return total, norms


def softmax_loss(weights, x, y):
    return nn.functional.cross_entropy((x.double() @ weights)[None], y[None])


@given(
    st.integers(0, 10**6),
    st.integers(0, 6),
    st.integers(1, 7),
    st.integers(2, 5),
    st.sampled_from([1e-3, 0.3, 1.0, 30.0]),
)
def test_softmax_clipping_is_that_of_per_example_gradients(seed, n, d, classes, clip_norm):
    data = records(seed, n, d, classes, scale=2.0)
    weights = torch.randn(d, classes, generator=generator(seed + 1))
    found = SoftmaxGradient(weights).clipped_sum(*data, clip_norm)
    expected, norms = by_autograd(softmax_loss, weights.double(), data, clip_norm)
    assert found.shape == (d, classes)
    rounded = n * GRAIN * math.sqrt(classes) * clip_norm
    assert float((found - expected).norm()) <= TOLERANCE * min(clip_norm * n, sum(norms)) + rounded
    torch.testing.assert_close(
        gradient_norms(weights, *data).double(), torch.tensor(norms).double(), rtol=TOLERANCE, atol=1e-6
    )
    unclipped, _ = by_autograd(softmax_loss, weights.double(), data, math.inf)
    torch.testing.assert_close(public_gradient(weights, *data).double(), unclipped, rtol=TOLERANCE, atol=1e-5)


@pytest.mark.parametrize("memory", [1, 100, 10**6])
@pytest.mark.parametrize("clip_norm", [0.05, 1.0, 100.0])
def test_network_gradients_are_those_of_a_loop(memory, clip_norm):
    torch.manual_seed(1)
    network = nn.Sequential(nn.Conv2d(1, 3, 3), nn.GroupNorm(1, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 4)).double()
    network[0].bias.requires_grad_(False)  # what is frozen is left alone
    data = Records(torch.randn(7, 1, 4, 4).double(), torch.randint(0, 4, (7,)))
    theta = flatten(network)

    def loss(vector, x, y):
        scores = torch.func.functional_call(network, unflatten(network, vector), (x[None],))
        return nn.functional.cross_entropy(scores, y[None])

    found = NetworkGradient(network, theta, memory=memory).clipped_sum(*data, clip_norm)
    expected, _ = by_autograd(loss, theta, data, clip_norm)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_microbatches_keep_within_the_memory(monkeypatch):
    network, sizes = nn.Linear(5, 2), []
    torch_norm = torch.linalg.vector_norm
    monkeypatch.setattr(
        torch.linalg, "vector_norm", lambda rows, dim: sizes.append(rows.numel()) or torch_norm(rows, dim=dim)
    )
    data = Records(torch.randn(50, 5), torch.zeros(50, dtype=torch.long))
    NetworkGradient(network, flatten(network), memory=100).clipped_sum(*data, 1.0)
    assert max(sizes) <= 100
    assert sum(sizes) == 50 * 12


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm1d(4), nn.SyncBatchNorm(4), nn.InstanceNorm1d(4, track_running_stats=True)]
)
def test_layers_that_mix_records_are_refused(layer):
    network = nn.Sequential(nn.Linear(4, 4), layer, nn.Linear(4, 2))
    with pytest.raises(pc.PrivcalcError, match="mixes the records"):
        NetworkGradient(network, flatten(network))


def test_flatten_and_unflatten_are_inverse():
    network = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    parts = unflatten(network, flatten(network))
    assert all(torch.equal(parts[name], p) for name, p in network.named_parameters())


# --- one record more ---


@st.composite
def wild_rows(draw, d):
    """A record with ordinary, huge, tiny and impossible numbers."""
    odd = st.sampled_from([0.0, -1.0, 1e-30, 1e-18, 1e8, 1e15, 3e38, 1e300, math.inf, -math.inf, math.nan])
    return draw(st.lists(st.one_of(st.floats(-10, 10), odd), min_size=d, max_size=d))


def contributions(d, classes, seed):
    """Every kind of contribution, at weights that may have run away."""
    g = generator(seed)
    for scale in (0.0, 1.0, 1e6, 1e30):
        weights = scale * torch.randn(d, classes, generator=g)
        yield SoftmaxGradient(weights)
        yield SoftmaxGradient(weights, public_subspace(torch.randn(d, classes, generator=g), 2000))
        network = nn.Linear(d, classes)
        yield NetworkGradient(network, scale * torch.randn(flatten(network).numel(), generator=g))


@given(st.data(), st.integers(1, 5), st.integers(2, 4), st.integers(0, 20), st.integers(0, 10**6), st.floats(-5, 3))
def test_one_record_more_moves_no_sum_by_more_than_the_clip_norm(data, d, classes, n, seed, log_clip):
    clip_norm = 10.0**log_clip
    g = generator(seed)
    rows = as_features([*torch.randn(n, d, generator=g).tolist(), data.draw(wild_rows(d))], "cpu")
    labels = torch.randint(0, classes, (n + 1,), generator=g)
    for contribution in contributions(d, classes, seed):
        more, less = (contribution.clipped_sum(*Records(rows[:k], labels[:k]), clip_norm) for k in (n + 1, n))
        assert torch.isfinite(more).all()
        assert float((more.double() - less.double()).norm()) <= clip_norm * (1 + TOLERANCE)


def test_what_rounding_adds_at_full_size():
    # 10,000 records whose clipped gradients all point the same way: the worst case for a sum in single precision.
    rows = torch.zeros(10_000, 64) + 1 / 8
    labels, weights = torch.zeros(10_000, dtype=torch.long), torch.zeros(64, 10)
    more, less = (SoftmaxGradient(weights).clipped_sum(*Records(rows[:k], labels[:k]), 0.5) for k in (10_000, 9_999))
    assert abs(float((more.double() - less.double()).norm()) / 0.5 - 1) <= 2e-3


# --- odd records ---


def handle(rows, labels, classes=(0, 1), steps=3):
    ledger = pc.Ledger(None, plan=pc.Gaussian(1e-9) * steps)
    return PrivateRecords(rows, labels, ledger=ledger, classes=classes)


def nearly(contribution, rows, labels, classes=(0, 1)):
    """The sum through the handle, with next to no noise."""
    return handle(rows, labels, classes).noisy_sum(contribution, pc.Gaussian(1e-9), 1.0)


def test_zero_norm_records_add_nothing():
    weights = torch.tensor([[1.0, -1.0], [0.5, 0.0]])
    for kind in (SoftmaxGradient(weights), SoftmaxGradient(weights, torch.eye(2))):
        one = nearly(kind, [[0.6, 0.8]], [1])
        both = nearly(kind, [[0.0, 0.0], [0.6, 0.8], [0.0, 0.0]], [0, 1, 1])
        torch.testing.assert_close(one, both, atol=1e-6, rtol=0)


def test_features_that_are_not_finite_count_as_zero():
    weights = torch.tensor([[1.0, -1.0], [0.5, 0.0]])
    odd = nearly(SoftmaxGradient(weights), [[math.nan, 0.8], [0.3, math.inf], [-math.inf, math.nan]], [1, 0, 1])
    plain = nearly(SoftmaxGradient(weights), [[0.0, 0.8], [0.3, 0.0]], [1, 0])
    torch.testing.assert_close(odd, plain, atol=1e-6, rtol=0)
    assert as_features(np.array([[1e300, -1e30, 2.0]]), "cpu").tolist() == [[1e15, -1e15, 2.0]]


def test_no_records_and_one_record():
    nothing = nearly(SoftmaxGradient(torch.zeros(2, 2)), np.empty((0, 2)), [])
    assert float(nothing.abs().max()) < 1e-6
    one = nearly(SoftmaxGradient(torch.zeros(2, 2)), [[0.6, 0.8]], [0])
    torch.testing.assert_close(one, torch.tensor([[-0.3, 0.3], [-0.4, 0.4]], dtype=torch.float64), atol=1e-6, rtol=0)


def test_classes_without_records():
    found = nearly(SoftmaxGradient(torch.zeros(2, 3)), [[1.0, 0.0]], ["b"], classes=("a", "b", "c"))
    assert found.shape == (2, 3)
    assert float(found[0, 0]) == pytest.approx(1 / 3, rel=1e-5)


def test_the_handle_shows_nothing_but_the_shape_of_a_record():
    private = handle(np.ones((5, 2)), [0] * 5)
    assert private.shape == (2,)
    assert repr(private) == "PrivateRecords()"
    assert [name for name in dir(private) if not name.startswith("_")] == [
        *("map", "noisy_sum", "select", "shape", "users")
    ]


def test_a_change_to_the_callers_array_changes_no_record():
    rows = torch.ones(3, 2)
    private = handle(rows, [0, 1, 1])
    rows.fill_(9.0)
    assert float(private._features.max()) == 1.0


@pytest.mark.parametrize(
    ("rows", "labels", "match"),
    [
        (np.ones(3), [0, 1, 1], "X: must have shape"),
        (np.ones((3, 2)), [0, 1], "y: has 2 labels"),
        (np.ones((3, 2)), [0, 1, 7], "label 7 is not in classes"),
        (np.ones((1, 2)), [math.nan], "label nan is not in classes"),
    ],
)
def test_records_that_do_not_fit(rows, labels, match):
    with pytest.raises(pc.PrivcalcError, match=match):
        handle(rows, labels)


@pytest.mark.parametrize("classes", [[], [0], [0, 0], [0, 1, 0]])
def test_class_lists(classes):
    with pytest.raises(pc.PrivcalcError, match="at least two different labels"):
        as_labels([], classes, "cpu")


def test_linear_models_want_flat_features():
    with pytest.raises(pc.PrivcalcError, match=r"X: must have shape \(n, features\)"):
        nearly(SoftmaxGradient(torch.zeros(2, 2)), np.ones((3, 2, 2)), [0, 1, 1])


# --- projections ---


@given(
    st.integers(0, 10**6), st.integers(1, 12), st.integers(2, 6), st.integers(1, 20), st.booleans(), st.integers(-4, 0)
)
def test_public_subspaces(seed, d, classes, dimension, fill, log_scale):
    g = generator(seed)
    data = records(seed, 9, d, classes)
    weights = 10.0**-log_scale * torch.randn(d, classes, generator=g)
    gradient = public_gradient(weights, *data)
    extra = principal_directions(data.features) if fill else None
    basis = public_subspace(gradient, dimension, extra)
    p = basis.shape[1]
    assert 1 <= p <= min(d, dimension)
    if not fill:
        assert p <= classes - 1
    gram = basis.T.double() @ basis.double()
    torch.testing.assert_close(gram, torch.eye(p).double(), atol=1e-5, rtol=0)
    assert float(torch.linalg.matrix_norm(basis.double(), 2)) <= 1.0  # no norm grows, rounding included
    values = torch.linalg.svdvals(gradient.double())
    if values[0] > 0 and dimension >= classes - 1:  # it holds the public gradient
        loss = gradient.double() - basis.double() @ (basis.T.double() @ gradient.double())
        assert float(loss.norm()) <= 1e-3 * float(values[0]) + 1e-5


def test_residuals_at_rounding_level_do_not_raise_the_rank():
    # After training to a tiny loss the rows of p − y sum to 0 only up to 1e-7, which is no small part of them.
    x = torch.nn.functional.normalize(torch.randn(30, 6, generator=generator(3)), dim=1)
    y = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
    weights = train_public(x, y, start=torch.zeros(6, 4), weight_decay=0.0, steps=1000)
    assert public_subspace(public_gradient(weights, x, y), 2000).shape[1] <= 3


def test_a_public_gradient_of_zero_gives_one_direction():
    assert public_subspace(torch.zeros(3, 4), 2000).shape == (3, 1)


def test_filling_reaches_the_dimension():
    data = records(0, 40, 12, 3)
    basis = public_subspace(public_gradient(torch.zeros(12, 3), *data), 8, principal_directions(data.features))
    assert basis.shape == (12, 8)


def test_training_on_public_records_reaches_the_minimum():
    data = records(1, 60, 4, 3)
    reference = torch.randn(4, 3, generator=generator(2))
    weights = train_public(*data, start=torch.zeros(4, 3), weight_decay=0.1, reference=reference)
    gradient = public_gradient(weights, *data) + 0.1 * (weights - reference)
    assert float(gradient.norm()) < 1e-3


def test_one_record_does_not_change_how_the_others_are_rounded():
    """In single precision a record carrying a running sum past 2¹³ moved it by 14 times its size (found by review)."""
    rest = ([-(2.0**-10)] * 4 + [2.0**-8]) * 10_000
    base = [2.0] * 8191 + [1.0]
    sums = []
    for first in (base, [*base, 2.0]):
        features = as_features(np.array([*first, *rest])[:, None], "cpu")
        labels = torch.zeros(len(features), dtype=torch.long)
        sums.append(SoftmaxGradient(torch.zeros(1, 2)).clipped_sum(features, labels, 2.0))
    assert float((sums[1] - sums[0]).norm()) <= 2.0 * (1 + 1e-9)


class Remembering(torch.nn.Module):
    """It subtracts what it saw in the pass before."""

    def __init__(self):
        super().__init__()
        self.linear, self.seen = torch.nn.Linear(3, 2), []

    def forward(self, x):
        self.seen.append(x)
        return self.linear(x - self.seen[-2].detach() if len(self.seen) > 1 else x)


def test_state_of_a_module_does_not_carry_records_to_others():
    """One record of 40 moved the sum by 12 clip norms, because each microbatch met the records of the one before."""
    torch.manual_seed(0)
    model, x, y = Remembering(), torch.randn(40, 3, dtype=torch.float64), torch.randint(0, 2, (40,))
    moved = x.clone()
    moved[0] = -50.0
    contribution = NetworkGradient(model, flatten(model), memory=32)
    one, other = (contribution.clipped_sum(features, y, 1.0) for features in (x, moved))
    assert float((one - other).norm()) <= 2
    assert model.seen == []


class Square(torch.nn.Module):
    """Fails, and torch's own words tell how many records there were."""

    def forward(self, x):
        return x @ torch.zeros(len(x) + 7, 2, dtype=x.dtype)


class Choosing(torch.nn.Module):
    def forward(self, x):
        return x[:, :2] if x.sum() > 0 else x[:, 1:]


@pytest.mark.parametrize("model", [Square(), Choosing()])
def test_what_torch_says_of_private_records_is_not_told(model):
    x, y = torch.randn(43, 3, dtype=torch.float64), torch.zeros(43, dtype=torch.long)
    with pytest.raises(pc.PrivcalcError, match="record by record") as caught:
        NetworkGradient(model, torch.zeros(0, dtype=torch.float64)).clipped_sum(x, y, 1.0)
    assert "43" not in str(caught.value)
    assert caught.value.__suppress_context__
