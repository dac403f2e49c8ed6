"""Descent through an individual filter: what a record adds in all steps together is bounded, whatever was released."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import privcalc as pc
from privcalc.ledger.streams import Stream

torch = pytest.importorskip("torch")

from examples.filtered import FilteredGD, main  # noqa: E402
from learners import NoisyGD  # noqa: E402
from learners.gradients.softmax import residuals  # noqa: E402

rng = np.random.default_rng(1)
X = rng.standard_normal((40, 3))
Y = (X[:, 0] > 0).astype(np.int64)
STEPS, NOISE, CLIP, SHARE = 12, 2.0, 0.6, 0.5
COMMON = {"classes": [0, 1], "delta": 1e-5, "steps": STEPS, "records": 40, "clip_norm": CLIP, "share": SHARE}
RUN = {**COMMON, "noise_multiplier": NOISE, "learning_rate": 3.0}


def told(monkeypatch, x, y, outputs, **options):
    """The sums of a run in which these were the outputs, whatever the sums: shape (T, features, classes)."""
    sums = []

    def release(stream, values):
        _ = stream.indices
        sums.append(values.clone())
        stream._step += 1
        return outputs[stream.step - 1].clone()

    with monkeypatch.context() as patch:
        patch.setattr(Stream, "release", release)
        model = FilteredGD(**{**RUN, **options}).fit(x, y)
    return torch.stack(sums), model


@pytest.mark.parametrize("length", [0.05, 0.7, 100.0])
def test_what_a_record_adds_in_all_steps_is_within_its_budget(monkeypatch, length):
    outputs, bounds, correlated = torch.from_numpy(rng.standard_normal((STEPS, 3, 2))), [], pc.Ledger.correlated

    def spy(ledger, run, *, clip_norm, **options):
        bounds.append(clip_norm)
        return correlated(ledger, run, clip_norm=clip_norm, **options)

    monkeypatch.setattr(pc.Ledger, "correlated", spy)
    more = np.concatenate([X, [[0.0, 0.0, length]]]), np.append(Y, 1)
    without, _ = told(monkeypatch, X, Y, outputs)
    with_it, model = told(monkeypatch, *more, outputs)
    own = [
        Fraction(a) - Fraction(b) for a, b in zip(with_it.flatten().tolist(), without.flatten().tolist(), strict=True)
    ]
    most = model.ledger_.spent  # one use, of the clip norm that noise was drawn for
    assert most == model.plan_.run
    joint = sum(x**2 for x in own)  # given the outputs nobody else's contribution moves
    assert joint <= STEPS * Fraction(bounds[-1]) ** 2
    assert bounds[-1] == pytest.approx(math.sqrt(SHARE) * CLIP, rel=1e-12)
    assert bounds[-1] * model.plan_.run.entries[0][0].noise_multiplier == pytest.approx(NOISE * CLIP, rel=1e-12)


@pytest.mark.parametrize(("length", "steps"), [(0.05, STEPS), (0.59, STEPS), (1.2, 6), (100.0, 6)])
def test_who_leaves_and_who_stays(monkeypatch, length, steps):
    sums, _ = told(
        monkeypatch, np.array([[0.0, 0.0, length]]), [1], torch.zeros(STEPS, 3, 2)
    )  # gradients of norm 0.7·length
    assert (sums.flatten(1).norm(dim=1) > 0).tolist() == [True] * steps + [False] * (STEPS - steps)


def test_it_is_descent_on_those_who_are_left(monkeypatch):
    noise = torch.from_numpy(rng.standard_normal((STEPS, 3, 2)))

    def release(stream, values):
        _ = stream.indices
        stream._step += 1
        return values + noise[stream.step - 1]

    with monkeypatch.context() as patch:
        patch.setattr(Stream, "release", release)
        model = FilteredGD(**RUN).fit(X, Y)
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    weights, spent, left = torch.zeros(3, 2, dtype=torch.float64), torch.zeros(40, dtype=torch.float64), []
    for t in range(STEPS):
        gradients = torch.einsum("ni,nj->nij", x, residuals(weights, x, y))
        share = (gradients.flatten(1).norm(dim=1) / CLIP).clamp(max=1.0)
        stays = spent + share**2 <= SHARE * STEPS + 1e-6
        spent, left = spent + share**2 * stays, [*left, int(stays.sum())]
        scale = stays * torch.clamp(CLIP / gradients.flatten(1).norm(dim=1), max=1.0)
        weights = weights - 3.0 / 40 * ((gradients * scale[:, None, None]).sum(dim=0) + noise[t])
    assert left[0] == 40
    assert left[-1] < 40
    torch.testing.assert_close(model.weights_, weights, rtol=1e-4, atol=1e-4)


def test_a_share_of_one_is_noisy_descent():
    model = FilteredGD(**{**COMMON, "share": 1.0}, epsilon=1.0)
    plain = NoisyGD(**{name: value for name, value in COMMON.items() if name != "share"}, epsilon=1.0)
    assert model.plan().noise_multiplier == pytest.approx(plain.plan().noise_multiplier, rel=1e-6)
    assert model._rate(model.plan(), 40, CLIP) == pytest.approx(plain._rate(plain.plan(), 40, CLIP), rel=1e-6)


def test_nobody_leaves_where_nobody_must(monkeypatch):
    sums, _ = told(monkeypatch, 100 * X[:1], Y[:1], torch.zeros(STEPS, 3, 2), share=1.0)
    assert (sums.flatten(1).norm(dim=1) > 0.99 * CLIP).all()


@pytest.mark.parametrize("relation", [pc.ADD_OR_REMOVE_ONE, pc.REPLACE_ONE])
def test_its_certificate_is_the_budgets(relation):
    model = FilteredGD(**COMMON, epsilon=1.0, relation=relation, seed=1).fit(X, Y)
    budget = math.sqrt(SHARE * STEPS) / model.noise_multiplier_
    found = float(model.certificate_.guarantee.epsilon)
    filtered = pc.IndividualFilter(1, budget).mechanism(relation)
    assert found <= 1.0
    assert found == pytest.approx(float(filtered.epsilon(delta=1e-5, relation=relation)), rel=1e-6)


def test_nobody_is_enough_to_run():
    assert FilteredGD(**COMMON, epsilon=1.0, seed=1).fit(X[:0], Y[:0]).weights_.isfinite().all()


@pytest.mark.parametrize("options", [{"share": 0.2}, {"share": 1.1}, {"share": True}, {"steps": None}])
def test_what_is_refused(options):
    name = next(iter(options))
    with pytest.raises(pc.PrivcalcError, match=name):
        FilteredGD(**{**COMMON, "epsilon": 1.0, **options})


def test_the_audit_of_single_records_is_refused():
    with pytest.raises(pc.PrivcalcError, match="norms_every"):
        FilteredGD(**COMMON, epsilon=1.0).fit(X, Y, norms_every=1)


def test_the_script(capsys):
    main()
    accuracy, claim = capsys.readouterr().out.removeprefix("accuracy ").split(", ", 1)
    assert float(accuracy) > 0.8
    assert "(1, 1e-05)-DP" in claim
