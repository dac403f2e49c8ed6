"""The picture of README.md: ``python docs/images/make.py`` draws it again (needs the extra ``pictures``)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import privcalc as pc
from privcalc import attacks, pictures

RATE, NOISE, STEPS, WORLDS = 0.01, 1.0, 1_000, 20_000


def log_ratios(rng: np.random.Generator, *, there: bool) -> NDArray[np.float64]:
    """The best attack's score in many simulated runs: likelihood ratio of all noisy sums, with to without a record."""
    scores = np.zeros(WORLDS)
    for _ in range(STEPS):
        seen = NOISE * rng.standard_normal(WORLDS)
        if there:
            seen += rng.random(WORLDS) < RATE
        scores += np.log1p(RATE * np.expm1((2 * seen - 1) / (2 * NOISE**2)))
    return scores


def main() -> None:
    """Draw the certified trade-off curve of a run, and what the attack shows with confidence 0.95."""
    rng = np.random.default_rng(0)
    found = attacks.from_scores(log_ratios(rng, there=True), log_ratios(rng, there=False), delta=1e-3)
    run = pc.PoissonSampled(pc.Gaussian(noise_multiplier=NOISE), rate=RATE) * STEPS
    figure = pictures.tradeoff(run, attack=found)
    figure.set_size_inches(9, 3.6)
    figure.savefig(Path(__file__).with_name("tradeoff.png"), dpi=110)


if __name__ == "__main__":
    main()
