"""PILLAR: the projection, what the accountant is told, and private selection."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import watch
from hypothesis import given
from hypothesis import strategies as st

import privcalc as pc

torch = pytest.importorskip("torch")

from benchmarks.figures.pillar_pairs import separability  # noqa: E402
from examples.pillar_selection import ClippedLosses, HingeGradient, PILLARSelection  # noqa: E402
from learners import DPSGD, PILLAR  # noqa: E402
from learners.frame.records import PrivateRecords  # noqa: E402
from learners.pillar import project, projection  # noqa: E402

ADD, SWAP = pc.ADD_OR_REMOVE_ONE, pc.REPLACE_ONE
RNG = np.random.default_rng(8)
X = RNG.standard_normal((40, 6)) * [3.0, 2.0, 1.0, 0.5, 0.2, 0.1]
Y = (X[:, 0] > 0).astype(int)
PUBLIC = RNG.standard_normal((30, 6)) * [3.0, 2.0, 1.0, 0.5, 0.2, 0.1] + 0.5
COMMON = {"classes": [0, 1], "delta": 1e-5, "records": 40}
relations = pytest.mark.parametrize("relation", list(pc.Relation))


def generator(seed):
    return torch.Generator().manual_seed(seed)


def pillar(**options):
    return PILLAR(**{**COMMON, "noise_multiplier": 2.0, "steps": 3, "k": 2, "seed": 1, **options})


# --- the projection ---


@given(
    st.integers(0, 10**6),
    st.integers(1, 12),
    st.integers(1, 8),
    st.integers(1, 10),
    st.integers(1, 8),
    st.integers(-6, 6),
)
def test_projections_are_orthonormal_and_keep_most(seed, n, d, k, rank, log_scale):
    g = generator(seed)
    public = torch.randn(n, min(rank, d), generator=g) @ torch.randn(min(rank, d), d, generator=g) * 10.0**log_scale
    directions = projection(public, k)
    kept = directions.shape[1]
    assert 1 <= kept <= min(k, n, d, max(rank, 1))
    torch.testing.assert_close(directions.T @ directions, torch.eye(kept), atol=1e-5, rtol=0)
    values = np.linalg.eigvalsh((public.double().T @ public.double()).numpy())[::-1]
    held = float((public.double() @ directions.double()).square().sum())
    assert held == pytest.approx(values[:k].sum(), rel=1e-4)


@pytest.mark.parametrize("public", [torch.zeros(5, 3), torch.zeros(1, 3)])
def test_public_records_without_directions(public):
    assert projection(public, 2).shape == (3, 1)


def test_the_projection_depends_on_public_records_alone(uncertified):
    models = [pillar().fit(x, y, PUBLIC) for x, y in ((X, Y), (-7 * X[:9], [1] * 9))]
    one, two = (model.project_.keywords for model in models)
    assert torch.equal(one["directions"], two["directions"])
    _, vectors = np.linalg.eigh(PUBLIC.T @ PUBLIC)
    best = vectors[:, -2:]
    found = one["directions"].numpy()
    np.testing.assert_allclose(found @ found.T, best @ best.T, atol=1e-5)


@given(st.integers(0, 10**6), st.sampled_from([1e-30, 1e-3, 1.0, 1e3, 1e15]), st.booleans())
def test_projected_records_are_in_the_unit_ball(seed, scale, random):
    g = generator(seed)
    x, directions = scale * torch.randn(7, 6, generator=g), projection(torch.tensor(PUBLIC), 3)
    if random:
        directions = torch.randn(6, 3, generator=g, dtype=torch.float64)
    found = project(x, directions)
    assert found.shape == (7, 3)
    assert torch.isfinite(found).all()
    assert float(torch.linalg.vector_norm(found.double(), dim=1).max()) <= 1 + 1e-6
    for i in range(7):  # and each record is treated for itself
        assert torch.equal(project(x[[i]], directions)[0], found[i])


def test_what_is_short_is_not_lengthened():
    rows = torch.tensor([[0.3, 0.4], [3.0, 4.0], [0.0, 0.0]]).double()
    found = project(rows, torch.eye(2).double())
    torch.testing.assert_close(found, torch.tensor([[0.3, 0.4], [0.6, 0.8], [0.0, 0.0]]).double(), rtol=0, atol=1e-5)


def test_more_dimensions_than_there_are(uncertified):
    for public, kept in ((PUBLIC, 6), (PUBLIC[:3], 3), (np.outer(np.ones(9), np.arange(6)), 1)):
        model = pillar(k=50).fit(X, Y, public)
        assert model.weights_.shape == (kept, 2)
        assert model.scores(X).shape == (40, 2)


def test_random_projections(uncertified):
    one, two = (pillar(basis="jl", k=4, seed=seed).fit(X, Y) for seed in (1, 2))  # no public records
    assert torch.equal(one.project_.keywords["directions"], two.project_.keywords["directions"])
    x = torch.randn(30, 50, generator=generator(1)).double()
    wide = pillar(basis="jl", k=400).fit(x, [0, 1] * 15).project_.keywords["directions"]
    kept = torch.linalg.vector_norm(x @ wide, dim=1) / torch.linalg.vector_norm(x, dim=1)
    assert float((kept - 1).abs().max()) < 0.25  # 7 standard deviations


def test_separability():
    torch.manual_seed(0)
    wide = 10 * torch.randn(400, 1)
    label = torch.arange(400) % 2
    side = 2.0 * label[:, None] - 1.0
    across = torch.cat([wide, side], dim=1)
    assert separability(across, label, 1) == pytest.approx(1.0, abs=0.1)  # the first component tells nothing
    assert separability(across, label, 2) == pytest.approx(0.0, abs=1e-5)
    along = torch.cat([10 * side, torch.randn(400, 1)], dim=1)
    assert separability(along, label, 1) == pytest.approx(0.0, abs=0.02)
    # one direction is needed, and the first component has cosine 1/√2 with it
    fixed = torch.tensor([[1.0, 0.0], [0.0, 1.0]])[label] * 2.0 - 1.0
    spread = torch.cat([fixed @ torch.tensor([[1.0], [-1.0]]), torch.zeros(400, 1)], dim=1)
    turned = spread @ torch.tensor([[1.0, 1.0], [-1.0, 1.0]]) / math.sqrt(2)
    third = torch.cat([turned[:, :1], 10 * torch.randn(400, 1), turned[:, 1:]], dim=1)
    assert separability(third, label, 3) == pytest.approx(0.0, abs=1e-5)
    assert separability(third, label, 1) > 0.9


# --- what the accountant is told ---


@relations
@pytest.mark.parametrize("scheme", [{}, {"sample_rate": 0.25}, {"sample_rate": 0.25, "sampler": "fixed"}])
def test_the_plan_is_that_of_dp_sgd(relation, scheme, uncertified):
    options = {**COMMON, "noise_multiplier": 3.0, "steps": 4, "relation": relation}
    model = PILLAR(**options, **scheme, k=2).fit(X, Y, PUBLIC)
    same = DPSGD(**options, **{"sample_rate": 1.0, **scheme}).plan()
    assert model.ledger_.spent == model.plan_.run == same.run
    assert model.epsilon_.upper == same.guarantee.epsilon.upper


def test_the_certificate_is_that_of_dp_sgd():
    options = {**COMMON, "epsilon": 1.0, "steps": 4, "sample_rate": 1.0}
    model, same = PILLAR(**options, k=2).fit(X, Y, PUBLIC), DPSGD(**options).fit(X, Y)
    assert model.certificate_.guarantee == same.certificate_.guarantee
    assert model.certificate_.run == same.certificate_.run
    assert model.certificate_.verify(model.ledger_)


def test_it_is_dp_sgd_on_projected_records(uncertified):
    model = pillar(sample_rate=0.5, momentum=0.5, learning_rate=8.0).fit(X, Y, PUBLIC)
    rows = model.project_(torch.tensor(X, dtype=torch.float64))
    same = DPSGD(**COMMON, noise_multiplier=2.0, steps=3, seed=1, sample_rate=0.5, momentum=0.5, learning_rate=8.0)
    torch.testing.assert_close(model.weights_, same.fit(rows, Y).weights_)
    torch.testing.assert_close(model.scores(X), rows @ model.weights_)


@pytest.mark.parametrize("wrong", [{"k": 0}, {"k": True}, {"basis": "random"}])
def test_bad_options(wrong):
    with pytest.raises(pc.PrivcalcError):
        pillar(**wrong)


def test_components_need_public_records(uncertified):
    with pytest.raises(pc.PrivcalcError, match="X_public"):
        pillar().fit(X, Y)


# --- private selection ---

SELECTION = {"classes": [0, 1], "epsilon": 1.0, "delta": 1e-5, "records": 40, "k": 2, "beta": 0.5, "steps": 6}


@functools.cache
def planned(relation):
    """Asked for once: it takes seconds."""
    return PILLARSelection(**SELECTION, relation=relation).plan()


def selection(**options):
    model = PILLARSelection(**{**SELECTION, "seed": 1, **options})
    plan = planned(options.get("relation", ADD))
    model.plan = lambda: plan
    return model


@pytest.mark.parametrize("relation", [ADD, pytest.param(SWAP, marks=pytest.mark.slow)])
def test_the_plan_holds_all_runs_and_the_choice(relation, uncertified):
    model = selection(relation=relation).fit(X, Y, PUBLIC)
    runs = math.ceil(math.log(4 / 0.5))
    step = pc.FixedSizeSampled(pc.Gaussian(model.noise_multiplier_), batch_size=1, dataset_size=40)
    range_ = pc.ExponentialMechanism(0.1 if relation is ADD else 0.05)
    assert model.plan_.run == step * (runs * 6) + range_ == model.ledger_.spent
    claim = model.plan_.guarantee
    assert claim.relation is relation
    assert 0.99 < claim.epsilon.upper <= 1.0
    assert claim.epsilon.upper == model.plan_.run.epsilon(delta=1e-5, relation=relation).upper


@pytest.mark.parametrize("relation", list(pc.Relation))
def test_the_choice_has_its_share(relation):
    choice = PILLARSelection(**SELECTION, relation=relation, choice=0.3)._selection
    assert choice.epsilon(delta=0.0, relation=relation).upper == pytest.approx(0.3, rel=1e-12)


def test_accounting_for_the_runs_alone_breaks_the_claim():
    """Lemma 1: the runs take all of (ε, δ), and so does the choice. Together they are beyond ε; ours are not."""
    plan = planned(ADD)
    (step, count), *_ = plan.run.entries
    runs = step * count
    alone = runs.epsilon(delta=1e-5).upper
    choice = pc.ExponentialMechanism(alone)
    assert choice.epsilon(delta=0.0).upper == pytest.approx(alone, rel=1e-12)
    naive = (runs + choice).epsilon(delta=1e-5)
    assert naive.lower > 1.3 * alone
    assert alone < plan.run.epsilon(delta=1e-5).upper <= 1.0


@given(
    st.integers(0, 10**6), st.integers(0, 6), st.sampled_from([0.1, 0.5, 0.9]), st.sampled_from([0.3, 1.0, 3.0, 100.0])
)
def test_hinge_gradients_are_those_of_a_loop(seed, n, zeta, clip_norm):
    g = generator(seed)
    x, y = torch.randn(n, 3, generator=g), torch.randint(0, 2, (n,), generator=g)
    weights = torch.randn(3, generator=g)
    expected = torch.zeros(3, dtype=torch.float64)
    for row, label in zip(x, y, strict=True):
        w = weights.double().requires_grad_(True)
        loss = torch.relu(1 - (2.0 * label - 1.0) * (row.double() @ w) / zeta)
        (gradient,) = torch.autograd.grad(loss, w)
        expected += gradient * min(1.0, clip_norm / max(float(gradient.norm()), 1e-300))
    found = HingeGradient(weights, zeta).clipped_sum(x, y, clip_norm)
    # contributions are rounded to 2⁻¹⁵ C (proofs/sums.md)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 + n * 2.0**-15 * clip_norm)


def test_hinge_gradients_of_the_unit_ball_need_no_clipping():
    x = project(torch.randn(50, 3, generator=generator(1)).double() * 3, torch.eye(3).double())
    for label in (0, 1):
        for row in x:
            one = HingeGradient(torch.zeros(3), 0.5).clipped_sum(row[None], torch.tensor([label]), 100.0)
            assert float(one.norm()) <= 2 * (1 + 1e-6) + 100 * 2.0**-15


@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from([1e-3, 1.0, 1e15]), st.sampled_from([0.1, 0.5, 0.9]))
def test_one_record_lowers_every_utility_by_at_most_the_bound(seed, n, scale, zeta):
    g = generator(seed)
    x, y = scale * torch.randn(n, 3, generator=g), torch.randint(0, 2, (n,), generator=g)
    utility = ClippedLosses(torch.randn(4, 3, generator=g), zeta, 1 + 1 / zeta)
    moved = utility.scores(x, y) - utility.scores(x[1:], y[1:])
    assert (moved <= 1e-9).all()
    assert (moved >= -(1 + 1 / zeta) * (1 + 1e-6)).all()
    signed = [(a, 2 * b - 1) for a, b in zip(x, y.tolist(), strict=True)]
    expected = [
        sum(min(max(1 - s * float(a @ w) / zeta, 0), 1 + 1 / zeta) for a, s in signed) for w in utility.candidates
    ]
    np.testing.assert_allclose(utility.scores(x, y), -np.array(expected), rtol=1e-4, atol=1e-4)


def test_selection_is_noisy_sgd_and_a_choice(silent, monkeypatch):
    _, batches = watch.ledgers(monkeypatch)
    seen, select = [], PrivateRecords.select

    def spy(self, utility, mechanism, sensitivity, *, monotone=False):
        found = select(self, utility, mechanism, sensitivity, monotone=monotone)
        seen.append((utility, mechanism, sensitivity, monotone, found))
        return found

    monkeypatch.setattr(PrivateRecords, "select", spy)
    model = selection(zeta=0.5).fit(X, Y, PUBLIC)
    ((utility, mechanism, bound, monotone, chosen),) = seen
    assert (mechanism, bound, monotone) == (pc.ExponentialMechanism(0.1), 3.0, True)
    assert len(batches) == model.runs * 6
    assert {len(batch) for batch in batches} == {1}
    directions = model.directions_.numpy().astype(float)
    rows = X @ directions
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    rate = 2 / (2.0 * math.sqrt(6 * (1 + 2 * model.noise_multiplier_**2)))
    for run, candidate in enumerate(utility.candidates):
        w, total = np.zeros(2), np.zeros(2)
        for (i,) in batches[6 * run : 6 * run + 6]:
            side = 2 * Y[i] - 1
            w = w + rate * side * rows[i] / 0.5 * (side * (rows[i] @ w) < 0.5)
            w /= max(1.0, np.linalg.norm(w))
            total += w / 6
        np.testing.assert_allclose(candidate, total, rtol=1e-4, atol=1e-6)
    assert torch.equal(model.weights_, utility.candidates[chosen])


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_selection_plans_other_relations_from_few_answers(epsilon, monkeypatch):
    """It meets its target, nearly, and a slow answer is asked for three times at most."""
    asked, ask = [], pc.Run.epsilon

    def spy(self, *, delta, relation=pc.ADD_OR_REMOVE_ONE, records=1):
        asked.append(relation)
        return ask(self, delta=delta, relation=relation, records=records)

    monkeypatch.setattr(pc.Run, "epsilon", spy)
    model = PILLARSelection(classes=[0, 1], epsilon=epsilon, delta=1e-5, records=2000, relation=pc.REPLACE_ONE)
    plan = model.plan()
    assert asked.count(pc.REPLACE_ONE) <= 3
    assert 0.95 * epsilon < plan.guarantee.epsilon <= epsilon
    assert plan.guarantee.epsilon.upper == ask(plan.run, delta=1e-5, relation=pc.REPLACE_ONE).upper
    assert plan.run.entries[0] == (pc.FixedSizeSampled(pc.Gaussian(plan.noise_multiplier), 1, 2000), model.runs * 2000)


@pytest.mark.parametrize(
    "wrong",
    [{"classes": [0, 1, 2]}, {"zeta": 0.0}, {"beta": 1.0}, {"choice": 1.0}, {"k": 0}, {"k": True}],
)
def test_bad_options_of_selection(wrong):
    with pytest.raises(pc.PrivcalcError):
        selection(**wrong)


def test_selection_needs_public_records(uncertified):
    with pytest.raises(pc.PrivcalcError, match="X_public"):
        selection().fit(X, Y)
