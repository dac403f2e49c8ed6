"""Sums of clipped contributions that are exact, and so the same in any order.

They are so on any device, with any number of threads and parts.

Each record's contribution is a vector of whole numbers of a public unit, computed from the record alone in operations
that do not depend on where it stands: products of matrices of integers below 2⁵³, which are exact in any order, and
single elementwise operations of IEEE doubles. Its norm is at most C, in rational arithmetic. Proof: ``proofs/sums.md``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

import privcalc as pc

__all__ = [
    "Exact",
    "Matrix",
    "OuterProducts",
    "Rows",
    "clipped",
    "cut_off",
    "groups",
    "integers",
    "linear",
    "projected",
    "summed",
    "unit",
]

BITS = 19
"""Of a record's features: the norm of its integers is at most 2^BITS, and half of √d."""

GRID = 35
"""Of a contribution: C is more than 2^(GRID − 1) units, and at most 2^GRID."""

LARGEST = 2.0**53
"""In units, sums are cut off here: below, a double holds all of them."""

GROUP = 2**17
"""Contributions that doubles add up exactly: each coordinate is at most 2^GRID units."""

BLOCK, ELSEWHERE = 2**19, 2**25
"""Numbers that are turned into doubles at a time, so that they stay in the cache; and on other devices than the CPU."""

ROUNDING = 2.0**-40
"""More than what a few roundings of doubles take from a bound, relatively."""

LEAST = -500
"""The least exponent of a record's largest number.

Below it a record is rounded to a multiple of a fixed power of two, at last to 0.
"""


class Exact(ABC):
    """A :class:`Contribution` with an exact sum: whole numbers of ``unit(clip_norm)``, the same in any order."""

    @abstractmethod
    def clipped_sum(self, features: Tensor | Rows, labels: Tensor, clip_norm: float) -> Tensor:
        """As in :class:`Contribution`; of features, or what became of them."""


def unit(clip_norm: float) -> float:
    """The power of two that sums are multiples of, of which C is more than 2^(GRID − 1), and at most 2^GRID.

    Example:
        >>> 0.5 / unit(0.5) == 2**35, 0.51 / unit(0.51) > 2**34
        (True, True)
    """
    mantissa, exponent = math.frexp(clip_norm)
    return math.ldexp(1.0, exponent - (mantissa == 0.5) - GRID)


def cut_off(total: Tensor, clip_norm: float, parts: int = 1) -> Tensor:
    """Cut off a sum of multiples of the unit at the largest of which doubles hold all.

    With ``parts``, one of so many parts, such that their sum is within this.
    """
    most = LARGEST / 2 ** math.ceil(math.log2(parts)) * unit(clip_norm)
    return total.clamp(-most, most)


def summed(parts: Iterable[Tensor]) -> Tensor:
    """The sum of tensors of integers below 2⁵³, rounded once if it is larger: so that it is the same in any order."""
    high = low = torch.zeros(())
    for part in parts:
        top = (part * 2.0**-26).trunc()
        high, low = high + top, low + (part - top * 2.0**26)
    return high * 2.0**26 + low


def _powers(exponents: Tensor) -> Tensor:
    """2^n, for whole numbers above −1023."""
    return ((exponents.long() + 1023) << 52).view(torch.float64)


def integers(values: Tensor, dim: int, bits: int | None = None) -> tuple[Tensor, Tensor]:
    """Integers up to 2^bits and powers of two, whose products are the values up to rounding.

    What is not finite becomes 0.

    Args:
        values: doubles, of two dimensions.
        dim: along which there is one power of two, and this dimension has size 1 in what is returned.
        bits: by default so many, at most 24, that the sum of all squares along ``dim`` is below 2⁵³.
    """
    finite = torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    bits = min(24, (52 - (values.shape[dim] - 1).bit_length()) // 2) if bits is None else bits
    exponents = torch.frexp(finite.abs().amax(dim, keepdim=True)).exponent.clamp_min(LEAST)
    return (finite * _powers(bits - exponents)).round(), _powers(exponents - bits)


@dataclass(frozen=True)
class Rows:
    """Records, or users, as ``whole`` · ``scale``: features are rounded to 19 binary digits of their norm, once.

    Attributes:
        whole: integers, shape (n, …), in single precision, or in double where they are used.
        scale: powers of two, shape (n,).
        square: at least the squared norm of ``whole``, and that exactly unless said otherwise; shape (n,).
    """

    whole: Tensor
    scale: Tensor
    square: Tensor

    @classmethod
    def of(cls, features: Tensor | Rows) -> Rows:
        """Each record's from its features alone."""
        if isinstance(features, Rows):
            return features
        parts = [cls.alone(part) for part in torch.split(features, _height(features))]
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in ("whole", "scale", "square")))

    @classmethod
    def alone(cls, features: Tensor) -> Rows:
        """The same for a few."""
        whole, scale = integers(features.flatten(1).double(), 1)
        # ‖whole‖² < 2^f
        excess = ((torch.frexp(whole.square().sum(1, keepdim=True)).exponent + 1) // 2 - BITS).clamp_min(0)
        whole = (whole * _powers(-excess)).round()
        return cls(whole.reshape(features.shape).float(), (scale * _powers(excess)).squeeze(1), whole.square().sum(1))

    def at(self, chosen: Tensor | slice) -> Rows:
        """Some of them."""
        return Rows(self.whole[chosen], self.scale[chosen], self.square[chosen])

    def values(self) -> Tensor:
        """The rounded features, as doubles."""
        return self.whole.double() * self.scale.reshape(-1, *[1] * (self.whole.ndim - 1))

    def flat(self) -> Rows:
        """The records of users, each for itself; ``square`` is the user's."""
        times = self.whole.shape[1]
        return Rows(self.whole.flatten(0, 1), self.scale.repeat_interleave(times), self.square.repeat_interleave(times))

    def blocks(self, labels: Tensor) -> Iterator[tuple[Rows, Tensor]]:
        """Iterate over a few rows at a time with their labels, in double precision; at least once.

        The memory of one block is used again for the next.
        """
        size = _height(self.whole)
        buffer = self.scale.new_empty((min(size, len(labels)), *self.whole.shape[1:]))
        for i in range(0, max(1, len(labels)), size):
            part = self.at(slice(i, i + size))
            yield Rows(buffer[: len(part.whole)].copy_(part.whole), part.scale, part.square), labels[i : i + size]


def groups(rows: Rows, labels: Tensor, size: int = GROUP) -> Iterator[tuple[Rows, Tensor]]:
    """So many at a time that their contributions can be added as doubles; once at least."""
    for i in range(0, max(1, len(labels)), size):
        yield rows.at(slice(i, i + size)), labels[i : i + size]


def _height(values: Tensor) -> int:
    """Rows of a block."""
    block = BLOCK if values.device.type == "cpu" else ELSEWHERE
    return max(1, block // max(1, math.prod(values.shape[1:])))


@dataclass(frozen=True)
class Matrix:
    """A public matrix M of shape (d, k), rounded, whose products with records are exact.

    Attributes:
        whole: integers, transposed: shape (k, d).
        scale: a power of two, or NaN if M is not finite.
    """

    whole: Tensor
    scale: float

    @classmethod
    def of(cls, values: Tensor, bits: int | None = None) -> Matrix:
        """The matrix rounded to ``bits`` binary digits of its largest number, at most 20.

        By default as many as products leave room for.
        """
        size = values.shape[0]
        bits = min(20, 46 - BITS - (math.isqrt(size) + 1).bit_length()) if bits is None else bits
        largest = float(values.abs().amax())
        if not math.isfinite(largest):
            return cls(torch.zeros_like(values.T, dtype=torch.float64), math.nan)
        exponent = max(-900, math.frexp(largest)[1])
        whole = (values.T.double() * math.ldexp(1.0, bits - exponent)).round()
        return cls(whole.contiguous(), math.ldexp(1.0, exponent - bits))

    def times(self, rows: Rows) -> Tensor:
        """xM, transposed: shape (k, n). Partial sums are below ‖whole‖·√d·2^bits < 2⁴⁸ (Cauchy, Schwarz)."""
        return (self.whole @ rows.whole.double().T) * (rows.scale * self.scale)


def clipped(values: Tensor, bound: float, step: float, *, dim: int, factor: Rows | None = None) -> Tensor:
    """Round to whole numbers of ``step``, with norms at most ``bound``, exactly.

    The norm of a vector is taken times that of its record in ``factor``.

    Args:
        values: vectors along ``dim``: each is shortened, if it must be, and rounded.
        bound: C.
        step: a power of two.
        dim: 0 or 1.
        factor: records x of which the outer products with the vectors are wanted: what is returned is in units of
            ``step``·(one unit of ``whole``), and stands for what belongs to x. None is a single 1.
    """
    whole, scale = integers(values, dim)
    room = bound / step * (1 - ROUNDING)
    square = whole.square().sum(dim, keepdim=True).clamp_min(1.0)
    # Rounding adds at most √k/2 to a norm.
    slack = 0.5 * math.sqrt(values.shape[dim])
    if factor is None:
        largest = square.sqrt().reciprocal() * max(0.0, room - slack)
    else:
        most = (factor.square.clamp_min(1.0).sqrt().reciprocal() * room - slack).clamp_min(0.0).unsqueeze(dim)
        largest = most / square.sqrt()
        scale = scale * factor.scale.unsqueeze(dim)
    return (whole * torch.minimum(scale * (1.0 / step), largest)).round()


def projected(matrix: Matrix, rows: Rows) -> Rows:
    """xM, rounded, which counts as no shorter than x."""
    found = Rows.alone(matrix.times(rows).T)
    square = torch.maximum(found.square, rows.square * (rows.scale / found.scale).square())
    return Rows(found.whole.double(), found.scale, square)


class OuterProducts(Exact):
    """Contributions x ⊗ r, r from the record alone.

    As ‖x ⊗ r‖ = ‖x‖‖r‖, clipping needs no gradient of its own per record.
    """

    @abstractmethod
    def residuals(self) -> Callable[[Rows, Tensor], Tensor]:
        """A function from records and labels to r, shape (k, n)."""

    def left(self) -> Callable[[Rows], Rows]:
        """A function from records to what stands for x in the product."""
        return lambda rows: rows

    def clipped_sum(self, features: Tensor | Rows, labels: Tensor, clip_norm: float) -> Tensor:
        """Σ_i x_i ⊗ r_i·min(1, C/(‖x_i‖‖r_i‖)), shape (d, k)."""
        totals = (self._total(*part, clip_norm) for part in groups(linear(features), labels))
        return summed(totals) * unit(clip_norm)

    def ratios(self, features: Tensor | Rows, labels: Tensor, clip_norm: float) -> Tensor:
        """‖h_i‖/C of what is really added, a little rounded up."""
        pairs = self._pairs(linear(features), labels, clip_norm)
        found = [vectors.norm(dim=0) * whole.norm(dim=1) for vectors, whole in pairs]
        return (torch.cat(found) * (unit(clip_norm) / clip_norm * (1 + 1e-9))).clamp(max=1.0)

    def _pairs(self, rows: Rows, labels: Tensor, clip_norm: float) -> Iterator[tuple[Tensor, Tensor]]:
        """Clipped residuals of shape (k, n), and records."""
        residuals, left = self.residuals(), self.left()
        for part, y in rows.blocks(labels):
            records = left(part)
            yield clipped(residuals(part, y), clip_norm, unit(clip_norm), dim=0, factor=records), records.whole

    def _total(self, rows: Rows, labels: Tensor, clip_norm: float) -> Tensor:
        """Of one group."""
        total: Tensor | None = None
        for vectors, whole in self._pairs(rows, labels, clip_norm):
            total = vectors @ whole if total is None else total.addmm_(vectors, whole)
        assert total is not None
        return total.T


def linear(features: Tensor | Rows) -> Rows:
    """Records of one row of features each."""
    rows = Rows.of(features)
    if rows.whole.ndim != 2:
        raise pc.PrivcalcError(f"X: must have shape (n, features) for a linear model, not {tuple(rows.whole.shape)}")
    return rows
