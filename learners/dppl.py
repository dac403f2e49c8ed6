"""Private prototypes: one noisy mean per class, by CoinPress made sound; and the clipped mean.

DPPL-Mean, Wahdany et al. 2024.

In each of three steps s, with centres c and radius R known from earlier noisy outputs and public constants alone:

    S_c ← Σ_{i of class c} clip_R(x_i − c_c) + noise,    n_c ← n_c + noise (once),    c_c ← c_c + S_c/max(n_c, 1)

All classes are one Gaussian release: a record belongs to one class. What the paper prints divides by the private n_c
inside the noise scale, which then reveals it. Proof, with that witness: ``proofs/dppl.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from scipy.stats import chi2
from torch import Tensor

import privcalc as pc
from learners.frame.learner import Learner
from learners.frame.plan import Plan
from learners.frame.records import PrivateRecords
from learners.gradients.exact import ROUNDING, Exact, Rows, clipped, groups, linear, summed, unit
from privcalc import errors

__all__ = ["DPPLMean", "shrunk"]

SHARES = (5 / 64, 7 / 64, 52 / 64)
"""How the budget for the sums is shared between the steps (paper, §4.1)."""

COUNTS = 0.02
"""The part of the budget for the noisy counts; only the first step pays for them."""


@dataclass(kw_only=True, eq=False)
class DPPLMean(Learner):
    """Classification by the noisy class mean in the nearest direction.

    Features should lie in the unit ball: what is beyond ``radius`` is clipped to it. Public records are not used.

    Args:
        classes: the public list of classes; each gets a prototype, empty or not.
        epsilon: ε.
        delta: δ.
        relation: the neighbouring relation.
        radius: the first R, a public constant.
        shares: how the budget is split over the steps; ``(1.0,)`` is the naive clipped mean.
        spread: a public guess of the standard deviation of a coordinate within a class; sets the later radii. None
            keeps R.
        device: torch device.
        ledger: file of the ledger; None keeps it in memory.
        seed: reproducible noise, without any privacy.
        progress: not used: there are few steps.

    Example:
        >>> import numpy as np
        >>> X, y = np.eye(2).repeat(500, axis=0), np.repeat([0, 1], 500)
        >>> model = DPPLMean(classes=[0, 1], epsilon=1.0, delta=1e-5).fit(X, y)
        >>> model.score(X, y), bool(model.certificate_.guarantee.epsilon <= 1.0)
        (1.0, True)
    """

    page: ClassVar[str] = "dppl.md"
    assumptions: ClassVar[pc.Assumptions] = pc.Assumptions(normaliser="released", clip_norm="released", start="none")
    epsilon: float
    radius: float = 1.0
    shares: Sequence[float] = SHARES
    spread: float | None = None

    def __post_init__(self) -> None:
        self.shares = tuple(self.shares)
        if not self.shares or min(self.shares) <= 0 or not math.isclose(sum(self.shares), 1.0):
            raise pc.PrivcalcError(f"shares = {self.shares!r}: must be positive, with sum 1")
        errors.positive("radius", self.radius)

    def plan(self) -> Plan:
        """One Gaussian release per step, with noise in proportion to 1/√share; the accountant sets the scale."""

        def run(scale: float) -> pc.Run:
            return pc.Run.of(pc.Gaussian(scale / math.sqrt(share)) for share in self._budget)

        found = pc.calibrate(run, epsilon=self.epsilon, delta=self.delta, relation=self.relation)
        return Plan.of(run(float(found)), float(found), self.delta, self.relation)

    @property
    def _budget(self) -> list[float]:
        """ρ of each step, as shares of 1; the counts are part of the first."""
        return [share * (1 - COUNTS) + (COUNTS if step == 0 else 0.0) for step, share in enumerate(self.shares)]

    def _train(self, private: PrivateRecords, plan: Plan, count: int, public: tuple[Tensor, Tensor] | None) -> Tensor:
        size, features, radius = len(self.classes), private.shape[0], self.radius
        centres = torch.zeros((size, features), device=self.device, dtype=torch.float64)
        counts = torch.ones(size, device=self.device, dtype=torch.float64)
        for step, share in enumerate(self._budget):
            mechanism = pc.Gaussian(plan.noise_multiplier / math.sqrt(share))
            # The count rides along in the first step, scaled so that it takes its share of that step's ρ.
            weight = 0.0
            if step == 0:
                weight = radius * math.sqrt(COUNTS / (self.shares[0] * (1 - COUNTS)))
            contribution = ClassSums(centres, radius, weight)
            bound = contribution.sensitivity(self.relation)
            noisy = private.noisy_sum(contribution, mechanism, bound)
            if weight:
                counts = (noisy[:, -1] / weight).clamp_min(1.0)
            centres = centres + noisy[:, :features] / counts.unsqueeze(1)
            if step + 1 < len(self.shares):
                noise = mechanism.noise_multiplier * bound / counts
                centres = shrunk(centres, noise, self.radius)
                radius = self._next_radius(features, float(noise.max()))
        return centres

    def _next_radius(self, features: int, noise: float) -> float:
        """The distance of a point from its class's centre with 99 %: the class's spread, plus the centre's noise."""
        if self.spread is None:
            return self.radius
        return min(self.radius, math.sqrt(float(chi2.ppf(0.99, features))) * math.hypot(self.spread, noise))

    def _checked_public(self, *_: object) -> None:
        """None are used."""

    def _scores(self, features: Tensor) -> Tensor:
        """Cosine similarity to the prototypes: noise makes them longer, and distances would favour the shortest."""
        return torch.nn.functional.normalize(features) @ torch.nn.functional.normalize(self.weights_).T


@dataclass(frozen=True)
class ClassSums(Exact):
    """Per class, Σ clip_R(x − c), and the count times ``weight``: shape (classes, features + 1)."""

    centres: Tensor
    radius: float
    weight: float

    def sensitivity(self, relation: pc.Relation) -> float:
        """C with which the accountant's unit is right.

        A record adds (v, w), ‖v‖ ≤ R, in its class's row: norm ≤ √(R² + w²). Replaced within its class, the sum moves
        by at most 2R; across classes by √2·√(R² + w²). The accountant takes 2C for replace-one.
        """
        norm = math.hypot(self.radius, self.weight)
        return max(self.radius, norm / math.sqrt(2)) if relation is pc.REPLACE_ONE else norm

    def clipped_sum(self, features: Tensor | Rows, labels: Tensor, clip_norm: float) -> Tensor:
        """Clipped at the radius; ``clip_norm`` is this object's own ``sensitivity``."""
        totals = (self._total(*part, unit(clip_norm)) for part in groups(linear(features), labels))
        return summed(totals) * unit(clip_norm)

    def _total(self, rows: Rows, labels: Tensor, step: float) -> Tensor:
        """Of one group, in steps."""
        size, width = self.centres.shape
        total = torch.zeros((size, width + 1), device=labels.device, dtype=torch.float64)
        weight = math.floor(self.weight / step * (1 - ROUNDING))
        for part, y in rows.blocks(labels):
            points = clipped(part.values() - self.centres[y], self.radius, step, dim=1)
            total.index_add_(0, y, torch.cat([points, torch.full_like(points[:, :1], weight)], dim=1))
        return total


def shrunk(centres: Tensor, noise: Tensor, radius: float) -> Tensor:
    """Shrink centres towards 0 by as much as noise has made them longer, and into the ball of all points.

    James, Stein 1961.

    Args:
        centres: shape (classes, features).
        noise: standard deviation in each coordinate, shape (classes,).
        radius: of the ball.

    Example:
        >>> shrunk(torch.tensor([[3.0, 4.0], [0.6, 0.8]]), torch.tensor([1.0, 1.0]), 2.0)
        tensor([[1.2000, 1.6000],
                [0.0000, 0.0000]])
    """
    square = centres.square().sum(dim=1).clamp_min(1e-300)
    factor = (1 - centres.shape[1] * noise.square() / square).clamp_min(0.0)
    factor = torch.minimum(factor, radius * square.rsqrt())
    return centres * factor.unsqueeze(1)
