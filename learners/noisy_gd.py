"""Noisy gradient descent: full batch, regularised towards a reference, projected, averaged.

AdaMix, Algorithm 1 and Theorem 3.

    w ← Π(w − η_t·((Σ_i clip(g_i) + N(0, (zC)² I))/n + λ(w − w_ref)))

n is a public count. The guarantee is GDP(√T/z) under add-or-remove-one, GDP(2√T/z) under replace-one:
``proofs/noisy_gd.md``, which also lists what the paper printed wrongly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

import privcalc as pc
from learners.frame.descent import Descent
from learners.frame.plan import Plan
from learners.frame.records import PrivateRecords
from learners.gradients.softmax import SoftmaxGradient, gradient_norms, into_ball, train_public

__all__ = ["NoisyGD", "best_weight_decay"]


@dataclass(kw_only=True, eq=False)
class NoisyGD(Descent):
    """Softmax regression by noisy gradient descent: Fully-Private without public records, warm with them.

    Public records, if given to ``fit``, train the start and the reference; that is the baseline *public start* when
    ``clip_quantile`` also takes the clip norm from them. In each step they take part in ``AdaMix``.

    Args:
        classes: the public list of classes.
        epsilon: ε; give exactly two of ``epsilon``, ``noise_multiplier`` and ``steps``.
        delta: δ (paper: 1e-5).
        relation: the neighbouring relation.
        noise_multiplier: z (paper: 20).
        steps: T.
        records: a public number of records to divide by; required under add-or-remove-one.
        clip_norm: C.
        clip_quantile: take C as this quantile of the public gradient norms at the start instead (*public start*: 0.9).
        learning_rate: η of the mean gradient; None takes :meth:`Plan.learning_rate`. With ``schedule="theorem"`` it is
            not used.
        schedule: "constant", or "theorem": η_t = 2/(λ(t + 1)), which needs λ > 0.
        weight_decay: λ of the mean loss.
        average: "last" iterate, or "theorem": 2/(T(T + 1))·Σ t·w_t.
        radius: project onto the ball of this radius around 0; None does not.
        public_weight_decay: λ of the summed loss of public records (paper: 1e-2).
        device: torch device.
        ledger: file of the ledger; None keeps it in memory.
        seed: reproducible noise, without any privacy.
        progress: show a bar with the ε spent.

    Example:
        >>> import numpy as np
        >>> X, y = np.eye(2).repeat(500, axis=0), [0] * 500 + [1] * 500
        >>> model = NoisyGD(classes=[0, 1], epsilon=1.0, delta=1e-5, steps=20, records=1000).fit(X, y)
        >>> model.score(X, y), bool(model.certificate_.guarantee.epsilon <= 1.0)
        (1.0, True)
    """

    page: ClassVar[str] = "noisy_gd.md"
    clip_norm: float = 1.0
    clip_quantile: float | None = None
    learning_rate: float | None = None
    schedule: Literal["constant", "theorem"] = "constant"
    weight_decay: float = 0.0
    average: Literal["last", "theorem"] = "last"
    radius: float | None = None
    public_weight_decay: float = 1e-2

    def __post_init__(self) -> None:
        if self.schedule == "theorem" and not self.weight_decay > 0:
            raise pc.PrivcalcError(f"weight_decay = {self.weight_decay!r}: must be > 0 for schedule='theorem'")

    def plan(self) -> Plan:
        """T Gaussian releases."""
        return self._plan(pc.Gaussian)

    def _train(self, private: PrivateRecords, plan: Plan, count: int, public: tuple[Tensor, Tensor] | None) -> Tensor:
        reference, clip_norm = self._start(private, public)
        reference, constant = into_ball(reference, self.radius), self._rate(plan, count, clip_norm)
        iterates = self._descend(
            private,
            plan,
            reference,
            count,
            rate=lambda t, _: 2 / (self.weight_decay * (t + 1)) if self.schedule == "theorem" else constant,
            clip=lambda _: clip_norm,
            release=self._releases(private, plan, clip_norm),
            decay=lambda weights: self.weight_decay * (weights - reference),
            radius=self.radius,
        )
        average = torch.zeros_like(reference)
        for t, weights in enumerate(iterates, 1):
            if t <= plan.steps:
                average += weights * (2 * t / (plan.steps * (plan.steps + 1)))
        return average if self.average == "theorem" else weights

    def _releases(
        self, private: PrivateRecords, plan: Plan, clip_norm: float
    ) -> Callable[[SoftmaxGradient, float], Tensor] | None:
        """What each step asks for its noisy sum; None is a release of the plan."""
        return None

    def _rate(self, plan: Plan, count: int, clip_norm: float) -> float:
        """As given, or by the rule."""
        if self.learning_rate is not None:
            return self.learning_rate
        return plan.learning_rate(count, clip_norm, len(self.classes), weight_decay=self.weight_decay)

    def _start(self, private: PrivateRecords, public: tuple[Tensor, Tensor] | None) -> tuple[Tensor, float]:
        """Reference and clip norm, from public records."""
        zeros = self._zeros(private.shape[0])
        if public is None:
            if self.clip_quantile is not None:
                raise pc.PrivcalcError("clip_quantile: must come with public records")
            return zeros, self.clip_norm
        start = train_public(*public, start=zeros, weight_decay=self.public_weight_decay)
        return start, clip_at(self.clip_quantile, start, public) if self.clip_quantile is not None else self.clip_norm


def clip_at(quantile: float, weights: Tensor, public: tuple[Tensor, Tensor]) -> float:
    """The quantile of the public gradient norms (AdaMix, "adaptive threshold")."""
    return max(float(torch.quantile(gradient_norms(weights, *public), quantile)), 1e-6)


def best_weight_decay(*, dimension: int, lipschitz: float, mu: float, distance: float, records: int = 1) -> float:
    """λ* = √(2dL²/(ρR²)) of Theorem 3, corrected, for the mean over ``records`` records: λ*/n.

    Args:
        dimension: d, number of parameters.
        lipschitz: L, the clip norm.
        mu: √T/z, the μ of the run's GDP under add-or-remove-one, whatever the relation; ρ = μ²/2.
        distance: R, a public bound of ‖w* − w_ref‖.
        records: n.

    Source: Golatkar et al. 2022 print the inverse; ``proofs/noisy_gd.md`` derives this one.

    Example:
        >>> best_weight_decay(dimension=8, lipschitz=1.0, mu=2.0, distance=2.0)
        1.4142135623730951
    """
    return math.sqrt(2 * dimension * lipschitz**2 / (0.5 * mu**2 * distance**2)) / records
