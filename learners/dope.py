"""DOPE-SGD: DP-SGD that clips around an estimate of the gradient (the origin ĝ) instead of around 0.

Nasr et al. 2023, Algorithms 1 and 2.

    θ ← θ − η·(b·ĝ + Σ_{i in batch} clip_C(g_i − ĝ) + N(0, (zC)² I))/b

b is the public expected batch size, and ĝ depends on public records and earlier *noisy* sums only. The paper adds
|B_t|·ĝ, with the private size of the batch, so that a record moves the sum by up to C + ‖ĝ‖: its Proposition 2 is false
(``proofs/dope.md``).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

import privcalc as pc
from learners.dpsgd import DPSGD
from learners.frame.plan import Plan
from learners.frame.records import PrivateRecords
from learners.gradients.exact import (
    BITS,
    ROUNDING,
    Exact,
    Matrix,
    Rows,
    clipped,
    groups,
    integers,
    linear,
    summed,
    unit,
)
from learners.gradients.network import NetworkGradient
from learners.gradients.softmax import SoftmaxGradient, exact_residuals, public_gradient
from privcalc import errors

__all__ = ["DOPESGD", "Augment", "ShiftedGradient", "UserGradient", "shift_and_flip"]

ORIGIN, GROUP = 17, 2**13
"""Binary digits of ĝ, in clipped differences; and contributions that doubles then add up exactly."""

Augment = Callable[[Tensor, Tensor, torch.Generator], tuple[Tensor, Tensor]]
"""Public features and labels to others, as many as it likes; chance comes from the generator."""


@dataclass(kw_only=True, eq=False)
class DOPESGD(DPSGD):
    """DOPE-SGD on softmax regression, or on ``model``.

    What is protected is one record; or one *user*, if X has shape (users, m, …) and y (users, m): a user's records are
    clipped together, and records of zeros stand for missing ones. ``records`` is then the number of users. Public
    records are flat.

    Args:
        origin: "public": the mean gradient of public records; "history": the last noisy mean gradient; "none": DP-SGD.
        start: "warm": train on public records first; "cold": from 0, or the network's own start.
        extended: let public records take part in the sampled sums too, at the same rate; they need no noise.
        public_batch: records in the batch that the public origin is taken from; None takes all.
        augment: maps a public batch to another, before the origin is taken: ordinary transforms such as
            :func:`shift_and_flip`, or a generator that was trained on public records.
        ensemble: how many of the last iterates decide; releasing all of them is already paid for.
        combine: how they do: "vote", "logits" (mean), "weights" (mean).
        classes, epsilon, delta, sample_rate, noise_multiplier, steps, sampler, records, relation: see :class:`DPSGD`.
        clip_norm, learning_rate, momentum, weight_decay, model, public_weight_decay, public_steps: see :class:`DPSGD`.
        device, ledger, seed, progress: see :class:`DPSGD`.

    Example:
        >>> import numpy as np
        >>> X, y = np.eye(2).repeat(500, axis=0), np.repeat([0, 1], 500)
        >>> common = {"classes": [0, 1], "epsilon": 2.0, "delta": 1e-5, "records": 1000}
        >>> model = DOPESGD(**common, sample_rate=0.1, steps=30, learning_rate=4.0, clip_norm=0.1, ensemble=5)
        >>> model.fit(X, y, np.eye(2).repeat(5, axis=0), [0] * 5 + [1] * 5).score(X, y)
        1.0
    """

    page: ClassVar[str] = "dope.md"
    origin: Literal["public", "history", "none"] = "public"
    start: Literal["warm", "cold"] = "warm"
    extended: bool = False
    public_batch: int | None = None
    augment: Augment | None = None
    ensemble: int = 1
    combine: Literal["vote", "logits", "weights"] = "logits"

    def __post_init__(self) -> None:
        super().__post_init__()
        errors.one_of("origin", self.origin, "public", "history", "none")
        errors.one_of("start", self.start, "warm", "cold")
        errors.one_of("combine", self.combine, "vote", "logits", "weights")
        errors.count("ensemble", self.ensemble, least=1)
        if self.public_batch is not None:
            errors.count("public_batch", self.public_batch, least=1)
        if self.extended and self.sample_rate is None:
            raise pc.PrivcalcError(
                "sample_rate = None: must be given for extended=True: public records are drawn with it, too"
            )

    def _are_users(self, shape: tuple[int, ...], labels: tuple[int, ...]) -> bool:
        users = len(shape) > 2 and len(labels) == 2 and shape[:2] == labels
        if self.model is None and len(shape) > 2 and not users:
            raise pc.PrivcalcError(f"y: must have shape {shape[:2]} as X (users, m, features), not {labels}")
        return users

    def _train(self, private: PrivateRecords, plan: Plan, count: int, public: tuple[Tensor, Tensor] | None) -> Tensor:
        if public is None and (self.origin == "public" or self.extended):
            raise pc.PrivcalcError("X_public, y_public: must be given for origin='public' and for extended=True")
        self._chance = torch.Generator().manual_seed(0 if self.seed is None else self.seed)  # of public choices
        return torch.stack(list(deque(self._iterates(private, plan, count, public), maxlen=self.ensemble)))

    def _start(self, private: PrivateRecords, public: tuple[Tensor, Tensor] | None) -> Tensor:
        return super()._start(private, public if self.start == "warm" else None)

    def _noisy_mean(
        self,
        private: PrivateRecords,
        step: pc.Mechanism,
        batch: float,
        theta: Tensor,
        last: Tensor,
        public: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        origin = self._origin(theta, last, public)
        total = private.noisy_sum(self._shifted(theta, origin, users=private.users), step, self.clip_norm)
        if self.extended and public is not None:
            assert self.sample_rate is not None
            drawn = torch.rand(len(public[1]), generator=self._chance) < self.sample_rate
            total = total + self._shifted(theta, origin).clipped_sum(public[0][drawn], public[1][drawn], self.clip_norm)
            batch += self.sample_rate * len(public[1])
        return origin + total / batch

    def _origin(self, theta: Tensor, last: Tensor, public: tuple[Tensor, Tensor] | None) -> Tensor:
        """ĝ: from public records, or from what was released."""
        if self.origin == "history":
            return last
        if self.origin == "none" or public is None:
            return torch.zeros_like(theta)
        features, labels = public
        if self.public_batch is not None:
            chosen = torch.randperm(len(labels), generator=self._chance)[: self.public_batch]
            features, labels = features[chosen], labels[chosen]
        if self.augment is not None:
            features, labels = self.augment(features, labels, self._chance)
        if self.model is not None:
            return NetworkGradient(self._network, theta).public_mean(features, labels)
        return public_gradient(theta, features, labels) / len(labels)

    def _shifted(
        self, theta: Tensor, origin: Tensor, *, users: bool = False
    ) -> ShiftedGradient | UserGradient | NetworkGradient:
        """What a record, or a user, adds."""
        if self.model is not None:
            return NetworkGradient(self._network, theta, origin)
        return UserGradient(theta, origin) if users else ShiftedGradient(theta, origin)

    def _scores(self, features: Tensor) -> Tensor:
        """Votes, or logits, of the last iterates."""
        if self.combine == "weights":
            return self._logits(self.weights_.mean(dim=0), features)
        total: Tensor | float = 0.0
        for weights in self.weights_:
            logits = self._logits(weights, features)
            vote = torch.nn.functional.one_hot(logits.argmax(dim=1), len(self.classes)).to(logits.dtype)
            total = total + (vote if self.combine == "vote" else logits) / len(self.weights_)
        assert isinstance(total, Tensor)
        return total


def shift_and_flip(
    features: Tensor, labels: Tensor, generator: torch.Generator, *, shift: int = 2
) -> tuple[Tensor, Tensor]:
    """Every image moved by up to ``shift`` pixels either way, what is left being 0, and mirrored with probability 1/2.

    Args:
        features: shape (n, …, height, width).
        labels: stay as they are.
        generator: of the choices.
        shift: pixels, >= 0.

    Example:
        >>> images = torch.eye(3).reshape(1, 1, 3, 3)
        >>> shift_and_flip(images, torch.tensor([0]), torch.Generator().manual_seed(1), shift=1)[0].shape
        torch.Size([1, 1, 3, 3])
    """
    padded = torch.nn.functional.pad(features, (shift, shift, shift, shift))
    height, width = features.shape[-2:]
    moves = torch.randint(0, 2 * shift + 1, (len(features), 2, 1), generator=generator)
    flips = torch.rand((len(features), 1), generator=generator) < 0.5
    rows, columns = moves[:, 0] + torch.arange(height), moves[:, 1] + torch.arange(width)
    columns = torch.where(flips, columns.flip(1), columns)
    where = (rows.unsqueeze(2) * padded.shape[-1] + columns.unsqueeze(1)).flatten(1).to(features.device)
    planes = padded.reshape(len(features), -1, padded.shape[-2] * padded.shape[-1])
    found = planes.gather(2, where.unsqueeze(1).expand(-1, planes.shape[1], -1))
    return found.reshape(features.shape), labels


@dataclass(frozen=True)
class ShiftedGradient(Exact):
    """Σ clip_C(g_i − ĝ) for softmax regression.

    ‖g_i − ĝ‖² = ‖g_i‖² − 2⟨g_i, ĝ⟩ + ‖ĝ‖² needs no gradient of its own per record.

    A row of zeros is no record, and adds nothing: not −ĝ.

    What rounding may hide of the norm is added to it, so that nothing is too long. Where numbers of ĝ are larger than
    C, no record takes part with a factor of more than 8 C over the largest of them, so that sums stay exact.
    """

    weights: Tensor
    origin: Tensor

    def clipped_sum(self, features: Tensor | Rows, labels: Tensor, clip_norm: float) -> Tensor:
        """Shape (features, classes)."""
        if not bool(self.origin.any()):
            return SoftmaxGradient(self.weights).clipped_sum(features, labels, clip_norm)
        origin, weights = Matrix.of(self.origin, ORIGIN), Matrix.of(self.weights)
        totals = (self._total(*part, weights, origin, clip_norm) for part in groups(linear(features), labels, GROUP))
        return summed(totals) * unit(clip_norm)

    def _total(self, rows: Rows, labels: Tensor, weights: Matrix, origin: Matrix, clip_norm: float) -> Tensor:
        """Of one group, in units: Σ x_i ⊗ v_i − (Σ_i w_i)·ĝ, w_i whole numbers of ``step``."""
        step = unit(clip_norm) / origin.scale
        size = math.sqrt(float(origin.whole.long().square().sum())) * origin.scale
        classes, total, shares = len(origin.whole), torch.zeros(()), torch.zeros(())
        for part, y in rows.blocks(labels):
            whole, scale = integers(exact_residuals(weights.times(part), y), 0)
            residual = whole * scale
            own = (part.square.sqrt() * part.scale) * (whole.square().sum(dim=0).sqrt() * scale.squeeze(0))
            inner = _sum(origin.times(part) * residual)
            square = own.square() - 2 * inner + size * size + max(1e-11, classes**2 * 2.0**-51) * (own + size).square()
            # What rounding of r and of w may add: √k/2 and 1/2 of their units.
            slack = part.square.sqrt() * (0.5 * math.sqrt(classes) * unit(clip_norm)) + 0.5 * step * size
            most = (clip_norm * (1 - ROUNDING) - slack * (1 + ROUNDING)).clamp_min(0.0) / square.sqrt()
            share = most.clamp(max=min(1.0, step * 2.0 ** (ORIGIN + 4))) * (part.square > 0)
            vectors = (whole * (scale * (part.scale * (1 / unit(clip_norm))) * share)).round()
            total = total + vectors @ part.whole
            shares = shares + (share * (1 / step)).round().sum()
        return (total - shares * origin.whole).T


def _sum(values: Tensor) -> Tensor:
    """Along the first dimension, the same in any order; of k doubles, rounded to k·2⁻⁵¹ of the largest at most."""
    whole, scale = integers(values, 0, 52 - len(values).bit_length())
    found: Tensor = (whole.sum(dim=0, keepdim=True) * scale).squeeze(0)
    return found


@dataclass(frozen=True)
class UserGradient(Exact):
    """Σ clip_C(g_u − ĝ), g_u the mean gradient of one user's records; rows of zeros are no records.

    Args:
        weights: where the gradients are taken.
        origin: ĝ.
        memory: most numbers held in gradients of users at a time.
    """

    weights: Tensor
    origin: Tensor
    memory: int = 10_000_000

    def clipped_sum(self, features: Tensor | Rows, labels: Tensor, clip_norm: float) -> Tensor:
        """Shape (features, classes), from features of shape (users, m, features) and labels of shape (users, m)."""
        rows = Rows.of(features)
        if labels.shape != rows.whole.shape[:2]:
            raise pc.PrivcalcError(f"y: must have shape {tuple(rows.whole.shape[:2])} as X (users, m, features)")
        weights, size = Matrix.of(self.weights), max(1, self.memory // self.weights.numel())
        totals = (
            self._total(*part, weights, unit(clip_norm), clip_norm) for part in groups(rows, labels, min(GROUP, size))
        )
        return summed(totals).reshape(self.weights.shape) * unit(clip_norm)

    def _total(self, rows: Rows, labels: Tensor, weights: Matrix, step: float, clip_norm: float) -> Tensor:
        """Of a few users, in units, flat."""
        each = exact_residuals(weights.times(rows.flat()), labels.flatten())
        there, whole = rows.whole.any(dim=2), rows.whole.double()
        # A user's sum is below 2^(BITS + 1 + bits)·m < 2⁵³.
        bits = 51 - BITS - labels.shape[1].bit_length()
        residual = (each.reshape(len(each), *labels.shape) * there * 2.0**bits).round().permute(1, 2, 0)
        counts = there.sum(dim=1).clamp_min(1).double() * 2.0**bits
        means = (whole.transpose(1, 2) @ residual) * (rows.scale / counts).reshape(-1, 1, 1)
        vectors = (means - self.origin.double()) * there.any(dim=1).reshape(-1, 1, 1)
        return clipped(vectors.flatten(1), clip_norm, step, dim=1).sum(dim=0)
