"""``python -m benchmarks.noise``: ns per number of exact noise on a grid, beside noise in doubles; what time tells.

Noise in doubles is what ledgers drew before: −Φ⁻¹ of 63 random bits by SciPy, and log for Laplace and Gumbel numbers.

What time tells is the probability that of two draws the longer one is that of the small class: a number that took more
than one word, or a discrete one beyond 2 σ. 0.5 is nothing, 1 is all. Ledgers draw no number alone.
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
from scipy.stats import mannwhitneyu

from privcalc.noise import Grid, Noise, SecureBits
from privcalc.noise.continuous import INDEX, normal
from privcalc.noise.continuous import steps as boxes_steps
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


class Watched(SecureBits):
    """Keeps the first word since it was last asked."""

    first: int | None = None

    def words(self, size: int) -> Any:
        """From the kernel."""
        found = super().words(size)
        self.first = int(found[0]) if self.first is None else self.first
        return found


def told(draw: Callable[[], Any], small: Callable[[Any], bool], draws: int) -> float:
    """The probability that a draw of the small class takes longer than one of the other, by so many draws."""
    times, classes = np.empty(draws), np.empty(draws, dtype=bool)
    for i in range(draws):
        start = time.perf_counter_ns()
        found = draw()
        times[i] = time.perf_counter_ns() - start
        classes[i] = small(found)
    one, other = times[classes], times[~classes]
    return float(mannwhitneyu(one, other).statistic / (one.size * other.size))


def leaks(draws: int) -> list[tuple[str, float]]:
    """What time tells of one number."""
    bits = Watched()
    noise, steps = Noise(bits), Grid.of(1.0, clip_norm=1.0, coordinates=1).steps

    def slow(_: Any) -> bool:
        word, bits.first = bits.first, None
        return word is not None and word >> (64 - INDEX) >= normal().body

    return [
        ("a normal number alone", told(lambda: boxes_steps(bits, normal(), 1, steps), slow, draws)),
        ("a normal number", told(lambda: noise.normal(1, steps), slow, draws)),
        (
            "coins, σ = 1001",
            told(lambda: noise.discrete_gaussian(1, Fraction(1001)), lambda x: abs(x[0]) > 2002, draws // 4),
        ),
        ("a table, σ = 3", told(lambda: noise.discrete_gaussian(1, Fraction(3)), lambda x: abs(x[0]) > 6, draws)),
    ]


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
        ("discrete normal, σ = 30", lambda: noise.discrete_gaussian(SIZE, Fraction(30)), SIZE),
        ("discrete normal, coins", lambda: noise.discrete_gaussian(1000, Fraction(1001)), 1000),
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
    print("what time tells (0.5: nothing)")
    for name, share in leaks(40_000):
        print(f"{name:26}{share:10.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
