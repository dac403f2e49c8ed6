"""Per-sample audits, timed and checked: ``python -m benchmarks.audits [--records N] [--checks N] [--designed|--rare]``.

Norms are log-normal with decaying scale, clipped at 1. Times are CPU seconds of one process on one thread.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

import privcalc as pc
from privcalc.numerics.floats import Floats
from privcalc.terminal import command

CASES = ((0.8, 0.001, 20_000, 1e-5), (1.0, 0.004, 5_000, 1e-6), (2.0, 0.01, 10_000, 1e-6), (5.0, 0.1, 1_000, 1e-6))
RARE = ((0.8, 0.001, 100, 1e-5), (1.0, 0.01, 100, 1e-5), (2.0, 0.05, 100, 1e-5))
"""Runs in which few rare steps carry the losses: of many records each gets what a short line gives, if not patient."""

PHASES = 20


def timed(action: Callable[[], object]) -> tuple[object, float]:
    """The result and CPU seconds."""
    start = time.process_time()
    found = action()
    return found, time.process_time() - start


def feed(losses: pc.RealisedLosses, row: Floats, times: int, indices: NDArray[np.intp] | None = None) -> None:
    """Give ``losses`` this update several times."""
    for _ in range(times):
        losses.update(row, indices=indices)


def norms(records: int, seed: int) -> Floats:
    """Ratios of each record in each of PHASES parts of the run, shape (PHASES, records)."""
    rng = np.random.default_rng(seed)
    scale = np.exp(rng.normal(-1.0, 0.8, records))
    fall = np.linspace(1.2, 0.6, PHASES)
    return np.minimum(1.0, scale * fall[:, None] * np.exp(0.3 * rng.standard_normal((PHASES, records))))


def full_batch(records: int) -> None:
    """One second for ε; nanoseconds for an update."""
    losses = pc.RealisedLosses(records, noise_multiplier=20.0)
    table = norms(records, 0)
    _, seconds = timed(lambda: feed(losses, table[0], PHASES))
    print(f"full batch     update {1e9 * seconds / table.size:7.1f} ns per record and step")
    _, seconds = timed(lambda: losses.epsilon(1e-5))
    print(f"full batch     epsilon of {records} records {seconds:.2f} s                    (target 1 s for 1,000,000)")


def sampled(cases: Iterable[tuple[float, float, int, float]], records: int, checks: int) -> None:
    """A minute for ε; updates; and against the engine, record by record."""
    for noise, rate, steps, delta in cases:
        table = norms(records, 1)
        losses = pc.RealisedLosses(records, noise, rate)
        # Each phase stands for steps/PHASES steps of equal norms; their number does not change what is timed.
        for row in table:
            losses.update(row, steps=steps // PHASES)
        values, seconds = timed(lambda x=losses, d=delta: np.asarray(x.epsilon(d)))  # type: ignore[misc]
        found = np.asarray(values)
        errors = []
        for i in np.linspace(0, records - 1, checks).astype(int):
            own = pc.Run.of(pc.PoissonSampled(pc.Gaussian(noise / r), rate) * (steps // PHASES) for r in table[:, i])
            truth = own.epsilon(delta=delta)
            errors.append((found[i] - truth.lower) / (1e-4 * truth.upper + 1e-6))
        print(
            f"z={noise:g} q={rate:g} T={steps} delta={delta:g}: {records} records {seconds:.1f} s (target 60 s for "
            f"1,000,000); error / (1e-4 eps + 1e-6) of {checks}: median {np.median(errors):.2g}, 90 % "
            f"{np.quantile(errors, 0.9):.2g}, max {max(errors):.2g}, min {min(errors):.2g}",
            flush=True,
        )


def updates(records: int) -> None:
    """Nanoseconds and bytes."""
    rng = np.random.default_rng(2)
    losses = pc.RealisedLosses(records, 1.0, 0.01)
    row = rng.random(records)
    losses.update(row)
    _, seconds = timed(lambda: feed(losses, row, 15))
    print(f"Poisson        update {1e9 * seconds / 15 / records:7.1f} ns per record and step (target 40)")
    indices = np.flatnonzero(rng.random(records) < 0.02)
    own = row[indices]
    _, seconds = timed(lambda: feed(losses, own, 16, indices))
    print(
        f"Poisson        update {1e9 * seconds / 16 / indices.size:7.1f} ns per sampled record, "
        "with indices (target 100)"
    )
    print(f"Poisson        {losses.nbytes / records:.0f} bytes per record (target 200)")


PATTERNS: dict[str, Callable[[Floats, int], Floats]] = {
    "constant": lambda t, _: 0 * t + 0.5,
    "uniform": lambda t, steps: (t + 0.5) / steps,
    "one large": lambda t, _: np.where(t < 1, 1.0, 0.05),
    "few large": lambda t, _: np.where(t < 5, 1.0, 0.1),
    "decaying": lambda t, steps: 1 / (1 + 20 * t / steps),
    "heavy tail": lambda t, steps: np.minimum(1.0, 0.05 * steps / (t + 0.5)),
    "mostly zero": lambda t, steps: np.where(t < max(1, 0.02 * steps), 0.7, 0.0),
}
"""Norm ratio of step t of a run of so many steps."""


def designed() -> list[tuple[float, float, int]]:
    """Noise multiplier, rate and steps of the runs on which accuracy is measured."""
    return list(itertools.product((0.8, 4.0), (1e-3, 0.01, 0.1, 0.5), (1, 10, 100, 1000)))


def patterns(noise: float, rate: float, steps: int, delta: float) -> dict[str, tuple[float, pc.Enclosure]]:
    """ε of a record with each of PATTERNS, and what the engine says of its run; long runs in blocks of equal norms."""
    counts = np.ones(min(steps, 48), dtype=np.int64)
    if steps > 48:
        counts[8:] = (steps - 8) // 40
        counts[8 : 8 + (steps - 8) % 40] += 1
    middle = np.cumsum(counts) - (counts + 1) / 2
    ratios = np.array([pattern(middle, steps).round(4) for pattern in PATTERNS.values()])
    losses = pc.RealisedLosses(len(PATTERNS), noise, rate)
    for row, count in zip(ratios.T, counts, strict=True):
        losses.update(row, steps=int(count))
    found = {}
    for name, own, value in zip(PATTERNS, ratios, np.asarray(losses.epsilon(delta)), strict=True):
        run = pc.Run.of(
            pc.PoissonSampled(pc.Gaussian(noise / r), rate) * int(counts[own == r].sum())
            for r in np.unique(own[own > 0]).tolist()
        )
        found[name] = float(value), run.epsilon(delta=delta)
    return found


def accuracy(delta: float) -> None:
    """The worst error over the target, and over ε, on the designed set."""
    for noise, rate, steps in designed():
        found = patterns(noise, rate, steps, delta)
        over = {name: (value - truth.lower) / (1e-4 * truth.upper + 1e-6) for name, (value, truth) in found.items()}
        worst = max(over, key=lambda name: over[name])
        value, truth = found[worst]
        print(
            f"z={noise:g} q={rate:g} T={steps} delta={delta:g}: error / (1e-4 eps + 1e-6): worst {over[worst]:.2g} "
            f"({worst}, eps {truth.upper:.3g}, found {value:.3g}), median {np.median(list(over.values())):.2g}, "
            f"met {sum(x <= 1 for x in over.values())} of {len(over)}, least {min(over.values()):.1g}",
            flush=True,
        )


@command("python -m benchmarks.audits")
def main(arguments: Sequence[str] | None = None) -> int:
    """Print all figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audits", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--checks", type=int, default=20, help="records that are compared with the engine")
    parser.add_argument("--designed", action="store_true", help="only the accuracy on the designed set (minutes)")
    parser.add_argument("--rare", action="store_true", help="only runs in which few rare steps carry the losses")
    options = parser.parse_args(arguments)
    if options.designed:
        accuracy(1e-5)
        return 0
    if options.rare:
        sampled(RARE, options.records, options.checks)
        return 0
    full_batch(options.records)
    updates(options.records)
    sampled(CASES, options.records, options.checks)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
