"""DP-SGD: noisy sums of clipped per-example gradients over sampled batches (Abadi et al. 2016), linear or any network.

    v ← β·v + (Σ_{i in batch} clip(g_i) + N(0, (zC)² I))/b,    θ ← θ − η(v + λθ)

b is the public expected batch size. Proof: ``proofs/dpsgd.md``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import privcalc as pc
from learners.frame.descent import SampledDescent
from learners.frame.plan import Plan
from learners.frame.records import PrivateRecords
from learners.gradients.network import NetworkGradient, flatten, unflatten
from learners.gradients.softmax import SoftmaxGradient, train_public
from privcalc import errors

__all__ = ["DPSGD"]


@dataclass(kw_only=True, eq=False)
class DPSGD(SampledDescent):
    """DP-SGD on softmax regression, or on ``model``; cold, or warm from public records.

    Args:
        classes: the public list of classes.
        epsilon: ε; give exactly two of ``epsilon``, ``noise_multiplier`` and ``steps``.
        delta: δ.
        relation: the neighbouring relation.
        noise_multiplier: z.
        steps: T.
        sample_rate: q, the probability with which each record takes part in a step; None where ``sampler`` is a
            function.
        sampler: "poisson", or "fixed": batches of round(q·records) without replacement, whose guarantee is another. Or
            a function from what is released on a batch to the step, for any other sampler whose batches a ledger draws;
            T counts its uses.
        records: a public number of records; required under add-or-remove-one, and for fixed-size batches the smallest
            that the larger of two neighbouring data sets may have.
        clip_norm: C.
        learning_rate: η; None takes (1 − momentum) times :meth:`Plan.learning_rate`, for a network 0.5.
        momentum: β in [0, 1).
        weight_decay: λ.
        model: makes the network, with weights that giving it declares to be public; None is softmax regression on flat
            features.
        public_weight_decay: λ of the summed loss of public records; of a network, its weight decay.
        public_steps: gradient steps on public records, for a network.
        device: torch device.
        ledger: file of the ledger; None keeps it in memory.
        seed: reproducible noise and batches, without any privacy.
        progress: show a bar with the ε spent.

    Example:
        >>> import numpy as np
        >>> X, y = np.eye(2).repeat(500, axis=0), [0] * 500 + [1] * 500
        >>> budget = {"epsilon": 2.0, "delta": 1e-5, "sample_rate": 0.1, "steps": 30, "records": 1000}
        >>> model = DPSGD(classes=[0, 1], learning_rate=4.0, **budget)
        >>> model.fit(X, y).score(X, y)
        1.0
        >>> model.certificate_.run.entries[0][0].rate
        0.1
    """

    page: ClassVar[str] = "dpsgd.md"
    momentum: float = 0.0
    weight_decay: float = 0.0
    model: Callable[[], nn.Module] | None = None
    public_weight_decay: float = 1e-2
    public_steps: int = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        errors.real("momentum", self.momentum, "in [0, 1)", low=0.0, high=1.0, open_high=True)

    def _first(self) -> object:
        if self.model is None:
            return None
        self._network = self.model().to(self.device).train()
        return self._network

    @property
    def _flat(self) -> bool:
        return self.model is None  # networks take what they take

    def _train(self, private: PrivateRecords, plan: Plan, count: int, public: tuple[Tensor, Tensor] | None) -> Tensor:
        return deque(self._iterates(private, plan, count, public), maxlen=1).pop()

    def _iterates(
        self, private: PrivateRecords, plan: Plan, count: int, public: tuple[Tensor, Tensor] | None
    ) -> Iterator[Tensor]:
        """θ₁, …, θ_T."""
        batch, theta = self._batch(plan, count), self._start(private, public)
        noisy, velocity, rate = torch.zeros_like(theta), torch.zeros_like(theta), self._rate(plan, batch)
        for _ in self._steps(plan):
            noisy = self._noisy_mean(private, plan.step, batch, theta, noisy, public).to(theta.dtype)
            velocity = self.momentum * velocity + noisy
            theta = theta - rate * (velocity + self.weight_decay * theta)
            yield theta

    def _noisy_mean(
        self,
        private: PrivateRecords,
        step: pc.Mechanism,
        batch: float,
        theta: Tensor,
        last: Tensor,
        public: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """The gradient at θ; ``last`` is the one before."""
        return private.noisy_sum(self._gradient(theta), step, self.clip_norm) / batch

    def _rate(self, plan: Plan, batch: float) -> float:
        """As given, or by the rule for linear models; of a network only its momentum is known."""
        if self.learning_rate is not None:
            return self.learning_rate
        if self.model is not None:
            return 0.5 * (1 - self.momentum)
        rule = plan.learning_rate(batch, self.clip_norm, len(self.classes), weight_decay=self.weight_decay)
        return (1 - self.momentum) * rule

    def _gradient(self, theta: Tensor) -> SoftmaxGradient | NetworkGradient:
        return SoftmaxGradient(theta) if self.model is None else NetworkGradient(self._network, theta)

    def _start(self, private: PrivateRecords, public: tuple[Tensor, Tensor] | None) -> Tensor:
        """Zero, or the network's own start; better, if there are public records."""
        if self.model is None:
            zeros = self._zeros(private.shape[-1])
            return (
                zeros if public is None else train_public(*public, start=zeros, weight_decay=self.public_weight_decay)
            )
        theta = flatten(self._network)
        if public is not None:
            optimizer = torch.optim.Adam(self._network.parameters(), lr=1e-3, weight_decay=self.public_weight_decay)
            shared = public[0].to(theta.dtype)
            for _ in range(self.public_steps):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(self._network(shared), public[1])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            theta = flatten(self._network)
        return theta

    def _scores(self, features: Tensor) -> Tensor:
        """The logits."""
        return self._logits(self.weights_, features)

    def _logits(self, weights: Tensor, features: Tensor) -> Tensor:
        """The logits of one model with these weights."""
        if self.model is None:
            return features @ weights
        with torch.no_grad():
            network: Any = torch.func.functional_call
            found: Tensor = network(
                self._network.eval(), unflatten(self._network, weights), (features.to(weights.dtype),)
            )
        return found
