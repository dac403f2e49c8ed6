"""Every learner replayed on neighbouring data sets, with the worst records: only its releases depend on them."""

from __future__ import annotations

import numpy as np
import pytest

import privcalc as pc
from privcalc.attacks.replay import replay

torch = pytest.importorskip("torch")

from examples.pillar_selection import PILLARSelection  # noqa: E402
from learners import (  # noqa: E402
    DOPESGD,
    DPLS,
    DPSGD,
    PDADPMD,
    PILLAR,
    AdaMix,
    DPPLMean,
    DPPLPublic,
    NoisyGD,
    WhitenedGD,
)
from learners.frame.plan import Plan  # noqa: E402
from learners.gradients.exact import OuterProducts  # noqa: E402
from learners.gradients.softmax import SoftmaxGradient  # noqa: E402

rng = np.random.default_rng(0)
RECORDS = 13
X = rng.standard_normal((RECORDS, 3))
Y = (X.sum(axis=1) > 0).astype(np.int64)
PUBLIC = rng.standard_normal((8, 3)), np.array([0, 1] * 4)
COMMON = {"classes": [0, 1], "delta": 1e-5, "clip_norm": 0.5, "learning_rate": 0.5, "records": RECORDS}
TARGET = {"classes": [0, 1], "epsilon": 6.0}


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Dropout(0.2), torch.nn.Linear(4, 2))


def selection(**options):
    model = PILLARSelection(
        classes=[0, 1], epsilon=8.0, delta=1e-5, records=RECORDS, k=1, beta=0.9, steps=2, choice=0.3, **options
    )
    run = model._step(0.8) * (model.runs * model.steps) + model._selection
    model.plan = lambda: Plan(run, 0.8, pc.Guarantee(epsilon=8.0, delta=1e-5, relation=model.relation), model.relation)
    return model


SAMPLED = {"sample_rate": 0.5, "noise_multiplier": 1.0, "steps": 4}
LEARNERS = {
    "NoisyGD": (lambda **o: NoisyGD(**COMMON, noise_multiplier=1.0, steps=3, **o), False),
    "NoisyGD, warm": (lambda **o: NoisyGD(**COMMON, noise_multiplier=1.0, steps=3, **o), True),
    "AdaMix": (lambda **o: AdaMix(**COMMON | {"clip_norm": None}, noise_multiplier=1.0, steps=3, **o), True),
    "DPSGD": (lambda **o: DPSGD(**COMMON, **SAMPLED, momentum=0.5, **o), False),
    "DPSGD, fixed": (lambda **o: DPSGD(**COMMON | {"records": 12}, **SAMPLED, sampler="fixed", **o), False),
    "DPSGD, network": (lambda **o: DPSGD(**COMMON, **SAMPLED, model=network, **o), False),
    "DOPESGD": (lambda **o: DOPESGD(**COMMON, **SAMPLED, **o), True),
    "DOPESGD, network": (lambda **o: DOPESGD(**COMMON, **SAMPLED, start="cold", model=network, **o), True),
    "PDADPMD": (lambda **o: PDADPMD(**COMMON, noise_multiplier=1.0, steps=2, **o), True),
    "PILLAR": (lambda **o: PILLAR(**COMMON, **SAMPLED, k=2, **o), True),
    "WhitenedGD": (
        lambda **o: WhitenedGD(**COMMON, noise_multiplier=1.0, steps=3, unlabelled=PUBLIC[0][:5], **o),
        True,
    ),
    "PILLARSelection": (selection, True),
    "DPLS": (lambda **o: DPLS(**TARGET, delta=1e-5, **o), False),
    "DPPLMean": (lambda **o: DPPLMean(**TARGET, delta=1e-5, **o), False),
    "DPPLPublic": (lambda **o: DPPLPublic(**TARGET, **o), True),
}


@pytest.mark.parametrize(
    "relation", [pc.ADD_OR_REMOVE_ONE, pytest.param(pc.REPLACE_ONE, marks=pytest.mark.slow)], ids=str
)
@pytest.mark.parametrize("name", LEARNERS)
def test_no_learner_shows_anything(name, relation, monkeypatch):
    make, public = LEARNERS[name]
    monkeypatch.setattr(pc, "certify", lambda *_, **__: None)
    model = make(relation=relation)
    plan = model.plan()  # once: to calibrate takes longer than to run

    def fit(data):
        learner = make(relation=relation)
        learner.plan = lambda: plan
        learner.fit(*data, *(PUBLIC if public else ()))
        return learner.weights_, learner.plan_.run, learner.shape_

    report = replay(fit, (X, Y), doors=pc.Ledger, relation=relation, additive="network" not in name)
    assert report.findings == (), str(report)
    assert report.releases >= 1


def test_a_fit_looks_at_its_first_step_and_keeps_nothing(capsys, monkeypatch):
    monkeypatch.setattr(pc, "certify", lambda *_, **__: None)
    model = DPSGD(**COMMON, **SAMPLED, seed=1)
    model.fit(X, Y, look=True)
    assert "nothing found" in capsys.readouterr().err
    assert model.weights_.equal(DPSGD(**COMMON, **SAMPLED, seed=1).fit(X, Y).weights_)
    assert len(model.ledger_.spent.entries) == 1
    assert model.ledger_.spent.entries[0][1] == SAMPLED["steps"]
    monkeypatch.setattr(
        SoftmaxGradient, "clipped_sum", lambda self, x, y, bound: OuterProducts.clipped_sum(self, x, y, 2 * bound)
    )
    DPSGD(**COMMON, **SAMPLED).fit(X, Y, look=True)
    assert "sensitivity: release 1, gaussian" in capsys.readouterr().err


def test_a_private_number_of_records_is_found(monkeypatch):
    """What a learner would show that divides by how many records it was given."""
    monkeypatch.setattr(pc, "certify", lambda *_, **__: None)
    plan = DPSGD(**COMMON, **SAMPLED).plan()

    def fit(data):
        learner = DPSGD(**COMMON | {"records": len(data[1])}, **SAMPLED)
        learner.plan = lambda: plan
        return learner.fit(*data).weights_

    assert "output" in replay(fit, (X, Y), doors=pc.Ledger).kinds


def test_a_contribution_that_is_not_clipped_is_found(monkeypatch):
    """A learner's sum, with the clip norm that the noise is scaled by halved."""
    monkeypatch.setattr(pc, "certify", lambda *_, **__: None)
    plan = DPSGD(**COMMON, **SAMPLED).plan()
    gaussian = pc.Ledger.gaussian

    def fit(data):
        learner = DPSGD(**COMMON, **SAMPLED)
        learner.plan = lambda: plan
        return learner.fit(*data).weights_

    monkeypatch.setattr(
        SoftmaxGradient, "clipped_sum", lambda self, x, y, bound: OuterProducts.clipped_sum(self, x, y, 2 * bound)
    )
    assert replay(fit, (X, Y), doors=pc.Ledger).kinds == ("sensitivity",)
    assert pc.Ledger.gaussian is gaussian  # the doors are closed again
