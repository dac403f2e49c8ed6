"""DP-FTRL: descent with noise that is correlated over the steps (Kairouz et al. 2021; matrix factorisation).

    v ← β·v + (x_t + (C⁻¹Z)_t)/b,    θ ← θ − η(v + λθ)

x_t is the sum of clipped gradients of the records whose turn it is, Z has N(0, (zC)² I) rows, b is the public expected
batch size. Every record has one place in the epoch, drawn once. Proof: ``proofs/correlated.md``.
``python -m examples.dpftrl``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

import privcalc as pc
from learners.frame.descent import Descent
from learners.frame.plan import Plan, make_plan
from learners.frame.records import PrivateRecords
from learners.gradients.exact import Exact, cut_off
from learners.gradients.softmax import SoftmaxGradient, train_public
from privcalc.ledger import Stream
from privcalc.strategies import CyclicPoisson, FixedOrder, MinSeparation, Strategy, momentum, optimal_toeplitz, spread

__all__ = ["DPFTRL", "Turns"]


class Turns(PrivateRecords):
    """Private records whose sums are taken in turns, with noise that is correlated over them."""

    def stream(self, step: pc.CorrelatedGaussian, clip_norm: float, coordinates: int) -> Stream:
        """Charge all of it, as stated: contributions come later. Each record gets a random place in the epoch."""
        given: dict[str, Any] = {"coordinates": coordinates, "clip_norm": clip_norm, "error": 0.0}
        with self._asking(self):
            return self._ledger.correlated(step, records=len(self._labels), **given)

    def noisy_turn(self, contribution: Exact, stream: Stream, clip_norm: float) -> Tensor:
        """The sum of the clipped contributions of those whose turn it is, plus the stream's noise."""
        chosen = torch.from_numpy(stream.indices).to(self._labels.device)
        total = contribution.clipped_sum(self._as_rows().at(chosen), self._labels[chosen], clip_norm)
        return stream.release(cut_off(total, clip_norm))


@dataclass(kw_only=True, eq=False)
class DPFTRL(Descent):
    """Softmax regression with correlated noise; cold, or warm from public records.

    Args:
        classes: the public list of classes.
        epsilon: ε; give exactly one of ``epsilon`` and ``noise_multiplier``.
        delta: δ.
        relation: the neighbouring relation.
        noise_multiplier: z, of an entry of Z.
        steps: T.
        epoch: b, steps of an epoch: a record takes part in one of every b, always at the same place. Give this or
            ``rate``.
        rate: probability of a record's coin in the turns of its class, of which there are ``bands``.
        records: a public number of records; required under add-or-remove-one.
        strategy: a matrix of :mod:`privcalc.strategies`; None takes the best ``bands`` coefficients for ``momentum``
            and ``weight_decay``.
        bands: how many coefficients; None takes an epoch's. Required with ``rate``.
        clip_norm: C.
        learning_rate: η; None lets the noise in a logit of the last step have a standard deviation of at most 1, up to
            η = 16, which is :meth:`Plan.learning_rate` where noise is independent.
        momentum: β in [0, 1).
        weight_decay: λ.
        public_weight_decay: λ of the summed loss of public records.
        device: torch device.
        ledger: file of the ledger; None keeps it in memory.
        seed: reproducible noise and places, without any privacy.
        progress: show a bar.

    Example:
        >>> import numpy as np
        >>> X, y = np.eye(2).repeat(500, axis=0), [0] * 500 + [1] * 500
        >>> model = DPFTRL(classes=[0, 1], epsilon=2.0, delta=1e-5, steps=40, epoch=10, records=1000)
        >>> model.fit(X, y).score(X, y)
        1.0
        >>> bool(model.certificate_.guarantee.epsilon <= 2.0)
        True
    """

    handle: ClassVar[type[PrivateRecords]] = Turns
    epoch: int | None = None
    rate: float | None = None
    strategy: Strategy | None = None
    bands: int | None = None
    clip_norm: float = 1.0
    learning_rate: float | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    public_weight_decay: float = 1e-2

    def __post_init__(self) -> None:
        if self.steps is None:
            raise pc.PrivcalcError("steps = None: must be given: the strategy is one for all steps")
        if (self.epoch is None) == (self.rate is None) or (self.rate is not None and self.bands is None):
            raise pc.PrivcalcError(
                f"epoch = {self.epoch!r}, rate = {self.rate!r}, bands = {self.bands!r}: must be epoch, "
                "or rate and bands"
            )
        if not (0 <= self.momentum < 1 and 0 <= self.weight_decay < 1):
            raise pc.PrivcalcError(
                f"momentum = {self.momentum!r}, weight_decay = {self.weight_decay!r}: must be in [0, 1)"
            )

    def plan(self) -> Plan:
        """One use of correlated noise."""
        matrix = self._strategy()
        order = self._order() if self.rate is None else CyclicPoisson(self._order().separation, self.rate)
        return make_plan(
            lambda z: pc.CorrelatedGaussian(z, matrix, order),
            epsilon=self.epsilon,
            delta=self.delta,
            noise_multiplier=self.noise_multiplier,
            steps=1,
            relation=self.relation,
        )

    def _order(self) -> FixedOrder | MinSeparation:
        """When a record may come back."""
        if self.epoch is not None:
            return FixedOrder(self.epoch)
        assert self.bands is not None
        return MinSeparation(self.bands)

    def _workload(self) -> Tensor:
        assert self.steps is not None
        return torch.from_numpy(momentum(self.steps, beta=self.momentum))

    def _strategy(self) -> Strategy:
        """As given, or the best for sums with this momentum."""
        assert self.steps is not None
        if self.strategy is not None:
            if self.strategy.columns != self.steps:
                raise pc.PrivcalcError(f"strategy: must be one for steps = {self.steps}, not {self.strategy.columns}")
            return self.strategy
        order = self._order()
        bands = min(self.steps, self.bands or order.separation)
        return optimal_toeplitz(self.steps, order, bands=bands, workload=self._workload().numpy())

    def _train(self, private: PrivateRecords, plan: Plan, count: int, public: tuple[Tensor, Tensor] | None) -> Tensor:
        theta = self._zeros(private.shape[0])
        if public is not None:
            theta = train_public(*public, start=theta, weight_decay=self.public_weight_decay)
        (run, _), *_ = plan.run.entries
        assert isinstance(run, pc.CorrelatedGaussian)
        assert isinstance(private, Turns)
        batch = max(1.0, run.expected_size(count))
        velocity, rate = torch.zeros_like(theta), self._rate(run, batch)
        stream = private.stream(run, self.clip_norm, theta.numel())
        for _ in self._turns(plan):
            noisy = private.noisy_turn(SoftmaxGradient(theta), stream, self.clip_norm) / batch
            velocity = self.momentum * velocity + noisy
            theta = theta - rate * (velocity + self.weight_decay * theta)
        return theta

    def _turns(self, plan: Plan) -> Iterator[int]:
        """1, …, T."""
        return iter(range(1, plan.steps + 1))

    def _rate(self, run: pc.CorrelatedGaussian, batch: float) -> float:
        """As given, or by the noise that is left in the last step."""
        if self.learning_rate is not None:
            return self.learning_rate
        noise = run.noise_multiplier * spread(run.strategy, self._workload().numpy(), "max")
        return min(16.0 * (1 - self.momentum) / min(1.0, self.clip_norm), 0.7 * batch / (self.clip_norm * noise))


def main() -> None:
    """On made-up records."""
    generator = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(3_000, 20, generator=generator), dim=1)
    y = (x[:, 0] > 0).long().tolist()
    model = DPFTRL(classes=[0, 1], epsilon=1.0, delta=1e-5, steps=100, epoch=50, records=2_000).fit(
        x[:2_000], y[:2_000]
    )
    print(f"accuracy {model.score(x[2_000:], y[2_000:]):.3f}, {model.certificate_.guarantee}")


if __name__ == "__main__":
    main()
