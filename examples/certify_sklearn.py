"""Certify: a scikit-learn classifier with noise from a ledger, which ends in a certificate that anyone can check."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import make_classification

import privcalc as pc

Floats = np.ndarray[Any, np.dtype[np.float64]]


class PrivateLogisticRegression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Logistic regression by noisy gradient descent on Poisson batches. Labels are 0 and 1.

    Args:
        ledger: file that the run is written to; must not exist. None keeps it in memory.
        epsilon: ε of the target.
        delta: δ of the target.
        rate: probability with which a record takes part in a step.
        steps: number of steps.
        learning_rate: step size.
    """

    def __init__(
        self,
        ledger: str | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        rate: float = 0.1,
        steps: int = 100,
        learning_rate: float = 2.0,
    ) -> None:
        self.ledger, self.epsilon, self.delta = ledger, epsilon, delta
        self.rate, self.steps, self.learning_rate = rate, steps, learning_rate

    def fit(self, x: Floats, y: Floats) -> PrivateLogisticRegression:
        """Train; the number of records is taken as public."""
        noise = pc.noise_multiplier(epsilon=self.epsilon, delta=self.delta, sample_rate=self.rate, steps=self.steps)
        step = pc.PoissonSampled(pc.Gaussian(noise), self.rate)
        target = pc.Guarantee(epsilon=self.epsilon, delta=self.delta)
        self.coef_ = np.zeros(x.shape[1])
        self.classes_ = np.array([0, 1])
        with pc.Ledger(self.ledger, plan=step * self.steps, target=target, public={"records": len(x)}) as ledger:
            for _ in range(self.steps):
                batch = ledger.poisson_batch(step)
                rows = x[batch.indices]
                gradients = rows * (1 / (1 + np.exp(-rows @ self.coef_)) - y[batch.indices])[:, None]
                norms = np.linalg.norm(gradients, axis=1, keepdims=True)
                each = np.where(norms < np.inf, gradients / np.maximum(norms, 1.0), 0.0)  # one NaN would spoil the sum
                clipped = each.sum(axis=0)
                noisy = ledger.gaussian(clipped, step, clip_norm=1.0, batch=batch)
                self.coef_ = self.coef_ - self.learning_rate * noisy / (self.rate * len(x))
        return self

    def predict(self, x: Floats) -> Floats:
        """0 or 1."""
        return np.asarray((x @ self.coef_ > 0).astype(np.float64))


def main(folder: Path) -> tuple[float, pc.Certificate]:
    """Train and certify; returns the accuracy and the certificate, which is in the folder too.

    Anyone can check it: ``privcalc verify run.cert.json run.jsonl``, which takes a minute.
    """
    x, y = make_classification(n_samples=4_000, n_features=10, n_informative=6, random_state=0)
    model = PrivateLogisticRegression(str(folder / "run.jsonl")).fit(x[:3_000], y[:3_000])
    certificate = pc.certify(folder / "run.jsonl", delta=1e-5)
    certificate.save(folder / "run.cert.json")
    return float(model.score(x[3_000:], y[3_000:])), certificate


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        accuracy, certificate = main(Path(name))
        print(f"accuracy {accuracy:.3f}\n{certificate}")
