"""AdaMix: noisy full-batch gradient descent on private records, steered by labelled public ones.

Golatkar et al. 2022, Algorithm 2.

    τ_t ← 90th percentile of public gradient norms,    U_t ← top left singular vectors of the public gradient
    w ← w − η·((G_pub + U_t(Σ_i U_tᵀ clip_{τ_t}(g_i) + N(0, (zτ_t)² I_{P×C})))/n + λw)

τ_t and U_t depend on public records and earlier iterates only, so that every step is a Gaussian release with the same
ratio of noise to sensitivity: all iterates together are GDP(√T/z). Proof, and what the paper printed wrongly:
``proofs/adamix.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

import privcalc as pc
from learners.frame.descent import Descent, stable_rate
from learners.frame.learner import Learner
from learners.frame.plan import Plan
from learners.frame.records import PrivateRecords
from learners.gradients.softmax import public_gradient, train_public
from learners.noisy_gd import clip_at
from privcalc import errors

__all__ = ["AdaMix", "public_subspace", "zero_shot"]


@dataclass(kw_only=True, eq=False)
class AdaMix(Descent):
    """AdaMix for softmax regression; every ingredient can be switched off.

    Args:
        classes: the public list of classes.
        epsilon: ε; give exactly two of ``epsilon``, ``noise_multiplier`` and ``steps``.
        delta: δ (paper: 1e-5).
        relation: the neighbouring relation.
        noise_multiplier: z (paper: 20).
        steps: T (paper: from ε and z).
        records: a public number of private records; required under add-or-remove-one.
        learning_rate: η of the mean gradient (paper: 5e-4 to 5e-3 of the sum, here times the number of records); None
            takes :meth:`Plan.learning_rate` with τ_t, in each step, and no more than is stable for the public records.
        weight_decay: λ of the mean loss, towards 0 as the paper prints it (paper: 1e-2 of the sum).
        quantile: τ_t is this quantile of the public gradient norms (paper: 0.9).
        clip_norm: a fixed C instead (ablation).
        dimension: P, how many directions the gradient is projected on (paper: 2000, or 500 with CLIP), capped at the
            numerical rank of the public gradient, at most classes − 1: too few to learn in, so that None, which does
            not project, is the default (``proofs/adamix.md``).
        fill: fill the projection up to ``dimension`` with principal directions of the public *features*.
        public_gradient: add the public gradient to every step (paper: yes).
        start: first weights, shape (features, classes), such as :func:`zero_shot`, which giving them declares to be
            public; or a fitted learner with such weights, whose certificate is then composed; None trains on public
            records.
        public_weight_decay: λ of the summed loss in that training (paper: 1e-2).
        device: torch device.
        ledger: file of the ledger; None keeps it in memory.
        seed: reproducible noise, without any privacy.
        progress: show a bar with the ε spent.

    Example:
        >>> import numpy as np
        >>> X, y = np.eye(2).repeat(500, axis=0), np.repeat([0, 1], 500)
        >>> model = AdaMix(classes=[0, 1], epsilon=1.0, delta=1e-5, noise_multiplier=20.0, records=1000)
        >>> model.fit(X, y, np.eye(2), [0, 1]).steps_
        28
        >>> model.score(X, y)
        1.0
    """

    page: ClassVar[str] = "adamix.md"
    assumptions: ClassVar[pc.Assumptions] = pc.Assumptions(normaliser="public", clip_norm="released")
    learning_rate: float | None = None
    weight_decay: float = 0.0
    quantile: float = 0.9
    clip_norm: float | None = None
    dimension: int | None = None
    fill: bool = False
    public_gradient: bool = True
    start: ArrayLike | Learner | None = None
    public_weight_decay: float = 1e-2

    def __post_init__(self) -> None:
        errors.rate("quantile", self.quantile)

    def _first(self) -> object:
        return self.start

    def plan(self) -> Plan:
        """T Gaussian releases."""
        return self._plan(pc.Gaussian)

    def _train(self, private: PrivateRecords, plan: Plan, count: int, public: tuple[Tensor, Tensor] | None) -> Tensor:
        if public is None:
            raise pc.PrivcalcError("X_public, y_public: AdaMix needs labelled public records; without any, use NoisyGD")
        zeros = self._zeros(private.shape[0])
        if self.start is None:
            start = train_public(*public, start=zeros, weight_decay=self.public_weight_decay)
        else:
            start = self._given(self.start).to(zeros)
            if start.shape != zeros.shape or not torch.isfinite(start).all():
                raise pc.PrivcalcError(
                    f"start: must be finite, of shape (features, classes) = {tuple(zeros.shape)}, "
                    f"not {tuple(start.shape)}"
                )
        extra = principal_directions(public[0]) if self.fill else None
        number = count + (len(public[1]) if self.public_gradient else 0)
        most = stable_rate(public[0], number) if self.public_gradient else math.inf

        def rate(_: int, clip_norm: float) -> float:
            rule = plan.learning_rate(count, clip_norm, len(self.classes), weight_decay=self.weight_decay)
            return min(rule, most) if self.learning_rate is None else self.learning_rate

        def subspace(weights: Tensor) -> Tensor:
            assert self.dimension is not None
            return public_subspace(public_gradient(weights, *public), self.dimension, extra)

        *_, weights = self._descend(
            private,
            plan,
            start,
            number,
            rate=rate,
            clip=lambda weights: clip_at(self.quantile, weights, public) if self.clip_norm is None else self.clip_norm,
            shared=public if self.public_gradient else None,
            basis=None if self.dimension is None else subspace,
            decay=lambda weights: self.weight_decay * weights,
        )
        return weights

    def _given(self, start: ArrayLike | Learner) -> Tensor:
        """First weights."""
        if not isinstance(start, Learner):
            return torch.from_numpy(errors.numbers("start", start).astype(np.float64))
        if list(start.classes) != list(self.classes):
            raise pc.PrivcalcError(
                f"start: must have the classes {list(self.classes)!r} in this order, not {list(start.classes)!r}"
            )
        return start.weights_


def public_subspace(gradient: Tensor, dimension: int, extra: Tensor | None = None) -> Tensor:
    """Orthonormal columns: left singular vectors of the public gradient, up to its numerical rank.

    Rows of a softmax gradient sum to 0, so that its rank is at most classes − 1: the paper's projection on 2000
    directions would mostly be on arbitrary ones.

    Args:
        gradient: shape (features, classes).
        dimension: at most so many columns.
        extra: directions to go on with, shape (features, k).

    Example:
        >>> gradient = torch.tensor([[1.0, -1.0], [2.0, -2.0], [0.0, 0.0]])
        >>> public_subspace(gradient, 2000).shape
        torch.Size([3, 1])
    """
    left, values, _ = torch.linalg.svd(gradient, full_matrices=False)
    tolerance = float(values[0]) * max(gradient.shape) * torch.finfo(values.dtype).eps
    basis = left[:, : min(dimension, int((values > tolerance).sum()), gradient.shape[1] - 1)]
    if extra is not None and basis.shape[1] < dimension:
        rest = extra - basis @ (basis.T @ extra)
        more, size, _ = torch.linalg.svd(rest[:, : dimension - basis.shape[1]], full_matrices=False)
        basis = torch.cat([basis, more[:, size > 1e-5]], dim=1)
        basis = torch.linalg.qr(basis).Q
    if basis.shape[1] == 0:  # a public gradient of exactly 0
        basis = torch.linalg.qr(torch.ones_like(gradient[:, :1])).Q
    return _contracted(basis)


def principal_directions(features: Tensor) -> Tensor:
    """Right singular vectors of the public features, shape (features, at most n)."""
    _, values, right = torch.linalg.svd(features - features.mean(dim=0), full_matrices=False)
    directions: Tensor = right[values > 1e-5 * values[0]]
    return directions.T


def _contracted(basis: Tensor) -> Tensor:
    """Divided by its norm where rounding has made that larger than 1: the sensitivity must not grow."""
    double = basis.double()
    excess = torch.linalg.matrix_norm(
        double.T @ double - torch.eye(basis.shape[1], dtype=torch.double, device=basis.device)
    )
    contracted: Tensor = basis / (math.sqrt(1 + float(excess)) * (1 + 1e-6))  # ‖U‖² ≤ 1 + ‖UᵀU − I‖
    return contracted


def zero_shot(encodings: ArrayLike, beta: float = 100.0) -> Tensor:
    """First weights from encoded class names (paper §3.3): W = β·[enc(c_1), …, enc(c_C)], each of norm 1.

    Args:
        encodings: shape (classes, features), by the encoder of the records.
        beta: scale (paper: 100).

    Example:
        >>> zero_shot([[3.0, 4.0], [0.0, 2.0]], beta=10.0)
        tensor([[ 6.,  0.],
                [ 8., 10.]], dtype=torch.float64)
    """
    rows = torch.as_tensor(encodings, dtype=torch.float64)
    return beta * torch.nn.functional.normalize(rows, dim=1).T
