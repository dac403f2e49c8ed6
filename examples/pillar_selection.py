"""PILLAR with private selection: several noisy SGD runs, and a private choice among them.

Pinto et al. 2024, Algorithm 2.

Two classes, scaled hinge loss max(1 − y⟨w, z⟩/ζ, 0), ‖w‖ ≤ 1, ‖z‖ ≤ 1. Each step takes one record without replacement.
The accountant is given all of it at once: k·T single-record steps and one exponential mechanism (``proofs/pillar.md``).
``python -m examples.pillar_selection``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import privcalc as pc
from learners.frame.learner import Learner
from learners.frame.plan import Plan
from learners.frame.records import PrivateRecords, positions
from learners.gradients.exact import Matrix, OuterProducts, Rows, groups, summed, unit
from learners.pillar import project, projection
from privcalc import errors

__all__ = ["PILLARSelection"]


@dataclass(kw_only=True, eq=False)
class PILLARSelection(Learner):
    """Noisy SGD on the hinge loss of projected features, best of k by exponential mechanism.

    Args:
        classes: the public list of two classes.
        epsilon: ε.
        delta: δ.
        records: a public number of records, the smallest that the larger of two neighbouring data sets may have.
        relation: the neighbouring relation.
        k: dimensions.
        zeta: ζ of the loss, public.
        beta: failure probability; ⌈ln(4/β)⌉ runs (paper: k).
        steps: T of each run (paper: n²; the default is frozen at 2000).
        choice: share of ε that the choice gets.
        device: torch device.
        ledger: file of the ledger; None keeps it in memory.
        seed: reproducible noise, without any privacy.
        progress: not used.

    Example:
        >>> PILLARSelection(classes=[0, 1], epsilon=2.0, delta=1e-5, records=2000).runs
        4
    """

    page: ClassVar[str] = "pillar.md"
    needs_labels: ClassVar[bool] = False
    assumptions: ClassVar[pc.Assumptions] = pc.Assumptions(normaliser="public", candidates="released")
    epsilon: float
    records: int
    k: int = 40
    zeta: float = 0.5
    beta: float = 0.1
    steps: int = 2000
    choice: float = 0.1

    def __post_init__(self) -> None:
        errors.count("k", self.k, least=1)
        if len(positions(self.classes)) != 2:
            raise pc.PrivcalcError(f"classes = {list(self.classes)!r}: must be two")
        for name, value in (("zeta", self.zeta), ("beta", self.beta), ("choice", self.choice)):
            errors.real(name, value, "in (0, 1)", low=0.0, high=1.0, open_low=True, open_high=True)

    @property
    def runs(self) -> int:
        """⌈ln(4/β)⌉."""
        return math.ceil(math.log(4 / self.beta))

    @property
    def _selection(self) -> pc.ExponentialMechanism:
        """Its range is its parameter under add-or-remove-one, twice that under replace-one."""
        return pc.ExponentialMechanism(self.choice * self.epsilon / (2 if self.relation is pc.REPLACE_ONE else 1))

    def _count(self, size: int) -> int:
        return self.records

    def plan(self) -> Plan:
        """All runs, and the choice."""

        def run(noise: float) -> pc.Run:
            return self._step(noise) * (self.runs * self.steps) + self._selection

        # Under add-or-remove-one an answer takes milliseconds; under other relations seconds, and is not far above. So
        # the first guess and the slope come from there, and a few of the slow answers are asked for,
        # until ε is within 1 %.
        noise = float(pc.calibrate(run, epsilon=self.epsilon, delta=self.delta).parameter)
        if self.relation is pc.ADD_OR_REMOVE_ONE:
            return Plan.of(run(noise), noise, self.delta, self.relation)
        near, far = (float(run(x).epsilon(delta=self.delta)) for x in (noise, 1.05 * noise))
        power = math.log(near / far) / math.log(1.05)
        best: Plan | None = None
        for _ in range(50):
            plan = Plan.of(run(noise), noise, self.delta, self.relation)
            ratio = float(plan.guarantee.epsilon or 0.0) / self.epsilon
            if ratio <= 1 and (best is None or noise < best.noise_multiplier):
                best = plan
            if 0.99 < ratio <= 1:
                return plan
            noise *= 1.001 * min(ratio, 2.0) ** ((1.25 if ratio > 1 else 1.0) / power)
        if best is not None:
            return best
        raise pc.PrivcalcError(f"epsilon = {self.epsilon!r}: no noise was found for it under {self.relation}")

    def _step(self, noise: float) -> pc.Mechanism:
        return pc.FixedSizeSampled(pc.Gaussian(noise), batch_size=1, dataset_size=self.records)

    def _train(self, private: PrivateRecords, plan: Plan, count: int, public: tuple[Tensor, Tensor] | None) -> Tensor:
        if public is None:
            raise pc.PrivcalcError("X_public: must be given, to project on its principal components")
        self.directions_ = projection(public[0], self.k)
        projected = private.map(lambda x: project(x, self.directions_))
        step = self._step(plan.noise_multiplier)
        found = torch.stack([self._run(projected, step, plan.noise_multiplier) for _ in range(self.runs)])
        bound = 1 + 1 / self.zeta
        best = projected.select(ClippedLosses(found, self.zeta, bound), self._selection, bound, monotone=True)
        return found[int(np.asarray(best))]

    def _run(self, private: PrivateRecords, step: pc.Mechanism, noise: float) -> Tensor:
        """Averaged noisy SGD: η = 2R/(C√(T(1 + dz²))) for gradients with E‖·‖² ≤ C²(1 + dz²)."""
        size, clip_norm = self.directions_.shape[1], 1 / self.zeta
        weights, mean = (
            torch.zeros(size, device=self.device, dtype=torch.float64),
            torch.zeros(size, device=self.device, dtype=torch.float64),
        )
        rate = 2 / (clip_norm * math.sqrt(self.steps * (1 + size * noise**2)))
        for _ in range(self.steps):
            weights = weights - rate * private.noisy_sum(HingeGradient(weights, self.zeta), step, clip_norm)
            weights = weights / max(1.0, float(weights.norm()))
            mean += weights / self.steps
        return mean

    def _scores(self, features: Tensor) -> Tensor:
        """−⟨w, z⟩ and ⟨w, z⟩."""
        margin = project(features, self.directions_) @ self.weights_
        return torch.stack([-margin, margin], dim=1)


@dataclass(frozen=True)
class HingeGradient(OuterProducts):
    """−y·z/ζ where the loss is positive: norm ≤ 1/ζ."""

    weights: Tensor
    zeta: float

    def residuals(self) -> Callable[[Rows, Tensor], Tensor]:
        """−y/ζ where it is positive."""
        weights = Matrix.of(self.weights.unsqueeze(1))

        def found(rows: Rows, labels: Tensor) -> Tensor:
            sign = 2.0 * labels - 1.0
            return (sign * weights.times(rows) < self.zeta) * sign * (-1 / self.zeta)

        return found

    def clipped_sum(self, features: Tensor | Rows, labels: Tensor, clip_norm: float) -> Tensor:
        """Shape (features,)."""
        return super().clipped_sum(features, labels, clip_norm).squeeze(1)


@dataclass(frozen=True)
class ClippedLosses:
    """The utility −Σ min(loss, B) of each candidate, losses rounded down.

    A record lowers every one by between 0 and B, exactly.
    """

    candidates: Tensor
    zeta: float
    bound: float

    def scores(self, features: Tensor, labels: Tensor) -> NDArray[np.generic]:
        """Shape (candidates,)."""
        # Coarser than contributions, so that doubles hold the sums of 2²⁸ records.
        candidates, step = Matrix.of(self.candidates.T), unit(self.bound) * 2.0**10
        totals = []
        for group, some in groups(Rows.of(features), labels):
            total = torch.zeros(len(self.candidates), dtype=torch.float64, device=labels.device)
            for rows, y in group.blocks(some):
                losses = 1 - (2.0 * y - 1.0) * candidates.times(rows) * (1 / self.zeta)
                total += (losses.nan_to_num(nan=0.0).clamp(0.0, self.bound) * (1 / step)).floor().sum(dim=1)
            totals.append(total)
        return np.asarray(-(summed(totals) * step).cpu().numpy())


def main() -> None:
    """On made-up records."""
    generator = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(3_000, 20, generator=generator), dim=1)
    y = (x[:, 0] > 0).long().tolist()
    model = PILLARSelection(classes=[0, 1], epsilon=3.0, delta=1e-5, records=2_000, k=20, steps=500)
    model.fit(x[:2_000], y[:2_000], x[2_000:])
    print(f"accuracy {model.score(x[2_000:], y[2_000:]):.3f}, {model.certificate_.guarantee}")


if __name__ == "__main__":
    main()
