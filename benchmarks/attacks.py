"""How near attacks come to the truth, and how long they take.

    python -m benchmarks.attacks        the Gaussian mechanism from samples; one run of a linear learner with canaries

The targets: of the true ε at least 95 % through μ and 90 % from counts at δ = 1e-2, with 10⁶ samples in 10 s; an audit
of one run with 1,000 canaries, its training included, in 60 s.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np

from privcalc.attacks import from_scores, one_run
from privcalc.mechanisms.gaussian import Gaussian
from privcalc.terminal import command


def gaussian(mu: float, size: int, delta: float, seed: int = 0) -> tuple[float, float, float]:
    """Shares of the true ε shown from counts and through μ, and seconds; ``size`` samples of each world."""
    rng = np.random.default_rng(seed)
    worlds = mu + rng.standard_normal(size), rng.standard_normal(size)
    start = time.perf_counter()
    found = from_scores(*worlds, delta=delta, seed=seed)
    shown = found.epsilon(delta=delta), found.gaussian_epsilon(delta=delta)
    seconds = time.perf_counter() - start
    truth = Gaussian(1 / mu).epsilon(delta=delta).upper
    return shown[0] / truth, shown[1] / truth, seconds


def canaries(number: int, noise_multiplier: float, steps: int = 4, seed: int = 3) -> tuple[float, float, float]:
    """ε that one run shows at δ = 1e-5, certified ε, and seconds with training: orthogonal canaries, full batch."""
    from learners import NoisyGD  # needs torch

    coins = np.random.default_rng(seed).random(number) < 0.5
    start = time.perf_counter()
    model = NoisyGD(
        classes=[0, 1],
        delta=1e-5,
        noise_multiplier=noise_multiplier,
        steps=steps,
        records=number,
        clip_norm=0.1,
        learning_rate=1.0,
        seed=seed,
    ).fit(100 * np.eye(number)[coins], np.ones(int(coins.sum())))
    scores = (model.weights_[:, 1] - model.weights_[:, 0]).cpu().numpy()
    shown = one_run(scores, coins).epsilon(delta=1e-5)
    seconds, certified = time.perf_counter() - start, model.certificate_.guarantee.epsilon
    assert certified is not None
    return shown, float(certified), seconds


@command("python -m benchmarks.attacks")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attacks", description="How near attacks come.")
    parser.add_argument("--size", type=int, default=1_000_000, help="samples of each world")
    parser.add_argument("--canaries", type=int, default=1000)
    args = parser.parse_args(argv)
    print(f"Gaussian mechanism, {args.size:,} samples of each world, confidence 0.95")
    print(f"{'μ':>5} {'δ':>7} {'counts':>9} {'through μ':>10} {'seconds':>8}")
    for mu in (0.5, 1.0, 2.0):
        for delta in (1e-2, 1e-3, 1e-5):
            counts, through, seconds = gaussian(mu, args.size, delta)
            print(f"{mu:5} {delta:7.0e} {counts:9.1%} {through:10.1%} {seconds:8.2f}")
    print(f"one run of a linear learner, {args.canaries:,} canaries, 4 steps, δ = 1e-5")
    print(f"{'z':>5} {'shown ε':>9} {'certified':>10} {'seconds':>8}")
    for noise in (2.0, 1.0, 0.2):
        shown, certified, seconds = canaries(args.canaries, noise)
        print(f"{noise:5} {shown:9.3f} {certified:10.3f} {seconds:8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
