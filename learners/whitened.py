"""Whitened descent, the learner to begin with: whitened public principal components; then noisy descent.

The descent begins at a model of the public records, where they have labels.

    x ← normalised((Λ_k + λ̄)^(−½)·V_kᵀx)
    w ← w − η·(Σ_public g_i + Σ_i clip_C(g_i) + N(0, (zC)² I))/(n + n_public)

V_k and Λ_k are principal components of public records and their second moments, so that the map treats each private
record for itself and costs nothing: GDP(√T/z). How many components, how large a step: a rule of public numbers.
``proofs/whitened.md``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from numpy.typing import ArrayLike
from torch import Tensor

import privcalc as pc
from learners.frame.descent import Descent, stable_rate
from learners.frame.plan import Plan
from learners.frame.records import PrivateRecords
from learners.gradients.softmax import train_public
from learners.gradients.whitening import whitened, whitening
from privcalc import errors

__all__ = ["WhitenedGD", "dimensions", "evened"]

LEAST, WARM, MOST = 10, 100, 200
"""Components: at least, at least with labelled public records, at most."""

NOISE, LARGEST = 1.0, 64.0
"""See :meth:`Plan.learning_rate`; whitened features are less steep."""

NONE = -1
"""The label of a public record that has none."""

SHARE = 0.9
"""Of an even share of the public records: for so many each class is predicted, where they are balanced."""


@dataclass(kw_only=True, eq=False)
class WhitenedGD(Descent):
    """Softmax regression by noisy descent on whitened public principal components.

    Needs public features, and is better with labels.

    ``fit``'s ``X_public`` may come with labels or without; those with labels also train the start, and take part in
    every step.

    Args:
        classes: the public list of classes.
        epsilon: ε; give exactly two of ``epsilon``, ``noise_multiplier`` and ``steps``.
        delta: δ.
        relation: the neighbouring relation.
        noise_multiplier: z.
        steps: T.
        records: a public number of private records; required under add-or-remove-one.
        unlabelled: more public features, shape (n, features), which giving them declares to be public.
        dimension: k; None takes :func:`dimensions`.
        ridge: λ, in mean second moments of the components that are kept: 0 whitens, ∞ would leave them as they are.
        clip_norm: C. Gradients of norm up to 1 are cut to nearly one length: what a record adds when it is fitted well
            is as much above the noise as at the start.
        learning_rate: η of the mean gradient; None takes :meth:`Plan.learning_rate`.
        public_weight_decay: λ of the summed loss of public records.
        self_training: after the fit, which costs nothing, learn once more from what the model predicts for the public
            records (:func:`learners.frame.student.taught`); not where the plan's strength is above 100.
        balanced: declares that public records without labels, and those to be predicted, are of all classes about
            evenly; private ones need not be: a class that long tails hide gets a bias, by :func:`evened`. It costs
            nothing.
        device: torch device.
        ledger: file of the ledger; None keeps it in memory.
        seed: reproducible noise, without any privacy.
        progress: show a bar with the ε spent.

    Example:
        >>> import numpy as np
        >>> X, y = np.eye(4)[[0, 1]].repeat(500, axis=0), np.repeat([0, 1], 500)
        >>> model = WhitenedGD(classes=[0, 1], epsilon=1.0, delta=1e-5, records=1000).fit(X, y, np.eye(4))
        >>> model.score(X, y), bool(model.certificate_.guarantee.epsilon <= 1.0)
        (1.0, True)
    """

    page: ClassVar[str] = "whitened.md"
    needs_labels: ClassVar[bool] = False
    steps: int | None = 50
    unlabelled: ArrayLike | Tensor | None = None
    dimension: int | None = None
    ridge: float = 1.0
    clip_norm: float = 0.1
    learning_rate: float | None = None
    public_weight_decay: float = 0.1
    balanced: bool = False
    self_training: bool = False

    def __post_init__(self) -> None:
        if self.dimension is not None:
            errors.count("dimension", self.dimension, least=1)
        errors.epsilon("ridge", self.ridge)

    def plan(self) -> Plan:
        """T Gaussian releases."""
        return self._plan(pc.Gaussian)

    def _checked_public(
        self,
        X_public: ArrayLike | Tensor | None,
        y_public: ArrayLike | None,
        X: ArrayLike | Tensor,
        shape: tuple[int, ...],
    ) -> tuple[Tensor, Tensor]:
        """All of them, those with labels and those without."""
        found = []
        for features, labels in ((X_public, y_public), (self.unlabelled, None)):
            part = super()._checked_public(features, labels, X, shape)
            if part is not None:
                found.append(part if labels is not None else (part[0], torch.full_like(part[1], NONE)))
        if not found:
            raise pc.PrivcalcError(
                "X_public: must be given, or unlabelled=, for principal components; without any, use NoisyGD"
            )
        rows, labels = (torch.cat(parts) for parts in zip(*found, strict=True))
        if self.balanced and not bool((labels == NONE).any()):
            raise pc.PrivcalcError(
                "balanced = True: must come with public records without labels: a start fits those that have them"
            )
        return rows, labels

    def _train(self, private: PrivateRecords, plan: Plan, count: int, public: tuple[Tensor, Tensor] | None) -> Tensor:
        assert public is not None
        features, labels = public
        labelled = labels != NONE
        k = self.dimension or dimensions(plan.strength(count, len(self.classes)), warm=bool(labelled.any()))
        self.project_: Callable[[Tensor], Tensor] = functools.partial(
            whitened, matrix=whitening(features, k, self.ridge)
        )
        records, shared = private.map(self.project_), (self.project_(features[labelled]), labels[labelled])
        weights, number = self._zeros(records.shape[0]), count + len(shared[1])
        if len(shared[1]):
            weights = train_public(*shared, start=weights, weight_decay=self.public_weight_decay)
        rate = self.learning_rate
        if rate is None:
            rate = plan.learning_rate(count, self.clip_norm, len(self.classes), noise=NOISE, largest=LARGEST)
            rate = min(rate, stable_rate(shared[0], number))
        *_, weights = self._descend(
            records, plan, weights, number, rate=lambda *_: rate, clip=lambda _: self.clip_norm, shared=shared
        )
        unlabelled = self.project_(features[~labelled])
        self.bias_ = evened(unlabelled @ weights) if self.balanced else torch.zeros_like(weights[0])
        return weights

    def _scores(self, features: Tensor) -> Tensor:
        """Logits of the whitened features."""
        return super()._scores(self.project_(features)) + self.bias_


def dimensions(strength: float, *, warm: bool) -> int:
    """The number of components: 1½ for each unit of strength, but between 10 and 200.

    With labelled public records it is at least 100.

    Args:
        strength: √T·n/(z·classes), of a class's records over the noise of the whole run.
        warm: whether there are labelled public records.

    Example:
        >>> dimensions(27.0, warm=False), dimensions(27.0, warm=True)
        (40, 100)
    """
    return max(WARM if warm else LEAST, min(MOST, round(1.5 * strength)))


def evened(logits: Tensor, *, rounds: int = 1000) -> Tensor:
    """The least biases with which the mean softmax gives each class 0.9 of an even share, shape (classes,).

    Raising a bias by log(wanted/found) never raises the mean above what is wanted, so that the rounds go up to them.

    Args:
        logits: of public records, shape (n, classes).
        rounds: at most.

    Example:
        >>> evened(torch.tensor([[0.0, 0.0, 0.0]]))
        tensor([0., 0., 0.])
        >>> bias = evened(torch.tensor([[0.0, 9.0], [0.0, 8.0]]))
        >>> torch.softmax(torch.tensor([[0.0, 9.0], [0.0, 8.0]]) + bias, dim=1).mean(dim=0)
        tensor([0.4500, 0.5500])
    """
    bias, least = torch.zeros_like(logits[0]), SHARE / logits.shape[1]
    for _ in range(rounds):
        found = torch.softmax(logits + bias, dim=1).mean(dim=0).clamp_min(1e-300)
        if float(found.min()) >= least * (1 - 1e-4):
            break
        bias = bias + (least / found).log().clamp_min(0.0)
    return bias
