"""``python -m benchmarks.tuning``: what a private search costs on digits, beside fixed values; writes ``results/tuning.md``.

Everything is (3, 1e-5)-differentially private: a search trains with more noise, on four fifths of the records.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import privcalc as pc
from learners import NoisyGD, PrivateSearch
from privcalc.files import write_whole
from privcalc.terminal import command

EPSILON, DELTA, STEPS, MEAN = 3.0, 1e-5, 30, 6.0
SCORE = pc.Gaussian(noise_multiplier=20.0)
RATES = (1.0, 4.0, 16.0, 64.0)
TARGET = Path(__file__).parents[1] / "results" / "tuning.md"


def noise(distribution: str | None) -> float:
    """Of one step; for a search where there is a law of the number of trials."""
    if distribution is None:
        return pc.noise_multiplier(epsilon=EPSILON, delta=DELTA, steps=STEPS)

    def search(z: float) -> pc.RandomTrials:
        return pc.RandomTrials(pc.Gaussian(z) * STEPS + SCORE, mean=MEAN, distribution=distribution)

    return pc.calibrate(search, epsilon=EPSILON, delta=DELTA).parameter


def learner(z: float, records: int, rate: float | None) -> NoisyGD:
    """One trial."""
    return NoisyGD(classes=range(10), delta=DELTA, noise_multiplier=z, steps=STEPS, records=records, learning_rate=rate)


def measured(runs: int, make: Callable[[], NoisyGD | PrivateSearch]) -> str:
    """Accuracy on held-out records in percent: the mean of some runs, and its standard error."""
    images, y = load_digits(return_X_y=True)
    images = images / np.linalg.norm(images, axis=1, keepdims=True)
    found = [100 * float(make().fit(images[:1500], y[:1500]).score(images[1500:], y[1500:])) for _ in range(runs)]
    return f"{statistics.fmean(found):.1f} ± {statistics.stdev(found) / math.sqrt(runs):.1f}"


def searcher(z: float, rates: list[float], distribution: str) -> PrivateSearch:
    """A search whose trials have this noise."""
    inner = learner(z, 1200, rates[0])
    return PrivateSearch(
        estimator=inner, params={"learning_rate": rates}, mean=MEAN, distribution=distribution, score_noise=SCORE
    )


def rows(runs: int) -> list[str]:
    """The table."""
    alone, found = noise(None), []
    for rate in (*RATES, None):
        name = "learning rate by the rule" if rate is None else f"learning rate {rate:g}"
        found.append(f"| {name} | 1 | {alone:.2f} | {measured(runs, partial(learner, alone, 1500, rate))} |")
    for distribution in ("logarithmic", "geometric", "poisson"):
        z = noise(distribution)
        for rates in ([4.0, 16.0], list(RATES)):
            tried, accuracy = ", ".join(f"{rate:g}" for rate in rates), measured(runs, partial(searcher, z, rates, distribution))
            found.append(f"| search among {tried} | {distribution}, mean {MEAN:g} | {z:.2f} | {accuracy} |")
    return found


@command("python -m benchmarks.tuning")
def main(argv: list[str] | None = None) -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning", description="What a private search costs.")
    parser.add_argument("--runs", type=int, default=10, help="of each row (default 10)")
    args = parser.parse_args(argv)
    lines = [
        "# What tuning costs",
        "",
        f"`python -m benchmarks.tuning --runs {args.runs}`. Digits of scikit-learn, 1,500 to learn from, {STEPS} full-batch",
        f"steps of `NoisyGD`; every row is ({EPSILON:g}, {DELTA:g})-differentially private, the noisy score of a search, too.",
        "",
        "| what is released | trials | noise multiplier | accuracy, % |",
        "|---|---|---|---|",
        *rows(args.runs),
        "",
        "A search pays with more noise and with the fifth of the records that its scores are on. It is worth it where a guess",
        "may be off by more than that; where a rule, public data or experience give a fair value it is not.",
    ]
    write_whole(TARGET, "\n".join(lines) + "\n")
    print(*lines, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
