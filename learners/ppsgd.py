"""PPSGD: a private run whose parameters public records set, then a public model drawn towards it (Wang, Zhou 2020).

    1.  w ← noisy descent on private records, the clip norm a quantile of public gradient norms
    2.  argmin_v Σ_public loss(v) + λ/2·‖v − w‖²,    λ by cross-validation on public records

The second stage ("model reuse") looks at public records and at what the first released: ``proofs/noisy_gd.md``. Full
batch, it is the PPGD that AdaMix is compared with (Golatkar et al. 2022, §4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

import privcalc as pc
from learners.frame.plan import Plan
from learners.frame.records import PrivateRecords
from learners.gradients.softmax import train_public
from learners.noisy_gd import NoisyGD, clip_at

__all__ = ["PPSGD", "reused"]

FOLDS = 5


@dataclass(kw_only=True, eq=False)
class PPSGD(NoisyGD):
    """Softmax regression in two stages: noisy descent from 0, then reuse of its model by public records.

    The public records must have labels.

    Args:
        reuse: the λ of the second stage that public records choose among.
        clip_quantile: the first stage's C is this quantile of public gradient norms at 0; None takes ``clip_norm``.
        classes, epsilon, delta, relation, noise_multiplier, steps, records, clip_norm: see :class:`NoisyGD`.
        learning_rate, schedule, weight_decay, average, radius, device, ledger, seed, progress: see :class:`NoisyGD`.
        public_weight_decay: not used.

    Example:
        >>> import numpy as np
        >>> X, y = np.eye(2).repeat(500, axis=0), [0] * 500 + [1] * 500
        >>> model = PPSGD(classes=[0, 1], epsilon=1.0, delta=1e-5, steps=20, records=1000)
        >>> model.fit(X, y, np.eye(2).repeat(5, axis=0), [0] * 5 + [1] * 5).score(X, y)
        1.0
    """

    page: ClassVar[str] = "noisy_gd.md"
    reuse: Sequence[float] = (0.01, 0.1, 1.0, 10.0, 100.0)
    clip_quantile: float | None = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        self.reuse = tuple(self.reuse)
        if not self.reuse or not min(self.reuse) > 0:
            raise pc.PrivcalcError(f"reuse = {self.reuse!r}: must be weights > 0, at least one")

    def _start(self, private: PrivateRecords, public: tuple[Tensor, Tensor] | None) -> tuple[Tensor, float]:
        """0, and the clip norm there."""
        zeros = self._zeros(private.shape[0])
        if public is None:
            raise pc.PrivcalcError("X_public, y_public: PPSGD needs labelled public records; without any, use NoisyGD")
        return zeros, self.clip_norm if self.clip_quantile is None else clip_at(self.clip_quantile, zeros, public)

    def _train(self, private: PrivateRecords, plan: Plan, count: int, public: tuple[Tensor, Tensor] | None) -> Tensor:
        model = super()._train(private, plan, count, public)
        assert public is not None
        return reused(model, public, self.reuse)


def reused(model: Tensor, public: tuple[Tensor, Tensor], decays: Sequence[float]) -> Tensor:
    """Minimise Σ loss(v) + λ/2·‖v − model‖² over public records, λ with the least loss in cross-validation.

    Records are split in their order.

    Args:
        model: shape (features, classes), released.
        public: features and labels.
        decays: λ > 0 to choose among.
    """
    features, labels = public
    folds = torch.arange(len(labels), device=labels.device) % FOLDS

    def held_out(decay: float) -> float:
        total = 0.0
        for fold in range(min(FOLDS, len(labels))):
            rest = folds != fold
            if not bool(rest.any()):  # a single record
                return -decay
            found = train_public(features[rest], labels[rest], start=model, weight_decay=decay, reference=model)
            total += float(torch.nn.functional.cross_entropy(features[~rest] @ found, labels[~rest], reduction="sum"))
        return total

    best = min(decays, key=held_out)
    return train_public(features, labels, start=model, weight_decay=best, reference=model)
