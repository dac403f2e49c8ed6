"""Filtered descent: noisy gradient descent in which each record takes part until its own cap is reached.

A record whose gradients are short pays less for a step than one whose gradients are cut. So the noise is for a share of
what T steps can cost, and who has spent that leaves: every record has the same guarantee, whatever it really spent.
Proof: ``proofs/noisy_gd.md``; who is still there is secret. ``python -m examples.filtered``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

import privcalc as pc
from examples.dpftrl import Turns
from learners.frame.plan import Plan, make_plan
from learners.frame.records import PrivateRecords
from learners.gradients.exact import OuterProducts, cut_off
from learners.gradients.softmax import SoftmaxGradient
from learners.noisy_gd import NoisyGD
from privcalc.ledger import Stream
from privcalc.strategies import FixedOrder, Toeplitz

__all__ = ["FilteredGD"]

LEAST = 0.25
"""Below, a sum of cut gradients may be more than twice what the ledger takes for clipped."""

ROUNDING = 2.0**-49
"""More than what the square root of the cap errs by, relatively."""


class Filtered(Turns):
    """Private records that take part in every turn, until their cap is reached."""

    def filtered(self, stream: Stream, mu: float) -> Callable[[OuterProducts, float], Tensor]:
        """Releases of a stream where all take turns: (contribution, clip_norm) ↦ the noisy sum of those who may go on.

        A record may as long as Σ(norm/clip_norm)² ≤ mu² of all that it added; nobody is told who has left.
        """
        gate = pc.IndividualFilter(max(1, len(self._labels)), mu)

        def release(contribution: OuterProducts, clip_norm: float) -> Tensor:
            rows, chosen = self._as_rows(), stream.indices
            if chosen.size:
                norms = contribution.ratios(rows, self._labels, clip_norm).cpu().numpy()
                chosen = chosen[gate.charge(norms, 1.0, clip_norm=1.0)]
            admitted = torch.from_numpy(chosen).to(self._labels.device)
            total = contribution.clipped_sum(rows.at(admitted), self._labels[admitted], clip_norm)
            return stream.release(cut_off(total, clip_norm))

        return release


@dataclass(kw_only=True, eq=False)
class FilteredGD(NoisyGD):
    """Softmax regression by noisy gradient descent through an individual filter (:class:`privcalc.IndividualFilter`).

    Args:
        share: s in [0.25, 1]: a record leaves before Σ(‖clipped gradient‖/C)² passes s·T; noise is √s times that of
            ``NoisyGD``, which s = 1 is.
        steps: T, always given; of ``epsilon`` and ``noise_multiplier``, z over C, one.
        classes, epsilon, delta, relation, noise_multiplier, records, clip_norm: see :class:`NoisyGD`.
        clip_quantile, learning_rate, schedule, weight_decay, average, radius: see :class:`NoisyGD`.
        public_weight_decay, device, ledger, seed, progress: see :class:`NoisyGD`.

    Example:
        >>> import numpy as np
        >>> X, y = np.eye(2).repeat(500, axis=0), [0] * 500 + [1] * 500
        >>> model = FilteredGD(classes=[0, 1], epsilon=1.0, delta=1e-5, steps=20, records=1000).fit(X, y)
        >>> model.score(X, y), bool(model.certificate_.guarantee.epsilon <= 1.0)
        (1.0, True)
        >>> plain = NoisyGD(classes=[0, 1], epsilon=1.0, delta=1e-5, steps=20, records=1000).plan()
        >>> print(f"{model.noise_multiplier_ / plain.noise_multiplier:.4f}")
        0.8367
    """

    handle: ClassVar[type[PrivateRecords]] = Filtered
    share: float = 0.7

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.share, bool) or not LEAST <= self.share <= 1:
            raise pc.PrivcalcError(f"share = {self.share!r}: must be in [{LEAST}, 1]")
        if self.steps is None:
            raise pc.PrivcalcError("steps = None: must be given: the cap of a record is a share of all steps")

    def plan(self) -> Plan:
        """All T steps as one use of independent noise, whose clip norm is √s·C in the mean square over the steps."""
        assert self.steps is not None
        matrix, root = Toeplitz([1.0], steps=self.steps), math.sqrt(self.share)
        return make_plan(
            lambda z: pc.CorrelatedGaussian(z / root, matrix, FixedOrder(1)),
            epsilon=self.epsilon,
            delta=self.delta,
            noise_multiplier=self.noise_multiplier,
            steps=1,
            relation=self.relation,
        )

    def _releases(
        self, private: PrivateRecords, plan: Plan, clip_norm: float
    ) -> Callable[[SoftmaxGradient, float], Tensor]:
        """Of those who are admitted; all that a record adds is of norm at most √(sT)·C."""
        (run, _), *_ = plan.run.entries
        assert isinstance(run, pc.CorrelatedGaussian)
        assert isinstance(private, Filtered)
        bound = math.sqrt(self.share) * clip_norm * (1 + ROUNDING)
        stream = private.stream(run, bound, private.shape[0] * len(self.classes))
        return private.filtered(stream, math.nextafter(math.sqrt(self.share * plan.steps), math.inf))

    def _steps(self, plan: Plan) -> Iterator[int]:
        """1, …, T."""
        return iter(range(1, plan.steps + 1))

    def _rate(self, plan: Plan, count: int, clip_norm: float) -> float:
        """That of as many steps with as much noise."""
        alike = Plan(
            pc.Gaussian(plan.noise_multiplier) * plan.steps, plan.noise_multiplier, plan.guarantee, plan.relation
        )
        return super()._rate(alike, count, clip_norm)


def main() -> None:
    """On made-up records."""
    generator = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(3_000, 20, generator=generator), dim=1)
    y = (x[:, 0] > 0).long().tolist()
    model = FilteredGD(classes=[0, 1], epsilon=1.0, delta=1e-5, steps=50, records=2_000).fit(x[:2_000], y[:2_000])
    print(f"accuracy {model.score(x[2_000:], y[2_000:]):.3f}, {model.certificate_.guarantee}")


if __name__ == "__main__":
    main()
