"""Planted bugs of arithmetic: noise and sums in floating point, grids, ranges and refusals that depend on data."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from planted.bug import Bug, Rng, normal
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.noise import Bits, Grid, Noise
from privcalc.numerics.floats import Floats


def _small_float32(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """Noise in a thousand shares, added one by one to a sum of about 2^24 in single precision: each is rounded away."""
    kind = np.float32 if bug else np.float64
    total = np.full(size, 2.0**24 + 8 * there)
    for _ in range(1000):
        total = (
            (total + (8 / math.sqrt(1000)) * rng.standard_normal(size, dtype=np.float32))
            .astype(kind)
            .astype(np.float64)
        )
    return total


def _float32_bits(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """Noise in single precision on a sum in double: without the record, the output is a single-precision number."""
    output = 0.1 * there + 2 * rng.standard_normal(size, dtype=np.float32).astype(np.float64)
    seen = output if bug else output.astype(np.float32)
    return np.asarray(seen != seen.astype(np.float32), dtype=np.float64)


class _Words(Bits):
    """From the generator of a simulation."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng

    def words(self, size: int) -> NDArray[np.uint64]:
        return self._rng.integers(0, 2**64, size, dtype=np.uint64)


def _on_grid(rng: Rng, size: int, total: float, scale: float, exponent: int) -> Floats:
    """Sum and noise on multiples of 2^exponent, as a ledger draws them."""
    grid = Grid(exponent, scale)
    return grid.add(np.full(size, total), Noise(_Words(rng)).normal(size, grid.steps))


def _noise_in_doubles(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """A sum in doubles and noise in doubles: near 0 only the sum 0 leaves low bits (Mironov 2012)."""
    output = there + normal(rng, size) if bug else _on_grid(rng, size, float(there), 1.0 + 2.0**-35, -36)
    return -np.asarray((np.abs(output) < 0.25) & (output % 2.0**-54 != 0), dtype=np.float64)


def _sum_off_the_grid(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """Noise on a grid, but a sum that was not snapped to it."""
    total = 0.1 * there
    output = _on_grid(rng, size, 0.0, 1.0, -36) + total if bug else _on_grid(rng, size, total, 1.0, -36)
    return np.asarray(output % 2.0**-36 != 0, dtype=np.float64)


def _snapped_afterwards(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """Sum and noise in doubles, snapped to 2^-54 after the noise: from sum 1 only every other multiple is reached."""
    if not bug:
        output = _on_grid(rng, size, float(there), 1.0 + 2.0**-35, -54 + 18)
    else:
        output = np.rint((there + normal(rng, size)) * 2.0**54) * 2.0**-54
    return -np.asarray((np.abs(output) < 0.25) & (output % 2.0**-53 != 0), dtype=np.float64)


def _private_range(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """Sum and noise, of 50 records or 51, cut off at the number of records plus half of the noise's σ."""
    output = _on_grid(rng, size, float(50 + there), 4.0 + 2.0**-33, -34)
    return np.minimum(output, 50 + there + 2.0) if bug else np.minimum(output, 52.0)


def _snapping_unpaid(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """0.49 and 0.51, a record of norm 0.02, rounded to 0 and 1: noise for 0.02, or for 0.02 + 1."""
    return _on_grid(rng, size, 0.51 if there else 0.49, 4 * 0.02 if bug else 4 * 1.02, 0)


def _private_grid(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """The grid is as fine as doubles are at the sum: on either side of a power of two."""
    total = 1024.5 if there else 1023.5
    exponent = math.frexp(total)[1] - 40 if bug else -36
    return np.asarray(_on_grid(rng, size, total, 4.0 + 2.0**-30, exponent) % 2.0**-29 == 0, dtype=np.float64)


def _refused(rng: Rng, size: int, there: bool, bug: bool) -> Floats:
    """Sums beyond 2^40 are refused, before any noise; the record is the last straw."""
    total = 2.0**40 + there
    return np.full(size, float(total > 2.0**40)) if bug else _on_grid(rng, size, total, 1.0 + 2.0**-35, -36) - 2.0**40


FLOATS = (
    Bug("float32 noise too small", Gaussian(1.0), _small_float32, "the sum"),
    Bug("float32 noise on a float64 sum", Gaussian(2.0), _float32_bits, "whether the output is a float32"),
    Bug("noise in doubles", Gaussian(1.0), _noise_in_doubles, "low bits near 0",
        "noise/test_grid.py::test_the_event_that_told_sums_apart_never_occurs"),
    Bug("a sum that is not snapped", Gaussian(1.0), _sum_off_the_grid, "whether the output is on the grid",
        "noise/test_grid.py::test_everything_released_is_on_the_grid_and_its_low_bits_tell_nothing"),
    Bug("snapping after the noise", Gaussian(1.0), _snapped_afterwards, "low bits near 0"),
    Bug("a range from the private count", Gaussian(4.0), _private_range,
        "whether the output is beyond the other range"),
    Bug("snapping that is not paid for", Gaussian(4.0), _snapping_unpaid, "the sum",
        "noise/test_grid.py::test_snapped_neighbours_differ_by_what_is_charged"),
    Bug("a grid from the private sum", Gaussian(4.0), _private_grid, "whether the output is on the coarser grid"),
    Bug("a refusal that depends on data", Gaussian(1.0), _refused, "whether there is an answer",
        "ledger/test_ledger.py::test_no_finite_value_is_refused"),
)  # fmt: skip
