"""Learners that take T equal steps: of ε, the noise multiplier and T, two given ones determine the third."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from tqdm import tqdm

import privcalc as pc
from learners.frame.learner import Learner
from learners.frame.plan import Plan, make_plan
from learners.frame.records import PrivateRecords
from learners.gradients.softmax import SoftmaxGradient, into_ball, public_gradient
from privcalc import errors

__all__ = ["Descent", "SampledDescent", "stable_rate"]

Sampler = Literal["poisson", "fixed"] | Callable[[pc.Mechanism], pc.Mechanism]
"""How batches are drawn: by name, or the step as a function of what is released on a batch."""

DISPLAYS = 20
"""How often the progress bar asks for the ε spent."""


@dataclass(kw_only=True, eq=False)
class Descent(Learner):
    """T equal steps, divided by a public number of records."""

    epsilon: float | None = None
    noise_multiplier: float | None = None
    steps: int | None = None
    records: int | None = None

    def _plan(self, step: Callable[[float], pc.Mechanism]) -> Plan:
        """The step at noise multiplier z, T times."""
        return make_plan(
            step,
            epsilon=self.epsilon,
            delta=self.delta,
            noise_multiplier=self.noise_multiplier,
            steps=self.steps,
            relation=self.relation,
        )

    def _count(self, size: int) -> int:
        """The public number of records."""
        if self.records is not None:
            return errors.count("records", self.records, least=1)
        if self.relation is pc.ADD_OR_REMOVE_ONE:
            raise pc.PrivcalcError(
                "records = None: must be a public number of records, "
                "because under add-or-remove-one the true one is private"
            )
        return size

    def _strength(self, plan: Plan, count: int) -> float:
        return plan.strength(plan.step.expected_size(count), len(self.classes))

    def _descend(
        self,
        private: PrivateRecords,
        plan: Plan,
        start: Tensor,
        number: int,
        *,
        rate: Callable[[int, float], float],
        clip: Callable[[Tensor], float],
        release: Callable[[SoftmaxGradient, float], Tensor] | None = None,
        shared: tuple[Tensor, Tensor] | None = None,
        basis: Callable[[Tensor], Tensor] | None = None,
        decay: Callable[[Tensor], Tensor] | None = None,
        radius: float | None = None,
    ) -> Iterator[Tensor]:
        """w₁ = start, …, w_{T+1} of full-batch descent: w ← Π(w − η((G_pub + U(Σ Uᵀ clip_τ(g_i) + noise))/n + λ(w))).

        Args:
            private: the records, or their images under a public map.
            plan: T Gaussian releases.
            start: w₁.
            number: n, public.
            rate: η of the step's number and τ.
            clip: τ of w.
            release: the noisy sum of a contribution that is clipped at τ; None is a step of the plan.
            shared: public records, whose gradients are added; None are none.
            basis: U of w, orthonormal columns; None does not project.
            decay: the gradient of what is added to the mean loss; None is 0.
            radius: of the ball around 0 that Π projects on; None is everything.
        """
        ask = release or (lambda contribution, clip_norm: private.noisy_sum(contribution, plan.step, clip_norm))
        weights = start
        yield weights
        for t in self._steps(plan):
            clip_norm, directions = clip(weights), None if basis is None else basis(weights)
            gradient = ask(SoftmaxGradient(weights, directions), clip_norm)
            if directions is not None:
                gradient = directions @ gradient
            if shared is not None:
                gradient = gradient + public_gradient(weights, *shared)
            slope = gradient / number
            if decay is not None:
                slope = slope + decay(weights)
            weights = into_ball(weights - rate(t, clip_norm) * slope, radius)
            yield weights

    def _steps(self, plan: Plan) -> Iterator[int]:
        """A number for each release, 1, 2, …, with a bar that shows the ε spent so far by the plan."""
        every, each = max(1, plan.releases // DISPLAYS), plan.releases // plan.steps
        with tqdm(
            total=plan.releases, disable=None if self.progress else True, desc=type(self).__name__, unit="step"
        ) as bar:
            for t in range(1, plan.releases + 1):
                yield t
                if self.progress and (t % every == 0 or t == plan.releases):
                    bar.set_postfix_str(f"ε = {plan.spent(-(-t // each)):.3g} at δ = {self.delta:g}")
                bar.update(1)


@dataclass(kw_only=True, eq=False)
class SampledDescent(Descent):
    """Each step sees a batch, sampled in a named way."""

    sample_rate: float | None = None
    sampler: Sampler = "poisson"
    clip_norm: float = 1.0
    learning_rate: float | None = None

    def __post_init__(self) -> None:
        if self.sampler not in ("poisson", "fixed") and not callable(self.sampler):
            raise pc.PrivcalcError(
                f"sampler = {self.sampler!r}: must be 'poisson', 'fixed' or a function from the release on a batch to "
                "the step, such as lambda release: pc.UserSampled(release, rate=0.01, records=8); "
                "a shuffled loader is none of them"
            )
        if callable(self.sampler) != (self.sample_rate is None):
            raise pc.PrivcalcError(
                f"sample_rate = {self.sample_rate!r}: must be given for sampler='poisson' and 'fixed', and not where "
                "sampler describes the whole step"
            )

    def plan(self) -> Plan:
        """T releases over batches of the named scheme."""
        return self._plan(self._step)

    def _step(self, noise_multiplier: float) -> pc.Mechanism:
        gaussian = pc.Gaussian(noise_multiplier)
        if callable(self.sampler):
            step = self.sampler(gaussian)
            if not isinstance(step, pc.Mechanism):
                raise pc.PrivcalcError(f"sampler: must give a mechanism for {gaussian}, not {step!r}")
            return step
        assert self.sample_rate is not None
        if self.sampler == "poisson":
            return pc.PoissonSampled(gaussian, self.sample_rate)
        if self.records is None:
            raise pc.PrivcalcError("records = None: must be given for sampler='fixed'")
        return pc.FixedSizeSampled(gaussian, max(1, round(self.sample_rate * self.records)), self.records)

    def _batch(self, plan: Plan, count: int) -> float:
        """The batch size, or its expectation by the public count."""
        return max(1.0, plan.step.expected_size(count))


def stable_rate(features: Tensor, number: int) -> float:
    """Steps of this size, of a sum that is divided by ``number``, cannot raise the softmax loss of public records.

    Its Hessian is at most half of Σ x xᵀ (diag(p) − ppᵀ has norm at most ½), and gradient descent is stable below 2
    over that.

    Example:
        >>> stable_rate(torch.eye(2), 10)
        40.0
    """
    norm = float(torch.linalg.matrix_norm(features, 2)) if len(features) else 0.0
    return 4.0 * number / max(norm**2, 1e-300)
