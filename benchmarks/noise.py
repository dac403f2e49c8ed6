"""``python -m benchmarks.noise``: nanoseconds per number of exact noise on a grid, beside noise in doubles.

Noise in doubles is what ledgers drew before: −Φ⁻¹ of 63 random bits by SciPy, and log for Laplace and Gumbel numbers.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.special import ndtri

from privcalc.noise import Grid, Noise
from privcalc.terminal import command

SIZE, PASSES = 10**6, 15


def in_doubles(noise: Noise, law: Callable[[Any], Any]) -> Any:
    """A size from 63 bits, and a sign."""
    bits = noise.bits.words(SIZE)
    found = law(((bits >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-64)
    return np.copysign(found, (bits & np.uint64(1)).astype(np.float64) - 0.5, out=found)


def gumbel(noise: Noise, scores: Any) -> int:
    """A choice by Gumbel noise in doubles."""
    u = np.minimum((noise.bits.words(scores.size).astype(np.float64) + 0.5) * 2.0**-64, 1 - 2.0**-53)
    return int(np.argmax(scores - np.log(-np.log1p(-u))))


def nanoseconds(call: Callable[[], object], numbers: int) -> float:
    """Per number, the least of all passes: what other processes disturb the least."""
    found = []
    for _ in range(PASSES):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return min(found) / numbers * 1e9


@command("python -m benchmarks.noise")
def main() -> int:
    """Print a table."""
    noise, values = Noise(), np.random.default_rng(0).normal(size=SIZE)
    grid = Grid.of(1.0, clip_norm=1.0, coordinates=SIZE)
    rows: list[tuple[str, Callable[[], object], int]] = [
        ("random bits", lambda: noise.bits.words(SIZE), SIZE),
        ("normal, doubles", lambda: in_doubles(noise, ndtri), SIZE),
        ("normal, exact", lambda: noise.normal(SIZE, grid.steps), SIZE),
        ("Laplace, doubles", lambda: in_doubles(noise, lambda x: -np.log(2 * x)), SIZE),
        ("Laplace, exact", lambda: noise.laplace(SIZE, grid.steps), SIZE),
        ("a sum snapped and added", lambda: grid.add(values, np.zeros(SIZE, dtype=np.int64)), SIZE),
        ("coins", lambda: noise.coins(SIZE, 0.01), SIZE),
    ]
    for n in (10, 1000, 100_000):
        scores = values[:n] * 10
        rows += [
            (f"one of {n}, doubles", functools.partial(gumbel, noise, scores), n),
            (f"one of {n}, exact", functools.partial(noise.choose, scores, Fraction(1)), n),
        ]
    for name, call, numbers in rows:
        call()
        print(f"{name:26}{nanoseconds(call, numbers):10.1f} ns")
    return 0


if __name__ == "__main__":
    sys.exit(main())
