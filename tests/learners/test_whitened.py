"""The default learner: its map against covariances, steps against the formula, what it gains from public records."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privcalc as pc

torch = pytest.importorskip("torch")

from learners import NoisyGD, WhitenedGD  # noqa: E402
from learners.frame.descent import stable_rate  # noqa: E402
from learners.frame.plan import make_plan  # noqa: E402
from learners.frame.records import PrivateRecords  # noqa: E402
from learners.gradients.softmax import train_public  # noqa: E402
from learners.gradients.whitening import normalised, whitened, whitening  # noqa: E402
from learners.whitened import SHARE, dimensions, evened  # noqa: E402

RNG = np.random.default_rng(4)
AXES = np.diag([3.0, 2.0, 1.0, 0.5, 0.1])
X = RNG.standard_normal((60, 5)) @ AXES
Y = (X[:, 3] > 0).astype(int) + (X[:, 4] > 0.05)
PUBLIC = RNG.standard_normal((20, 5)) @ AXES, np.arange(20) % 3
WIDE = RNG.standard_normal((200, 5)) @ AXES
COMMON = {"classes": [0, 1, 2], "delta": 1e-5, "records": 60, "noise_multiplier": 2.0, "steps": 3, "seed": 1}


def made(**options):
    return WhitenedGD(**{**COMMON, **options})


@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from([0.0, 0.5, 3.0]))
def test_the_map_whitens(seed, k, ridge):
    """Second moments of the public records become Λ/(Λ + λ·mean Λ), up to one factor, along the k largest axes."""
    rows = torch.randn(40, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) @ torch.tensor(AXES)
    found = rows @ whitening(rows, k, ridge)
    moments = torch.linalg.eigvalsh(rows.T @ rows).flip(0)[:k]
    expected = moments / (moments + ridge * moments.mean())
    seen = (found.T @ found).diagonal()
    torch.testing.assert_close(seen / seen[0], expected / expected[0], rtol=1e-8, atol=1e-10)
    assert float((found.T @ found - torch.diag(seen)).abs().max()) < 1e-8 * float(seen.max())


@given(st.integers(0, 10**6), st.sampled_from([1e-100, 1e-6, 1.0, 1e12]))
def test_rows_have_norm_1_each_for_itself(seed, scale):
    generator = torch.Generator().manual_seed(seed)
    rows, matrix = (scale * torch.randn(7, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    matrix = matrix[:5] / scale
    rows[3] = 0
    found = whitened(rows, matrix)
    norms = found.norm(dim=1)
    assert float(norms[3]) == 0
    assert float((norms[[0, 1, 2, 4, 5, 6]] - 1).abs().max()) < 1e-6
    alone = torch.cat([whitened(row, matrix) for row in rows.split(1)])
    assert torch.equal(found, alone)


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("unlabelled", [None, WIDE])
def test_the_steps(labels, unlabelled, monkeypatch):
    if not labels and unlabelled is None:
        with pytest.raises(pc.PrivcalcError, match="X_public"):
            made().fit(X, Y)
        return
    seen, sums = [], PrivateRecords.noisy_sum

    def spy(self, contribution, step, clip_norm):
        noisy = sums(self, contribution, step, clip_norm)
        seen.append((contribution.weights.clone(), noisy, clip_norm))
        return noisy

    monkeypatch.setattr(PrivateRecords, "noisy_sum", spy)
    model = made(unlabelled=unlabelled).fit(X, Y, *(PUBLIC if labels else ()))
    given = [PUBLIC[0]] * labels + [WIDE] * (unlabelled is not None)
    matrix = whitening(torch.tensor(np.concatenate(given)), 100, 1.0)
    shared = whitened(torch.tensor(PUBLIC[0]), matrix)
    weights = torch.zeros(5, 3, dtype=torch.float64)
    if labels:
        weights = train_public(shared, torch.tensor(PUBLIC[1]), start=weights, weight_decay=0.1)
    strength = 60 * math.sqrt(3) / (3 * 2.0)
    number = 60 + 20 * labels
    rate = min(640.0, min(1.0, strength / 25) * 60 / (2.0 * 0.1 * math.sqrt(3)))
    if labels:
        rate = min(rate, stable_rate(shared, number))
    for start, noisy, clip_norm in seen:
        assert clip_norm == 0.1
        torch.testing.assert_close(start, weights, rtol=1e-6, atol=1e-8)
        if labels:
            residuals = torch.softmax(shared @ start, dim=1) - torch.eye(3)[torch.tensor(PUBLIC[1])]
            weights = weights - rate * shared.T @ residuals / number
        weights = weights - rate * noisy / number
    torch.testing.assert_close(model.weights_, weights, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(model.scores(X), whitened(torch.tensor(X), matrix) @ weights, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("relation", list(pc.Relation))
def test_the_certificate(relation):
    model = made(relation=relation, seed=None, unlabelled=WIDE).fit(X, Y)
    same = pc.GDP(mu=math.sqrt(3) / 2 * (2 if relation is pc.REPLACE_ONE else 1), relation=relation)
    assert float(model.certificate_.guarantee.epsilon) == pytest.approx(
        float(same.epsilon(delta=1e-5, relation=relation)), rel=1e-6
    )
    assert model.certificate_.verify(model.ledger_)
    assert model.certificate_.document["assumptions"]["declared"]["public_records"] == "public"


def test_private_records_are_no_public_ones():
    for same in (X, X[::-1].copy()):
        with pytest.raises(pc.PrivcalcError, match="X_public: is X"):
            made(unlabelled=same).fit(X, Y, *PUBLIC)
    with pytest.raises(pc.PrivcalcError, match="records must have shape"):
        made(unlabelled=WIDE[:, :4]).fit(X, Y)
    for wrong in ({"dimension": 0}, {"dimension": True}, {"ridge": -1.0}, {"ridge": math.nan}, {"ridge": math.inf}):
        with pytest.raises(pc.PrivcalcError, match=next(iter(wrong))):
            made(**wrong)


def test_the_rule():
    assert [dimensions(s, warm=False) for s in (0.0, 10.0, 60.0, 1e9)] == [10, 15, 90, 200]
    assert [dimensions(s, warm=True) for s in (0.0, 10.0, 60.0, 100.0, 1e9)] == [100, 100, 100, 150, 200]


@given(st.floats(0.5, 1e4), st.integers(1, 1000), st.floats(1.0, 1e6), st.floats(1e-6, 1e3), st.integers(2, 100))
def test_step_sizes_know_the_clip_norm(noise, steps, batch, clip_norm, classes):
    """Halving C below 1 doubles the rate: what moves the model, rate·C, stays; noise in a logit is at most 0.7."""
    plan = make_plan(
        pc.Gaussian, epsilon=None, delta=1e-5, noise_multiplier=noise, steps=steps, relation=pc.ADD_OR_REMOVE_ONE
    )
    found = plan.learning_rate(batch, clip_norm, classes)
    assert found * noise * clip_norm * math.sqrt(steps) / batch <= 0.7 * min(1, plan.strength(batch, classes) / 25) * (
        1 + 1e-9
    )
    assert found * min(1.0, clip_norm) <= 16 * (1 + 1e-9)
    if clip_norm <= 1:
        assert plan.learning_rate(batch, clip_norm / 2, classes) == pytest.approx(2 * found)
    assert plan.learning_rate(batch, clip_norm, classes, weight_decay=100.0) <= 0.01


@pytest.mark.parametrize("seed", range(3))
def test_public_components_help(seed):
    """Classes differing along a direction of small variance: whitening finds it with few records, descent does not."""
    rng = np.random.default_rng(seed)
    scales = np.concatenate([np.full(5, 3.0), np.full(15, 0.3)])
    wide, x = (rng.standard_normal((n, 20)) * scales for n in (400, 800))
    y = (x[:, 7] > 0).astype(int)
    x, wide = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, wide))
    common = {"classes": [0, 1], "delta": 1e-5, "records": 600, "epsilon": 1.0, "seed": seed}
    one = WhitenedGD(**common, dimension=20).fit(x[:600], y[:600], wide)
    other = NoisyGD(**common, steps=50).fit(x[:600], y[:600])
    assert one.score(x[600:], y[600:]) > other.score(x[600:], y[600:]) + 0.05


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.sampled_from([1e-3, 1.0, 10.0]), st.integers(2, 6))
def test_every_class_gets_its_share_and_no_more(seed, scale, classes):
    """Shares are at least 0.9/classes; a class with a bias has no more, so that no smaller bias would do."""
    logits = scale * torch.randn(50, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    bias, wanted = evened(logits), SHARE / classes
    shares = torch.softmax(logits + bias, dim=1).mean(dim=0)
    assert float(shares.min()) >= wanted * (1 - 1e-3)
    assert float(bias.min()) == 0
    assert float((shares - wanted)[bias > 0].abs().sum()) <= 1e-3
    assert torch.equal(evened(logits + 5.0) > 0, bias > 0)  # what all have alike is none


def test_balanced_costs_nothing_and_adds_the_bias():
    one, two = (made(balanced=balanced, unlabelled=WIDE).fit(X, Y) for balanced in (False, True))
    assert torch.equal(one.weights_, two.weights_)
    assert one.certificate_.guarantee == two.certificate_.guarantee
    torch.testing.assert_close(two.scores(X) - one.scores(X), evened(one.scores(WIDE)).expand(60, 3))
    labelled = made(balanced=True, unlabelled=WIDE).fit(X, Y, *PUBLIC)
    torch.testing.assert_close(labelled.bias_, evened(labelled.scores(WIDE) - labelled.bias_))
    with pytest.raises(pc.PrivcalcError, match="balanced = True: must come with public records without labels"):
        made(balanced=True).fit(X, Y, *PUBLIC)


def test_balanced_finds_classes_in_the_tail():
    """Of three clusters alike in public, one has few private records: without a bias it is hardly predicted."""
    rng = np.random.default_rng(2)
    centres = 2.0 * np.eye(3, 12)

    def drawn(counts):
        y = np.repeat([0, 1, 2], counts)
        rows = centres[y] + rng.standard_normal((len(y), 12))
        return rows / np.linalg.norm(rows, axis=1, keepdims=True), y

    (x, y), (wide, _), (tests, truth) = drawn([600, 300, 8]), drawn([100] * 3), drawn([200] * 3)
    common = {"classes": [0, 1, 2], "delta": 1e-5, "records": 908, "epsilon": 3.0, "seed": 1, "unlabelled": wide}
    plain, balanced = (WhitenedGD(**common, balanced=flag).fit(x, y) for flag in (False, True))
    rare = truth == 2
    assert balanced.score(tests[rare], truth[rare]) > plain.score(tests[rare], truth[rare]) + 0.3
    assert balanced.score(tests, truth) > plain.score(tests, truth) + 0.05


def test_normalised_of_nothing():
    assert normalised(torch.zeros(0, 3)).shape == (0, 3)
