"""DPPL-Public: public images as the prototypes of a class, chosen by the exponential mechanism.

Wahdany et al. 2024, Algorithm 1.

    u_c(ê) = Σ_{i of class c} (1 + cos(e_i, ê)),    P(ê) ∝ exp(ε·u_c(ê)/2)

which is the paper's with its clip from 0 to 2, where it cuts nothing.

Every class of the public list gets a prototype, a uniform one if it is empty. Add-or-remove-one: ε-DP over all classes
together, because a record belongs to one; replace-one: 2ε. Proof, and what the paper printed wrongly:
``proofs/dppl.md``.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

import privcalc as pc
from learners.frame.learner import Learner
from learners.frame.plan import Plan
from learners.frame.records import PrivateRecords, as_features
from learners.gradients.exact import clipped, integers

__all__ = ["CosineUtility", "DPPLPublic"]

BITS = 26
"""Binary digits of a vector of norm 1; fewer where it is multiplied with sums, of up to 2²⁷ of such."""


@dataclass(kw_only=True, eq=False)
class DPPLPublic(Learner):
    """Classification by the mean cosine distance to ``k`` prototypes per class, chosen from ``X_public``.

    The labels of public records do not matter.

    Args:
        classes: the public list of classes.
        epsilon: ε of the guarantee under ``relation``; pure, so that δ is 0.
        relation: the neighbouring relation.
        k: prototypes per class, drawn as one set (paper, Appendix C.3, with the right multiplicities).
        self_training: see :class:`WhitenedGD`; whatever the strength, which is not known.
        device: torch device.
        ledger: file of the ledger; None keeps it in memory.
        seed: reproducible choices, without any privacy.
        progress: not used: there is one step.

    Example:
        >>> import numpy as np
        >>> X, y = np.eye(2).repeat(500, axis=0), np.repeat([0, 1], 500)
        >>> candidates = np.array([[1.0, 0.1], [0.5, 0.5], [0.1, 1.0]])
        >>> model = DPPLPublic(classes=[0, 1], epsilon=1.0).fit(X, y, candidates)
        >>> model.score(X, y), str(model.certificate_.guarantee)
        (1.0, '(1, 0)-DP under add-or-remove-one')
    """

    page: ClassVar[str] = "dppl.md"
    needs_labels: ClassVar[bool] = False
    gives_logits: ClassVar[bool] = False
    assumptions: ClassVar[pc.Assumptions] = pc.Assumptions(candidates="public", parts="disjoint")
    delta: float = field(default=0.0, init=False)
    epsilon: float
    k: int = 1
    self_training: bool = False

    def plan(self) -> Plan:
        """One choice per class, over disjoint records: all of them cost one (``proofs/ledger.md``, §7)."""

        def run(level: float) -> pc.Run:
            return (pc.ExponentialMechanism(level) if self.k == 1 else pc.TopK(level, self.k)).run

        found = pc.calibrate(run, epsilon=self.epsilon, delta=0.0, relation=self.relation)
        return Plan.of(run(float(found)), float(found), 0.0, self.relation)

    def _checked_public(
        self,
        X_public: ArrayLike | Tensor | None,
        y_public: ArrayLike | None,
        X: ArrayLike | Tensor,
        shape: tuple[int, ...],
    ) -> tuple[Tensor, Tensor] | None:
        """The candidates, of any labels."""
        if X_public is None:
            raise pc.PrivcalcError("X_public: DPPLPublic chooses among public records; without any, use DPPLMean")
        return super()._checked_public(X_public, None, X, shape)

    def _train(self, private: PrivateRecords, plan: Plan, count: int, public: tuple[Tensor, Tensor] | None) -> Tensor:
        assert public is not None
        if len(public[0]) < self.k:
            raise pc.PrivcalcError(f"X_public: must be at least k = {self.k} candidates, not {len(public[0])}")
        utility = CosineUtility(public[0], len(self.classes))
        mechanism = plan.step
        assert isinstance(mechanism, (pc.ExponentialMechanism, pc.TopK))
        chosen = private.select(utility, mechanism, 2.0, monotone=True)
        self.chosen_ = np.asarray(chosen).reshape(len(self.classes), self.k)
        return as_features(public[0][torch.from_numpy(self.chosen_)], self.device)

    def _public(self, values: ArrayLike | Tensor) -> Tensor:
        """Half precision stays where it is, perhaps on disk: it is read block by block."""
        if isinstance(values, np.ndarray) and values.dtype == np.float16 and values.ndim == 2:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*not writable")  # nor is it written to
                return torch.from_numpy(values)
        return super()._public(values)

    def _scores(self, features: Tensor) -> Tensor:
        """Mean cosine similarity to the class's prototypes."""
        return torch.einsum("nd,ckd->nc", _unit(features), _unit(self.weights_)) / self.k


@dataclass(frozen=True)
class CosineUtility:
    """u_c of all candidates, in blocks of candidates and records.

    Args:
        candidates: shape (m, d); a float16 memory map is read block by block.
        classes: how many.
        block: most numbers held in a block.
    """

    candidates: Tensor
    classes: int
    block: int = 16_000_000

    def scores(self, features: Tensor, labels: Tensor) -> NDArray[np.generic]:
        """The scores, of shape (classes, m): n_c + ⟨Σ_i e_i, ê⟩, all of norm 1.

        No record raises one by more than 2, or lowers it, as computed (``proofs/sums.md``).
        """
        found = np.empty((self.classes, len(self.candidates)))
        height = max(1, self.block // max(1, features.shape[1]))
        counts = torch.bincount(labels, minlength=self.classes)
        sums = torch.zeros((self.classes, features.shape[1]), device=features.device, dtype=torch.float64)
        order = torch.split(torch.argsort(labels, stable=True), counts.tolist())
        for label, own in enumerate(order):
            for part in torch.split(own, height):
                sums[label] += _integral(features[part], BITS).sum(dim=0)
        high = (sums * 2.0**-BITS).round()
        low = sums - high * 2.0**BITS
        bits = min(20, BITS - math.isqrt(features.shape[1]).bit_length())
        for i in range(0, len(self.candidates), height):
            some = _integral(as_features(self.candidates[i : i + height], str(features.device)), bits).T
            # Both products are exact, so that their sum is rounded once.
            exact = (high @ some + counts.unsqueeze(1).double() * 2.0**bits) + (low @ some) * 2.0**-BITS
            found[:, i : i + height] = (exact * 2.0**-bits).cpu().numpy()
        return found


def _integral(rows: Tensor, bits: int) -> Tensor:
    """Rows of norm 1, or 2⁻²⁰ less, however small they were, in whole numbers of 2^-bits; those of norm 0 stay 0."""
    return clipped(integers(rows.double(), 1)[0], 1 - 2.0**-20, 2.0**-bits, dim=1)


def _unit(rows: Tensor) -> Tensor:
    """Rows of norm 1, however small they were; those of norm 0 stay 0: their cosine with anything counts as 0."""
    rows = rows / rows.abs().amax(dim=-1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)  # or squares underflow
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return rows / norms.clamp_min(1e-30)
