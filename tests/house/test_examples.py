"""The worked scripts run, and what they claim is so."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import quick

import privcalc as pc
from privcalc import noise
from privcalc.attacks.replay import replay
from privcalc.ledger import digest

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def test_calibrate_in_pytorch() -> None:
    pytest.importorskip("torch")
    script = load("calibrate_pytorch")
    x, y = script["made_up"]()
    model, epsilon = script["train"](x, y)
    assert float((model(x).argmax(dim=1) == y).float().mean()) > 0.9
    assert 3.0 * (1 - 1e-6) < epsilon.lower <= epsilon.upper <= 3.0


@pytest.mark.service
def test_certify_a_scikit_learn_classifier(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    accuracy, certificate = load("certify_sklearn")["main"](tmp_path)
    assert accuracy > 0.7
    assert certificate.final
    assert certificate.guarantee.epsilon <= 1.0
    with pytest.raises(pc.PrivcalcError, match="closed"):
        load("certify_sklearn")["main"](tmp_path)


def test_monthly_releases(tmp_path: Path) -> None:
    script = load("monthly_releases")
    answers, certificate = script["main"](tmp_path)
    for number, (visits, turnover, basket, age) in enumerate(answers, 1):
        table = script["made_up"](number)
        assert abs(float(visits.value.sum()) - 20_000) < 2_000  # some customers came more than four times
        assert abs(basket.value - 30) < 5
        assert abs(turnover.value / (20_000 * 30) - 1) < 0.2
        assert abs(age.value - np.median(table["age"])) < 10
    assert certificate.guarantee.epsilon <= 1.6
    assert len(certificate.document["ledgers"][0]["labels"]) == 12
    with pytest.raises(pc.PrivcalcError, match="'2026-02 visits': was used"):
        script["release"](tmp_path / "year.jsonl", "2026-02", script["made_up"](2))
    script["release"](tmp_path / "year.jsonl", "2026-04", script["made_up"](4))


@pytest.mark.service
def test_audit_in_jax() -> None:
    pytest.importorskip("jax")
    script = load("audit_jax")
    x, y = script["made_up"]()
    weights, guarantee, losses = script["train"](x, y)
    assert np.mean((np.asarray(x @ weights) > 0) == (np.asarray(y) > 0)) > 0.9
    own = np.asarray(losses.epsilon(delta=1e-5))
    assert own.shape == (1_000,)
    assert own.max() <= guarantee.epsilon.upper <= 2.0
    assert np.median(own) < 0.5 * guarantee.epsilon.upper


@pytest.mark.service
@pytest.mark.parametrize("name", ["audit_pytorch", "audit_opacus"])
def test_audits_in_pytorch_and_under_opacus(name: str) -> None:
    """What some record cost is less than the guarantee. (Norms: ``tests/interop/test_torch_gradients.py``.)"""
    torch = pytest.importorskip("torch")
    if name == "audit_opacus":
        pytest.importorskip("opacus")
    script = load(name)
    script["main"].__globals__.update(RECORDS=30, BATCH=6)
    data = script["made_up"]()
    with warnings.catch_warnings():
        warnings.simplefilter("error", pc.PrivcalcWarning)
        found = script["main"](data) if name == "audit_opacus" else script["main"](data, torch.nn.Linear(6, 2))
        certificate, losses = found[-2:]
        own = np.asarray(losses.epsilon(delta=1e-5))
    assert own.shape == (30,)
    assert own.max() <= certificate.guarantee.epsilon.upper
    assert own.min() < 0.9 * certificate.guarantee.epsilon.upper
    assert certificate.document["noise"] == "exact"


def test_certify_in_pytorch() -> None:
    torch = pytest.importorskip("torch")
    script = load("certify_pytorch")
    data = script["made_up"]()
    network = torch.nn.Linear(6, 2)
    start = digest(network.state_dict())
    certificate = script["main"](data, network, steps=10)
    features, labels = data.tensors
    assert float((network(features).argmax(dim=1) == labels).float().mean()) > 0.8
    assert certificate.document["noise"] == "exact"
    assert "made-up records" in str(certificate)
    assert certificate.document["public"]["start"]["sha256"] == start


def test_certify_in_optax() -> None:
    pytest.importorskip("optax")
    script = load("certify_optax")
    x, y = script["made_up"]()
    weights, certificate = script["main"](x, y, steps=10)
    assert np.mean((np.asarray(x @ weights) > 0) == (np.asarray(y) > 0)) > 0.8
    assert certificate.document["noise"] == "exact"


# --- replayed on neighbouring data sets (proofs/replay.md): nothing but their releases depends on a record ---


def test_the_loop_in_pytorch_shows_nothing() -> None:
    """Also with records of NaN and infinities. The number of records is public there."""
    torch = pytest.importorskip("torch")
    script = load("calibrate_pytorch")
    train = script["train"]
    train.__globals__.update(EPOCHS=1, RECORDS=200, EXPECTED_BATCH=40)
    x, y = script["made_up"]()

    def process(data: Any) -> Any:
        return train(*map(torch.as_tensor, data))[0].state_dict()

    report = replay(process, (x, y), doors=noise, relation=pc.REPLACE_ONE)
    assert report.findings == (), str(report)
    assert report.releases == 5


@pytest.mark.service
def test_the_classifier_of_scikit_learn_shows_nothing() -> None:
    pytest.importorskip("sklearn")
    script = load("certify_sklearn")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 4))

    def process(data: Any) -> Any:
        return script["PrivateLogisticRegression"](steps=10, rate=0.3).fit(*data).coef_

    report = replay(process, (x, (x[:, 0] > 0).astype(int)), doors=pc.Ledger, relation=pc.REPLACE_ONE, search=5)
    assert report.findings == (), str(report)
    assert report.releases == 10


@pytest.mark.service
def test_the_audited_loop_in_jax_shows_nothing() -> None:
    """Its losses are not released, and not looked at."""
    jax = pytest.importorskip("jax")
    script = load("audit_jax")
    train = script["train"]
    train.__globals__.update(RECORDS=50, STEPS=5)
    x, y = script["made_up"]()

    def process(data: Any) -> Any:
        return np.asarray(train(*map(jax.numpy.asarray, data))[0])

    report = replay(process, (np.asarray(x), np.asarray(y)), doors=noise, relation=pc.REPLACE_ONE)
    assert report.findings == (), str(report)
    assert report.releases == 5


@pytest.mark.parametrize("relation", quick([pc.ADD_OR_REMOVE_ONE, pc.REPLACE_ONE], 0), ids=str)
def test_monthly_releases_show_nothing(relation: pc.Relation, tmp_path: Path) -> None:
    """A row is added; what a person adds with others is bounded together."""
    script = load("monthly_releases")
    runs = iter(range(1000))

    def process(visits: Any) -> Any:
        return [answer.value for answer in script["release"](tmp_path / f"{next(runs)}.jsonl", "2026-01", visits)]

    report = replay(process, script["made_up"](1, 300), doors=pc.Ledger, relation=relation, additive=False)
    assert report.findings == (), str(report)
    assert report.releases == 4
