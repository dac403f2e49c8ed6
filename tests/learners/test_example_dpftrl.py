"""DP-FTRL: without noise it is descent over epochs in a fixed order; its plan, its certificate, what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
import torch

import privcalc as pc
from examples.dpftrl import DPFTRL, main
from privcalc.ledger import Stream
from privcalc.strategies import (
    CyclicPoisson,
    FixedOrder,
    MinSeparation,
    SquareRoot,
    Toeplitz,
    optimal_blt,
    optimal_toeplitz,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4)) / 4
Y = (X @ [1.0, -2.0, 0.5, 0.0] > 0).astype(int)
COMMON = {"classes": [0, 1], "delta": 1e-5, "records": 300, "steps": 24, "epoch": 6}


def test_without_noise_it_is_descent_in_a_fixed_order(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[np.ndarray] = []
    release = Stream.release

    def quiet(self, values):
        turns.append(self.indices)
        release(self, values)
        return values

    monkeypatch.setattr(Stream, "release", quiet)
    model = DPFTRL(**COMMON, noise_multiplier=5.0, learning_rate=0.7, momentum=0.5, weight_decay=0.01, seed=1).fit(X, Y)
    theta = velocity = np.zeros((4, 2))
    for chosen in turns:
        logits = X[chosen] @ theta
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        residual = p / p.sum(axis=1, keepdims=True) - np.eye(2)[Y[chosen]]
        norm = np.linalg.norm(X[chosen], axis=1) * np.linalg.norm(residual, axis=1)
        total = (X[chosen] * np.minimum(1, 1 / norm)[:, None]).T @ residual
        velocity = 0.5 * velocity + total / 50
        theta = theta - 0.7 * (velocity + 0.01 * theta)
    assert np.allclose(model.weights_.numpy(), theta, atol=2e-4)
    for t in range(6):
        assert np.array_equal(turns[t], turns[t + 6])
    assert sorted(np.concatenate(turns[:6])) == list(range(300))


def test_the_plan_and_the_certificate() -> None:
    model = DPFTRL(**COMMON, epsilon=2.0).fit(X, Y)
    strategy = optimal_toeplitz(24, FixedOrder(6), bands=6)
    assert model.plan_.run == pc.CorrelatedGaussian(model.noise_multiplier_, strategy, FixedOrder(6)).run
    assert model.steps_ == 24
    assert 1.99 < model.certificate_.guarantee.epsilon <= 2.0
    model.certificate_.verify()
    assert model.certificate_.document["noise"] == "exact"
    given = DPFTRL(**COMMON, noise_multiplier=4.0, strategy=SquareRoot(24).rounded(), relation=pc.REPLACE_ONE).fit(X, Y)
    assert given.certificate_.guarantee.epsilon == pytest.approx(
        float(given.plan_.run.epsilon(delta=1e-5, relation=pc.REPLACE_ONE))
    )


def test_buffers() -> None:
    """A BLT is drawn by its buffers, and learns as bands do."""
    strategy = optimal_blt(24, FixedOrder(6), buffers=2)
    model = DPFTRL(**COMMON, epsilon=8.0, strategy=strategy, seed=1).fit(X, Y)
    assert model.plan_.run == pc.CorrelatedGaussian(model.noise_multiplier_, strategy, FixedOrder(6)).run
    assert model.certificate_.document["noise"] == "from a seed"
    assert model.score(X, Y) > 0.75


def test_cyclic_bands() -> None:
    """Bands, with coins in the turns of a class."""
    common = {name: value for name, value in COMMON.items() if name != "epoch"}
    model = DPFTRL(**common, rate=0.5, bands=3, epsilon=4.0, seed=2).fit(X, Y)
    strategy = optimal_toeplitz(24, MinSeparation(3), bands=3)
    assert model.plan_.run == pc.CorrelatedGaussian(model.noise_multiplier_, strategy, CyclicPoisson(3, 0.5)).run
    assert model.certificate_.guarantee.epsilon <= 4.0
    assert model.score(X, Y) > 0.75


def test_warm_and_learning() -> None:
    model = DPFTRL(**COMMON, epsilon=8.0, seed=1).fit(X, Y, X[:50].copy(), Y[:50])
    assert model.score(X, Y) > 0.85


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": None, "epsilon": 1.0}, "steps = None"), ({"momentum": 1.0, "epsilon": 1.0}, "momentum = 1.0"),
        ({}, "exactly two"), ({"epsilon": 1.0, "noise_multiplier": 1.0}, "exactly two"),
        ({"epsilon": 1.0, "epoch": 0}, "epoch = 0"),
        ({"epsilon": 1.0, "strategy": Toeplitz([1.0], 7)}, "steps = 24, not 7"),
        ({"epsilon": 1.0, "strategy": SquareRoot(24)}, "rounded"),
        ({"epsilon": 1.0, "records": None}, "records = None"),
        ({"epsilon": 1.0, "rate": 0.1}, "epoch, or rate and bands"),
        ({"epsilon": 1.0, "epoch": None, "rate": 0.1}, "epoch, or rate and bands"),
    ],
)  # fmt: skip
def test_refused(options, message: str) -> None:
    with pytest.raises(pc.PrivcalcError, match=message):
        DPFTRL(**{**COMMON, **options}).fit(X, Y)


def test_audits_are_refused() -> None:
    with pytest.raises(pc.PrivcalcError, match="norms_every"):
        DPFTRL(**COMMON, epsilon=1.0).fit(X, Y, norms_every=1)


def test_float32_features() -> None:
    model = DPFTRL(**COMMON, epsilon=3.0).fit(torch.tensor(X, dtype=torch.float32), Y)
    assert model.weights_.dtype == torch.float64


def test_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    accuracy, claim = capsys.readouterr().out.removeprefix("accuracy ").split(", ", 1)
    assert float(accuracy) > 0.75
    assert "(1, 1e-05)-DP" in claim
