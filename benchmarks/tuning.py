"""``python -m benchmarks.tuning``: what a private search costs, on digits, beside peers; writes ``results/tuning.md``.

On digits everything is (3, 1e-5)-differentially private: a search trains with more noise, on four fifths of the
records.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from dp_accounting.rdp import RdpAccountant
from sklearn.datasets import load_digits

import privcalc as pc
from learners import NoisyGD, PrivateSearch
from privcalc.files import write_whole
from privcalc.interop.dp_accounting import to_event
from privcalc.terminal import command

EPSILON, DELTA, STEPS, MEAN = 3.0, 1e-5, 30, 6.0
SCORE = pc.Gaussian(noise_multiplier=20.0)
RATES = (1.0, 4.0, 16.0, 64.0)
LAWS = ("logarithmic", "geometric", "poisson")
TARGET = Path(__file__).parents[1] / "results" / "tuning.md"


TRIALS = {
    "30 full-batch steps and a noisy score": pc.Gaussian(12.0) * STEPS + SCORE,
    "DP-SGD, q = .01, σ = 1, 1,000 steps": pc.PoissonSampled(pc.Gaussian(1.0), 0.01) * 1000,
    "one Laplace release of scale 2": pc.Laplace(2.0).run,
}


class Row(NamedTuple):
    """What was measured on digits."""

    released: str
    trials: str
    noise: float
    accuracy: list[float]


class Cost(NamedTuple):
    """What one search costs."""

    trial: str
    trials: str
    alone: float
    lower: float
    upper: float
    dp_accounting: float


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


def measured(runs: int, make: Callable[[], NoisyGD | PrivateSearch]) -> list[float]:
    """Accuracy on held-out records in percent, of some runs."""
    images, y = load_digits(return_X_y=True)
    images = images / np.linalg.norm(images, axis=1, keepdims=True)
    return [100 * float(make().fit(images[:1500], y[:1500]).score(images[1500:], y[1500:])) for _ in range(runs)]


def searcher(z: float, rates: list[float], distribution: str) -> PrivateSearch:
    """A search whose trials have this noise."""
    inner = learner(z, 1200, rates[0])
    return PrivateSearch(
        estimator=inner, params={"learning_rate": rates}, mean=MEAN, distribution=distribution, score_noise=SCORE
    )


def shown(accuracy: list[float]) -> str:
    """The mean and its standard error."""
    return f"{statistics.fmean(accuracy):.1f} ± {statistics.stdev(accuracy) / math.sqrt(len(accuracy)):.1f}"


def rows(runs: int) -> list[Row]:
    """What is released, how many trials there are, the noise, and the accuracy of every run."""
    alone, found = noise(None), []
    for rate in (*RATES, None):
        name = "learning rate by the rule" if rate is None else f"learning rate {rate:g}"
        found.append(Row(name, "1", alone, measured(runs, partial(learner, alone, 1500, rate))))
    for distribution in LAWS:
        z = noise(distribution)
        for rates in ([4.0, 16.0], list(RATES)):
            tried = "search among " + ", ".join(f"{rate:g}" for rate in rates)
            accuracy = measured(runs, partial(searcher, z, rates, distribution))
            found.append(Row(tried, f"{distribution}, mean {MEAN:g}", z, accuracy))
    return found


def costs() -> list[Cost]:
    """ε of one search by everyone who knows of such searches."""
    found = []
    for name, trial in TRIALS.items():
        for mean in (2.0, 6.0, 30.0):
            for distribution in LAWS:
                run = pc.RandomTrials(trial, mean=mean, distribution=distribution).run
                ours = run.epsilon(delta=DELTA)
                theirs = RdpAccountant().compose(to_event(run)).get_epsilon(DELTA)
                alone = trial.epsilon(delta=DELTA).upper
                found.append(Cost(name, f"{distribution}, mean {mean:g}", alone, ours.lower, ours.upper, float(theirs)))
    return found


@command("python -m benchmarks.tuning")
def main(argv: list[str] | None = None) -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning", description="What a private search costs.")
    parser.add_argument("--runs", type=int, default=10, help="of each row (default 10)")
    args = parser.parse_args(argv)
    table, beside = rows(args.runs), costs()
    lines = [
        "# What tuning costs",
        "",
        f"`python -m benchmarks.tuning --runs {args.runs}`. Digits of scikit-learn, 1,500 to learn from, "
        f"{STEPS} full-batch",
        f"steps of `NoisyGD`; every row is ({EPSILON:g}, {DELTA:g})-differentially private, "
        "the noisy score of a search, too.",
        "",
        "| what is released | trials | noise multiplier | accuracy, % |",
        "|---|---|---|---|",
        *(f"| {row.released} | {row.trials} | {row.noise:.2f} | {shown(row.accuracy)} |" for row in table),
        "",
        "A search pays with more noise and with the fifth of the records that its scores are on. "
        "It is worth it where a guess",
        "may be off by more than that; where a rule, public data or experience give a fair value it is not.",
        "",
        "## Beside peers",
        "",
        f"ε of one search at δ = {DELTA:g}: certified by `RandomTrials`, the lower end a test that occurs; and by",
        "dp-accounting's RDP accountant (`RepeatAndSelectDpEvent`), the one peer with such an event: Opacus, autodp,",
        "prv-accountant, opake, riskcal, gdpnum and PLD_accounting cannot say.",
        "",
        "| one trial | trials | ε of one | privcalc | dp-accounting RDP | theirs is larger by |",
        "|---|---|---|---|---|---|",
        *(
            f"| {cost.trial} | {cost.trials} | {cost.alone:.3f} | {cost.lower:.3f} to {cost.upper:.3f} "
            f"| {cost.dp_accounting:.3f} | {100 * (cost.dp_accounting / cost.upper - 1):.1f} % |"
            for cost in beside
        ),
    ]
    write_whole(TARGET, "\n".join(lines) + "\n")
    raw = {"runs": args.runs, "digits": [row._asdict() for row in table], "costs": [cost._asdict() for cost in beside]}
    write_whole(TARGET.with_suffix(".json"), json.dumps(raw, indent=1, ensure_ascii=False) + "\n")
    print(*lines, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
