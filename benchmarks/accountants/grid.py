"""Width and time of epsilon on random runs: ``python -m benchmarks.accountants --grid N``.

Runs of Poisson-sampled Gaussians are drawn from a box, each parameter log-uniform, in two groups: one
step or at least a tenth of an expected participation, and rarer participation. Draws with epsilon
outside [1e-6, 1e4] for certain are drawn again; a wide answer never is, so that none is hidden.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import privcalc as pc

NOISE, RATE, DELTA, STEPS, EPSILON = (0.3, 1e4), (1e-7, 1.0), (1e-100, 0.5), (1.0, 1e9), (1e-6, 1e4)
WIDTHS = (1e-9, 1e-6, 1e-3)
GROUPS: dict[str, Callable[[float, int], bool]] = {
    "T = 1 or qT >= 0.1": lambda rate, steps: steps == 1 or rate * steps >= 0.1,
    "rarer": lambda rate, steps: steps > 1 and rate * steps < 0.1,
}


class Draw(NamedTuple):
    """One random run and what came out; ``width`` is relative to the upper end."""

    group: str
    noise: float
    rate: float
    steps: int
    delta: float
    lower: float
    upper: float
    width: float
    route: str
    seconds: float


def _ask(group: str, noise: float, rate: float, steps: int, delta: float) -> Draw:
    """Epsilon of one run; an exception, which no run should raise, counts as infinitely wide."""
    run = pc.PoissonSampled(pc.Gaussian(noise), rate) * steps
    start = time.perf_counter()
    try:
        found = run.epsilon(delta=delta)
        lower, upper, route = found.lower, found.upper, found.route
    except Exception as error:
        lower, upper, route = 0.0, math.inf, f"{type(error).__name__}: {error}".splitlines()[0][:70]
    seconds = time.perf_counter() - start
    width = math.inf if upper == math.inf else (upper - lower) / (upper or 1.0)
    return Draw(group, noise, rate, steps, delta, lower, upper, width, route, seconds)


def draws(group: str, count: int, seed: int) -> Iterator[Draw]:
    """``count`` runs of the group, the same ones for the same seed.

    Example:
        >>> [draw.width < 1e-3 for draw in draws("T = 1 or qT >= 0.1", count=2, seed=0)]
        [True, True]
    """
    source = random.Random(f"{group} {seed}")

    def log_uniform(low: float, high: float) -> float:
        return min(max(math.exp(source.uniform(math.log(low), math.log(high))), low), high)

    kept = 0
    while kept < count:
        noise, rate, delta, steps = (
            log_uniform(*NOISE),
            log_uniform(*RATE),
            log_uniform(*DELTA),
            round(log_uniform(*STEPS)),
        )
        if not GROUPS[group](rate, steps):
            continue
        draw = _ask(group, noise, rate, steps, delta)
        if draw.upper >= EPSILON[0] and draw.lower <= EPSILON[1]:
            kept += 1
            yield draw


def _quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


def report(found: Sequence[Draw]) -> str:
    """Shares, quantiles and the five widest of one group."""
    widths, seconds = [draw.width for draw in found], [draw.seconds for draw in found]
    shares = ", ".join(f"<= {bound:g}: {sum(w <= bound for w in widths) / len(found):.0%}" for bound in WIDTHS)
    lines = [
        f"{found[0].group}: {len(found)} runs",
        f"  relative width  {shares}; median {_quantile(widths, 0.5):.1e}, 95 % {_quantile(widths, 0.95):.1e}",
        f"  seconds         median {_quantile(seconds, 0.5):.3g}, 95 % {_quantile(seconds, 0.95):.3g}, "
        f"max {max(seconds):.3g}",
        "  widest",
    ]
    lines += [
        f"    z={d.noise:.6g} q={d.rate:.6g} T={d.steps} delta={d.delta:.6g}: [{d.lower:.9g}, {d.upper:.9g}]"
        f" width {d.width:.1e}, {d.route}, {d.seconds:.3g} s"
        for d in sorted(found, key=lambda d: d.width, reverse=True)[:5]
    ]
    return "\n".join(lines)
