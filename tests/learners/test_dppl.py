"""DPPL: what one record moves, by brute force; which noise is drawn; and the laws of the choices, by enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import watch
from cases import quick
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import chi2, chisquare, kstest
from watch import Records

import privcalc as pc

torch = pytest.importorskip("torch")

from learners import DPLS, DPPLMean, DPPLPublic  # noqa: E402
from learners.dp_ls import Products  # noqa: E402
from learners.dppl import ClassSums, shrunk  # noqa: E402
from learners.dppl_public import CosineUtility  # noqa: E402
from learners.frame.records import PrivateRecords  # noqa: E402

ADD, SWAP, NULL = pc.ADD_OR_REMOVE_ONE, pc.REPLACE_ONE, pc.ZERO_OUT
SLACK = 1 + 1e-5
RNG = np.random.default_rng(3)
X = RNG.standard_normal((60, 6)) / 4
Y = np.arange(60) % 3
LEVEL = 1e-6 / 8  # tests by chance in this file
relations = pytest.mark.parametrize("relation", list(pc.Relation))


@pytest.fixture
def spied(monkeypatch, uncertified):
    return watch.ledgers(monkeypatch)


def mean(**options):
    return DPPLMean(**{"classes": [0, 1, 2], "epsilon": 1.0, "delta": 1e-5, "seed": 1, **options})


def generator(seed):
    return torch.Generator().manual_seed(seed)


# --- DPPL-Mean: what one record moves ---


def neighbours(data, relation, record, label):
    """Data sets that differ in their first record."""
    x, y = data
    if relation is SWAP:
        changed = x.clone(), y.clone()
        changed[0][0], changed[1][0] = record, label
        return Records(*changed)
    return Records(x[1:], y[1:])


@relations
@given(
    st.integers(0, 10**6),
    st.integers(1, 6),
    st.floats(0.01, 3.0),
    st.sampled_from([0.0, 0.05, 1.0, 1.5, 20.0]),
    st.sampled_from([1e-20, 1.0, 1e15]),
)
def test_one_record_moves_the_sums_by_no_more_than_the_bound(relation, seed, n, radius, weight, scale):
    g = generator(seed)
    data = Records(torch.randn(n, 5, generator=g) * scale, torch.randint(0, 3, (n,), generator=g))
    centres = torch.randn(3, 5, generator=g)
    sums = ClassSums(centres, radius, weight * radius)
    bound = sums.sensitivity(relation)
    for label in range(3):  # within the class, and across
        other = neighbours(data, relation, scale * torch.randn(5, generator=g), label)
        moved = (sums.clipped_sum(*data, bound).double() - sums.clipped_sum(*other, bound).double()).norm()
        assert float(moved) <= bound * (2 if relation is SWAP else 1) * (1 + 1e-4)


@relations
@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0, 3.0])
def test_the_bound_of_the_sums_is_attained(relation, weight):
    sums = ClassSums(torch.zeros(3, 2), 1.0, weight)
    bound = sums.sensitivity(relation)
    one = Records(torch.tensor([[5.0, 0.0]]), torch.tensor([0]))
    moved = []
    for label in (0, 1):
        other = neighbours(one, relation, torch.tensor([-5.0, 0.0]), label)
        moved.append(float((sums.clipped_sum(*one, bound) - sums.clipped_sum(*other, bound)).norm()))
    assert max(moved) == pytest.approx(bound * (2 if relation is SWAP else 1), rel=1e-6)


def test_sums_of_many_records_do_not_add_rounding():
    rows, labels = torch.full((20_001, 8), 1 / math.sqrt(8)), torch.zeros(20_001, dtype=torch.long)
    rows[::2] *= 0.7301
    sums = ClassSums(torch.zeros(2, 8), 1.0, 0.3)
    more, less = (sums.clipped_sum(rows[k:], labels[k:], 1.0).double() for k in (1, 2))
    assert float((more - less).norm()) == pytest.approx(
        math.hypot(1.0, 0.3), rel=2e-3
    )  # the result is in single precision


# --- DPPL-Mean: plan, noise, radii ---


@relations
@pytest.mark.parametrize("shares", [(5 / 64, 7 / 64, 52 / 64), (1.0,), (0.5, 0.5)])
def test_what_is_drawn_is_what_is_certified(relation, shares, spied):
    model = mean(relation=relation, shares=shares).fit(X, Y)
    seen, _ = spied
    assert pc.Run.of(mechanism for *_, mechanism, _ in seen) == model.plan_.run == model.ledger_.spent
    noise = np.concatenate([((n - c) / (m.noise_multiplier * bound)).ravel() for c, n, m, bound in seen])
    assert kstest(noise, "norm").pvalue > LEVEL
    parts = [(model.plan_.noise_multiplier / m.noise_multiplier) ** 2 for *_, m, _ in seen]
    expected = [0.98 * s + (0.02 if step == 0 else 0.0) for step, s in enumerate(shares)]
    assert parts == pytest.approx(expected, rel=1e-12)
    assert sum(parts) == pytest.approx(1.0, rel=1e-12)
    clean, *_, bound = seen[0]
    weight = float(clean[:, -1].sum() / 60)
    if relation is not SWAP:  # of ρ = C²/(2σ²) in the first step, w²/(2σ²) is for the counts
        assert parts[0] * (weight / bound) ** 2 == pytest.approx(0.02, rel=1e-5)
        assert parts[0] * (1.0 / bound) ** 2 == pytest.approx(0.98 * shares[0], rel=1e-5)
    assert all(float(abs(c[:, -1]).max()) == 0 for c, *_ in seen[1:])  # counted once


@relations
def test_the_certificate(relation):
    model = mean(relation=relation, seed=None).fit(X, Y)
    claim = model.certificate_.guarantee
    assert claim.relation is relation
    assert 0.99 < claim.epsilon.upper <= 1.0
    assert model.certificate_.run == model.plan_.run
    assert model.certificate_.verify(model.ledger_)
    assert "records" not in model.ledger_.terms.public  # it needs none
    mu = math.sqrt(sum(1 / m.noise_multiplier**2 for m, _ in model.plan_.run.entries)) * (2 if relation is SWAP else 1)
    assert float(claim.epsilon) == pytest.approx(
        float(pc.GDP(mu=mu, relation=relation).epsilon(delta=1e-5, relation=relation)), rel=1e-9
    )


def test_radii_come_from_noisy_outputs_alone(uncertified, monkeypatch):
    seen = []

    def same(self, contribution, step, clip_norm):
        seen.append((contribution.radius, contribution.weight, clip_norm, step))
        return torch.tensor([[0.1] * 6 + [2000.0 + len(seen) % 3]] * 3)

    monkeypatch.setattr(PrivateRecords, "noisy_sum", same)
    weights = [mean(spread=0.02).fit(x, y).weights_ for x, y in ((X, Y), (9 * X[:4], [2] * 4), (X[:0], []))]
    assert seen[:3] == seen[3:6] == seen[6:]
    assert seen[0][0] > seen[1][0] > 0
    assert torch.equal(weights[0], weights[1])


def test_the_noise_does_not_tell_how_many_records_a_class_has(spied):
    """The paper's scale does: 50 records or 51 at d = 1280 cost ε ≥ 4.1 in step 1, at any ρ. Ours is the same."""
    found = []
    for n in (50, 51):
        mean(classes=[0, 1], shares=(1.0,)).fit(np.zeros((n, 40)), [0] * n)
        clean, noisy, mechanism, bound = spied[0][-1]
        found.append((noisy - clean, mechanism, bound))
    (one, *first), (two, *second) = found
    assert first == second
    np.testing.assert_allclose(one, two, atol=1e-12)  # the same seed: the same noise, not scaled
    ratio, d, epsilon = 51 / 50, 1280, 4.1
    t = 2 * (d * math.log(ratio) - epsilon) / (ratio**2 - 1)
    assert chi2.cdf(ratio**2 * t, d) - math.exp(epsilon) * chi2.cdf(t, d) > 1e-5


# --- DPPL-Mean: the formula, and odd data ---


def test_without_noise_prototypes_are_the_class_means(silent):
    expected = np.array([X[c == Y].mean(axis=0) for c in range(3)])
    for shares in ((1.0,), (0.2, 0.3, 0.5)):
        model = mean(shares=shares, radius=3.0, spread=10.0).fit(X, Y)
        np.testing.assert_allclose(model.weights_, expected, atol=1e-5)
        x = torch.tensor(X[:7], dtype=torch.float32)
        nearest = np.linalg.norm(X[:7, None] - expected[None], axis=2).argmin(axis=1)
        assert (model.predict(x) == nearest).all()


def test_without_noise_points_are_clipped_around_the_last_centre(silent):
    rows = np.array([[4.0, 0.0], [0.2, 0.0]])
    one = mean(shares=(1.0,), classes=[0, 1]).fit(rows, [0, 0])
    np.testing.assert_allclose(one.weights_, [[0.6, 0.0], [0.0, 0.0]], atol=1e-6)
    two = mean(shares=(0.5, 0.5), classes=[0, 1], epsilon=1e6).fit(rows, [0, 0])
    np.testing.assert_allclose(two.weights_, [[0.9, 0.0], [0.0, 0.0]], atol=1e-3)  # 0.6 + (1 − 0.4)/2


def test_centres_of_noise_are_pulled_to_the_public_ball():
    """Longer than R without, so that points are clipped far from where they are; free, because centres are released."""
    generator = torch.Generator().manual_seed(1)
    noise, signal = torch.randn(3, 400, generator=generator), torch.eye(3, 400)
    sizes = torch.tensor([1e-3, 0.04, 1.0])
    found = shrunk(signal + sizes[:, None] * noise, sizes, 0.9)
    assert float(found.norm(dim=1).max()) <= 0.9 * (1 + 1e-6)
    assert ((found - signal).norm(dim=1) <= torch.tensor([0.11, 0.7, 1.9])).all()
    assert float((sizes[2] * noise[2]).norm()) > 15  # without


def test_noise_in_the_first_centres_costs_little(uncertified):
    """Points were clipped around centres that noise had put many R away: the mean cosine was 0.22."""
    rows, y = np.repeat(np.eye(3, 300), 100, axis=0), np.repeat([0, 1, 2], 100)
    found = torch.stack([mean(epsilon=0.5, seed=seed).fit(rows, y).weights_ for seed in range(3)])
    wanted = torch.eye(3, 300, dtype=found.dtype).expand_as(found)
    assert float(torch.nn.functional.cosine_similarity(found, wanted, dim=2).mean()) > 0.45


def test_odd_data(silent):
    empty = mean().fit(X[Y < 2], Y[Y < 2])
    assert torch.isfinite(empty.weights_).all()
    assert float(empty.weights_[2].norm()) == 0
    assert torch.equal(mean().fit(X[:0], []).weights_, torch.zeros(3, 6))
    one = mean(radius=3.0, spread=10.0).fit(X[:1], [1]).weights_
    np.testing.assert_allclose(one[1], X[0], atol=1e-5)
    assert torch.equal(mean().fit(np.zeros((9, 6)), [0] * 9).weights_, torch.zeros(3, 6))
    odd = X.copy()
    odd[0], odd[1], odd[2, 0] = math.nan, 1e300, -math.inf
    assert torch.isfinite(mean().fit(odd, Y).weights_).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"shares": ()},
        {"shares": (0.5, 0.4)},
        {"shares": (1.5, -0.5)},
        {"radius": 0.0},
        {"radius": math.inf},
    ],
)
def test_bad_options_of_the_mean(wrong):
    with pytest.raises(pc.PrivcalcError):
        mean(**wrong)


def test_flat_features_only(uncertified):
    with pytest.raises(pc.PrivcalcError, match=r"X: must have shape \(n, features\)"):
        mean().fit(np.zeros((4, 2, 2)), [0, 1, 2, 0])
    with pytest.raises(pc.PrivcalcError, match=r"X: must have shape \(n, features\)"):
        DPPLPublic(classes=[0, 1], epsilon=1.0).fit(np.zeros((4, 2, 2)), [0, 1, 1, 0], np.ones((4, 2, 2)))


# --- DP-LS ---


@relations
def test_least_squares(relation, silent):
    seed = generator(0)
    for _ in range(200):
        x = torch.randn(2, 4, generator=seed) * 10 ** torch.randn(2, 1, generator=seed)
        sums = [Products(3).clipped_sum(x[[i]], torch.tensor([label]), 1.0) for i, label in ((0, 0), (1, 2))]
        assert max(float(s.norm()) for s in sums) <= math.sqrt(2) * SLACK
        assert float((sums[0] - sums[1]).norm()) <= 2 * math.sqrt(2) * SLACK
    model = DPLS(classes=[0, 1, 2], epsilon=1.0, delta=1e-5, relation=relation, ridge=0.5, seed=1).fit(X, Y)
    rows = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    expected = np.linalg.solve(rows.T @ rows + 0.5 * np.eye(6), rows.T @ np.eye(3)[Y])
    np.testing.assert_allclose(model.weights_, expected, atol=1e-4)
    assert model.ledger_.spent == pc.Gaussian(model.noise_multiplier_) * 1


# --- DPPL-Public: utilities ---


def utilities(x, y, candidates, classes):
    """One pair after another."""
    found = np.zeros((classes, len(candidates)))
    for row, label in zip(np.asarray(x, dtype=np.float64), y, strict=True):
        for j, candidate in enumerate(np.asarray(candidates, dtype=np.float64)):
            size = np.linalg.norm(row) * np.linalg.norm(candidate)
            cosine = row @ candidate / size if size > 0 else 0.0
            found[label, j] += 1 + cosine
    return found


@given(
    st.integers(0, 10**6),
    st.integers(0, 12),
    st.integers(1, 9),
    st.sampled_from([1, 7, 40, 10**6]),
    st.sampled_from([torch.float16, torch.float32, torch.float64]),
)
def test_utilities_are_those_of_a_loop(seed, n, m, block, kind):
    g = generator(seed)
    x = torch.randn(n, 4, generator=g) * 10 ** (15 * torch.randn(n, 1, generator=g).clamp(-2.5, 0.9))
    y = torch.randint(0, 3, (n,), generator=g)
    candidates = torch.randn(m, 4, generator=g).to(kind)
    candidates[m // 2] = 0.0
    if n:
        x[n // 2] = 0.0
    found = CosineUtility(candidates, 3, block).scores(x, y)
    assert found.shape == (3, m)
    np.testing.assert_allclose(found, utilities(x, y, candidates, 3), atol=1e-5)


@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1e-23, 1e-18, 1.0, 1e15])
def test_one_record_moves_no_utility_by_more_than_2(scale):
    """Tiny vectors too: their squares are 0 in single precision, and a norm of 0 must not make a cosine of 1e7."""
    x = scale * torch.tensor([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0], [1.0, -1.0, 0.0]])
    candidates = torch.cat([torch.eye(3), -torch.eye(3), torch.ones(1, 3), 1e-25 * torch.ones(1, 3)])
    for record in x:
        moved = CosineUtility(candidates, 2).scores(record[None], torch.tensor([1]))
        assert (moved >= -1e-6).all()
        assert (moved <= 2.0 * SLACK).all()
        np.testing.assert_allclose(moved, utilities(record[None], [1], candidates, 2), atol=1e-5)


def test_utilities_of_many_records_do_not_add_rounding():
    x, y = torch.randn(30_001, 8, generator=generator(1)).abs(), torch.zeros(30_001, dtype=torch.long)
    candidates = torch.randn(20, 8, generator=generator(2)).abs()
    more, less = (CosineUtility(candidates, 2, 10**5).scores(x[k:], y[k:])[0] for k in (0, 1))
    one = CosineUtility(candidates, 2).scores(x[:1], y[:1])[0]
    np.testing.assert_allclose(more - less, one, atol=1e-6)


def test_candidates_from_a_file_of_half_precision(uncertified, tmp_path):
    candidates = RNG.standard_normal((500, 6)).astype(np.float16)
    candidates[7], candidates[8, 0] = 0.0, np.nan
    path = tmp_path / "candidates"
    np.lib.format.open_memmap(path, "w+", np.float16, candidates.shape)[:] = candidates
    options = {"classes": [0, 1, 2], "epsilon": 5.0, "k": 2, "seed": 3}
    mapped = np.load(path, mmap_mode="r")
    half = DPPLPublic(**options).fit(X, Y, mapped)
    whole = DPPLPublic(**options).fit(X, Y, np.nan_to_num(candidates.astype(np.float64)))
    assert half._public(mapped).data_ptr() == mapped.ctypes.data  # not copied
    assert (half.chosen_ == whole.chosen_).all()
    assert half.weights_.dtype == torch.float64
    torch.testing.assert_close(half.weights_, whole.weights_)


# --- DPPL-Public: the law ---


def outcomes(m, mechanism):
    """What can be chosen for one class."""
    return list(itertools.combinations(range(m), getattr(mechanism, "k", 1)))


def log_law(scores, mechanism, width):
    """The law of one class's choice, by enumeration."""
    factor = mechanism.level / width / (2 if isinstance(mechanism, pc.TopK) else 1)
    weights = factor * np.array([min(scores[list(chosen)]) for chosen in outcomes(len(scores), mechanism)])
    return weights - logsumexp(weights)


def joint(scores, mechanism, width):
    """Over two classes."""
    one, two = (log_law(row, mechanism, width) for row in scores)
    return one[:, None] + two[None, :]


@pytest.mark.parametrize("k", quick([1, 2], 1))
def test_frequencies_of_choices(k, uncertified):
    """One fit with many alike classes: those that are empty choose uniformly."""
    copies, m = 6_000, 5
    x = np.tile([[1.0, 0.2], [0.3, 1.0]], (copies, 1))
    candidates = np.array([[1.0, 0.0], [-1.0, 0.3], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])  # a tie, and a zero vector
    model = DPPLPublic(classes=range(2 * copies), epsilon=1.5, k=k, seed=5)
    model.fit(x, np.arange(copies).repeat(2), candidates)
    mechanism = model.plan_.step
    sets = outcomes(m, mechanism)
    position = {chosen: index for index, chosen in enumerate(sets)}
    counts = np.zeros((2, len(sets)))
    for label, chosen in enumerate(model.chosen_):
        counts[label // copies, position[tuple(chosen)]] += 1
    scores = utilities(x[:2], [0, 0], candidates, 1)[0]
    expected = copies * np.exp(log_law(scores, mechanism, 2.0))
    assert chisquare(counts[0], expected).pvalue > LEVEL
    assert chisquare(counts[1]).pvalue > LEVEL
    assert chisquare(counts[0]).pvalue < LEVEL  # which is not uniform


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("relation", [ADD, SWAP])
def test_the_joint_law_over_all_classes_keeps_epsilon(k, relation):
    epsilon = 0.8
    mechanism = DPPLPublic(classes=[0, 1], epsilon=epsilon, relation=relation, k=k).plan().step
    rng = np.random.default_rng(k)
    worst, width = 0.0, 2.0
    axis = np.array([[1.0, 0.0], [-1.0, 0.0]])

    def law(data, candidates):
        x, y = (torch.tensor(np.array(part)) for part in data)
        return joint(CosineUtility(candidates, 2).scores(x.reshape(-1, 2), y.long()), mechanism, width)

    trials = []
    for _ in range(60):
        n = int(rng.integers(1, 5))
        x, y = rng.standard_normal((n, 2)), rng.integers(0, 2, n)
        trials.append((x, y, rng.standard_normal(2), rng.integers(0, 2), torch.tensor(rng.standard_normal((4, 2)))))
    opposite = torch.tensor(axis.repeat(k, axis=0))
    many = np.concatenate([axis[[0]], axis[[1]].repeat(80, axis=0)])
    for label in (
        0,
        1,
    ):  # the worst: replaced within its class, and across; choices are all but certain to be the other axis
        trials.append((many, np.zeros(81, dtype=int), axis[1], label, opposite))
    across = np.concatenate([axis[[1]], axis[[0]].repeat(80, axis=0), axis[[1]].repeat(80, axis=0)])
    trials.append((across, np.array([0] * 81 + [1] * 80), axis[0], 1, opposite))
    for x, y, record, label, candidates in trials:
        one = law((x, y), candidates)
        if relation is SWAP:
            other = law((np.vstack([record, x[1:]]), np.append(label, y[1:])), candidates)
        else:
            other = law((x[1:], y[1:]), candidates)
        worst = max(worst, float(abs(one - other).max()))
    assert worst <= epsilon * SLACK
    assert worst >= epsilon * (1 - 1e-4)


@relations
@pytest.mark.parametrize("k", [1, 3])
def test_the_certificate_of_choices(relation, k):
    model = DPPLPublic(classes=[0, 1, 2, 3], epsilon=0.7, relation=relation, k=k).fit(X, Y, X[:9].copy())
    claim = model.certificate_.guarantee
    assert claim.relation is relation
    assert claim.delta == 0
    assert 0.69 < claim.epsilon.upper <= 0.7
    assert model.ledger_.spent == model.plan_.run == model.certificate_.run
    assert model.certificate_.verify(model.ledger_)
    level = {1: 0.7, 3: 1.4}[k] / (2 if relation is SWAP else 1)
    assert model.plan_.step.level == pytest.approx(level, rel=1e-6)
    assert model.weights_.shape == (4, k, 6)
    assert (np.diff(model.chosen_, axis=1) > 0).all()  # k different ones, and in an order that tells nothing
    assert model.scores(X).shape == (60, 4)


def test_too_few_candidates(uncertified):
    for k, fits in ((4, True), (5, False)):
        model = DPPLPublic(classes=[0, 1, 2], epsilon=1.0, k=k)
        if fits:
            assert (model.fit(X, Y, X[:4].copy()).chosen_ == np.arange(4)).all()
        else:
            with pytest.raises(pc.PrivcalcError, match="at least k = 5 candidates, not 4"):
                model.fit(X, Y, X[:4].copy())
    with pytest.raises(pc.PrivcalcError, match="X_public"):
        DPPLPublic(classes=[0, 1], epsilon=1.0).fit(X, Y)


@pytest.mark.parametrize("wrong", [{"k": 0}, {"k": 1.5}])
def test_bad_options_of_choices(wrong):
    with pytest.raises(pc.PrivcalcError):
        DPPLPublic(classes=[0, 1], epsilon=1.0, **wrong).plan()


def test_scores_are_mean_cosines(uncertified):
    model = DPPLPublic(classes=[0, 1], epsilon=1.0, k=2, seed=1).fit(X[:, :2], Y % 2, X[:5, :2].copy())
    chosen = X[:5, :2][model.chosen_]
    expected = [
        [np.mean([x @ p / np.linalg.norm(x) / np.linalg.norm(p) for p in prototypes]) for prototypes in chosen]
        for x in X[:9, :2]
    ]
    np.testing.assert_allclose(model.scores(X[:9, :2]), expected, atol=1e-5)


def test_empty_private_data_and_zero_vectors(uncertified):
    for x, y in ((X[:0], []), (np.zeros((4, 6)), [0, 0, 1, 1])):
        model = DPPLPublic(classes=[0, 1], epsilon=1.0, seed=1).fit(x, y, X[:5].copy())
        assert torch.isfinite(model.weights_).all()
    scores = CosineUtility(torch.tensor(X[:5]), 2).scores(torch.zeros(4, 6), torch.tensor([0, 0, 1, 1]))
    assert (scores == 2.0).all()


@pytest.mark.parametrize("size", [3, 1280])
def test_a_record_never_adds_more_than_the_range(size):
    """Equal and opposite vectors: cosines of ±1, in single precision ±(1 + 1e-7)."""
    x = torch.from_numpy(np.random.default_rng(size).standard_normal((300, size)))
    labels = torch.zeros(300, dtype=torch.long)
    utility = CosineUtility(torch.cat([x[:20], -x[:20]]), 1)
    for i in range(20):
        rest = torch.arange(300) != i
        moved = utility.scores(x, labels) - utility.scores(x[rest], labels[rest])
        assert moved.max() <= 2.0 * (1 + 1e-12)
        assert moved.min() >= -2e-12
