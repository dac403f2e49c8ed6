"""Attacks on the bits that leave, in many releases: ``python -m benchmarks.bits``.

Two sums of which a record makes the difference, v, are released alike. Of noise in doubles, added in doubles, the event
|y| < v/4 and no multiple of a quarter of v's last bit shows which one it was: it never occurs where v was added. The
same is asked of a ledger's releases, and of the weights that a learner of one step publishes; and of every class of
their last twelve bits how much more often it occurs in one world, in standard errors: the largest of all, and what
chance alone exceeds once in 1,000 times.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

import privcalc as pc
from privcalc.files import write_whole
from privcalc.noise import Grid
from privcalc.terminal import command

__all__ = ["Worlds", "attacked", "main"]

SIZE = 10**6
"""Numbers in a release."""

BITS = 12
CLASSES = 2**BITS
ALARM = 1e-3
"""Of either number by chance, in each row."""

Floats = NDArray[np.float64]
Worlds = Callable[[float, int], Floats]
"""Releases of a sum, by a number of the release."""


def in_doubles(sigma: float) -> Worlds:
    """What libraries do."""

    def release(total: float, number: int) -> Floats:
        return total + sigma * np.random.default_rng([number, int(total != 0)]).standard_normal(SIZE)

    return release


def of_a_ledger(sigma: float, kind: str) -> Worlds:
    """Clip norm 1."""
    step: Any = pc.Laplace(sigma) if kind == "laplace" else pc.Gaussian(sigma)

    def release(total: float, _: int) -> Floats:
        found: Floats = getattr(pc.Ledger(None, plan=step), kind)(np.full(SIZE, total), step, clip_norm=1.0)
        return found

    return release


def of_a_learner(sigma: float) -> Worlds:
    """One step from weights 0 at learning rate 1, with a record of ones, or of zeros, labelled as the second class."""
    from learners import NoisyGD  # needs torch

    def release(total: float, _: int) -> Floats:
        model = NoisyGD(
            classes=[0, 1],
            delta=1e-5,
            noise_multiplier=sigma,
            steps=1,
            records=1,
            clip_norm=1.0,
            learning_rate=1.0,
            weight_decay=0.0,
        )
        weights = model.fit(np.full((1, SIZE // 2), float(total != 0)), [1]).weights_
        found: Floats = weights.double().cpu().numpy().ravel()
        return found

    return release


def attacked(worlds: Worlds, value: float, exponent: int, releases: int) -> tuple[list[int], list[int], float]:
    """How often the event, and the window alone, occur in both worlds; a class's largest difference in standard errors.

    Args:
        worlds: releases of a sum.
        value: the sum with the record; without it is 0.
        exponent: of the distance of the grid, or of what takes its place.
        releases: numbers in each world.

    Example:
        >>> event, window, _ = attacked(in_doubles(1.0), 1.0, -36, 10**6)
        >>> event[0] > 100_000 and event[1] == 0 and window[1] > 100_000
        True
    """
    window, event, counts = [0, 0], [0, 0], np.zeros((2, CLASSES), dtype=np.int64)
    last = math.ulp(value) / 4
    for world, total in enumerate((0.0, value)):
        for number in range(max(1, releases // SIZE)):
            y = worlds(total, number)
            near = y[np.abs(y) < abs(value) / 4]
            window[world] += near.size
            event[world] += int(np.count_nonzero(near / last != np.rint(near / last)))
            whole = np.rint(np.ldexp(y, -exponent)).astype(np.int64)
            counts[world] += np.bincount(whole & (CLASSES - 1), minlength=CLASSES)
    apart = np.abs(counts[0] - counts[1]) / np.sqrt(np.maximum(1, counts.sum(axis=0)))
    return event, window, float(apart.max())


def rows(releases: int) -> Iterator[str]:
    """Of the table."""
    chance = float(norm.isf(ALARM / CLASSES / 2))
    for sigma in (1.0, 20.0):
        share = 1 / math.sqrt(SIZE)
        grid = {"gaussian": Grid.of(sigma, clip_norm=1.0, coordinates=SIZE).exponent}
        grid["laplace"] = Grid.of(sigma, clip_norm=1.0, coordinates=SIZE, norm=1).exponent
        cases = [
            ("noise in doubles", in_doubles(sigma), 1.0, grid["gaussian"]),
            ("Ledger.gaussian", of_a_ledger(sigma, "gaussian"), 1.0, grid["gaussian"]),
            ("Ledger.laplace", of_a_ledger(sigma, "laplace"), 1.0, grid["laplace"]),
            ("weights of NoisyGD", of_a_learner(sigma), share, grid["gaussian"]),
        ]
        for name, worlds, value, exponent in cases:
            event, window, apart = attacked(worlds, value, exponent, releases)
            shares = " | ".join(f"{e:,} of {w:,}" for e, w in zip(event, window, strict=True))
            yield f"| {name} | {sigma:g} | {value:g} | {shares} | {apart:.2f} ({chance:.2f}) |"


@command("python -m benchmarks.bits")
def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bits", description="Attacks on the bits that leave.")
    parser.add_argument("--releases", type=int, default=10**7, help="numbers in each world (default %(default)s)")
    parser.add_argument("--out", help="file to write the table to, too")
    args = parser.parse_args(argv)
    page = [
        f"{args.releases:,} numbers in each world, without and with a record of value v, for each row. "
        "The event is |y| < v/4",
        "and no multiple of a quarter of v's last bit; beside it, how many numbers are in this window at all. "
        "The largest",
        "difference of a class of last bits is in standard errors; "
        "chance alone exceeds the one in brackets once in 1,000 times.",
        "",
        "| releases | σ | v | event without | event with | last bits |",
        "|---|---|---|---|---|---|",
        *rows(args.releases),
    ]
    print("\n".join(page))
    if args.out is not None:
        head = ["# Attacks on the bits of releases", "", "Written by `python -m benchmarks.bits --out FILE`.", ""]
        write_whole(args.out, "\n".join([*head, *page]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
