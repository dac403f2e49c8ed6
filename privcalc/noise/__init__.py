"""Noise, coins and choices, drawn exactly: the guarantee holds for the bits that leave.

See ``proofs/executed_noise.md``.
"""

from privcalc.noise.bits import Bits, SecureBits, SeededBits
from privcalc.noise.grid import Grid
from privcalc.noise.release import gaussian, laplace
from privcalc.noise.source import Noise

__all__ = ["Bits", "Grid", "Noise", "SecureBits", "SeededBits", "gaussian", "laplace"]
