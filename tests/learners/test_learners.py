"""What every learner promises: the plan, the noise, the certificate, what stays private, and the formulas."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import sys
import threading
import warnings
from typing import NamedTuple

import numpy as np
import pytest
import watch
from cases import quick

import privcalc as pc

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from learners import DPSGD, AdaMix, NoisyGD  # noqa: E402
from learners.adamix import public_subspace, zero_shot  # noqa: E402
from learners.frame.plan import make_plan  # noqa: E402
from learners.frame.records import PrivateRecords  # noqa: E402
from learners.noisy_gd import best_weight_decay, clip_at  # noqa: E402
from privcalc.tripwire import check_standardized  # noqa: E402

ADD, SWAP, NULL = pc.ADD_OR_REMOVE_ONE, pc.REPLACE_ONE, pc.ZERO_OUT
RNG = np.random.default_rng(5)
X = RNG.standard_normal((53, 4)) + 2 * np.eye(4)[np.arange(53) % 3]
Y = np.arange(53) % 3
X /= np.linalg.norm(X, axis=1, keepdims=True)
PUBLIC = X[:12].copy(), Y[:12]
COMMON = {"classes": [0, 1, 2], "delta": 1e-3, "records": 50}


class Kind(NamedTuple):
    learner: type
    options: dict
    public: bool = False

    def make(self, **options):
        return self.learner(**{**COMMON, **self.options, **options})

    def fit(self, x=X, y=Y, **options):
        return self.make(**options).fit(x, y, *(PUBLIC if self.public else ()))


KINDS = {
    "NoisyGD": Kind(NoisyGD, {}),
    "NoisyGD, public start": Kind(NoisyGD, {"clip_quantile": 0.9, "weight_decay": 0.1}, True),
    "DPSGD, Poisson": Kind(DPSGD, {"sample_rate": 0.2}),
    "DPSGD, fixed": Kind(DPSGD, {"sample_rate": 0.2, "sampler": "fixed"}),
    "AdaMix": Kind(AdaMix, {"dimension": 2000}, True),
    "AdaMix, no projection": Kind(AdaMix, {"clip_norm": 0.5}, True),
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
full_batch = pytest.mark.parametrize("kind", [KINDS["NoisyGD"], KINDS["AdaMix"]], ids=["NoisyGD", "AdaMix"])


@pytest.fixture
def spied(monkeypatch, uncertified):
    """Sums and batches."""
    return watch.ledgers(monkeypatch)


# --- the plan ---


@every_kind
def test_exactly_two_of_three(kind):
    values = {"epsilon": 1.0, "noise_multiplier": 5.0, "steps": 10}
    for size in (0, 1, 3):
        for names in itertools.combinations(values, size):
            with pytest.raises(pc.PrivcalcError, match="exactly two"):
                kind.make(**{name: values[name] for name in names}).plan()


@pytest.mark.parametrize("relation", list(pc.Relation))
@full_batch
def test_answers_are_the_accountants(kind, relation):
    target = {"epsilon": 2.0, "delta": 1e-3, "relation": relation}
    assert kind.make(epsilon=2.0, noise_multiplier=20.0, relation=relation).plan().steps == pc.steps(
        noise_multiplier=20.0, **target
    )
    assert kind.make(epsilon=2.0, steps=30, relation=relation).plan().noise_multiplier == pytest.approx(
        pc.noise_multiplier(steps=30, **target), rel=1e-9
    )
    plan = kind.make(noise_multiplier=20.0, steps=30, relation=relation).plan()
    assert plan.guarantee.epsilon.upper == (pc.Gaussian(20.0) * 30).epsilon(delta=1e-3, relation=relation).upper
    # and the closed form: GDP(√T/z), twice that for replace-one
    mu = math.sqrt(30) / 20 * (2 if relation is SWAP else 1)
    same = pc.GDP(mu=mu, relation=relation).epsilon(delta=1e-3, relation=relation)
    assert float(plan.guarantee.epsilon) == pytest.approx(float(same), rel=1e-9)


def test_answers_for_sampled_steps():
    target = {"epsilon": 1.0, "delta": 1e-5}
    options = {**COMMON, **target, "sample_rate": 0.02, "records": 1000}
    assert DPSGD(**options, noise_multiplier=2.0).plan().steps == pc.steps(
        noise_multiplier=2.0, sample_rate=0.02, **target
    )
    noise = pc.noise_multiplier(steps=400, sample_rate=0.02, **target)
    assert DPSGD(**options, steps=400).plan().noise_multiplier == pytest.approx(noise, rel=1e-9)
    fixed = DPSGD(**options, steps=400, sampler="fixed").plan()
    assert fixed.step == pc.FixedSizeSampled(pc.Gaussian(fixed.noise_multiplier), 20, 1000)
    assert fixed.noise_multiplier == pytest.approx(2 * noise, rel=1e-9)  # another record takes the slot


def test_paper_numbers():
    plan = AdaMix(classes=[0, 1], delta=1e-5, epsilon=3.0, noise_multiplier=20.0).plan()
    assert plan.steps == 206
    assert AdaMix(classes=[0, 1], delta=1e-5, epsilon=3.0, noise_multiplier=20.0, relation=SWAP).plan().steps == 51


@every_kind
def test_a_budget_that_allows_no_step(kind):
    with pytest.raises(pc.PrivcalcError, match=r"allows no step|not met|0"):
        kind.make(epsilon=0.1, noise_multiplier=0.3).plan()


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"steps": 2.5},
        {"noise_multiplier": -1.0},
        {"noise_multiplier": math.nan},
        {"delta": 1.5},
        {"epsilon": -1.0},
    ],
)
def test_bad_plans(wrong):
    first = "epsilon" if "epsilon" in wrong else next(iter(wrong))
    others = {"steps": {"epsilon": 1.0}, "noise_multiplier": {"steps": 3}, "delta": {"steps": 3, "epsilon": 1.0}}
    options = {"delta": 1e-5, **others.get(first, {"steps": 3}), **wrong}
    with pytest.raises(pc.PrivcalcError):
        NoisyGD(classes=[0, 1], records=5, **options).plan()


@pytest.mark.parametrize(
    "make",
    [
        lambda: AdaMix(classes=[0, 1], delta=1e-5, quantile=0.0),
        lambda: DPSGD(classes=[0, 1], delta=1e-5, sample_rate=0.1, sampler="shuffled"),
        lambda: DPSGD(classes=[0, 1], delta=1e-5, sampler="poisson"),
        lambda: DPSGD(classes=[0, 1], delta=1e-5, sample_rate=0.1, sampler=lambda one: pc.PoissonSampled(one, 0.1)),
        lambda: DPSGD(classes=[0, 1], delta=1e-5, steps=1, noise_multiplier=1.0, sampler=lambda one: 0.1).plan(),
        lambda: DPSGD(classes=[0, 1], delta=1e-5, sample_rate=0.1, momentum=1.0),
        lambda: NoisyGD(classes=[0, 1], delta=1e-5, schedule="theorem"),
        lambda: DPSGD(classes=[0, 1], delta=1e-5, sample_rate=2.0, steps=1, noise_multiplier=1.0).plan(),
        lambda: DPSGD(
            classes=[0, 1], delta=1e-5, sample_rate=0.1, steps=1, noise_multiplier=1.0, sampler="fixed"
        ).plan(),
    ],
)
def test_bad_options(make):
    with pytest.raises(pc.PrivcalcError):
        make()


# --- the certificate ---


@pytest.mark.parametrize("relation", list(pc.Relation))
@full_batch
def test_the_certificate_is_the_plans_and_verifies(kind, relation, tmp_path):
    model = kind.fit(epsilon=2.0, steps=4, relation=relation, ledger=tmp_path / "ledger")
    claim = model.certificate_.guarantee
    assert claim.relation is relation
    assert claim.delta == 1e-3
    assert (claim.epsilon.lower, claim.epsilon.upper) == (model.epsilon_.lower, model.epsilon_.upper)
    assert 1.9 < claim.epsilon.upper <= 2.0
    assert model.certificate_.run == pc.Gaussian(model.noise_multiplier_) * 4
    assert model.certificate_.private
    assert model.certificate_.final
    assert model.certificate_.document["basis"] == "plan"
    assert model.certificate_.verify(model.ledger_)
    assert model.certificate_.verify(tmp_path / "ledger")
    assert model.ledger_.spent == model.plan_.run
    assert model.steps_ == 4


def test_the_certificate_of_sampled_steps():
    kind = Kind(DPSGD, {"sample_rate": 0.01, "records": 1000})
    model = kind.fit(noise_multiplier=2.0, steps=300)
    assert model.certificate_.run == pc.PoissonSampled(pc.Gaussian(2.0), 0.01) * 300
    assert model.certificate_.guarantee.epsilon.upper == model.epsilon_.upper
    assert model.certificate_.document["hash"] == pc.certify(model.ledger_, delta=1e-3).document["hash"]


@every_kind
@pytest.mark.parametrize("relation", list(pc.Relation))
def test_the_ledger_is_charged_for_exactly_the_plan(kind, relation, uncertified):
    model = kind.fit(noise_multiplier=2.0, steps=5, relation=relation, records=53)
    assert model.ledger_.spent == model.plan_.run
    assert model.ledger_.terms.plan == model.plan_.run
    assert model.ledger_.terms.relation is relation


@every_kind
def test_nothing_private_is_written_down(kind, uncertified, tmp_path):
    # Two data sets that share nothing, not even their size: ledgers are equal, byte by byte.
    options = {"noise_multiplier": 2.0, "steps": 5, "seed": 1}
    kind.fit(**options, ledger=tmp_path / "a")
    kind.fit(RNG.standard_normal((91, 4)), [2] * 91, **options, ledger=tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_seeded_runs_make_no_claim_and_repeat():
    one, two = (KINDS["NoisyGD"].fit(noise_multiplier=5.0, steps=3, seed=7) for _ in range(2))
    assert not one.certificate_.private
    assert "NO PRIVACY CLAIM" in str(one.certificate_)
    assert torch.equal(one.weights_, two.weights_)


@every_kind
def test_seeds(kind, uncertified):
    runs = [kind.fit(noise_multiplier=5.0, steps=3, seed=seed).weights_ for seed in (7, 7, 8, None, None)]
    assert torch.equal(runs[0], runs[1])
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(runs[1:], 2))


def test_seeded_networks_repeat(uncertified):
    def fit(seed):
        network = lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Dropout(0.3), nn.Linear(5, 3))  # noqa: E731
        model = DPSGD(**COMMON, sample_rate=0.5, model=network, noise_multiplier=1.0, steps=3, seed=seed)
        return model.fit(X, Y, *PUBLIC)

    before = torch.get_rng_state()
    one, two = fit(3), fit(3)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(one.weights_, two.weights_)
    assert torch.equal(one.scores(X), one.scores(X))  # dropout is for training
    assert not torch.equal(one.weights_, fit(4).weights_)


# --- ledger files ---


def test_a_ledger_file_serves_one_fit(tmp_path, uncertified):
    options = {"noise_multiplier": 2.0, "steps": 3, "ledger": tmp_path / "ledger"}
    KINDS["NoisyGD"].fit(**options)
    with pytest.raises(pc.PrivcalcError, match="ledger is closed"):
        KINDS["NoisyGD"].fit(**options)


def test_without_a_file_every_fit_has_a_ledger_of_its_own(uncertified):
    first, second = (KINDS["NoisyGD"].fit(noise_multiplier=2.0, steps=3) for _ in range(2))
    assert first.ledger_ is not second.ledger_
    assert first.ledger_.spent == second.ledger_.spent == first.plan_.run


def test_a_fit_that_failed_before_any_step_may_be_repeated(tmp_path, uncertified):
    options = {"noise_multiplier": 2.0, "steps": 3, "ledger": tmp_path / "ledger"}
    with pytest.raises(pc.PrivcalcError, match="label 9"):
        KINDS["NoisyGD"].fit(y=[9] * 53, **options)
    assert KINDS["NoisyGD"].fit(**options).ledger_.spent.entries[0][1] == 3


def test_a_fit_that_failed_after_a_step_may_not(tmp_path, monkeypatch):
    options = {"noise_multiplier": 2.0, "steps": 3, "ledger": tmp_path / "ledger"}
    gaussian, calls = pc.Ledger.gaussian, []

    def fails(self, *arguments, **named):
        calls.append(1)
        if len(calls) == 2:
            raise OSError("no space left")
        return gaussian(self, *arguments, **named)

    monkeypatch.setattr(pc.Ledger, "gaussian", fails)
    with pytest.raises(OSError, match="no space"):
        KINDS["NoisyGD"].fit(**options)
    with pytest.raises(pc.PrivcalcError, match="has used some of the plan"):
        KINDS["NoisyGD"].fit(**options)
    assert len(calls) == 2
    certificate = pc.certify(tmp_path / "ledger", delta=1e-3)
    assert not certificate.final
    assert certificate.run == pc.Gaussian(2.0) * 3  # the plan's, however early it stopped


# --- the noise ---


@every_kind
@pytest.mark.parametrize("seed", quick([None, 11], 1))
def test_noise_is_iid_normal_over_all_coordinates_and_steps(kind, seed, spied):
    kind.fit(noise_multiplier=3.0, steps=150, seed=seed)
    seen, _ = spied
    assert len(seen) == 150
    noise = []
    for clean, noisy, mechanism, clip_norm in seen:
        inner = mechanism if isinstance(mechanism, pc.Gaussian) else mechanism.mechanism
        assert inner == pc.Gaussian(3.0)
        assert noisy.shape == clean.shape
        noise.append((noisy - clean) / (3.0 * clip_norm))
    watch.check_noise(np.array(noise))


def test_two_unseeded_runs_share_no_noise(spied):
    for _ in range(2):
        KINDS["NoisyGD"].fit(noise_multiplier=3.0, steps=2)
    noise = [noisy - clean for clean, noisy, *_ in spied[0]]
    assert len(np.unique(np.round(noise, 12))) == 4 * 12


def test_poisson_batches_are_independent_coins(spied):
    KINDS["DPSGD, Poisson"].fit(noise_multiplier=3.0, steps=600, seed=3)
    watch.check_coins(spied[1], 53, 0.2)


def test_fixed_batches_have_their_size_and_reach_every_record(spied):
    # 50 is a public lower bound, 53 the secret number
    KINDS["DPSGD, fixed"].fit(noise_multiplier=3.0, steps=500, seed=3)
    assert {len(batch) for batch in spied[1]} == {10}
    counts = np.bincount(np.concatenate(spied[1]), minlength=53)
    assert counts.size == 53
    assert np.abs(counts / 500 - 10 / 53).max() < 5.5 * math.sqrt(10 / 53 / 500)


def persons(release):
    return pc.UserSampled(release, rate=0.2, records=9, counted=2)


def test_any_sampler_whose_batches_the_ledger_draws(spied):
    whose = np.arange(53) % 6
    model = DPSGD(**COMMON, sampler=persons, noise_multiplier=3.0, steps=300, seed=3).fit(X, Y, persons=whose)
    assert model.ledger_.spent == persons(pc.Gaussian(3.0)) * 300
    assert model.ledger_.terms.unit == "one person"
    counts = np.bincount(np.concatenate(spied[1]), minlength=53)
    assert max(np.bincount(whose[batch]).max() for batch in spied[1] if len(batch)) == 2
    assert counts[:53].min() > 0
    assert len(spied[0]) == 300


def test_persons_and_samplers_that_do_not_fit(uncertified):
    for sampler, whose, said in (
        (persons, None, "persons = None"),
        (persons, np.arange(52), "one for each"),
        (lambda release: pc.PoissonSampled(release, 0.1), np.arange(53), "guarantee is for records"),
        (pc.ShuffledEpoch, None, "how large its batches are"),
    ):
        model = DPSGD(**COMMON, sampler=sampler, noise_multiplier=3.0, steps=2, relation=NULL)
        with pytest.raises(pc.PrivcalcError, match=said):
            model.fit(X, Y, persons=whose)
        assert not model._spent


def test_a_use_with_several_batches_is_as_many_releases(monkeypatch, spied):
    """Each record has one place in an epoch of four, as in random allocation; drawn here in place of coins."""

    def slots(step, records, relation, persons=None):
        return lambda noise: [np.flatnonzero(places == t) for places in [noise.numbers(records, 4)] for t in range(4)]

    monkeypatch.setattr(pc.PoissonSampled, "sampler", slots)
    monkeypatch.setattr(pc.PoissonSampled, "batches", 4)
    model = KINDS["DPSGD, Poisson"].fit(noise_multiplier=3.0, steps=5, seed=3)
    assert model.ledger_.spent == pc.PoissonSampled(pc.Gaussian(3.0), 0.2) * 5
    assert len(spied[0]) == 20
    for epoch in range(5):
        assert sorted(np.concatenate(spied[1][4 * epoch : 4 * epoch + 4])) == list(range(53))


@pytest.mark.parametrize(
    ("relation", "n", "fits"), [(ADD, 49, True), (ADD, 48, False), (SWAP, 50, True), (SWAP, 49, False)]
)
def test_fixed_batches_from_fewer_records_than_declared(relation, n, fits, uncertified):
    model = KINDS["DPSGD, fixed"].make(noise_multiplier=3.0, steps=2, relation=relation)
    if fits:
        assert model.fit(X[:n], Y[:n]).steps_ == 2
    else:
        with pytest.raises(pc.PrivcalcError, match=f"records = {n}"):
            model.fit(X[:n], Y[:n])


# --- arguments of fit, and what comes after ---


@every_kind
def test_the_number_of_records_must_be_public(kind, uncertified):
    with pytest.raises(pc.PrivcalcError, match=r"records = None"):
        kind.fit(noise_multiplier=2.0, steps=2, records=None)
    if kind.options.get("sampler") != "fixed":
        for relation in (SWAP, NULL):  # where it is public by definition
            kind.fit(noise_multiplier=2.0, steps=2, records=None, relation=relation)
    for wrong in (0, 2.5, True):
        with pytest.raises(pc.PrivcalcError):
            kind.fit(noise_multiplier=2.0, steps=2, records=wrong)


@full_batch
def test_the_number_divides_the_sum_and_the_true_one_does_not(kind, silent):
    # A record of zeros adds nothing to the sum: with a public count, nothing to the model either.
    options = {"noise_multiplier": 2.0, "steps": 4, "seed": 1}
    one = kind.fit(**options).weights_
    more = kind.fit(np.vstack([X, np.zeros((9, 4))]), [*Y, *[0] * 9], **options).weights_
    torch.testing.assert_close(one, more, rtol=0, atol=1e-6)


@every_kind
@pytest.mark.parametrize(
    ("data", "match"),
    [
        ((X, [5] * 53), "label 5 is not in classes"),
        ((X, Y[:9]), "y: has 9 labels"),
        ((X[:, 0], Y), "^X: must have shape"),
        ((X[:, 0], Y, X[:5], Y[:5]), "^X: must have shape"),
        ((X.reshape(53, 2, 2), Y), "^X: must have shape"),
        ((X.reshape(53, 2, 2), Y, X[:5].reshape(5, 2, 2), Y[:5]), "^X: must have shape"),
        ((X[:, :0], Y, X[:5, :0], Y[:5]), "^X: must have shape"),
        ((X, Y, X[0], Y[:1]), "^X_public: must have shape"),
        ((X, Y, X[:5].astype(str), Y[:5]), "^X_public: must be an array of real numbers"),
        ((X, Y, X[:5]), "y_public: must be given"),
        ((X, Y, X[:5], Y[:4]), "X_public, y_public"),
        ((X, Y, X[:0], Y[:0]), "X_public, y_public|X: must have"),
        ((X, Y, X[:5, :2], Y[:5]), "X_public: records must have shape"),
        ((X, Y, X[:5], [7] * 5), "^y_public: label 7"),
    ],
)
def test_data_that_do_not_fit(kind, data, match, uncertified):
    with pytest.raises(pc.PrivcalcError, match=match):
        kind.make(noise_multiplier=2.0, steps=2).fit(*data, *(PUBLIC if kind.public and len(data) == 2 else ()))


@every_kind
def test_records_that_do_not_fit_cost_nothing(kind, tmp_path, uncertified):
    # A batch is charged when it is drawn, which must not come first.
    path = tmp_path / "ledger.jsonl"
    for x in (X.reshape(53, 2, 2), X[:, :0]):
        with pytest.raises(pc.PrivcalcError):
            kind.fit(x, noise_multiplier=2.0, steps=2, ledger=path)
        assert not path.exists() or "reserve" not in path.read_text()


class Table:
    """Shows its memory as an array, as a data frame does."""

    def __init__(self, values):
        self.values, self.shape = values, values.shape

    def __array__(self, dtype=None, copy=None):
        return self.values


HALF = torch.from_numpy(X).bfloat16()


@pytest.mark.parametrize(
    ("x", "public"),
    [
        (X, X.astype(np.float32)),
        (X.astype(np.float32), X),
        (X, X[::-1].astype(np.float16)),
        (X, HALF.flip(0)),
        (X.tolist(), torch.from_numpy(X).float()),
        (X, Table(X[:9])),
        (HALF, HALF[:9]),
        (HALF, HALF.view(torch.float16)[:9]),
    ],
)
def test_private_records_are_no_public_ones_in_another_guise(x, public):
    with pytest.raises(pc.PrivcalcError, match="X_public: is X"):
        KINDS["NoisyGD"].make(noise_multiplier=2.0, steps=2).fit(x, Y, public, Y[: len(np.empty(public.shape))])


@pytest.mark.parametrize("public", [X + 1e-3, torch.from_numpy(X[:9]).float(), HALF[:9]])
def test_other_records_are_public_in_any_precision(public, uncertified):
    # some of the rows, copied: whether these are looked for would tell who is among them (proofs/assumptions.md)
    KINDS["NoisyGD"].make(noise_multiplier=2.0, steps=2).fit(X, Y, public, Y[: len(public)])


@pytest.mark.parametrize(
    ("start", "match"),
    [
        (np.zeros((3, 4)), r"start: .* shape \(features, classes\) = \(4, 3\), not \(3, 4\)"),
        (np.full((4, 3), math.nan), "start: must be finite"),
        (np.zeros(12), "start: .* shape"),
        ("abc", "start: must be an array of real numbers"),
    ],
)
def test_first_weights_that_do_not_fit_are_named(start, match):
    with pytest.raises(pc.PrivcalcError, match=match):
        AdaMix(**COMMON, noise_multiplier=2.0, steps=2, start=start).fit(X, Y, *PUBLIC)


def test_a_start_has_the_same_classes():
    start = NoisyGD(**COMMON | {"classes": [2, 1, 0]}, noise_multiplier=2.0, steps=2).fit(X, Y)
    with pytest.raises(pc.PrivcalcError, match="start: must have the classes"):
        AdaMix(**COMMON, noise_multiplier=2.0, steps=2, start=start).fit(X, Y, *PUBLIC)


def test_a_fit_names_the_certificate_that_it_began_from():
    """The ledger of a fit had the bare word "certificate", which any other certificate satisfied."""
    first = NoisyGD(**COMMON, noise_multiplier=2.0, steps=2).fit(X, Y)
    second = AdaMix(**COMMON, noise_multiplier=2.0, steps=2, start=first).fit(X, Y, *PUBLIC)
    own = pc.certify(second.ledger_, delta=1e-5)
    assert own.document["ledgers"][0]["start"] == [first.certificate_.document["hash"]]
    assert not own.final
    assert second.certificate_.final
    assert not pc.certify([own, pc.certify(pc.Gaussian(2.0), delta=1e-5, unit=own.document["unit"])], delta=1e-5).final


def test_what_needs_public_records(uncertified):
    for model in (
        AdaMix(**COMMON, noise_multiplier=2.0, steps=2),
        KINDS["NoisyGD, public start"].make(steps=2, epsilon=1.0),
    ):
        with pytest.raises(pc.PrivcalcError, match="public records"):
            model.fit(X, Y)


@every_kind
@pytest.mark.parametrize("n", [0, 1])
def test_no_records_or_one(kind, n, uncertified):
    if kind.options.get("sampler") != "fixed":
        model = kind.fit(X[:n].reshape(n, 4), Y[:n], noise_multiplier=2.0, steps=2)
        assert torch.isfinite(model.weights_).all()


@every_kind
def test_odd_records_do_not_stop_a_fit(kind, uncertified):
    odd = X.copy()
    odd[0], odd[1], odd[2, 0], odd[3] = math.nan, 1e300, math.inf, 0.0
    assert torch.isfinite(kind.fit(odd, noise_multiplier=2.0, steps=5).weights_).all()


@every_kind
def test_predictions(kind, uncertified):
    names = ["cat", "dog", "emu"]
    model = kind.make(classes=names, noise_multiplier=0.05, steps=40)
    public = (PUBLIC[0], [names[i] for i in PUBLIC[1]]) if kind.public else ()
    labels = np.array(names)[Y]
    assert model.fit(X, labels, *public) is model
    assert model.predict(X[:7]).shape == (7,)
    assert set(model.predict(X)) <= set(names)
    assert model.scores(X[:7]).shape == (7, 3)
    assert model.score(X, labels) > 0.8
    assert model.weights_.shape == (4, 3)


@every_kind
def test_get_params(kind):
    model = kind.make(noise_multiplier=2.0, steps=2, seed=3, device="cpu")
    params = model.get_params()
    assert params["steps"] == 2
    assert params["epsilon"] is None
    assert type(model)(**params).get_params() == params


@every_kind
def test_the_bar_shows_what_is_spent(kind, uncertified, capsys, monkeypatch):
    kind.fit(noise_multiplier=20.0, steps=2, progress=True)
    assert not capsys.readouterr().err  # a file would hold every state of it
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    kind.fit(noise_multiplier=20.0, steps=2, progress=True)
    assert "ε = " in capsys.readouterr().err


@every_kind
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_other_devices(kind, silent):
    here, there = (
        kind.fit(noise_multiplier=2.0, steps=5, seed=1, device=device).weights_ for device in ("cpu", "cuda")
    )
    assert there.device.type == "cuda"
    torch.testing.assert_close(here, there.cpu(), rtol=1e-3, atol=1e-4)


def test_networks(uncertified):
    network = lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))  # noqa: E731
    model = DPSGD(**COMMON, sample_rate=0.9, model=network, noise_multiplier=0.01, steps=60, seed=2).fit(X, Y)
    assert model.score(X, Y) > 0.8
    mixing = lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))  # noqa: E731
    with pytest.raises(pc.PrivcalcError, match="mixes the records"):
        DPSGD(**COMMON, sample_rate=0.9, model=mixing, noise_multiplier=1.0, steps=2).fit(X, Y)


# --- the formulas, written down a second time ---


def softmax_gradients(weights, x, y):
    scores = x @ weights
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return x[:, :, None] * (p - np.eye(weights.shape[1])[y])[:, None, :]


def clipped(gradients, clip_norm):
    norms = np.linalg.norm(gradients, axis=(1, 2))
    return np.einsum("nij,n->ij", gradients, np.minimum(1, clip_norm / np.maximum(norms, 1e-300)))


def close(weights, expected):
    np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_dpsgd_is_its_formula(momentum, sampling, silent, spied):
    options = {"sample_rate": 0.2, "sampler": sampling, "momentum": momentum, "weight_decay": 0.01}
    model = DPSGD(**COMMON, **options, clip_norm=0.4, learning_rate=0.7, noise_multiplier=2.0, steps=6, seed=1).fit(
        X, Y
    )
    theta = velocity = np.zeros((4, 3))
    for batch in spied[1]:
        velocity = momentum * velocity + clipped(softmax_gradients(theta, X[batch], Y[batch]), 0.4) / 10
        theta = theta - 0.7 * (velocity + 0.01 * theta)
    close(model.weights_, theta)


@pytest.mark.parametrize("average", ["last", "theorem"])
@pytest.mark.parametrize("schedule", ["constant", "theorem"])
@pytest.mark.parametrize("public", [False, True])
def test_noisy_gd_is_its_formula(average, schedule, public, silent):
    options = {"weight_decay": 0.2, "radius": 1.5, "clip_norm": 0.5, "schedule": schedule, "average": average}
    model = NoisyGD(**COMMON, **options, learning_rate=0.6, noise_multiplier=2.0, steps=7, seed=1)
    model.fit(X, Y, *(PUBLIC if public else ()))
    reference = np.zeros((4, 3))
    if public:
        scipy_like = NoisyGD(**COMMON, noise_multiplier=2.0, steps=1, learning_rate=0.0, seed=1).fit(X, Y, *PUBLIC)
        reference = scipy_like.weights_.numpy().astype(float)
    reference *= min(1, 1.5 / max(np.linalg.norm(reference), 1e-300))
    w, iterates = reference, []
    for t in range(1, 8):
        iterates.append(w)
        rate = 2 / (0.2 * (t + 1)) if schedule == "theorem" else 0.6
        w = w - rate * (clipped(softmax_gradients(w, X, Y), 0.5) / 50 + 0.2 * (w - reference))
        w = w * min(1, 1.5 / max(np.linalg.norm(w), 1e-300))
    expected = sum(2 * t / (7 * 8) * w for t, w in enumerate(iterates, 1)) if average == "theorem" else w
    close(model.weights_, expected)


@pytest.mark.parametrize("dimension", [None, 1, 2000])
@pytest.mark.parametrize("clip_norm", [None, 0.5])
@pytest.mark.parametrize("public_gradient", [False, True])
@pytest.mark.parametrize("fill", [False, True])
def test_adamix_is_its_formula(dimension, clip_norm, public_gradient, fill, silent):
    start = zero_shot(np.eye(3, 4) + 0.1, beta=2.0)
    options = {"dimension": dimension, "clip_norm": clip_norm, "public_gradient": public_gradient, "fill": fill}
    model = AdaMix(
        **COMMON, **options, start=start, weight_decay=0.1, learning_rate=0.8, noise_multiplier=2.0, steps=5, seed=1
    )
    model.fit(X, Y, *PUBLIC)
    w = start.numpy().astype(float)
    for _ in range(5):
        shared = softmax_gradients(w, *PUBLIC)
        threshold = np.quantile(np.linalg.norm(shared, axis=(1, 2)), 0.9) if clip_norm is None else clip_norm
        gradient = clipped(softmax_gradients(w, X, Y), threshold)
        if dimension is not None and not (fill and dimension == 2000):  # filled, it spans everything here
            u = np.linalg.svd(shared.sum(axis=0))[0][:, : min(dimension, 2)]
            gradient = u @ (u.T @ gradient)
        if public_gradient:
            gradient = gradient + shared.sum(axis=0)
        w = w - 0.8 * (gradient / (50 + 12 * public_gradient) + 0.1 * w)
    close(model.weights_, w)


def test_adamix_trains_on_public_records_first(silent):
    model = AdaMix(**COMMON, public_weight_decay=0.05, learning_rate=0.0, noise_multiplier=2.0, steps=1, seed=1)
    w = model.fit(X, Y, *PUBLIC).weights_.numpy().astype(float)
    gradient = softmax_gradients(w, *PUBLIC).sum(axis=0) + 0.05 * w
    assert np.linalg.norm(gradient) < 1e-2


def test_clip_norm_from_public_records(spied):
    model = KINDS["NoisyGD, public start"].fit(noise_multiplier=2.0, steps=2, seed=1, learning_rate=0.0)
    expected = np.quantile(
        np.linalg.norm(softmax_gradients(model.weights_.numpy().astype(float), *PUBLIC), axis=(1, 2)), 0.9
    )
    assert all(clip_norm == pytest.approx(expected, rel=1e-4) for *_, clip_norm in spied[0])
    zeros = torch.zeros(2, 1), torch.zeros(2, dtype=torch.long)
    assert clip_at(0.9, torch.zeros(1, 2), zeros) == 1e-6  # never 0


def test_projected_noise_stays_in_the_subspace(uncertified):
    options = {"public_gradient": False, "start": np.zeros((4, 3)), "dimension": 2000}
    model = AdaMix(**COMMON, **options, noise_multiplier=2.0, steps=1, seed=1)
    model.fit(X, Y, *PUBLIC)
    basis = public_subspace(torch.tensor(softmax_gradients(np.zeros((4, 3)), *PUBLIC).sum(axis=0)), 2000)
    rest = model.weights_.double() - basis @ (basis.T @ model.weights_.double())
    assert float(rest.norm()) < 1e-5 * float(model.weights_.norm())


def test_helpers():
    assert best_weight_decay(dimension=8, lipschitz=1.0, mu=2.0, distance=2.0, records=2) == pytest.approx(
        math.sqrt(2) / 2
    )
    plan = make_plan(pc.Gaussian, epsilon=None, delta=1e-5, noise_multiplier=20.0, steps=206, relation=ADD)
    assert plan.spent(206) == float(plan.guarantee.epsilon)
    assert plan.spent(1) < 1


def test_the_handle_charges_the_step_it_is_given():
    ledger = pc.Ledger(None, plan=pc.Gaussian(2.0) * 2)
    private = PrivateRecords(X, Y, ledger=ledger, classes=[0, 1, 2])
    from learners.gradients.softmax import SoftmaxGradient

    for _ in range(2):
        private.noisy_sum(SoftmaxGradient(torch.zeros(4, 3)), pc.Gaussian(2.0), 1.0)
    for step in (pc.Gaussian(2.0), pc.Gaussian(3.0), pc.Laplace(1.0), pc.PoissonSampled(pc.Gaussian(2.0), 0.1)):
        with pytest.raises(pc.PrivcalcError):
            private.noisy_sum(SoftmaxGradient(torch.zeros(4, 3)), step, 1.0)
    assert json.loads(ledger.journal.memory[0])["entry"]["plan"]


# --- what does not fit ----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*(quantize|[Nn]ested|[Ss]parse)")
@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        *(
            ("X", value, Y[:3])
            for value in (np.ones((3, 4)) * 1j, [[1.0], [1.0, 2.0], [1.0]], [["1"]] * 3, None, [10**400])
        ),
        *(("X", value, Y[:3]) for value in (np.ma.array(X[:3], mask=X[:3] > 0), np.array([[None]] * 3), 3.0, X[:3, 0])),
        *(
            ("X", value, Y[:3])
            for value in (torch.eye(3).to_sparse(), torch.empty((3, 4), device="meta"), torch.eye(3) * 1j)
        ),
        *(
            ("y", X[:3], value)
            for value in ([[0], [1, 2], [0]], [0, [1], 2], [{}, 0, 1], np.ma.array([0, 1, 2], mask=[1, 0, 0]))
        ),
        *(
            ("y", X[:3], value)
            for value in ([0, 1], [0, 1, -1], [0, 1, math.nan], [0, 1, 2j], None, [0, 1, None], ["0", "1", "2"])
        ),
        *(("y", X[:4], value) for value in ([[0, 1], [1, 0]], [[0, 1, 2, 0]])),
        *(("y", X[:3], value) for value in (torch.eye(3).to_sparse(), torch.empty(3, device="meta"))),
    ],
)
def test_records_that_do_not_fit(name, x, y, uncertified):
    with pytest.raises(pc.PrivcalcError, match=f"^{name}: "):
        KINDS["NoisyGD"].make(epsilon=1.0, steps=2).fit(x, y)


@pytest.mark.parametrize("classes", [[[0], [1]], None, 3, [0], [0, 0], [math.nan, 1], np.array(1), [{}, 1]], ids=repr)
def test_classes_that_are_none(classes, uncertified):
    with pytest.raises(pc.PrivcalcError, match="classes = "):
        KINDS["NoisyGD"].make(epsilon=1.0, steps=2, classes=classes).fit(X, Y)


def test_arrays_of_all_kinds_are_records(uncertified):
    labels = (
        torch.tensor([0.0, 1.0, 2.0], requires_grad=True),
        [[0], [1], [2]],
        np.array([0, 1, 2], dtype=object),
        (False, True, 2),
    )
    rows = (
        X[:3].astype(np.float16),
        torch.tensor(X[:3], requires_grad=True),
        X[:3] > 0,
        X[:3].tolist(),
        np.ones((3, 4), np.int8),
    )
    for x, y in itertools.zip_longest(rows, labels, fillvalue=labels[1]):
        model = KINDS["NoisyGD"].make(epsilon=1.0, steps=2, seed=1).fit(x, y)
        assert not model.weights_.requires_grad
        assert model.predict(x).shape == (3,)


@every_kind
@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("relation", [ADD, SWAP], ids=str)
def test_few_records(kind, size, relation, request, uncertified):
    """Under add-or-remove-one no records are a data set like any other; under replace-one nothing can be replaced."""
    model = kind.make(noise_multiplier=9.0, steps=2, relation=relation, seed=1)
    if "fixed" in request.node.callspec.id or (size == 0 and relation is SWAP):
        with pytest.raises(pc.PrivcalcError, match=r"X: |records = "):
            model.fit(X[:size], Y[:size], *(PUBLIC if kind.public else ()))
        return
    model.fit(X[:size], Y[:size], *(PUBLIC if kind.public else ()))
    assert torch.isfinite(model.weights_).all()
    assert model.predict(X).shape == (53,)
    assert model.predict(X[:0]).shape == (0,)


@every_kind
def test_predictions_of_what_does_not_fit(kind, uncertified):
    model = kind.make(noise_multiplier=9.0, steps=2, seed=1)
    with pytest.raises(pc.PrivcalcError, match="must be fitted"):
        model.predict(X)
    model.fit(X, Y, *(PUBLIC if kind.public else ()))
    for wrong in (X[:, :3], X[:, :, None], np.ones((2, 5))):
        with pytest.raises(pc.PrivcalcError, match=r"^X: records must have shape \(4,\)"):
            model.predict(wrong)
    with pytest.raises(pc.PrivcalcError, match=r"^X: "):
        model.predict(X[0])
    for wrong in ([0], Y[:-1], []):
        with pytest.raises(pc.PrivcalcError, match=r"^y: "):
            model.score(X, wrong)
    with pytest.raises(pc.PrivcalcError, match=r"^y: "):
        model.score(X[:0], [])


@every_kind
@pytest.mark.parametrize("clip_norm", [0.0, 1e-320, -1.0, math.nan, math.inf, 1e200, "1"])
def test_a_clip_norm_that_is_none_is_refused_by_name_before_anything_is_asked(kind, clip_norm, monkeypatch):
    """1e-320 was a ZeroDivisionError, and 0 came to light after the plan was calibrated."""
    model = kind.make(noise_multiplier=9.0, steps=2)
    if not hasattr(model, "clip_norm"):
        return
    model.set_params(clip_norm=clip_norm)
    monkeypatch.setattr(type(model), "plan", lambda self: pytest.fail("it was asked"))
    with pytest.raises(pc.PrivcalcError, match=r"^clip_norm = .*must be a finite number > 0"):
        model.fit(X, Y, *(PUBLIC if kind.public else ()))


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("ddof", [0, 1])
def test_features_that_were_scaled_by_these_records_are_warned_of(kind, ddof):
    """Also beside a constant column; not where one column is as it was."""
    scaled = ((WIDE - WIDE.mean(axis=0)) / WIDE.std(axis=0, ddof=ddof)).astype(kind)
    for features, told in ((scaled, 1), (np.c_[scaled, np.ones(400)], 1), (np.c_[scaled, WIDE[:, 0]], 0)):
        with warnings.catch_warnings(record=True) as caught, pc.Ledger(None, plan=pc.Gaussian(1.0)) as ledger:
            warnings.simplefilter("always")
            PrivateRecords(features, np.zeros(400), ledger=ledger, classes=[0, 1])
        assert ["X: every column has mean 0" in str(one.message) for one in caught] == [True] * told


WIDE = np.random.default_rng(6).gamma(2.0, 3.0, (400, 5))
CATEGORIES = np.eye(3)[np.arange(400) % 3]
NORMAL = np.random.default_rng(7).normal(size=(400, 4))
GREY = np.random.default_rng(7).integers(0, 256, (400, 30)) / 255


NATURAL = {
    "grey": GREY,
    "grey around 0": 2 * GREY - 1,
    "grey that is cut": np.clip(0.5 + 0.4 * np.random.default_rng(8).normal(size=(400, 30)), 0, 1),
    "rarely cut": np.clip(0.33 * np.random.default_rng(8).normal(size=(2000, 20)), -1, 1),
    "categories": CATEGORIES,
    "categories and numbers": np.c_[CATEGORIES, NORMAL],
    "rows of norm 1": WIDE / np.linalg.norm(WIDE, axis=1, keepdims=True),
    "clipped rows": WIDE / np.maximum(1, np.linalg.norm(WIDE, axis=1, keepdims=True)),
    "words": np.random.default_rng(8).poisson(0.05, (400, 20)),
    "shares": np.random.default_rng(8).dirichlet(np.ones(4), 400),
    "percentages": np.round(np.random.default_rng(8).random((400, 3)), 2),
    "by public numbers": (WIDE - 6) / 4,
    "by other records": (WIDE[:200] - WIDE[200:].min(axis=0)) / np.ptp(WIDE[200:], axis=0),
    "a column of 1": np.c_[NORMAL, np.ones(400)],
    "from 0 to 1": (WIDE - WIDE.min(axis=0)) / np.ptp(WIDE, axis=0),
    "a grid": np.linspace(-1, 1, 400)[:, None],
    "a time and its square": np.linspace(-1, 1, 400)[:, None] ** [1, 2],
    "by a mean of others": WIDE - WIDE[:200].mean(axis=0),
    "balanced by design": np.tile([[1.0, -1.0], [-1.0, 1.0]], (26, 1)),
    "constant": np.ones((52, 2)),
    "few": (WIDE[:8] - WIDE[:8].mean(axis=0)) / WIDE[:8].std(axis=0),
    "no records": WIDE[:0],
    "few times of day": np.c_[
        [f(np.random.default_rng(2).integers(0, 24, 60) * np.pi / 12) for f in (np.sin, np.cos)]
    ].T,
    "times of day": np.c_[np.sin(np.arange(400) * np.pi / 12), np.cos(np.arange(400) * np.pi / 12)],
}


@pytest.mark.parametrize("what", NATURAL)
def test_natural_features_are_not_warned_of(what):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_standardized("X", NATURAL[what].astype(float))


def test_two_threads_do_not_fit_one_learner(monkeypatch):
    """Both did, each through a ledger of its own, and the certificate was of one of them."""
    model = NoisyGD(classes=[0, 1], noise_multiplier=9.0, delta=1e-5, steps=1, records=4)
    plan, both, said = type(model).plan, threading.Barrier(2), []

    def planned(self):
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(timeout=0.2)  # the other one gets here, too, unless it was refused
        return plan(self)

    monkeypatch.setattr(type(model), "plan", planned)

    def fit():
        try:
            model.fit(np.eye(2).repeat(2, axis=0), [0, 0, 1, 1])
        except pc.PrivcalcError as error:
            said.append(str(error))

    threads = [threading.Thread(target=fit) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) == 1
    assert "another thread" in said[0]
    assert "_fitting" not in vars(model)
    assert model.certificate_.guarantee.epsilon <= 1.0
