"""A learner's plan, declared before it starts: which mechanism, how often, for which guarantee.

The accountant fills in the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import privcalc as pc

__all__ = ["Plan", "make_plan"]

ENOUGH = 25.0
"""The strength below which steps are smaller, lest their noise drown a good start."""


@dataclass(frozen=True)
class Plan:
    """A training run, fixed before any private record is touched; make it with :meth:`of` or :func:`make_plan`.

    Attributes:
        run: what will be released.
        noise_multiplier: z, of every step or as a common scale.
        guarantee: of the run.
        relation: the neighbouring relation.
    """

    run: pc.Run
    noise_multiplier: float
    guarantee: pc.Guarantee
    relation: pc.Relation

    @classmethod
    def of(cls, run: pc.Run, noise_multiplier: float, delta: float, relation: pc.Relation) -> Plan:
        """With the guarantee that the accountant gives for the run."""
        guarantee = pc.Guarantee(epsilon=run.epsilon(delta=delta, relation=relation), delta=delta, relation=relation)
        return cls(run, noise_multiplier, guarantee, relation)

    @property
    def step(self) -> pc.Mechanism:
        """The mechanism of every step, where all are the same."""
        ((mechanism, _),) = self.run.entries
        return mechanism

    @property
    def steps(self) -> int:
        """T; of one use of correlated noise, those of its strategy."""
        return sum(n * (m.strategy.columns if isinstance(m, pc.CorrelatedGaussian) else 1) for m, n in self.run.entries)

    @property
    def releases(self) -> int:
        """How many sums: T, or more where one use of the step has several batches."""
        return sum(count * mechanism.batches for mechanism, count in self.run.entries)

    def strength(self, batch: float, classes: int) -> float:
        """The signal of a class in all steps: its share of the batch over z/√T, their mean's noise, per clip norm."""
        return batch * math.sqrt(self.releases) / (classes * self.noise_multiplier)

    def learning_rate(
        self,
        batch: float,
        clip_norm: float,
        classes: int,
        *,
        noise: float = 0.7,
        largest: float = 16.0,
        weight_decay: float = 0.0,
    ) -> float:
        """A step size for the mean gradient of softmax regression: min(largest/min(1, C), ν·batch/(zC√T)).

        ν·batch/(zC√T) is where T steps leave noise of standard deviation ν in a coordinate of the model, hence in a
        logit of features of norm 1; ν is ``noise``, in proportion less where the strength is below 25. A gradient that
        is clipped to C bends, like itself, by the factor C/‖g‖ less: so the limit for stability is for the product of
        rate and C, ‖g‖ being about 1 where C is not below it. Nor is the rate above 1/λ, λ the weight decay. The
        constants were chosen on MNIST digits; z, T, C and the batch are public
        (``proofs/noisy_gd.md``).
        """
        noise *= min(1.0, self.strength(batch, classes) / ENOUGH)
        found = noise * batch / (self.noise_multiplier * clip_norm * math.sqrt(self.releases))
        return min(found, largest / min(1.0, clip_norm), 1 / weight_decay if weight_decay > 0 else math.inf)

    def spent(self, steps: int) -> float:
        """ε after so many steps, for a progress display: it follows from the plan alone."""
        return float((self.step * steps).epsilon(delta=self.guarantee.delta or 0.0, relation=self.relation))


def make_plan(
    step: Callable[[float], pc.Mechanism],
    *,
    epsilon: float | None,
    delta: float,
    noise_multiplier: float | None,
    steps: int | None,
    relation: pc.Relation,
) -> Plan:
    """Ask the accountant for what is missing.

    Args:
        step: the mechanism of a step with a given noise multiplier.
        epsilon: ε; give exactly two of ``epsilon``, ``noise_multiplier`` and ``steps``.
        delta: δ in (0, 1).
        noise_multiplier: z > 0.
        steps: T ≥ 1.
        relation: the neighbouring relation.

    Raises:
        PrivcalcError: if not exactly two are given, or no step is allowed.

    Example:
        >>> import privcalc as pc
        >>> target = {"epsilon": 3.0, "delta": 1e-5, "relation": pc.ADD_OR_REMOVE_ONE}
        >>> make_plan(pc.Gaussian, **target, noise_multiplier=20.0, steps=None).steps
        206
    """
    given = {"epsilon": epsilon, "noise_multiplier": noise_multiplier, "steps": steps}
    known = [name for name, value in given.items() if value is not None]
    if len(known) != 2:
        raise pc.PrivcalcError(
            f"{', '.join(known) or 'nothing'}: must be exactly two of epsilon, noise_multiplier and steps"
        )
    if noise_multiplier is None:
        assert steps is not None
        count = steps
        found = pc.calibrate(lambda z: step(z) * count, epsilon=epsilon, delta=delta, relation=relation)
        noise, number = float(found), count
    elif steps is None:
        one = step(noise_multiplier)
        found = pc.calibrate(lambda t: one * int(t), epsilon=epsilon, delta=delta, relation=relation, integer=True)
        noise, number = noise_multiplier, int(found.parameter)
    else:
        noise, number = noise_multiplier, steps
    if number < 1:
        raise pc.PrivcalcError(
            f"epsilon = {epsilon!r}: allows no step with noise_multiplier = {noise!r}; use more noise"
        )
    return Plan.of(step(noise) * number, noise, delta, relation)
