"""Self-training on public records: the student is the minimiser it is said to be, a function of what was released."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp, softmax

import privcalc as pc

torch = pytest.importorskip("torch")

from learners import PILLAR, DPPLPublic, WhitenedGD  # noqa: E402
from learners.frame import student  # noqa: E402
from learners.frame.student import taught  # noqa: E402

CLASSES = list(range(3))
KINDS = {
    "whitened": lambda **more: WhitenedGD(classes=CLASSES, epsilon=0.5, delta=1e-5, records=90, seed=1, **more),
    "pillar": lambda **more: PILLAR(classes=CLASSES, epsilon=0.5, delta=1e-5, steps=5, records=90, k=4, seed=1, **more),
    "dppl": lambda **more: DPPLPublic(classes=CLASSES, epsilon=0.5, seed=1, **more),
}


def blobs(size, seed, spread=0.6):
    rng = np.random.default_rng(seed)
    y = np.arange(size) % 3
    return 2 * np.eye(8)[y] + spread * rng.standard_normal((size, 8)), y


@pytest.mark.parametrize("kind", KINDS)
def test_it_costs_nothing_and_sees_what_was_released(kind):
    (x, y), (public, _), (new, _) = blobs(90, 0), blobs(60, 1), blobs(40, 2)
    plain, found = (KINDS[kind](**more).fit(x, y, public) for more in ({}, {"self_training": True}))
    assert plain.student_ is None
    torch.testing.assert_close(found.weights_, plain.weights_, rtol=0, atol=0)
    assert found.certificate_.guarantee == plain.certificate_.guarantee
    assert found.ledger_.spent == plain.ledger_.spent
    # from the plain model and public records alone, without the private ones
    rows, rest = (torch.from_numpy(part) for part in (public, new))
    alone = taught(rows, plain.scores(public), logits=kind != "dppl")
    torch.testing.assert_close(found.scores(new), alone(rest, plain.scores(new)), rtol=0, atol=0)
    np.testing.assert_allclose(found.predict_proba(new).sum(axis=1), 1.0)


@pytest.mark.parametrize("logits", [True, False])
def test_the_student_by_scipy(monkeypatch, logits):
    """Principal components by an eigendecomposition, five fits by another minimiser."""
    rng = np.random.default_rng(3)
    public, _ = blobs(50, 4)
    scores = rng.standard_normal((50, 3))
    monkeypatch.setattr(student, "COMPONENTS", 5)
    found = taught(torch.from_numpy(public), torch.from_numpy(scores), logits=logits)
    if not logits:
        scores = scores / np.sqrt(np.mean((scores - scores.mean(axis=1, keepdims=True)) ** 2))
    values, vectors = np.linalg.eigh(public.T @ public)
    values, vectors = values[::-1][:5], vectors[:, ::-1][:, :5]
    rows = public @ (vectors / np.sqrt(values + values.mean()))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    teacher = log_softmax(scores, axis=1)
    known = teacher
    for _ in range(5):
        wanted = softmax(3 * known, axis=1)

        def loss(flat, wanted=wanted):
            w = flat.reshape(5, 3)
            logits = rows @ w
            slope = rows.T @ (softmax(logits, axis=1) - wanted) + w
            return np.sum(logsumexp(logits, axis=1)) - np.sum(wanted * logits) + 0.5 * np.sum(w**2), slope.ravel()

        weights = minimize(loss, np.zeros(15), jac=True, method="BFGS", options={"gtol": 1e-9}).x.reshape(5, 3)
        known = 0.5 * (teacher + log_softmax(rows @ weights, axis=1))
    np.testing.assert_allclose(
        found(torch.from_numpy(public), torch.from_numpy(scores if logits else scores / found.scale)).numpy(),
        known,
        atol=2e-4,
    )


def test_it_learns_from_clusters():
    """A teacher that is right in two of three records; the records lie in three heaps."""
    rng = np.random.default_rng(5)
    (public, y), (new, truth) = blobs(300, 6, 0.3), blobs(300, 7, 0.3)

    def teacher(labels):
        said = np.where(rng.random(len(labels)) < 0.67, labels, rng.integers(0, 3, len(labels)))
        return torch.from_numpy(np.eye(3)[said])

    before = teacher(truth)
    found = taught(torch.from_numpy(public), teacher(y))(torch.from_numpy(new), before)
    assert np.mean(before.argmax(1).numpy() == truth) < 0.85
    assert np.mean(found.argmax(1).numpy() == truth) > 0.95


def test_strong_plans_have_no_student():
    (x, y), (public, _) = blobs(90, 0), blobs(60, 1)
    for records, wanted in ((90, True), (1_000_000, False)):  # a public number
        model = WhitenedGD(classes=CLASSES, epsilon=0.5, delta=1e-5, records=records, seed=1, self_training=True)
        assert (model.fit(x, y, public).student_ is not None) == wanted
        assert (model.plan_.strength(records, 3) <= student.ENOUGH) == wanted


def test_without_public_records_there_is_none():
    x, y = blobs(90, 0)
    model = PILLAR(
        classes=CLASSES, epsilon=0.5, delta=1e-5, steps=5, records=90, basis="jl", k=4, seed=1, self_training=True
    )
    assert model.fit(x, y).student_ is None
    with pytest.raises(pc.PrivcalcError, match="X_public"):
        KINDS["whitened"](self_training=True).fit(x, y)
