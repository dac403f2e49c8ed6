"""Self-training: a second model, fitted to what a private one predicts for public records. It costs nothing.

    q_i ∝ p_i³,    v ← argmin Σ_public H(q_i, softmax(ψ(x_i)ᵀv)) + λ/2·‖v‖²,    log p_i ← ½(teacher's + student's)

five times; ψ is public principal components, whitened. A function of what was released and of public features:
``proofs/whitened.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from learners.gradients.softmax import train_public
from learners.gradients.whitening import whitened, whitening

__all__ = ["ENOUGH", "Student", "taught"]

POWER, DECAY, COMPONENTS, ROUNDS = 3.0, 1.0, 100, 5
"""Chosen on MNIST digits, before anything else was run with it (``proofs/whitened.md``)."""

ENOUGH = 100.0
"""Of a plan's strength, above which private records know better: there is no student."""


@dataclass(frozen=True)
class Student:
    """What was learnt, and how it is put together with the teacher.

    Attributes:
        matrix: of the whitening.
        weights: of the student, shape (components, classes).
        scale: of the teacher's scores, to be logits.
    """

    matrix: Tensor
    weights: Tensor
    scale: float

    def __call__(self, features: Tensor, scores: Tensor) -> Tensor:
        """The mean of both log-probabilities.

        Args:
            features: shape (n, features).
            scores: the teacher's, shape (n, classes).
        """
        own = whitened(features, self.matrix) @ self.weights
        return 0.5 * (torch.log_softmax(self.scale * scores, dim=1) + torch.log_softmax(own, dim=1))


def taught(features: Tensor, scores: Tensor, *, logits: bool = True) -> Student:
    """A student of a released model on public records.

    Args:
        features: public, shape (n, features).
        scores: the teacher's for them, shape (n, classes).
        logits: whether scores are; others, such as cosines, are scaled so that they deviate by 1 from a record's mean.

    Example:
        >>> features = torch.tensor([[1.0, 0.1], [1.0, -0.1], [-0.1, 1.0], [0.1, 1.0]], dtype=torch.float64)
        >>> sure = torch.tensor([[2.0, 0.0], [-0.1, 0.0], [0.0, 2.0], [0.0, 2.0]], dtype=torch.float64)
        >>> # It is wrong on the second record.
        >>> taught(features, sure)(features, sure).argmax(dim=1)
        tensor([0, 0, 1, 1])
    """
    scale = 1.0 if logits else 1 / max(float((scores - scores.mean(dim=1, keepdim=True)).std(correction=0)), 1e-12)
    teacher = torch.log_softmax(scale * scores, dim=1)
    matrix = whitening(features, COMPONENTS, 1.0)
    rows, known = whitened(features, matrix), teacher
    weights = torch.zeros((matrix.shape[1], scores.shape[1]), dtype=scores.dtype, device=scores.device)
    for _ in range(ROUNDS):
        weights = train_public(rows, torch.softmax(POWER * known, dim=1), start=weights, weight_decay=DECAY)
        known = 0.5 * (teacher + torch.log_softmax(rows @ weights, dim=1))
    return Student(matrix, weights, scale)
