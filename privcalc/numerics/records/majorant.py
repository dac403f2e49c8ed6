"""The trigonometric polynomial just above a hockey stick, whose quadrature weights are safe.

They lie on the safe side for every distribution.

A sum over finitely many nodes of a transform is E[τ(L)] for a trigonometric polynomial τ. The weights here make τ a
majorant of the hockey stick, which it touches half-way between multiples of its resolution: nothing need be known of
the transform between or beyond the nodes. The price is the density of L at ε times resolution²/24. Proof:
``proofs/audit_majorant.md``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from privcalc.numerics.floats import UNIT, Floats
from privcalc.numerics.interfaces import Complexes


class Majorant(NamedTuple):
    """A trigonometric polynomial that, with its deficit, is nowhere below the payoff.

    Attributes:
        weights: ω_k.
        rounding: bounds of their errors.
        deficit: D; ∞ where there is none.
    """

    weights: Complexes
    rounding: Floats
    deficit: float


def weights(c: float, step: float, size: int) -> Majorant:
    """ω_k, bounds of their roundings, and D such that, with P = 2π/step, for every real ε and every distribution of L,

        e^{−cε}·(Re Σ_k ω_k E[e^{(c + ik·step)L}]e^{−ik·step·ε} + D·E[e^{cL}]) ≥ Σ_m e^{cmP} E[(1 − e^{ε + mP − L})₊].

    Args:
        c: real part of the line, > 0.
        step: distance of the nodes.
        size: their number.
    """
    k = np.arange(size, dtype=np.float64)
    resolution = 2 * math.pi / (step * size)
    turn = -0.5j * resolution / math.pi
    # W(s) = (1 − ν)/(2i sin πν), ν = resolution·s/2πi; from 1/2 on by sin πν = sin π(1 − ν).
    first, second = (_half(k, size, turn * real) for real in (c, c + 1))
    share = np.where(k > 0, 2 / size, 1 / size)
    found = (first - second) * share
    # The sine of x inherits its argument's rounding x/tan x times, which is at most 1 + |Im x|.
    rounding = 16 * UNIT * (np.abs(first) + np.abs(second)) * share * (1 + abs(turn) * (c + 1))
    if not resolution * (2 * c + 1.5) <= 3:
        return Majorant(np.asarray(found, dtype=np.complex128), np.asarray(rounding, dtype=np.float64), math.inf)
    deficit = resolution**3 * (2 * c + 1) * ((2 * c + 1) / (48 * math.pi**2) + step / (96 * math.pi**2))
    return Majorant(np.asarray(found, dtype=np.complex128), rounding, deficit * (1 + 1e-9))


def _half(k: Floats, size: int, shift: complex) -> Complexes:
    rest = (size - k) / size - shift
    near = np.where(2 * k < size, k / size + shift, rest)
    return np.asarray(rest / (2j * np.sin(math.pi * near)), dtype=np.complex128)
