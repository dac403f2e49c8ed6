"""Sums of contributions, in rational arithmetic: exact, the same in any order, no record moves one by more than C."""

from __future__ import annotations

import dataclasses
import functools
import math
from fractions import Fraction

import numpy as np
import pytest
from cases import quick
from hypothesis import example, given
from hypothesis import strategies as st
from watch import Records

import privcalc as pc
from privcalc.ledger import Stream
from privcalc.noise import Noise

torch = pytest.importorskip("torch")

import learners  # noqa: E402
from examples.dpftrl import DPFTRL  # noqa: E402
from examples.filtered import FilteredGD  # noqa: E402
from examples.pillar_selection import ClippedLosses, HingeGradient, PILLARSelection  # noqa: E402
from learners import dope  # noqa: E402
from learners.adamix import public_subspace  # noqa: E402
from learners.dope import ShiftedGradient, UserGradient  # noqa: E402
from learners.dp_ls import Products  # noqa: E402
from learners.dppl import ClassSums  # noqa: E402
from learners.dppl_public import CosineUtility  # noqa: E402
from learners.frame.plan import Plan  # noqa: E402
from learners.frame.records import PrivateRecords, as_features  # noqa: E402
from learners.gradients import exact  # noqa: E402
from learners.gradients.exact import Matrix, Rows, cut_off, summed, unit  # noqa: E402
from learners.gradients.softmax import SoftmaxGradient, residuals, softmax  # noqa: E402
from learners.pillar import project  # noqa: E402

D, CLASSES = 5, 3
WILD = [0.0, -1.0, 5e-324, 1e-300, 1e-160, 1e-18, 3.0, 1e8, -1e15, 3e38, math.inf, -math.inf, math.nan]
KINDS = ("softmax", "projected", "hinge", "shifted", "users", "classes", "products")


def generator(seed):
    return torch.Generator().manual_seed(seed)


def contribution(kind, seed, size):
    """A contribution at weights of about this size, and labels for it."""
    g = generator(seed)
    weights, other = (torch.randn(D, CLASSES, generator=g, dtype=torch.float64) for _ in range(2))
    return {
        "softmax": lambda: SoftmaxGradient(size * weights),
        "projected": lambda: SoftmaxGradient(size * weights, public_subspace(other, 2)),
        "hinge": lambda: HingeGradient(size * weights[:, 0], 0.5),
        "shifted": lambda: ShiftedGradient(weights, size * other),
        "users": lambda: UserGradient(weights, size * other),
        "classes": lambda: ClassSums(size * other.T.contiguous(), 0.7, 0.3),
        "products": lambda: Products(CLASSES),
    }[kind]()


def bound(kind, one, clip_norm):
    """C; what these two clip to is their own."""
    return (
        one.sensitivity(pc.ADD_OR_REMOVE_ONE)
        if kind == "classes"
        else math.sqrt(2)
        if kind == "products"
        else clip_norm
    )


def labels_of(kind, g, n):
    if kind == "squared":
        return 10 ** torch.randn(n, generator=g, dtype=torch.float64)
    shape = (n, 2) if kind == "users" else (n,)
    return torch.randint(0, 2 if kind == "hinge" else CLASSES, shape, generator=g)


def fractions(total):
    return [Fraction(x) for x in total.flatten().tolist()]


def square(vector):
    return sum(x * x for x in vector)


@st.composite
def wild_records(draw, n):
    """Rows with ordinary, huge, tiny and impossible numbers."""
    number = st.one_of(st.floats(-10, 10), st.sampled_from(WILD))
    rows = draw(st.lists(st.lists(number, min_size=2 * D, max_size=2 * D), min_size=n, max_size=n))
    return torch.tensor(rows, dtype=torch.float64)


def records_of(kind, rows, seed):
    x = as_features(rows.reshape(len(rows), 2, D) if kind == "users" else rows[:, :D], "cpu")
    return Records(x, labels_of(kind, generator(seed + 1), len(x)))


@pytest.mark.parametrize("kind", KINDS)
@given(
    st.integers(1, 4).flatmap(wild_records),
    st.integers(0, 10**6),
    st.sampled_from([0.0, 1e-3, 1.0, 30.0, 1e6, 1e30, 1e200]),
    st.sampled_from([1e-100, 1e-4, 0.3, 0.5, 1.0, 7.0, 1e6, 1e100]),
)
def test_a_sum_is_that_of_its_records_and_none_is_longer_than_the_clip_norm(kind, rows, seed, size, clip_norm):
    one, data = contribution(kind, seed, size), records_of(kind, rows, seed)
    clip_norm = bound(kind, one, clip_norm)
    whole = fractions(one.clipped_sum(*data, clip_norm))
    each = [fractions(one.clipped_sum(*data.at([i]), clip_norm)) for i in range(len(rows))]
    assert whole == [sum(column) for column in zip(*each, strict=True)]
    assert all(square(h) <= Fraction(clip_norm) ** 2 for h in each)
    assert all((x / Fraction(unit(clip_norm))).denominator == 1 for h in each for x in h)
    if hasattr(one, "ratios"):
        found = one.ratios(*data, clip_norm).tolist()
        assert all(square(h) <= (Fraction(clip_norm) * Fraction(r)) ** 2 for h, r in zip(each, found, strict=True))


@pytest.mark.parametrize("relation", [pc.ADD_OR_REMOVE_ONE, pc.REPLACE_ONE])
@given(
    wild_records(2), st.integers(0, 10**6), st.sampled_from([0.0, 1.0, 1e6]), st.sampled_from([1e-9, 0.3, 1.0, 40.0])
)
@example(torch.tensor([[1.0, 0, 0, 0, 0] * 2, [-0.5, 0.75**0.5, 0, 0, 0] * 2], dtype=torch.float64), 0, 1.0, 1.0)
def test_one_record_for_another(relation, rows, seed, size, weight):
    centres = size * torch.randn(CLASSES, D, generator=generator(seed), dtype=torch.float64)
    sums = ClassSums(centres, 0.7, 0.7 * weight)
    least_squares = 0.5 * math.sqrt(4.5) if relation is pc.REPLACE_ONE else math.sqrt(2)
    for one, most in ((sums, sums.sensitivity(relation)), (Products(CLASSES), least_squares)):
        x = as_features(rows[:, :D], "cpu")
        for y in ([0, 0], [0, 1]):
            first, other = (fractions(one.clipped_sum(x[[i]], torch.tensor(y)[[i]], most)) for i in (0, 1))
            assert square([a - b for a, b in zip(first, other, strict=True)]) <= (2 * Fraction(most)) ** 2
            if relation is pc.ADD_OR_REMOVE_ONE:
                assert max(square(first), square(other)) <= Fraction(most) ** 2


# --- the same bytes, however it is added up ---


def bulk(kind, n=2000, d=300):
    """Enough for threads and blocks."""
    g = generator(1)
    x = torch.randn(n, d, generator=g, dtype=torch.float64) * 10 ** torch.randn(n, 1, generator=g, dtype=torch.float64)
    weights, other = (torch.randn(d, CLASSES, generator=g, dtype=torch.float64) for _ in range(2))
    y, users = torch.randint(0, CLASSES, (n,), generator=g), torch.randint(0, CLASSES, (n // 2, 2), generator=g)
    return {
        "softmax": (SoftmaxGradient(weights), x, y),
        "projected": (SoftmaxGradient(weights, public_subspace(other, 2)), x, y),
        "hinge": (HingeGradient(weights[:, 0], 0.5), x, y % 2),
        "shifted": (ShiftedGradient(weights, 0.3 * other), x, y),
        "users": (UserGradient(weights, 0.3 * other), x.reshape(n // 2, 2, d), users),
        "classes": (ClassSums(other.T.contiguous(), 0.7, 0.3), x, y),
        "products": (Products(CLASSES), x, y),
    }[kind]


def many(kind):
    one, x, y = bulk(kind)
    clip_norm = bound(kind, one, 0.5)
    return functools.partial(one.clipped_sum, clip_norm=clip_norm), x, y


@pytest.mark.parametrize("kind", quick(KINDS, 0, 2, 4, 5))
def test_bytes_do_not_depend_on_order_threads_blocks_batches_or_shards(kind, monkeypatch):
    total, x, y = many(kind)
    expected = total(x, y)
    shuffled = torch.randperm(len(y), generator=generator(2))
    assert torch.equal(total(x[shuffled], y[shuffled]), expected)
    assert torch.equal(total(Rows.of(x).at(shuffled), y[shuffled]), expected)
    parts = [total(x[some], y[some]) for some in torch.tensor_split(shuffled, [1, 8, 333])]
    assert torch.equal(sum(parts), expected)
    threads = torch.get_num_threads()
    for number in (1, 2, 4):
        torch.set_num_threads(number)
        assert torch.equal(total(x, y), expected)
    torch.set_num_threads(threads)
    # records that are absent leave nothing: a copy in another place of memory, without them
    some = shuffled[: len(y) // 2].sort().values
    padded = torch.cat([x[:1], x[some]])[1:]
    assert torch.equal(total(padded, y[some]), total(x[some].clone(), y[some]))
    monkeypatch.setattr(exact, "BLOCK", 7 * x[0].numel())
    monkeypatch.setattr(exact.groups, "__defaults__", (100,))
    monkeypatch.setattr(dope, "GROUP", 13)
    assert torch.equal(total(x, y), expected)


NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: torch.cuda.is_available() is False")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NO_GPU)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_device_adds_up_to_the_same_bits(kind, device):
    total, x, y = many(kind)
    one = total.func.__self__
    tensors = {name: value.to(device) for name, value in vars(one).items() if isinstance(value, torch.Tensor)}
    found = dataclasses.replace(one, **tensors).clipped_sum(x.to(device), y.to(device), **total.keywords)
    assert found.device.type == device
    assert torch.equal(found.cpu(), total(x, y))


def test_what_floating_point_sums_do():
    """Records in another order give other bits in most coordinates; so may one not sampled, by the layout."""
    total, x, y = many("softmax")
    weights = bulk("softmax")[0].weights

    def old(x, y):
        r = residuals(weights, x, y)
        return x.T @ (r * torch.clamp(0.5 / (x.norm(dim=1) * r.norm(dim=1)).clamp_min(1e-30), max=1.0).unsqueeze(1))

    one, other = old(x, y), old(x.flip(0), y.flip(0))
    assert float((one != other).double().mean()) > 0.3
    # an independent formula for what the exact sum is
    assert float((one - total(x, y)).norm()) <= 2e-6 * 0.5 * len(y)


@pytest.mark.parametrize("function", ["project", "rows"])
@given(st.integers(0, 10**6), st.integers(1, 70), st.integers(1, 40))
def test_features_are_made_of_each_record_alone(function, seed, n, d):
    g = generator(seed)
    x = torch.randn(n, d, generator=g, dtype=torch.float64) * 10 ** (
        3 * torch.randn(n, 1, generator=g, dtype=torch.float64)
    )
    directions = torch.randn(d, 3, generator=g, dtype=torch.float64)
    of = {
        "project": lambda rows: project(rows, directions),
        "rows": lambda rows: Rows.of(rows).values(),
    }[function]
    whole = of(x)
    alone = torch.cat([of(row[None].clone()) for row in x])
    assert torch.equal(whole, alone)
    expected = {"project": x @ directions, "rows": x}[function]
    if function == "project":
        expected = expected / expected.norm(dim=1, keepdim=True).clamp_min(1.0)
    assert torch.allclose(whole, expected, rtol=1e-4, atol=2e-5 * float(x.abs().max() if function == "rows" else 1.0))


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 50), st.floats(-3, 3))
def test_softmax_is_accurate_and_of_each_column_alone(seed, k, n, log_scale):
    logits = 10**log_scale * torch.randn(k, n, generator=generator(seed), dtype=torch.float64)
    found = softmax(logits)
    assert float((found - torch.softmax(logits, dim=0)).abs().max()) <= 1e-9
    assert torch.equal(found, torch.cat([softmax(column[:, None].clone()) for column in logits.T], dim=1))


@pytest.mark.parametrize("d", [1, 2, 37, 1280, 5000])
@pytest.mark.parametrize("aligned", [False, True])
def test_products_with_public_matrices_are_exact(d, aligned):
    """In whole numbers; the longest partial sums are those of vectors that are all ones."""
    g = generator(d)
    x, matrix = (torch.randn(*shape, generator=g, dtype=torch.float64) for shape in ((3, d), (d, 2)))
    if aligned:
        x, matrix = torch.ones_like(x), torch.ones_like(matrix)
    rows, public = Rows.of(1e10 * x), Matrix.of(1e-10 * matrix)
    found = public.times(rows)
    for i in range(3):
        for k in range(2):
            product = sum(
                int(a) * int(b) for a, b in zip(rows.whole[i].tolist(), public.whole[k].tolist(), strict=True)
            )
            assert Fraction(float(found[k, i])) == product * Fraction(float(rows.scale[i])) * Fraction(public.scale)
            assert abs(product) < 2**53
        whole = sum(int(a) ** 2 for a in rows.whole[i].tolist())
        assert whole == int(rows.square[i])
        assert whole <= (2**19 + math.sqrt(d) / 2) ** 2
    assert torch.allclose(found.T, x @ matrix, rtol=1e-4, atol=1e-4 * math.sqrt(d))


# --- cutting off ---


def test_sums_beyond_what_doubles_hold_are_cut_off():
    whole = 2.0**53
    for parts in (
        [whole - 1] * 5 + [1 - whole] * 4,
        [whole - 1, 1.0],
        [whole - 1] * 3,
        [1 - whole] * 9,
        [2.0**52, 1.0] * 3,
    ):
        tensors = [torch.tensor([part], dtype=torch.float64) for part in parts]
        true = sum(Fraction(part) for part in parts)
        for order in (tensors, tensors[::-1]):
            found = cut_off(summed(order) * unit(0.3), 0.3) / unit(0.3)
            assert Fraction(float(found)) == max(min(true, Fraction(whole)), -Fraction(whole))
    for processes in (1, 2, 3, 8):
        most = float(cut_off(torch.tensor(1e300, dtype=torch.float64), 0.3, processes))
        assert processes * most <= whole * unit(0.3) < 4 * processes * most


# --- scores ---


@given(wild_records(4), st.integers(0, 10**6))
def test_no_record_moves_a_score_by_more_than_its_sensitivity(rows, seed):
    x, g = as_features(rows[:, :D], "cpu"), generator(seed)
    y = torch.randint(0, 2, (4,), generator=g)
    candidates = torch.cat([torch.randn(3, D, generator=g, dtype=torch.float64), x[:1], -x[:1]])
    utilities = [(CosineUtility(candidates, 2), 2.0, 1)]
    utilities += [(ClippedLosses(candidates[:3], zeta, 1 + 1 / zeta), 1 + 1 / zeta, -1) for zeta in (0.1, 0.7)]
    for utility, most, sign in utilities:
        more, less = (np.vectorize(Fraction, otypes="O")(utility.scores(x[k:], y[k:])) for k in (0, 1))
        moved = sign * (more - less)
        assert (moved >= 0).all()
        assert (moved <= Fraction(most)).all()


# --- what the ledger is told ---


X = np.random.default_rng(0).standard_normal((40, 6))
Y = (X[:, 0] > 0).astype(int)
PUBLIC = (np.eye(6), [0, 1] * 3)
RUN = {"classes": [0, 1], "delta": 1e-5, "epsilon": 5.0, "seed": 1}
STEPS = {**RUN, "steps": 3, "records": 40}
MADE = {
    "NoisyGD": lambda: learners.NoisyGD(**STEPS).fit(X, Y),
    "AdaMix": lambda: learners.AdaMix(**STEPS).fit(X, Y, *PUBLIC),
    "DPSGD": lambda: learners.DPSGD(**STEPS, sample_rate=0.3).fit(X, Y),
    "DOPESGD": lambda: learners.DOPESGD(**STEPS, sample_rate=0.3).fit(X, Y, *PUBLIC),
    "DOPESGD of users": lambda: learners.DOPESGD(**STEPS, sample_rate=0.3).fit(
        X.reshape(20, 2, 6), Y.reshape(20, 2), *PUBLIC
    ),
    "PDADPMD": lambda: learners.PDADPMD(**STEPS).fit(X, Y, *PUBLIC),
    "PILLAR": lambda: learners.PILLAR(**STEPS, k=2).fit(X, Y, PUBLIC[0]),
    "WhitenedGD": lambda: learners.WhitenedGD(**STEPS).fit(X, Y, *PUBLIC),
    "PILLARSelection": lambda: PILLARSelection(**RUN, records=40, k=2, steps=3).fit(X, Y, PUBLIC[0]),
    "DPPLMean": lambda: learners.DPPLMean(**RUN).fit(X, Y),
    "DPLS": lambda: learners.DPLS(**RUN).fit(X, Y),
    "DPLS, by class": lambda: learners.DPLS(**RUN, weight=0.5).fit(X, Y),
    "PPSGD": lambda: learners.PPSGD(**STEPS).fit(X, Y, *PUBLIC),
    "DPPLPublic": lambda: learners.DPPLPublic(classes=[0, 1], epsilon=5.0, seed=1).fit(X, Y, *PUBLIC),
    "DPFTRL": lambda: DPFTRL(**STEPS, epoch=3).fit(X, Y),
    "FilteredGD": lambda: FilteredGD(**STEPS).fit(X, Y),
    "network": lambda: learners.DPSGD(**STEPS, sample_rate=0.3, model=lambda: torch.nn.Linear(6, 2)).fit(X, Y),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n == "PILLARSelection" else []) for n in MADE]
)
def test_every_sum_but_those_of_networks_is_exact(name, monkeypatch):
    told, gaussian = [], pc.Ledger.gaussian

    def spy(self, values, mechanism, *, error=None, **options):
        told.append(error)
        return gaussian(self, values, mechanism, error=error, **options)

    monkeypatch.setattr(pc.Ledger, "gaussian", spy)
    model = MADE[name]()
    assert set(told) == (
        set() if name in {"DPPLPublic", "DPFTRL", "FilteredGD"} else {None if name == "network" else 0.0}
    )
    document = model.certificate_.document
    unknown = {"network", "PILLARSelection", "DPPLPublic"}  # whose choices say nothing of their scores
    listed = {entry["name"]: entry["value"] for entry in document["assumptions"]["needed"]}
    assert (listed["rounding"] == "not counted") == (name in unknown)
    assert document["noise"] == listed["noise"] == "from a seed"


def test_a_batch_is_added_up_as_its_records_alone():
    """Bits of the sum of a batch do not depend on who else is among the records."""
    step = pc.PoissonSampled(pc.Gaussian(1e-9), 0.5)
    x = torch.from_numpy(np.random.default_rng(3).standard_normal((300, 64)))
    y = torch.arange(300) % 2
    seen = []

    class Watched(SoftmaxGradient):
        def clipped_sum(self, features, labels, clip_norm):
            found = super().clipped_sum(features, labels, clip_norm)
            seen.append(
                (len(labels), found, SoftmaxGradient(self.weights).clipped_sum(features.values(), labels, clip_norm))
            )
            return found

    private = PrivateRecords(x, y, ledger=pc.Ledger(None, plan=step * 4, seed=1), classes=[0, 1])
    for _ in range(4):
        private.noisy_sum(Watched(torch.ones(64, 2, dtype=torch.float64)), step, 1.0)
    assert len({size for size, _, _ in seen}) > 1
    assert all(torch.equal(found, again) for _, found, again in seen)


# --- neighbours, from the records to the ledger ---


ODD = [
    np.full(6, np.inf),
    np.full(6, np.nan),
    np.array([1e300, -1e300, 0, 5e-324, 1, 0]),
    1e4 * np.eye(6)[0],
    np.zeros(6),
]
NEIGHBOURS = [
    name for name in MADE if name not in {"network", "FilteredGD"}
]  # the latter's are bounded together, not one by one
SWAPPED = [*NEIGHBOURS, "DPSGD, fixed"]
"""The last draws from as many records as it was told."""


def selection(relation):
    """With noise that is given: it takes long to find."""
    model = PILLARSelection(**RUN, records=40, k=2, steps=3, relation=relation)
    run = model._step(3.0) * (model.runs * model.steps) + model._selection
    model.plan = lambda: Plan(run, 3.0, pc.Guarantee(epsilon=50.0, delta=1e-5, relation=relation), relation)
    return model


def all_that_is_asked_for(name, x, y, relation, monkeypatch):
    """Each sum with its clip norm, and scores with their sensitivity; answers are made up, independent of records.

    Every other record is in a batch, the last one too, or the last third are; or each third one has its turn.
    """
    sums, scores, answers = [], [], np.random.default_rng(5)
    gaussian, select = pc.Ledger.gaussian, pc.Ledger.select

    def sum_of(self, values, mechanism, *, clip_norm, **options):
        found = gaussian(self, values, mechanism, clip_norm=clip_norm, **options)
        sums.append((fractions(torch.as_tensor(values)), Fraction(clip_norm)))
        return torch.from_numpy(answers.standard_normal(tuple(found.shape))).to(found.dtype)

    def choice_of(self, given, mechanism, *, sensitivity, **options):
        found = select(self, given, mechanism, sensitivity=sensitivity, **options)
        scores.append((fractions(torch.as_tensor(np.asarray(given, dtype=np.float64))), Fraction(sensitivity)))
        return found * 0

    def turn_of(self, values):
        release(self, values)
        sums.append((fractions(values), Fraction(1)))
        return torch.from_numpy(answers.standard_normal(tuple(values.shape)))

    release = Stream.release
    with monkeypatch.context() as patch:
        patch.setattr(pc, "certify", lambda *_, **__: None)
        patch.setattr(pc.Ledger, "gaussian", sum_of)
        patch.setattr(pc.Ledger, "select", choice_of)
        patch.setattr(Stream, "release", turn_of)
        patch.setattr(Noise, "coins", lambda _, size, rate: np.arange(size) % 2 == 0)
        patch.setattr(Noise, "subset", lambda _, size, chosen: np.arange(size - chosen, size))
        patch.setattr(Noise, "numbers", lambda _, size, below: np.arange(size) % below)
        options = {"relation": relation}
        target = {"classes": [0, 1], "delta": 1e-5, "epsilon": 5.0, "seed": 1, **options}
        steps = {**target, "steps": 3} | ({} if relation is pc.REPLACE_ONE else {"records": 40})
        known = {k: v for k, v in steps.items() if k != "epsilon"} | {"noise_multiplier": 3.0}
        batches = known | {"sample_rate": 0.3}
        {
            "NoisyGD": lambda: learners.NoisyGD(**steps).fit(x, y),
            "AdaMix": lambda: learners.AdaMix(**steps).fit(x, y, *PUBLIC),
            "DPSGD": lambda: learners.DPSGD(**batches).fit(x, y),
            "DPSGD, fixed": lambda: learners.DPSGD(**batches | {"records": 41}, sampler="fixed").fit(x, y),
            "DPFTRL": lambda: DPFTRL(**known | {"records": 41, "steps": 6}, epoch=3).fit(x, y),
            "PILLARSelection": lambda: selection(relation).fit(x, y, PUBLIC[0]),
            "DOPESGD": lambda: learners.DOPESGD(**batches).fit(x, y, *PUBLIC),
            "DOPESGD of users": lambda: learners.DOPESGD(**batches).fit(x.reshape(-1, 2, 6), y.reshape(-1, 2), *PUBLIC),
            "PDADPMD": lambda: learners.PDADPMD(**steps).fit(x, y, *PUBLIC),
            "PILLAR": lambda: learners.PILLAR(**steps, k=2).fit(x, y, PUBLIC[0]),
            "WhitenedGD": lambda: learners.WhitenedGD(**steps).fit(x, y, *PUBLIC),
            "DPPLMean": lambda: learners.DPPLMean(**target).fit(x, y),
            "DPPLPublic": lambda: learners.DPPLPublic(classes=[0, 1], epsilon=5.0, seed=1, **options).fit(
                x, y, *PUBLIC
            ),
            "DPLS": lambda: learners.DPLS(**target).fit(x, y),
            "DPLS, by class": lambda: learners.DPLS(**target, weight=0.5).fit(x, y),
            "PPSGD": lambda: learners.PPSGD(**steps).fit(x, y, *PUBLIC),
        }[name]()
    return sums, scores


@pytest.mark.parametrize("odd", quick([5, 2, 1, 0, 3, 4], 0, 1))
@pytest.mark.parametrize(
    ("name", "relation"),
    [(name, pc.ADD_OR_REMOVE_ONE) for name in NEIGHBOURS] + [(name, pc.REPLACE_ONE) for name in SWAPPED],
)
def test_neighbouring_data_sets_move_what_is_released_by_what_is_charged(name, relation, odd, monkeypatch):
    """In rational arithmetic, at every step of a whole run: sums by C (2C under replace-one), scores by Δ."""
    more = 2 if name == "DOPESGD of users" else 1
    extra = np.tile(ODD[odd] if odd < len(ODD) else 2 * X[1], (more, 1))
    with_it = np.vstack([X, extra]), np.append(Y, [1] * more)
    other = np.vstack([X, np.tile(-X[3:4], (more, 1))]), np.append(Y, [0] * more)
    without = other if relation is pc.REPLACE_ONE else (X, Y)
    (sums, scores), (others, less) = (
        all_that_is_asked_for(name, *data, relation, monkeypatch) for data in (with_it, without)
    )
    assert len(sums) == len(others)
    assert len(scores) == len(less)
    assert sums or scores
    moves = (
        2 if relation is pc.REPLACE_ONE or name == "PILLARSelection" else 1
    )  # whose batches of one have another record
    for (one, clip), (two, same) in zip(sums, others, strict=True):
        assert clip == same
        assert square([a - b for a, b in zip(one, two, strict=True)]) <= (moves * clip) ** 2
    for (one, most), (two, same) in zip(scores, less, strict=True):
        assert most == same
        assert max(abs(a - b) for a, b in zip(one, two, strict=True)) <= most
    if odd == len(ODD):  # an ordinary record is seen
        assert sums != others or scores != less
